"""rebuild, verify, export, import and sql on Spark say and write what the engine does."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.scan.ranges import LogPart, PartBounds, numbered, plan_parts, unmet
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.errors import FileLengthContradiction, NeedsConsent, OutputExists, UsageError
from rmqctl.operations.look.queues import queues
from rmqctl.operations.mend import rebuild as in_process
from rmqctl.operations.mend.salvage import Salvage, plan_salvage, write_salvage
from rmqctl.operations.verify import inparts, verify
from rmqctl.rows import onspark
from rmqctl.rows.exported import exported_columns
from rmqctl.rows.field import fields_of
from rmqctl.rows.kinds import KINDS
from rmqctl.spark.session.failures import SparkFailed, failures_told
from tests import golden_data
from tests.test_docs import misfits
from tests.test_spark.conftest import reads, verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.xdist_group("spark")
#: Several parts a file of the golden stores.
PART_BYTES = 32768
#: Short runs are looked up where they are scanned, and each index file is a task.
LEAST = 2, 1
#: What no task looks at: the driver finds it as verify finds it without Spark.
OF_THE_DRIVER = ("checkpoint-missing", "flip-body-early-abort", "stray-file")
CASES = [(name, name) for name in golden_data.STORES if name != "defaults"] + [
    (case, golden_data.damage_case(case)["base"])
    for case in golden_data.DAMAGE_CASES
    if case not in OF_THE_DRIVER
]
Golden = Callable[[str], Path]
SMALL = MessageStoreConfig(mapped_file_size_commit_log=1 << 17)


def store_of(case: str, base: str, golden: Golden, directory: Path) -> Path:
    if case == base:
        return golden(base)
    copy = golden_data.copy_tree(golden(base), directory / case)
    golden_data.apply_damage(copy, golden_data.damage_case(case)["ops"])
    return copy


def index_contents(root: Path) -> list[Any]:
    directory = root / "index"
    return golden_data.index_contents(directory) if directory.is_dir() else []


def assert_rebuilt_alike(
    spark: SparkSession, root: Path, config: MessageStoreConfig, directory: Path, part_bytes: int
) -> in_process.RebuildPlan:
    from rmqctl.spark.mend import rebuild as on_spark

    plan = in_process.plan_rebuild(root, config, "all")
    one, other = directory / "one", directory / "other"
    other.mkdir()
    summary = in_process.rebuild_to(plan, one)
    built = on_spark.build(spark, plan, other, part_bytes)
    for name in ("consumequeue", "consumequeue_ext"):
        assert golden_data.tree_content(one / name) == golden_data.tree_content(other / name)
    assert index_contents(one) == index_contents(other)
    assert {path.name for path in other.iterdir()} == {path.name for path in one.iterdir()}
    assert in_process.RebuildSummary(**vars(built)) == summary
    return plan


@pytest.mark.parametrize(
    ("case", "base"),
    [
        *(pytest.param(*one, id=one[0]) for one in CASES),
        *(
            pytest.param(case, "basic", id=case, marks=pytest.mark.nightly)
            for case in OF_THE_DRIVER
        ),
    ],
)
def test_rebuild_and_verify_are_the_engines(
    spark: SparkSession, here: None, golden: Golden, tmp_path: Path, case: str, base: str
) -> None:
    from rmqctl.spark.mend import verify as on_spark

    root, config = store_of(case, base, golden, tmp_path), golden_data.broker_conf(base)
    *expected, summary = verify(root, config)
    found, other = on_spark.verify(spark, root, config, inparts, PART_BYTES, LEAST)
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert other == summary
    # One store of each kind is rebuilt; the damage cases differ in where the log is damaged.
    if case == base or case in ("hole", "bad-size-late", "first-files-expired"):
        assert_rebuilt_alike(spark, root, config, tmp_path, PART_BYTES)


def test_a_log_file_that_is_gone_ends_the_job(
    spark: SparkSession,
    here: None,
    copy_store: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker may remove its oldest file while tasks wait for a core."""
    from rmqctl.spark.mend import rebuild

    root, config, output = copy_store("basic"), golden_data.broker_conf("basic"), tmp_path / "out"
    plan = in_process.plan_rebuild(root, config, "all")

    def planned(log: CommitLog, part_bytes: int) -> list[LogPart]:
        parts = plan_parts(log, part_bytes)
        log.files.entries[0].path.unlink()
        return parts

    monkeypatch.setattr("rmqctl.spark.mend.facts.plan_parts", planned)
    output.mkdir()
    reason = "does not see the file with offset 0: it was removed meanwhile, or that node"
    with pytest.raises(SparkFailed, match=reason), failures_told():
        rebuild.build(spark, plan, output)
    assert list(output.iterdir()) == []


def test_a_check_goes_on_with_the_files_that_retention_leaves(
    spark: SparkSession,
    here: None,
    copy_store: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rmqctl.spark.mend import verify as on_spark

    root, config = copy_store("basic"), golden_data.broker_conf("basic")
    gone = sorted((root / "commitlog").iterdir())[:2]

    def planned(log: CommitLog, part_bytes: int) -> list[LogPart]:
        parts = plan_parts(log, part_bytes)
        if gone:
            gone.pop(0).unlink()
        return parts

    monkeypatch.setattr("rmqctl.spark.mend.facts.plan_parts", planned)
    found, summary = on_spark.verify(spark, root, config, inparts, PART_BYTES, LEAST)
    *expected, whole = verify(root, config)
    assert not gone and summary.min_offset == 131072
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert summary == whole


def test_a_salvaged_store_keeps_its_numbers(
    spark: SparkSession, here: None, golden: Golden, tmp_path: Path
) -> None:
    """The fillers tell that messages are gone, as damage does."""
    config = golden_data.broker_conf("basic")
    root, output = store_of("hole", "basic", golden, tmp_path), tmp_path / "salvaged"
    write_salvage(plan_salvage(Salvage(root, config, output)))
    assert_rebuilt_alike(spark, output, config, tmp_path, PART_BYTES)
    queues = golden_data.tree_content(output / "consumequeue")
    assert golden_data.tree_content(tmp_path / "other" / "consumequeue") == queues


@pytest.mark.parametrize("is_gone", [False, True])
def test_light_queues_that_the_configuration_does_not_explain(
    spark: SparkSession,
    here: None,
    copy_store: Callable[[str], Path],
    tmp_path: Path,
    is_gone: bool,
) -> None:
    from rmqctl.spark.mend import verify as on_spark

    root = copy_store("lmq")
    before = golden_data.tree_content(root / "consumequeue")
    if is_gone:
        for path in (root / "consumequeue").iterdir():
            if path.name != "TopicL":
                shutil.rmtree(path)
    config = parse_broker_conf(
        golden_data.broker_conf_text("lmq") + "enableMultiDispatch=false\nenableLmq=false\n"
    )
    *expected, summary = verify(root, config)
    found, other = on_spark.verify(spark, root, config, inparts, PART_BYTES, LEAST)
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert other == summary
    assert_rebuilt_alike(spark, root, config, tmp_path, PART_BYTES)
    if not is_gone:
        assert golden_data.tree_content(tmp_path / "other" / "consumequeue") == before


def test_most_messages_in_one_queue_are_many_tasks(spark: SparkSession, tmp_path: Path) -> None:
    from rmqctl.spark.mend import verify as on_spark

    root = tmp_path / "store"
    config = MessageStoreConfig(
        mapped_file_size_commit_log=1 << 17,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=10,
        max_index_num=101,
        explicit=frozenset(("max_hash_slot_num", "max_index_num")),
    )
    with MessageStore(root, config, writable=True, create=True) as store:
        messages = [
            MessageExtBrokerInner(
                "big" if n % 5 else "small", b"x" * 60, 0, properties={"KEYS": f"k{n}"}
            )
            for n in range(2000)
        ]
        assert all(bulk.refused is None for bulk in store.append_stream(messages))
    plan = assert_rebuilt_alike(spark, root, config, tmp_path, 1 << 15)
    files = sorted((tmp_path / "other" / "consumequeue" / "big" / "0").iterdir())
    assert len(files) == 16
    # 2,000 keys fill 20 files of 100: the next message would make another one.
    assert len(index_contents(tmp_path / "other")) == 20
    assert plan.queues
    checked = shutil.copytree(root, tmp_path / "checked")
    for name in ("consumequeue", "index"):
        shutil.rmtree(checked / name)
        (tmp_path / "other" / name).rename(checked / name)
    found, summary = on_spark.verify(spark, checked, config, inparts, 1 << 15, LEAST)
    assert found == [] and (summary.units, summary.index_items) == (2000, 2000)


def test_a_failed_build_leaves_nothing(
    spark: SparkSession, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqctl.spark.mend import rebuild as on_spark

    plan = in_process.plan_rebuild(golden("basic"), golden_data.broker_conf("basic"), "all")
    output = tmp_path / "output"
    output.mkdir()

    def broken(*_: object) -> None:
        # The queues are written by now.
        assert list((output / "consumequeue").iterdir())
        raise RuntimeError("no")

    monkeypatch.setattr(on_spark, "write_index", broken)
    with pytest.raises(RuntimeError):
        on_spark.build(spark, plan, output)
    assert list(output.iterdir()) == []


def test_rebuild_in_place_swaps_at_the_end(
    spark: SparkSession, copy_store: Callable[[str], Path]
) -> None:
    from rmqctl.spark.mend import rebuild as on_spark

    root, config = copy_store("basic"), golden_data.broker_conf("basic")
    before = golden_data.tree_content(root / "consumequeue")
    shutil.rmtree(root / "index")
    plan = in_process.plan_rebuild(root, config, "all")

    def build(plan: Any, place: Path, _: object) -> in_process.RebuildSummary:
        return in_process.RebuildSummary(**vars(on_spark.build(spark, plan, place, PART_BYTES)))

    summary = in_process.rebuild_in_place(plan, build=build)
    assert golden_data.tree_content(root / "consumequeue") == before
    assert index_contents(root)
    assert [path.name for path in summary.kept] == [
        path.name for path in root.iterdir() if path.name.startswith("rmqctl-")
    ]


def test_a_queue_alone(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    from rmqctl.spark.mend import rebuild as on_spark

    root, config = golden("basic"), golden_data.broker_conf("basic")
    plan = in_process.plan_rebuild(root, config, "queues", "TopicA", 1)
    summary = in_process.rebuild_to(plan, tmp_path / "one")
    (tmp_path / "other").mkdir()
    built = on_spark.build(spark, plan, tmp_path / "other", PART_BYTES)
    assert vars(built)["units"] == summary.units
    assert golden_data.tree_content(tmp_path / "one") == golden_data.tree_content(
        tmp_path / "other"
    )


def test_parts_that_do_not_meet_are_joined() -> None:
    assert numbered([0, 10]) == [LogPart(0, 0, 10), LogPart(1, 10, None)]
    met = [PartBounds(0, 0, 12, False), PartBounds(1, 12, 20, True)]
    assert unmet(met, 100) == set()
    apart = [PartBounds(0, 0, 10, False), PartBounds(1, 12, 20, True)]
    assert unmet(apart, 100) == {1}
    # Nobody has seen the end: the last part must be read together with the one before.
    endless = [PartBounds(0, 0, 10, False), PartBounds(1, 100, 100, False)]
    assert unmet(endless, 100) == {1}
    beyond = [PartBounds(0, 0, 10, True), PartBounds(1, 100, 100, False)]
    assert unmet(beyond, 100) == set()


@pytest.mark.parametrize("kind", ["parquet", "ndjson", "csv"])
def test_export_and_import(spark: SparkSession, golden: Golden, tmp_path: Path, kind: str) -> None:
    from rmqctl.spark.report import export
    from rmqctl.spark.sink import importer

    root, config = golden("ipv6"), golden_data.broker_conf("ipv6")
    columns = exported_columns()
    rows = export.selected(spark, [str(root)], {}, columns)
    to = tmp_path / "exported"
    assert export.export(rows, columns, str(to), kind) == (200, 0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["exported"]
    assert all("/topic=" in str(p) and "/day=" in str(p) for p in to.rglob("part-*"))
    with pytest.raises(OutputExists):
        export.export(rows, columns, str(to), kind)
    fresh = tmp_path / "fresh"
    messages = importer.read(spark, str(to), kind)
    assert importer.load(messages, str(fresh), config) == 200
    findings, _ = verdict(fresh, config)
    assert [one.code for one in findings if one.severity != "info"] == []
    assert _messages(fresh, config) == _messages(root, config)


def test_a_topic_never_becomes_a_path(spark: SparkSession, tmp_path: Path) -> None:
    from rmqctl.spark.report import export
    from rmqctl.spark.sink import importer

    root, to = tmp_path / "inner" / "store", tmp_path / "inner" / "out"
    topics = ["a=b", "größe", "%RETRY%g", "123", "null", " x", "..", "dots/dots/xx"]
    with MessageStore(root, SMALL, writable=True, create=True) as store:
        for topic in topics:
            asked = topic.replace("/", "_") if topic != ".." else "--"
            assert store.put_message(MessageExtBrokerInner(asked, b"")).is_ok
    (log,) = (root / "commitlog").iterdir()
    data = log.read_bytes().replace(b"dots_dots_xx", b"../../../../").replace(b"\2--", b"\2..")
    log.write_bytes(data)
    rows = export.selected(spark, [str(root)], {}, ["msg_id"])
    assert export.export(rows, ["msg_id"], str(to), "parquet") == (len(topics), 0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]
    assert {path.name for path in (tmp_path / "inner").iterdir()} == {"store", "out"}
    told = importer.read(spark, str(to), "parquet").collect()
    assert sorted(row["topic"] for row in told) == sorted([*topics[:-1], "../../../../"])


@pytest.mark.parametrize(
    ("kind", "whole", "told"),
    [
        ("ndjson", '{"topic": "a", "body": "b"}\n', ", line 2: not JSON: "),
        ("csv", "topic,body\na,b\n", " holds a record that is not of its format. Correct it"),
    ],
)
def test_import_refuses_what_is_cut_off(
    spark: SparkSession, tmp_path: Path, kind: str, whole: str, told: str
) -> None:
    from rmqctl.spark.session.failures import SparkFailed, failures_told
    from rmqctl.spark.sink import importer

    path, new = tmp_path / f"messages.{kind}", tmp_path / "new"
    path.write_text(whole)
    assert importer.read(spark, str(path), kind).count() == 1
    path.write_text(whole + whole.splitlines()[-1][:-2])
    told = f"messages.{kind}{told}"
    with pytest.raises(SparkFailed, match=told), failures_told():
        importer.load(importer.read(spark, str(path), kind), str(new), MessageStoreConfig())
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_columns_that_make_no_file_are_refused() -> None:
    with pytest.raises(ValueError, match="needs another column"):
        exported_columns("topic, topic")
    assert exported_columns("topic,body") == ["topic", "body"]


def _messages(root: Path, config: MessageStoreConfig) -> list[object]:
    with MessageStore(root, config) as store:
        return [
            (entry.topic, entry.queue_id, entry.properties, store.body(entry), entry.born_host)
            for entry in store.commit_log.walk()
            if isinstance(entry, Record)
        ]


def test_export_of_some(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    from rmqctl.spark.report import export

    rows = export.selected(spark, [str(golden("basic"))], {}, ["msg_id"], topic="TopicA")
    messages, damages, _ = export.export(rows, ["msg_id"], str(tmp_path / "some"), "ndjson")
    lines = [
        json.loads(line)
        for path in (tmp_path / "some").rglob("part-*")
        for line in path.read_text().splitlines()
    ]
    assert len(lines) == messages > 0
    assert damages == 0
    assert all(list(line) == ["msg_id"] for line in lines)


def test_sql_reads_what_the_query_names(spark: SparkSession, golden: Golden) -> None:
    from rmqctl.spark.report import sql

    stores = [str(golden("basic")), str(golden("ipv6"))]

    def asked(text: str, stores: list[str], **options: str) -> tuple[DataFrame, list[list[str]]]:
        frame = sql.query(spark, text, stores, options)
        return frame, [columns for columns, _ in reads(frame)]

    text = "SELECT store, count(*) AS n FROM messages GROUP BY store ORDER BY store"
    frame, read = asked(text, stores)
    assert [row["n"] for row in sql.plain(frame)] == [600, 200]
    assert read == [["store"]]
    text = "SELECT topic, body FROM messages ORDER BY physical_offset LIMIT 1"
    (row,) = sql.plain(asked(text, stores)[0])
    assert isinstance(row["body"], str)
    text = "SELECT sum(messages) AS n FROM queues WHERE topic = 'TopicA'"
    assert asked(text, stores[:1])[0].first()["n"] > 0  # type: ignore[index]
    text = "SELECT (SELECT count(*) FROM units) AS units, count(*) AS items FROM index_items"
    frame, read = asked(text, stores[:1], brokerConf=golden_data.broker_conf_text("basic"))
    (counts,) = frame.collect()
    assert counts["units"] > 0 and counts["items"] > 0
    assert [len(columns) for columns in read] == [1]
    # Columns of a subquery, and those that the plan does without.
    text = "SELECT count(*) AS n FROM messages WHERE EXISTS (SELECT 1 FROM units WHERE size > 0)"
    assert asked(text, stores)[0].collect() == [(800,)]
    text = "SELECT count(*) AS n FROM messages WHERE topic = 'TopicA' AND queue_id >= 0"
    frame, read = asked(text, stores)
    assert frame.first()["n"] > 0  # type: ignore[index]
    assert read == [["topic", "queue_id"]]
    text = "SELECT topic FROM messages WHERE body IS NULL AND 1 = 2"
    assert asked(text, stores)[0].collect() == []
    # Bodies that a query does not read are not checked either.
    text = "SELECT status FROM messages GROUP BY status"
    assert asked(text, stores)[0].collect() == [("unchecked",)]


def test_sql_opens_queues_in_tasks(
    spark: SparkSession, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be more of them than the driver should hold, and most queries ask for none."""
    from rmqctl.spark.report import sql

    root = golden_data.copy_tree(golden("basic"), tmp_path / "store")
    with MessageStore(root) as opened:
        queues = [opened.consume_queue(*where[:2]) for where in opened.queues.directories()]
        wanted = [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in queues if q]
    # A directory that is no topic's.
    os.makedirs(os.fsencode(root) + b"/consumequeue/a\xff/7")

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("opened in the driver")

    monkeypatch.setattr(sql, "MessageStore", refuse)
    text = "SELECT topic, queue_id, min_offset, max_offset FROM queues ORDER BY topic, queue_id"
    found = sql.query(spark, text, [str(root)], {}).collect()
    assert sorted(map(tuple, found)) == sorted([*wanted, ("a\ufffd", 7, 0, 0)])


def test_sql_has_batch_queues(golden_directory: Path) -> None:
    from rmqctl.spark.report import sql
    from rmqctl.spark.source.split import ReadSettings

    root = golden_data.unpacked("batch-queues", golden_directory, golden_data.LATER)
    said = json.loads((golden_data.LATER / "batch-queues.json").read_text("utf-8"))["config"]
    config = parse_broker_conf("".join(f"{name}={value}\n" for name, value in said.items()))
    settings = ReadSettings("queue", [str(root)], config)
    found = sorted(sql._queue_rows(str(root), 0, 1, settings))
    with MessageStore(root, config) as opened:
        rows = [row for row in queues(opened) if row["type"] == "queue"]
    assert [row["topic"] for row in rows].count("BatchTopic") == 2
    names = sql._Queue._fields[:6]
    assert [row[:6] for row in found] == [tuple(map(dict(row).get, names)) for row in rows]


def test_tasks_share_queues_whatever_comes_meanwhile(golden: Golden, tmp_path: Path) -> None:
    """Tasks begin at different times, and a broker makes queues."""
    from rmqctl.spark.report import sql
    from rmqctl.spark.source.split import ReadSettings

    root = golden_data.copy_tree(golden("basic"), tmp_path / "store")
    with MessageStore(root) as opened:
        wanted = sorted(where[:2] for where in opened.queues.directories())
    settings = ReadSettings("queue", [str(root)], MessageStoreConfig())
    found = list(sql._queue_rows(str(root), 0, 2, settings))
    (root / "consumequeue/ 0/0").mkdir(parents=True)
    found += sql._queue_rows(str(root), 1, 2, settings)
    assert sorted(row[:2] for row in found if row.topic != " 0") == wanted
    assert len(wanted) > 2


def test_sql_rows_hold_every_type(
    spark: SparkSession, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqctl.spark.report import sql

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    text = (
        "SELECT store_time, store_timestamp, array(store_time) AS times, "
        "store_time - store_time AS no_time, interval '3' month AS months, body AS `a.b`, "
        "body AS `A.B`, parse_json('[1]') AS json, time '10:00:00' AS time, date '2026-11-20' AS "
        "day, map('x', 1.50BD) AS map, struct(interval '1' day AS i) AS nested, NULL AS nothing, "
        "timestamp '9999-12-31 23:59:59.999Z' AS last FROM messages LIMIT 1"
    )
    result = sql.query(spark, text, [str(golden("basic"))], {})
    (here,) = sql.plain(result)
    stored = datetime.fromtimestamp(here["store_timestamp"] / 1000, UTC)
    assert datetime.fromisoformat(here["store_time"]) == stored
    # Whatever the zone of this process.
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert list(sql.plain(result)) == [here]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert here["times"] == [stored.isoformat()]
    assert (here["time"], here["day"], here["map"]) == ("10:00:00", "2026-11-20", {"x": "1.50"})
    assert (here["json"], here["nothing"], here["a.b"]) == ("[1]", None, here["A.B"])
    assert here["last"] == "9999-12-31T23:59:59.999000+00:00"
    assert here["no_time"] == "INTERVAL '0 00:00:00' DAY TO SECOND"
    assert here["months"] == "INTERVAL '3' MONTH"
    json.dumps(here)
    for text in ("SELECT topic, topic FROM messages", "SELECT 1 AS type"):
        with pytest.raises(UsageError, match="give the column another name with AS"):
            next(sql.plain(sql.query(spark, text, [str(golden("basic"))], {})))


# --- several stores in one run -----------------------------------------------------------------


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands run on the session of the tests."""
    from rmqctl.cli import spark_options
    from rmqctl.cli.commands import import_, rebuild, sql, stats

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        yield spark

    for module in (spark_options, import_, rebuild, sql, stats):
        monkeypatch.setattr(module, "spark_session", session)


def fleet(root: Path) -> Path:
    """Two stores; in the second a unit points elsewhere."""
    for name in ("broker-a", "broker-b"):
        with MessageStore(root / name / "store", writable=True, create=True) as store:
            keys = {"KEYS": "k"}
            store.put_messages(
                [MessageExtBrokerInner(name, b"%d" % n, properties=keys) for n in range(3)]
            )
    (queue,) = (root / "broker-b" / "store" / "consumequeue" / "broker-b" / "0").iterdir()
    with queue.open("r+b") as file:
        file.seek(7)
        file.write(b"\x05")
    return root


def something_of_everything(root: Path) -> Path:
    """A store with a delayed message, a retry, a half message, and a record that is none."""
    half = {"REAL_TOPIC": "t", "REAL_QID": "0", "PGROUP": "g"}
    with MessageStore(root, writable=True, create=True) as store:
        for topic, properties in (
            ("%RETRY%g", {}),
            ("orders", {"DELAY": "3"}),
            ("RMQ_SYS_TRANS_HALF_TOPIC", half),
            ("orders", {}),
            ("orders", {}),
        ):
            put = store.put_message(MessageExtBrokerInner(topic, b"x", properties=properties))
            assert put.is_ok and put.append is not None
            last = put.append
    (log,) = (root / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(last.wrote_offset - last.wrote_bytes + 4)
        file.write(b"\xff")
    return root


#: The fields that rows are declared with, and what of them was printed.
DECLARED, GENERAL = (
    {kind.heading: fields_of(kind.row) for kind in kinds} for kinds in (onspark.KINDS, KINDS)
)
SEEN: dict[str, set[str]] = {heading: set() for heading in DECLARED}


def assert_documented(command: str, row: dict[str, Any]) -> None:
    kind = row["type"]
    heading = f"{kind} ({command})"
    fields = DECLARED[heading]
    SEEN[heading] |= row.keys() & {field.name for field in fields}
    if kind in ("finding", "damage"):
        fields += GENERAL[kind][1:]
    if kind == "row":
        return
    assert list(row) == [f.name for f in fields if not f.is_optional or f.name in row], heading
    assert misfits(row, fields) == [], heading


def assert_all_were_printed(command: str) -> None:
    for heading, fields in DECLARED.items():
        if heading.endswith(f" ({command})"):
            assert SEEN[heading] == {field.name for field in fields}, heading


def run(*words: str) -> tuple[Any, list[dict[str, Any]], BaseException | None]:
    """What a command returns, its rows, which are documented, and the error that ends it."""
    from click.testing import CliRunner

    from rmqctl.cli.main import cli

    answer = CliRunner().invoke(cli, [*words, "--format", "ndjson"], standalone_mode=False)
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    for row in rows:
        assert_documented(words[0], row)
    return answer.return_value, rows, answer.exception


def test_verify_of_several(here: None, tmp_path: Path, spark: SparkSession) -> None:
    root = fleet(tmp_path / "fleet")
    words = ("verify", "--store", f"{root}/*/store")
    code, rows, _ = run(*words, "--master", "local[2]", "--output", str(tmp_path / "found"))
    assert code == 1
    stores = {row["store"]: row for row in rows if row["type"] == "store"}
    assert list(stores) == [f"{root}/broker-a/store", f"{root}/broker-b/store"]
    found = [(row["store"], row["code"]) for row in rows if row["type"] == "finding"]
    for store, told in stores.items():
        expected, summary = verdict(Path(store), MessageStoreConfig())
        assert [code for s, code in found if s == store] == [f.code for f in expected]
        assert told == {"type": "store", "store": store, **summary.row(), "error": None}
    assert rows[-1]["type"] == "summary"
    assert (rows[-1]["stores"], rows[-1]["records"]) == (2, 6)
    kept = spark.read.parquet(str(tmp_path / "found")).select("store", "code").collect()
    assert sorted(map(tuple, kept)) == sorted(found)
    assert_all_were_printed("verify")


def test_several_need_spark(tmp_path: Path) -> None:
    root = fleet(tmp_path / "fleet")
    for words in (("verify",), ("rebuild", "all", "--in-place", "--yes")):
        _, _, error = run(*words, "--store", f"{root}/*/store")
        assert "takes 2 stores on Spark only: add --master 'local[*]'" in str(error)


def test_one_that_fails_stops_no_other(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = fleet(tmp_path / "fleet")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"mappedFileSizeCommitLog={1 << 30}\n")
    (log,) = (root / "broker-a" / "store" / "commitlog").iterdir()
    log.with_name(f"{1 << 20:020d}").touch()
    for path in log.parent.iterdir():
        os.truncate(path, 1 << 20)
    words = ("--store", f"{root}/*/store", "--broker-conf", str(conf), "--master", "local[2]")
    _, rows, error = run("verify", *words)
    assert isinstance(error, FileLengthContradiction)
    assert [row["error"] is None for row in rows if row["type"] == "store"] == [False, True]
    assert rows[0]["error"] == error.for_command_line
    assert rows[-1]["records"] == 3


def test_rebuild_of_several(here: None, tmp_path: Path) -> None:
    root = fleet(tmp_path / "fleet")
    words = ("rebuild", "queues", "--store", f"{root}/*/store", "--master", "local[2]")
    code, rows, _ = run(*words, "--output", str(tmp_path / "out"))
    assert code == 0
    assert [row["type"] for row in rows] == ["store", "store", "summary"]
    assert (rows[-1]["rebuilt"], rows[-1]["records"], rows[-1]["units"]) == (2, 6, 6)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["broker-a", "broker-b"]
    assert golden_data.tree_content(
        tmp_path / "out" / "broker-a" / "consumequeue"
    ) == golden_data.tree_content(root / "broker-a" / "store" / "consumequeue")
    _, _, error = run(*words, "--in-place")
    assert isinstance(error, NeedsConsent)
    (log,) = (root / "broker-a" / "store" / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.write(b"\xff")
    code, rows, _ = run(*words, "--in-place", "--yes", "--purge")
    assert code == 1
    assert [(row["type"], row["store"]) for row in rows[:3]] == [
        ("damage", f"{root}/broker-a/store"),
        ("store", f"{root}/broker-a/store"),
        ("store", f"{root}/broker-b/store"),
    ]
    assert_all_were_printed("rebuild")
    findings, _ = verdict(root / "broker-b" / "store", MessageStoreConfig())
    assert [one.code for one in findings if one.severity != "info"] == []
    # Two of one name would go to one place.
    (tmp_path / "other").mkdir()
    golden_data.copy_tree(root / "broker-a", tmp_path / "other" / "broker-a")
    more = ("--store", str(tmp_path / "other" / "broker-a" / "store"))
    _, _, error = run(*words, *more, "--output", str(tmp_path / "third"))
    assert "several of the stores are of a broker 'broker-a'" in str(error)
    assert not (tmp_path / "third").exists()


def test_rows_are_documented(here: None, tmp_path: Path) -> None:
    root, on = fleet(tmp_path / "fleet"), ("--master", "local[2]")
    everything = something_of_everything(tmp_path / "broker-c" / "store")
    code, rows, _ = run("stats", "--store", f"{root}/*/store", "--store", str(everything), *on)
    assert (code, rows[-1]["duplicate_keys"]) == (1, 2)
    assert_all_were_printed("stats")
    source = ("--store", str(root / "broker-a" / "store"))
    query, messages = "SELECT topic, body FROM messages", tmp_path / "messages"
    code, rows, _ = run("sql", *source, query, *on)
    assert rows[0] == {"type": "row", "topic": "broker-a", "body": "MA=="}
    code, rows, _ = run("sql", *source, query, "--output", str(messages), *on)
    assert rows == [{"type": "summary", "output": str(messages)}]
    assert_all_were_printed("sql")
    _, _, error = run("sql", *source, "SELECT 1 FROM message m JOIN queues USING (topic)", *on)
    assert "there is no view message: there are messages, units, index_items" in str(error)
    code, rows, _ = run("import", "--store", str(tmp_path / "new"), "--from", str(messages), *on)
    assert (code, rows[0]["messages"]) == (0, 3)
    assert_all_were_printed("import")
