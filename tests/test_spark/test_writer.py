"""The writer: a new store that is valid, or nothing at all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.errors import QueueFilesTooSmall
from rmqctl.operations.verify import Finding, verify
from rmqctl.rows.exported import exported_columns
from tests import golden_data
from tests.conftest import Golden
from tests.golden_data import broker_conf, broker_conf_text

pytest.importorskip("pyspark", reason="pip install '.[spark]'")
pytest.importorskip("pyarrow", reason="pip install '.[spark]'")

import pyarrow as pa
from pyspark import TaskContext

from rmqctl.spark import scan
from rmqctl.spark.session.jobs import SMALL
from rmqctl.spark.session.staging import NotShared
from rmqctl.spark.sink import newstore
from rmqctl.spark.sink.encode import EncodeSettings
from rmqctl.spark.sink.newstore import (
    NewStore,
    WriteRefused,
    _set_aside,
    with_threads,
    write_store,
)
from rmqctl.spark.sink.writer import RocketMQWriter
from tests.test_spark.conftest import engine_rows
from tests.test_spark.test_encode import kept_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.xdist_group("spark-writes")

CONF = (
    "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=1000\n"
    "maxHashSlotNum=100\nmaxIndexNum=1000"
)


def save(frame: DataFrame, path: Path, conf: str = CONF) -> None:
    frame.write.format("rocketmq").mode("append").option("brokerConf", conf).save(str(path))


def findings(root: Path, conf: str = CONF) -> list[Finding]:
    return [f for f in verify(root, parse_broker_conf(conf)) if isinstance(f, Finding)]


def test_a_store_comes_back(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    """What is read from one store and written to another is the same messages."""
    columns = ["topic", "queue_id", "flag", "properties", "body", "born_timestamp", "born_host",
               "store_host", "reconsume_times"]  # fmt: skip
    frame = scan(
        spark, str(golden("basic")), columns=columns, brokerConf=broker_conf_text("basic"),
        splitBytes="100000",
    )  # fmt: skip
    target = tmp_path / "deep" / "store"
    save(frame, target)
    assert findings(target) == []
    assert [path.name for path in target.parent.iterdir()] == ["store"], "nothing else is left"
    compared = [*columns, "queue_offset", "tags_code"]
    written, origin = (
        [{name: row[name] for name in compared} for row in engine_rows("commitlog", root, config)]
        for root, config in (
            (target, parse_broker_conf(CONF)),
            (golden("basic"), broker_conf("basic")),
        )
    )
    assert written == origin


def test_many_partitions(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 900, 1, 3).selectExpr(
        "concat('t', id % 4) AS topic",
        "int(id % 2) AS queue_id",
        "cast(id AS string) AS body",
        "IF(id % 3 = 0, 'even', NULL) AS tags",
        "concat('k', id) AS keys",
    )
    target = tmp_path / "store"
    save(frame, target)
    assert findings(target) == []
    rows = engine_rows("commitlog", target, parse_broker_conf(CONF))
    assert [row["body"] for row in rows] == [b"%d" % number for number in range(900)]
    assert rows[3]["properties"] == {"TAGS": "even", "KEYS": "k3"}
    assert rows[4]["properties"] == {"KEYS": "k4"}
    queues: dict[tuple[str, int], int] = {}
    for row in rows:
        key = row["topic"], row["queue_id"]
        assert row["queue_offset"] == queues.get(key, 0)
        queues[key] = row["queue_offset"] + 1
    assert len(list((target / "commitlog").iterdir())) > 1
    save(frame, target)
    again = engine_rows("commitlog", target, parse_broker_conf(CONF))
    assert [row["body"] for row in again] == [row["body"] for row in rows] * 2
    with pytest.raises(Exception, match="never overwritten"):
        frame.write.format("rocketmq").mode("overwrite").save(str(target))
    assert findings(target) == []


class _TwoTasks:
    """Rows of two partitions of a million and one, as a DataFrame that runs the last one first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def mapInArrow(self, function: Any, schema: str) -> _TwoTasks:
        self._found = [
            row for number in (1_000_000, 999_999) for row in self._run(function, number)
        ]
        return self

    def _run(self, function: Any, number: int) -> list[dict[str, Any]]:
        context = SimpleNamespace(partitionId=lambda: number, taskAttemptId=lambda: 7)
        self._monkeypatch.setattr(TaskContext, "get", lambda: context)
        batch = pa.record_batch({"topic": ["t"], "body": [str(number).encode()]})
        return [row for batch in function([batch]) for row in batch.to_pylist()]

    def collect(self) -> list[dict[str, Any]]:
        return self._found


def test_more_than_a_million_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows are in the order of the partitions' numbers."""
    new = NewStore(str(tmp_path), "store", EncodeSettings(parse_broker_conf(CONF), 1))
    new.begin()
    rows: Any = _TwoTasks(monkeypatch)
    new.dispatch(new.write_log(_set_aside(rows, new), with_threads))
    new.finish()
    messages = engine_rows("commitlog", tmp_path, parse_broker_conf(CONF))
    assert [row["body"] for row in messages] == [b"999999", b"1000000"]


FAILURES = [
    ("'t' AS topic, 'b' AS body, IF(id = 77, raise_error('bad row'), 0) AS queue_id", "bad row"),
    ("IF(id = 77, NULL, 't') AS topic, 'b' AS body", "a row has no topic"),
    ("IF(id = 77, '../t', 't') AS topic, 'b' AS body", "cannot be a queue directory"),
    ("'t' AS topic, repeat('b', IF(id = 77, 70000, 1)) AS body", "MESSAGE_ILLEGAL"),
    ("'t' AS topic, 'b' AS body, IF(id = 77, -1, 1) AS queue_id", "queue id -1 is negative"),
    ("'t' AS topic, 'b' AS body, IF(id = 77, 'x', '1.2.3.4:5') AS born_host", "is not ADDRESS"),
    ("'t' AS topic, 'b' AS body, map('a', IF(id = 77, '\\u0002', 'b')) AS properties", "separator"),
    ("'t' AS topic, 'b' AS body, 1 AS extra", "column extra is none of a message"),
    ("'t' AS topic", "there is no column body"),
    ("'t' AS topic, 1 AS body", "column body is int, it must be binary or string"),
]


@pytest.mark.parametrize(("columns", "text"), FAILURES)
def test_a_failed_job_leaves_nothing(
    spark: SparkSession, tmp_path: Path, columns: str, text: str
) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr(*_split(columns))
    with pytest.raises(Exception, match=text):
        save(frame, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def _split(columns: str) -> list[str]:
    parts, depth, part = [], 0, ""
    for letter in columns:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [*parts, part]


def text_schema() -> Any:
    from pyspark.sql.types import StringType, StructType

    return StructType().add("topic", StringType()).add("body", StringType())


def test_only_committed_attempts_count(tmp_path: Path) -> None:
    """A task that was tried twice has set its rows aside twice; what a killed job has set aside
    goes with the next job."""
    killed = tmp_path / "store.rmqctl-new" / "x"
    killed.mkdir(parents=True)
    (killed / "000000-0.records").write_bytes(b"records")
    writer = RocketMQWriter(tmp_path / "store", parse_broker_conf(CONF), text_schema())
    assert not killed.exists()
    batch: Any = pa.record_batch({"topic": ["t"], "body": ["b"]})
    message = writer.write(iter([batch, batch]))
    (runs,) = tmp_path.glob("store.rmqctl-new/*/rmqctl-runs")
    (runs / "000000-9.records").write_bytes(b"cut off")
    writer.commit([message, None])
    assert len(engine_rows("commitlog", tmp_path / "store", parse_broker_conf(CONF))) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_job_whose_directory_goes_fails(tmp_path: Path) -> None:
    """Of two jobs that make the same store at once the later one wins."""
    first = RocketMQWriter(tmp_path / "store", parse_broker_conf(CONF), text_schema())
    later = RocketMQWriter(tmp_path / "store", parse_broker_conf(CONF), text_schema())
    batch: Any = pa.record_batch({"topic": ["t"], "body": ["b"]})
    with pytest.raises(NotShared):
        first.write(iter([batch]))
    later.commit([later.write(iter([batch]))])
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("small", [0, SMALL], ids=["all of it on Spark", "in the driver"])
def test_write_store(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """The engine's bytes for the rows in the order of the partitions."""
    monkeypatch.setattr(newstore, "SMALL", small)
    count = 3000
    frame = spark.range(0, count, 1, 3).selectExpr(
        "concat('t', id % 4) AS topic",
        "int(id % 2) AS queue_id",
        "concat('body ', id) AS body",
        "concat('k', id) AS keys",
        "map('a', cast(id AS string), 'UNIQ_KEY', concat('u', id)) AS properties",
        "bigint(7) AS born_timestamp",
    )
    config, now = parse_broker_conf(CONF), 1_700_000_000_000
    assert write_store(frame, str(tmp_path / "many"), config, clock=lambda: now) == count
    messages = [
        MessageExtBrokerInner(
            f"t{number % 4}",
            b"body %d" % number,
            number % 2,
            properties={"a": str(number), "UNIQ_KEY": f"u{number}", "KEYS": f"k{number}"},
            born_timestamp=7,
        )
        for number in range(count)
    ]
    with MessageStore(
        tmp_path / "one", config, writable=True, create=True, clock=lambda: now
    ) as store:
        for bulk in store.append_stream(messages):
            assert bulk.refused is None
    many, one = (golden_data.tree_content(tmp_path / name) for name in ("many", "one"))
    assert {k: v for k, v in many.items() if not k.startswith("index/")} == {
        k: v for k, v in one.items() if not k.startswith("index/")
    }
    assert golden_data.index_contents(tmp_path / "many" / "index") == golden_data.index_contents(
        tmp_path / "one" / "index"
    )
    assert len(list((tmp_path / "many" / "commitlog").iterdir())) > 5
    with pytest.raises(WriteRefused, match="a row has no topic"):
        write_store(frame.selectExpr("NULLIF(topic, 't3') AS topic", "body"), f"{tmp_path}/x")
    assert write_store(frame.where("false"), f"{tmp_path}/none", config) == 0
    assert findings(tmp_path / "none") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many", "none", "one"]


def test_import_of_every_golden_store(
    spark: SparkSession, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine stores exported at once, and imported as one: every message stays what it was."""
    monkeypatch.setattr(newstore, "SMALL", 0)
    from rmqctl.spark.report import export
    from rmqctl.spark.sink import importer

    roots = sorted((golden(name) for name in golden_data.STORES if name != "defaults"), key=str)
    frame = export.selected(spark, [str(root) for root in roots], {}, exported_columns())
    messages, *_ = export.export(frame, exported_columns(), f"{tmp_path}/out", "parquet")
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 18, max_hash_slot_num=1000)
    rows = importer.read(spark, f"{tmp_path}/out", "parquet")
    assert importer.load(rows, f"{tmp_path}/new", config) == messages
    assert kept_of(tmp_path / "new", config) == [
        message for root in roots for message in kept_of(root, broker_conf(root.name))
    ]
    assert [f for f in verify(tmp_path / "new", config) if isinstance(f, Finding)] == []


def test_the_path_is_looked_at_first(tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path):
        with pytest.raises(WriteRefused, match="something is there already"):
            RocketMQWriter(path, parse_broker_conf(CONF), StructType())
    with pytest.raises(WriteRefused, match="give its directory"):
        RocketMQWriter(Path(""), parse_broker_conf(CONF), StructType())


def test_no_store_is_made_on_which_no_broker_starts(tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    conf = parse_broker_conf(CONF + "\nmappedFileSizeConsumeQueue=20\n")
    with pytest.raises(QueueFilesTooSmall):
        RocketMQWriter(tmp_path / "new", conf, StructType())
    assert list(tmp_path.iterdir()) == []
