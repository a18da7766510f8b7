"""Single messages that the kernel stores are what the pure engine stores: every byte and answer."""

from __future__ import annotations

import sys
import tracemalloc
from copy import copy
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl import kernel
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.queuetable import kept_queues
from rmqctl.engine.record.form import RecordForm
from rmqctl.engine.record.message import (
    LOCALHOST,
    MessageExtBrokerInner,
)
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.write import batch, onecall, single, storewriter
from rmqctl.engine.write.bulk import PlainMessage
from rmqctl.errors import TopicNotAllowed
from tests.seeds import times
from tests.test_engine.test_opencache import taken
from tests.test_kernel.alike import assert_alike, files_of

pytestmark = pytest.mark.usefixtures("compiled")

SMALL = (
    "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=100\nmaxMessageSize=1500\n"
    "maxHashSlotNum=20\nmaxIndexNum=30\n"
)
CONFIG = parse_broker_conf(SMALL)
ROOMY = parse_broker_conf(SMALL.replace("=4096", "=65536").replace("Num=30", "Num=300"))
OTHERS = [
    parse_broker_conf(SMALL + "enableMultiDispatch=true\nenableLmq=true"),
    parse_broker_conf(SMALL + "enableConsumeQueueExt=true"),
    parse_broker_conf(SMALL + "messageIndexEnable=false"),
]
NOW = 1_700_000_000_000

hosts = st.sampled_from(
    [(b"\x7f\0\0\1", 0), (b"\x0a\1\2\3", 65535), (b"\x0a\1\2\3", 65536), (bytes(16), 9)]
)
texts = st.sampled_from(["", "a", "k1 k2", " k ", "é", "\x01", "\0", "\ud800", "x" * 200])
names = st.sampled_from(
    ["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "INNER_MULTI_DISPATCH", "WAIT", "a", "Aa", "BB", "", "é"]
)
usual_names = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "a", "Aa", "BB", "é"])
usual = st.builds(
    MessageExtBrokerInner,
    st.sampled_from(["a", "b", "é"]),
    st.binary(max_size=30) | st.just(b"x" * 900),
    st.integers(0, 2),
    flag=st.integers(-5, 5),
    sys_flag=st.sampled_from([0, 0, 0, 1, 2, 3, 0x301]),
    properties=st.dictionaries(usual_names, st.sampled_from(["a", "k1 k2", " k ", "é", ""])),
    born_timestamp=st.integers(-1, 1 << 62),
    born_host=hosts.filter(lambda host: len(host[0]) == 4 and host[1] < 65536),
    reconsume_times=st.integers(0, 3),
    prepared_transaction_offset=st.integers(0, 9),
)
odd = st.builds(
    MessageExtBrokerInner,
    st.sampled_from(["a", "..", "", "t" * 128, "SCHEDULE_TOPIC_XXXX"]),
    st.binary(max_size=30) | st.just(b"x" * 1500),
    st.integers(-1, 2),
    sys_flag=st.sampled_from([0, 4, 8, 12, 1, 2, 0x301, 64]),
    properties=st.dictionaries(names, texts, max_size=4),
    properties_bytes=st.sampled_from([None, None, b"", b"TAGS\x01t", b"\x02\x01"]),
    born_host=hosts,
    store_host=hosts,
)


def answer(store: MessageStore, number: int, message: MessageExtBrokerInner) -> Any:
    try:
        if number % 11 == 10:  # Some go another way.
            (result,) = store.put_messages([message], flush=False)
        elif number % 7 == 6:
            result = store.put_batch([message] * (number % 5), flush=False)
        elif number % 13 == 12:
            ((result,),) = store.put_stream([message], flush=False)
        else:
            result = store.put_message(message, flush=False)
    except TopicNotAllowed as error:
        return str(error)
    said = asdict(result)
    if result.append is not None:
        said["append"]["page_cache_rt"] = 0
    return said


def run(choice: str, messages: list[MessageExtBrokerInner], config: MessageStoreConfig) -> Any:
    now = NOW
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernel.VARIABLE, choice)
        patch.setattr(storewriter, "_FEW_SINGLES", 1)
        root = Path(directory) / "store"
        store = MessageStore(root, config, writable=True, create=True, clock=lambda: now)
        with store:
            answers: list[Any] = []
            for number, message in enumerate(messages):
                now = NOW + 300 * number
                answers.append(answer(store, number, message))
            answers.append(store.get_message("a", 0, 0).status)
            assert store.dispatch_behind_bytes == 0
            stats = store.writer.stats
            answers.append((stats.put_message_topic_size_total, stats.put_message_failed_times))
        files = files_of(root)
    return answers, files


def assert_equal(messages: list[MessageExtBrokerInner], config: MessageStoreConfig) -> None:
    assert_alike(lambda choice: run(choice, messages, config))


@settings(max_examples=times(15), deadline=None)
@given(st.lists(usual, max_size=40))
def test_usual_messages(messages: list[MessageExtBrokerInner]) -> None:
    assert_equal(messages, CONFIG)


@settings(max_examples=times(15), deadline=None)
@given(st.lists(usual | odd, max_size=25), st.sampled_from([CONFIG, *OTHERS]))
def test_any_messages(messages: list[MessageExtBrokerInner], config: MessageStoreConfig) -> None:
    assert_equal([*messages, *messages], config)


@pytest.mark.parametrize("usual_store", [True, False])
def test_the_kernel_stores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usual_store: bool
) -> None:
    """All of plain messages, but the first ones of a store and of a queue, and of a file: in one
    call, or the append alone where the store does more."""
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    done: list[bool] = []
    one_call, quick = (onecall.OneCallPutter, "put_message"), (single.QuickPutter, "append")
    way, name = one_call if usual_store else quick
    put, otherwise = getattr(way, name), storewriter.StoreWriter.put_message
    others: list[MessageExtBrokerInner] = []

    def noted(putter: Any, *given: Any) -> Any:
        before = len(others)
        answer = put(putter, *given)
        done.append(answer is not None and len(others) == before)
        return answer

    def noted_otherwise(writer: Any, message: MessageExtBrokerInner, flush: bool) -> Any:
        others.append(message)
        return otherwise(writer, message, flush)

    monkeypatch.setattr(way, name, noted)
    monkeypatch.setattr(storewriter.StoreWriter, "put_message", noted_otherwise)
    config = parse_broker_conf("" if usual_store else "enableConsumeQueueExt=true")
    with MessageStore(tmp_path / "store", config, writable=True, create=True) as store:
        for number in range(100):
            message = MessageExtBrokerInner(
                "t", b"x", number % 4, properties={"KEYS": f"k{number}"}
            )
            assert store.put_message(message, flush=number % 50 == 0).is_ok
        assert store.writer.stats.flush_times == 2
    assert len(done) >= 100 - storewriter._FEW_SINGLES and sum(done) > len(done) - 5


def test_the_kernel_stores_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of plain messages, but the first ones of a store and of a queue, and of a file; and their
    records appear together."""
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    made: list[int] = []
    append = batch.BatchPutter.append

    def noted(putter: Any, messages: Any) -> Any:
        answer = append(putter, messages)
        made.append(answer is not None)
        return answer

    monkeypatch.setattr(batch.BatchPutter, "append", noted)
    plain = PlainMessage("t", 1, b"x", b"TAGS\x01a", 0, 0, LOCALHOST, LOCALHOST, 0, 0)
    with MessageStore(tmp_path / "store", writable=True, create=True) as store:
        for number in range(60):
            flushes = store.writer.stats.flush_times
            answer = store.put_batch([plain] * (number % 3 + 1), flush=number % 2 == 0)
            assert answer.append is not None and answer.append.msg_num == number % 3 + 1
            assert store.writer.stats.flush_times == flushes + (number % 2 == 0)
        queue = store.consume_queue("t", 1)
        assert queue is not None and queue.max_offset == 120
    assert len(made) >= 60 - storewriter._FEW_SINGLES and all(made)


@pytest.mark.parametrize(
    "form", [RecordForm(property_separator=True), RecordForm(property_crc=True)], ids=str
)
def test_records_end_as_the_stores_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: RecordForm
) -> None:
    """A broker of 5.x that checks the sums of its records cuts its log at the first without one."""
    logs: list[bytes] = []
    for choice in ("compiled", "pure"):
        monkeypatch.setenv(kernel.VARIABLE, choice)
        root = tmp_path / choice
        with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: NOW) as store:
            store.writer.write_in(form)
            for number in range(storewriter._FEW_SINGLES + 4):
                sent = MessageExtBrokerInner("t", b"x", properties={"KEYS": f"k{number}"})
                assert store.put_message(sent, flush=False).is_ok
        logs.append(b"".join(path.read_bytes() for path in sorted(root.glob("commitlog/*"))))
    assert logs[0] == logs[1]


def test_the_counts_may_be_asked_for_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also as soon as a message is stored, before its answer is Python's."""
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    monkeypatch.setattr(storewriter, "_FEW_SINGLES", 1)
    seen: list[int] = []
    with MessageStore(tmp_path / "store", writable=True, create=True) as store:
        stats = store.writer.stats

        def ask(frame: FrameType, event: str, called: Any) -> None:
            name = getattr(called, "__qualname__", "")
            if event == "c_return" and name == "SingleAppender.put":
                seen.append(stats.put_message_times_total)

        for number in range(5):
            message = MessageExtBrokerInner("t", b"%d" % number)
            sys.setprofile(ask)
            try:
                assert store.put_message(message, flush=False).is_ok
            finally:
                sys.setprofile(None)
        assert sum(stats.put_message_distribute_time) == stats.put_message_times_total == 5
    assert seen[-3:] == [3, 4, 5]


def test_others_write_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single puts, streams, batches and flushes take turns: each goes on where the other ended, and
    the store says so at once."""
    stores: list[Any] = []
    for choice in ("compiled", "pure"):
        monkeypatch.setenv(kernel.VARIABLE, choice)
        seen: list[Any] = []
        now = iter(range(NOW, NOW + 10_000_000, 100))
        root = tmp_path / choice
        clock = partial(next, now)
        with MessageStore(root, ROOMY, writable=True, create=True, clock=clock) as store:
            for number in range(300):
                sent = MessageExtBrokerInner(
                    "a" if number % 3 else "b",
                    b"%d" % number,
                    number % 2,
                    properties={"KEYS": f"k{number} l{number % 7}", "TAGS": f"t{number % 3}"},
                )
                turn = number % 25
                if turn == 7:
                    (bulk,) = store.put_stream([sent, sent])
                    seen.append([asdict(one) for one in bulk])
                elif turn == 13:
                    seen.append(asdict(store.put_batch([sent, sent], flush=False)))
                elif turn == 17:
                    store.flush()
                    # As after an error: what is open of queues and index is let go.
                    store.writer._tail.failed = True
                else:
                    seen.append(asdict(store.put_message(sent, flush=turn == 20)))
                queue = store.consume_queue(sent.topic, sent.queue_id)
                assert queue is not None
                seen.append((store.max_offset, queue.max_offset, queue.max_physical_offset))
                newest = queue.max_offset - 1
                seen.append(store.get_message(sent.topic, sent.queue_id, newest).status)
                hits = list(store.query_message(sent.topic, f"k{number}"))
                seen.append([(hit.matches, hit.hit.item, hit.hit.store_time) for hit in hits])
            stats = store.writer.stats
            seen.append((stats.put_message_times_total, sum(stats.put_message_distribute_time)))
        files = [path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()]
        stores.append((_without_times(seen), files))
    assert stores[0][0] == stores[1][0]
    assert stores[0][1] == stores[1][1]


def _without_times(seen: list[Any]) -> list[Any]:
    """How long something took is nobody else's."""
    for one in seen:
        for said in one if isinstance(one, list) else [one]:
            if isinstance(said, dict) and said["append"] is not None:
                said["append"]["page_cache_rt"] = 0
    return seen


def test_what_two_maps_of_a_file_have_stored_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel holds the file of a queue that is closed for others, and then opened again."""
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    monkeypatch.setattr(storewriter, "_FEW_SINGLES", 1)
    with MessageStore(tmp_path / "store", writable=True, create=True) as store:
        sent = MessageExtBrokerInner("t", b"x")
        file = tmp_path / "store" / "consumequeue" / "t" / "0" / f"{0:020d}"
        for _ in range(3):
            store.put_message(sent, flush=False)
        for number in range(kept_queues()):
            store.put_messages([MessageExtBrokerInner("others", b"x", number)], flush=False)
        store.flush()
        for _ in range(2):
            store.put_messages([sent], flush=False)
            store.put_message(sent, flush=False)
            assert taken(store.queues.unsynced) == {file}
            store.put_messages([sent], flush=False)
            assert taken(store.queues.unsynced) == {file}
            store.put_message(sent, flush=False)
            assert taken(store.queues.unsynced) == {file}


def test_an_answer_says_all_whenever_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says the status, and what is asked for is made then: it is the same as ever."""
    monkeypatch.setattr(storewriter, "_FEW_SINGLES", 1)
    said: list[list[str]] = []
    for choice in ("compiled", "pure"):
        monkeypatch.setenv(kernel.VARIABLE, choice)
        root = tmp_path / choice
        with MessageStore(root, writable=True, create=True, clock=lambda: NOW) as store:
            sent = MessageExtBrokerInner("t", b"x", 3, store_host=(b"\x0a\1\2\3", 10911))
            results = [store.put_message(sent, flush=False) for _ in range(6)]
        results[4].reason += "more"
        results[4].append = None
        assert results[5].stored is results[5].append
        assert copy(results[3]) == results[3]
        with pytest.raises(AttributeError):
            getattr(results[3], "nothing")  # noqa: B009
        for result in results:
            if result.append is not None:
                result.append.page_cache_rt = 0
        said.append([repr(result) for result in results])
    assert said[0] == said[1]


def test_a_status_may_be_changed_before_anything_is_asked(tmp_path: Path) -> None:
    with MessageStore(tmp_path / "store", writable=True, create=True) as store:
        for _ in range(storewriter._FEW_SINGLES + 4):
            result = store.put_message(MessageExtBrokerInner("t", b"x"), flush=False)
    result.status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    again = replace(result, reason="late")
    assert not result.is_ok and result.stored is again.stored is not None
    assert (again.topic, again.queue_id, again.reason) == ("t", 0, "late")


def test_threads_that_put_their_first_messages_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them gets the kernel's ways ready, whatever number the others count meanwhile."""
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    with MessageStore(tmp_path / "store", writable=True, create=True) as store:
        writer = store.writer
        writer._singles = storewriter._FEW_SINGLES  # A number that nobody has seen.
        assert store.put_message(MessageExtBrokerInner("t", b"x"), flush=False).is_ok
        ways = writer._quick, writer.one_call
        assert None not in ways
        writer._make_quick()
        assert ways == (writer._quick, writer.one_call)


def test_who_is_interrupted_has_stored_nothing_that_no_flush_knows_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first put after a flush says that queue and index are dirty before they are."""
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    monkeypatch.setattr(storewriter, "_FEW_SINGLES", 1)
    with MessageStore(tmp_path / "store", writable=True, create=True) as store:
        sent = MessageExtBrokerInner("t", b"x", properties={"KEYS": "k"})
        for _ in range(4):
            store.put_message(sent, flush=False)
        store.flush()
        end = store.max_offset

        def interrupted(mapped: MappedFile, start: int, stop: int) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(MappedFile, "mark_dirty", interrupted)
            store.put_message(sent, flush=False)
        assert store.max_offset == end
        assert store.put_message(sent, flush=False).is_ok
        queue = store.consume_queue("t", 0)
        assert queue is not None and queue.max_offset == 5
        assert len(list(store.query_message("t", "k"))) == 5


def test_room_for_records_is_made_as_batches_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large a message may be: of a broker that takes 256 MiB most have a few KiB."""
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    config = parse_broker_conf("maxMessageSize=268435456")
    tracemalloc.start()
    try:
        with MessageStore(tmp_path / "store", config, writable=True, create=True) as store:
            for size in (1, *[1000] * storewriter._FEW_SINGLES, 1 << 16, 40_000):
                plain = MessageExtBrokerInner("t", b"x" * size)
                assert store.put_batch([plain] * 3, flush=False).is_ok
            queue = store.consume_queue("t", 0)
            assert queue is not None and queue.max_offset == 3 * (storewriter._FEW_SINGLES + 3)
            writer = store.writer
            assert writer._batches is not None and len(writer._batches._records) < 1 << 20
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
