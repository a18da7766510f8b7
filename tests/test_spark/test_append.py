"""Appending to a store that is there: by jobs, by streams, and by those that were killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.errors import NotAStore, StoreInUse
from rmqctl.operations.verify import Finding, verify

pytest.importorskip("pyspark", reason="pip install '.[spark]'")
pytest.importorskip("pyarrow", reason="pip install '.[spark]'")

import pyarrow as pa
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

from rmqctl.spark.sink.append import APPEND, AppendStopped, SetAsideGone
from rmqctl.spark.sink.appender import (
    RocketMQAppender,
    RocketMQStreamAppender,
    Written,
    stream_name,
)
from rmqctl.spark.sink.appendnote import AppendNoteUnreadable, StoreReplaced
from rmqctl.spark.sink.newstore import AppendRefused, WriteRefused
from rmqctl.spark.source.datasource import RocketMQDataSource
from tests.test_spark.conftest import engine_rows, until_connected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark-writes")

CONF = (
    "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=1000\n"
    "maxHashSlotNum=100\nmaxIndexNum=1000\n"
)
CONFIG = parse_broker_conf(CONF)
TOPIC, BODY = StructField("topic", StringType()), StructField("body", BinaryType())
SCHEMA = StructType([TOPIC, BODY, StructField("properties", MapType(StringType(), StringType()))])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of three messages."""
    path = tmp_path / "store"
    with MessageStore(path, CONFIG, writable=True, create=True) as store:
        for number in range(3):
            store.put_message(MessageExtBrokerInner("t", b"old %d" % number))
    return path


def batch(*bodies: str, **properties: str) -> pa.RecordBatch:
    kinds = pa.map_(pa.string(), pa.string())
    return pa.record_batch(
        {
            "topic": ["t"] * len(bodies),
            "body": [body.encode() for body in bodies],
            "properties": pa.array([list(properties.items())] * len(bodies), kinds),
        }
    )


def bodies(root: Path) -> list[str]:
    assert [f for f in verify(root, CONFIG) if isinstance(f, Finding)] == []
    return [row["body"].decode() for row in engine_rows("commitlog", root, CONFIG)]


OLD = ["old 0", "old 1", "old 2"]


def written(writer: Any, *tasks: list[pa.RecordBatch]) -> list[Written]:
    """What the tasks of a job tell, each of which is an attempt of its own."""
    told = []
    for number, batches in enumerate(tasks):
        name = f"{writer._appender.run}-{number}-{number}"
        told.append(Written(writer._appender.appending.set_aside(iter(batches), name)))
    return told


def test_a_job_appends(spark: SparkSession, root: Path) -> None:
    frame = spark.range(0, 200, 1, 2).selectExpr(
        "'t' AS topic", "concat('new ', id) AS body", "map('DELAY', '3') AS properties"
    )
    writer = frame.write.format("rocketmq").mode("append").option("brokerConf", CONF)
    writer.save(str(root))
    writer.option("txnAppId", "nightly").option("txnVersion", 7).save(str(root))
    writer.option("txnAppId", "nightly").option("txnVersion", 7).save(str(root))
    assert bodies(root) == OLD + [f"new {n}" for n in range(200)] * 2
    topics = {row["topic"] for row in engine_rows("commitlog", root, CONFIG)[3:]}
    assert topics == {"SCHEDULE_TOPIC_XXXX"}
    assert not list((root / APPEND).glob("batch-*"))


def test_a_stream_appends_and_goes_on(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    """From the messages of one store to another, which is made."""
    new, checkpoint = tmp_path / "new", tmp_path / "checkpoint"

    def run() -> None:
        stream = spark.readStream.format("rocketmq").option("columns", "topic,queue_id,body")
        rows = stream.option("brokerConf", CONF).load(str(root))
        query = rows.writeStream.format("rocketmq").option("brokerConf", CONF)
        query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query.start(str(new)).awaitTermination()

    until_connected(run)
    with MessageStore(root, CONFIG, writable=True) as store:
        store.put_message(MessageExtBrokerInner("t", b"later"))
    until_connected(run)
    # As if Spark had not heard of it.
    for commit in sorted((checkpoint / "commits").glob("*1*")):
        commit.unlink()
    until_connected(run)
    assert bodies(new) == [*OLD, "later"]


class Killed(BaseException):
    """As by a signal: nothing that follows is run."""


def stopping(after: int) -> Callable[..., Any]:
    """A method that is called so many times, and then the process is killed."""
    calls = 0

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > after:
                raise Killed
            return method(*arguments)

        return called

    return wrap


def stop_amid_messages(patch: pytest.MonkeyPatch, after: int) -> None:
    from rmqctl.spark.sink.append import Appending

    usual = Appending._messages

    def messages(self: Appending, *arguments: Any) -> Iterator[MessageExtBrokerInner]:
        for number, message in enumerate(usual(self, *arguments)):
            if number == after:
                raise Killed
            yield message

    patch.setattr(Appending, "_messages", messages)


def stop_at_note(patch: pytest.MonkeyPatch, after: int) -> None:
    from rmqctl.spark.sink import append, appendnote

    patch.setattr(append, "write_note", stopping(after)(appendnote.write_note))


#: The put of one says something else of it than the row: its real topic, and no empty value.
DELAYED = batch("d", DELAY="2", REAL_TOPIC="another", nothing="")
BATCHES = [[batch("a", "b"), batch("c")], [DELAYED, batch("a", "b")]]
NEW = ["a", "b", "c", "d", "a", "b"]


def appender(root: Path) -> RocketMQStreamAppender:
    return RocketMQStreamAppender(root, CONFIG, SCHEMA, "stream")


@pytest.mark.parametrize("stop", [stop_at_note, stop_amid_messages])
@pytest.mark.parametrize("after", range(7))
@pytest.mark.parametrize("others", [False, True])
def test_a_batch_comes_once_over_kills(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: Callable[[pytest.MonkeyPatch, int], None],
    after: int,
    others: bool,
) -> None:
    """Killed at every step, and a second time; a broker may have stored messages meanwhile."""
    expected = [*OLD, *NEW]
    for times in range(2):
        writer = appender(root)
        told = written(writer, *BATCHES)
        with monkeypatch.context() as patch:
            stop(patch, after + times)
            try:
                writer.commit(list(told), 4)
            except Killed:
                pass
        if others:
            with MessageStore(root, CONFIG, writable=True) as store:
                store.put_message(MessageExtBrokerInner("t", b"other %d" % times))
    writer = appender(root)
    writer.commit(list(written(writer, *BATCHES)), 4)
    writer = appender(root)
    writer.commit(list(written(writer, [batch("next")])), 5)
    found = bodies(root)
    assert [body for body in found if "other" not in body] == [*expected, "next"]
    assert len(found) == len(expected) + 1 + 2 * others
    assert [path.name for path in (root / APPEND).rglob("*.arrow")] == []


def test_numbers_that_are_done_are_passed_over(root: Path) -> None:
    for number in (0, 1, 1, 0, 2):
        writer = appender(root)
        writer.commit(list(written(writer, [batch(f"of {number}")])), number)
    assert bodies(root) == [*OLD, "of 0", "of 1", "of 2"]


def test_what_is_no_message_is_refused_and_nothing_is_put(root: Path) -> None:
    bad = pa.record_batch({"topic": ["../t"], "body": [b"x"]})
    writer = RocketMQAppender(root, CONFIG, StructType([TOPIC, BODY]))
    with pytest.raises(WriteRefused, match="cannot be a queue directory"):
        writer.commit(list(written(writer, [batch("good")], [bad])))
    assert bodies(root) == OLD and not (root / APPEND).exists()
    with pytest.raises(WriteRefused, match="no column body"):
        RocketMQAppender(root, CONFIG, StructType([TOPIC]))


def test_a_failing_put_says_how_far_it_came(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqctl.spark.sink.append import Appending

    usual = Appending._messages

    def messages(self: Appending, *arguments: Any) -> Iterator[MessageExtBrokerInner]:
        yield from list(usual(self, *arguments))[:2]
        raise OSError(28, "No space left on device")

    writer = appender(root)
    told = written(writer, *BATCHES)
    with monkeypatch.context() as patch:
        patch.setattr(Appending, "_messages", messages)
        with pytest.raises(AppendStopped, match=r"has 2 of the 6 messages.*No space left"):
            writer.commit(list(told), 0)
    # As Spark does after each error.
    appender(root).abort(list(told), 0)
    writer = appender(root)
    writer.commit(list(written(writer, *BATCHES)), 0)
    assert bodies(root) == [*OLD, *NEW]


def test_a_store_has_one_writer(root: Path) -> None:
    lock = StoreLock(root)
    try:
        with pytest.raises(StoreInUse):
            appender(root)
    finally:
        lock.release()
    first = RocketMQAppender(root, CONFIG, SCHEMA)
    told = written(first, [batch("first")])
    second = RocketMQAppender(root, CONFIG, SCHEMA)
    with pytest.raises(SetAsideGone):
        first.commit(list(told))
    second.commit(list(written(second, [batch("second")])))
    assert bodies(root) == [*OLD, "second"]


def test_a_note_that_is_none_stops_it(root: Path) -> None:
    writer = appender(root)
    (note,) = [path / "done.json" for path in (root / APPEND).iterdir()]
    outside = {"version": 1, "begin": 0, "timestamp": 0, "as_stored": False,
               "files": [["../../../lock", 1]]}  # fmt: skip
    for text in ("", "{}", json.dumps({"done": 0, "pending": outside}), "[" * 100_000):
        note.write_text(text)
        with pytest.raises(AppendNoteUnreadable):
            writer.commit(list(written(writer, [batch("x")])), 0)
        with pytest.raises(AppendNoteUnreadable):
            appender(root)
    assert bodies(root) == OLD


def test_a_log_that_a_power_loss_has_cut_gets_each_message_once(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the place where the job began, and the next run is killed as well."""

    def run(stop: Callable[[pytest.MonkeyPatch, int], None], after: int) -> None:
        writer = appender(root)
        told = written(writer, *BATCHES)
        with monkeypatch.context() as patch:
            stop(patch, after)
            with suppress(Killed):
                writer.commit(list(told), 0)

    run(stop_amid_messages, 0)
    (root / APPEND).rename(tmp_path / APPEND)
    shutil.rmtree(root)
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        store.put_message(MessageExtBrokerInner("t", b"older"))
    (tmp_path / APPEND).rename(root / APPEND)
    run(stop_amid_messages, 3)
    run(stop_at_note, 9)
    assert bodies(root) == ["older", *NEW]


def test_what_is_gone_since_a_kill_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = appender(root)
    told = written(writer, *BATCHES)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        stop_amid_messages(patch, 1)
        writer.commit(list(told), 0)
    before = (root / "commitlog" / f"{0:020d}").read_bytes()
    with monkeypatch.context() as patch, pytest.raises(AppendNoteUnreadable, match="begins later"):
        patch.setattr(MessageStore, "min_offset", 4096)
        appender(root).commit(list(told), 0)
    aside = root / APPEND / writer._appender.appending.name / told[0].told.name
    aside.write_bytes(b"none")
    with pytest.raises(AppendNoteUnreadable):
        appender(root).commit(list(told), 0)
    aside.unlink()
    with pytest.raises(AppendNoteUnreadable, match=r"\.arrow, which it names, is gone"):
        later = appender(root)
        later.commit(list(written(later, *BATCHES)), 0)
    assert (root / "commitlog" / f"{0:020d}").read_bytes() == before


def test_what_the_store_does_not_take_is_refused_before_any_is_put(root: Path) -> None:
    """Its files tell their size, which tasks do not know."""
    config = parse_broker_conf(CONF.partition("\n")[2])
    writer = RocketMQStreamAppender(root, config, SCHEMA, "stream")
    told = written(writer, [batch("a"), batch("b" * 5000)])
    with pytest.raises(AppendRefused, match=r"cannot append to .* a commit log file holds 4088"):
        writer.commit(list(told), 0)
    writer.abort(list(told), 0)
    assert bodies(root) == OLD and not list((root / APPEND).rglob("*.arrow"))


def test_files_are_removed_under_the_lock(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run of the name may note its own as soon as it has it."""
    from rmqctl.spark.sink.append import Appending

    usual = Appending._clear

    def clear(self: Appending) -> None:
        with pytest.raises(StoreInUse):
            StoreLock(root)
        usual(self)

    monkeypatch.setattr(Appending, "_clear", clear)
    writer = appender(root)
    writer.commit(list(written(writer, *BATCHES)), 0)
    assert bodies(root) == [*OLD, *NEW]


def test_a_store_is_known_by_what_it_has(root: Path, tmp_path: Path) -> None:
    def writer(path: Path | str, conf: str = CONF, **options: str) -> object:
        given = {"path": str(path), "brokerConf": conf, **options}
        return RocketMQDataSource(given).writer(SCHEMA, False)

    spread = f"{CONF}storePathCommitLog={tmp_path / 'a'},{tmp_path / 'b'}\n"
    other = tmp_path / "other"
    with MessageStore(other, parse_broker_conf(spread), writable=True, create=True) as store:
        store.put_message(MessageExtBrokerInner("t", b"old"))
    assert isinstance(writer(other, spread), RocketMQAppender)
    for path in (root, f"file:{root}", f"file://{root}"):
        appends = writer(path)
        assert isinstance(appends, RocketMQAppender)
        assert appends._appender.appending.root == str(root)
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "lock").write_text("lock")
    assert isinstance(writer(begun, txnAppId="a", txnVersion="0"), RocketMQAppender)
    with pytest.raises(ValueError, match="txnVersion is a number from 0 on"):
        writer(root, txnAppId="a", txnVersion="-1")
    with pytest.raises(ValueError, match="give its directory"):
        writer("s3://bucket/store")
    with pytest.raises(WriteRefused, match="give its directory"):
        writer("", txnAppId="a", txnVersion="0")


def test_a_stream_needs_a_name(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text(json.dumps({"id": "one"}))
    assert stream_name({"checkpointLocation": str(tmp_path)}) == "one"
    assert stream_name({"txnAppId": "two", "checkpointLocation": str(tmp_path)}) == "two"
    for place in ("", "s3://bucket/checkpoint", str(tmp_path / "none")):
        with pytest.raises(ValueError, match="nothing says which stream this is"):
            stream_name({"checkpointLocation": place})


def test_a_store_that_took_anothers_place_is_told(root: Path, tmp_path: Path) -> None:
    """What the note says is done was put to a log that is gone: nothing is passed over in
    silence."""
    writer = appender(root)
    writer.commit(list(written(writer, *BATCHES)), 3)
    for messages in (1, 12):
        (root / APPEND).rename(tmp_path / APPEND)
        shutil.rmtree(root)
        with MessageStore(root, CONFIG, writable=True, create=True) as store:
            for number in range(messages):
                store.put_message(MessageExtBrokerInner("t", b"other %d" % number))
        (tmp_path / APPEND).rename(root / APPEND)
        before = bodies(root)
        for number in (0, 4):
            writer = appender(root)
            with pytest.raises(StoreReplaced, match=r"remove .*rmqctl-append/job-.*begins anew"):
                writer.commit(list(written(writer, *BATCHES)), number)
        assert bodies(root) == before
    shutil.rmtree(root / APPEND)
    writer = appender(root)
    writer.commit(list(written(writer, *BATCHES)), 0)
    assert bodies(root) == [*before, *NEW]


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotAStore):
        appender(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
