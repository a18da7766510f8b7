"""The writer: a new store that is valid, or nothing at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.engine.config import parse_broker_conf
from rmqctl.operations.verify import Finding, verify
from tests.conftest import Golden
from tests.golden_data import broker_conf, broker_conf_text

pytest.importorskip("pyspark", reason="pip install 'rmqctl[spark]'")
pytest.importorskip("pyarrow", reason="pip install 'rmqctl[spark]'")

import pyarrow as pa

from rmqctl.spark import scan
from rmqctl.spark.writer import RocketMQWriter, WriteRefused
from tests.test_spark.conftest import engine_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.xdist_group("spark")

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
    with pytest.raises(Exception, match="something is there already"):
        save(frame, target)
    with pytest.raises(Exception, match="never overwritten"):
        frame.write.format("rocketmq").mode("overwrite").save(str(target))
    assert findings(target) == []


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


def test_only_committed_attempts_count(tmp_path: Path) -> None:
    """A task that was tried twice has put its rows aside twice."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(
        {"type": "struct", "fields": [
            {"name": name, "type": "string", "nullable": True, "metadata": {}}
            for name in ("topic", "body")
        ]}
    )  # fmt: skip
    writer = RocketMQWriter(tmp_path / "store", parse_broker_conf(CONF), schema)
    batch: Any = pa.record_batch({"topic": ["t"], "body": ["b"]})
    message = writer.write(iter([batch, batch]))
    (writer._staging / "000000-9.arrow").write_bytes(b"cut off")
    writer.commit([message, None])
    assert len(engine_rows("commitlog", tmp_path / "store", parse_broker_conf(CONF))) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_the_path_is_looked_at_first(tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path):
        with pytest.raises(WriteRefused, match="something is there already"):
            RocketMQWriter(path, parse_broker_conf(CONF), StructType())
    with pytest.raises(WriteRefused, match="give its directory"):
        RocketMQWriter(Path(""), parse_broker_conf(CONF), StructType())
