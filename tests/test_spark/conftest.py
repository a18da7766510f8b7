"""One Spark session for all tests of a process, and rows to compare with the engine's."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.walk import Selection, walk_commit_log, walk_index, walk_queues

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
Rows = list[dict[str, Any]]


def why_not() -> str | None:
    """Why Spark cannot run here; None when it can."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed: pip install 'rmqctl[spark]'"
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin/java").exists()) and shutil.which("java") is None:
        return "there is no Java: Spark needs version 17 or later"
    return None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A quiet session on two cores."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    from pyspark.sql import SparkSession

    from rmqctl.spark import RocketMQDataSource

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{known}" if known else str(ROOT)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    builder = SparkSession.builder.master("local[2]").appName("rmqctl tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(RocketMQDataSource)
    yield session
    session.stop()


def engine_rows(structure: str, root: Path, config: MessageStoreConfig | None = None) -> Rows:
    """What the data source must give, from the walks of the engine."""
    walks = {"queue": walk_queues, "index": walk_index}
    with MessageStore(root, config) as store:
        if structure == "commitlog":
            rows = list(walk_commit_log(store, Selection(), "hex"))
        else:
            rows = list(walks[structure](store, Selection()))
    return [_row(structure, root, row) for row in rows if row["type"] not in ("blank", "summary")]


def _row(structure: str, root: Path, row: dict[str, Any]) -> dict[str, Any]:
    from rmqctl.spark.columns import STRUCTURES

    result = dict.fromkeys(column.name for column in STRUCTURES[structure])
    result["store"] = str(root)
    if row["type"] == "damage":
        result["status"] = "damage"
        if structure == "commitlog":
            result["physical_offset"] = row["physical_offset"]
            result["total_size"] = min(row["length"], 2**31 - 1)
            result["damage"] = f"{row['reason']}: expected {row['expected']}, found {row['found']}"
        else:
            result |= {name: row[name] for name in ("topic", "queue_id", "queue_offset")}
            result["damage"] = f"{row['reason']}: expected {row['length']} units, found zeros"
        return result
    result |= {name: row[name] for name in result.keys() & row.keys()}
    result["status"] = "ok"
    if structure == "commitlog":
        result["body"] = bytes.fromhex(row["body"])
        result["born_time"] = moment(row["born_timestamp"])
    if structure == "queue" and (row["physical_offset"], row["size"], row["tags_code"]) == (
        0,
        2**31 - 1,
        0,
    ):
        result["status"] = "pre-blank"
    if structure in ("commitlog", "index"):
        result["store_time"] = moment(row["store_timestamp"])
    return result


def moment(milliseconds: int) -> datetime | None:
    """A time as Spark has it; None outside of its calendar."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def read_rows(settings: Any, names: list[str] | None = None, bounds: Any = None) -> Rows:
    """The rows of a read as executors make them, in this process: the splits travel as bytes."""
    import pyarrow as pa

    from rmqctl.spark import splits
    from rmqctl.spark.arrow import ARROW_TYPES
    from rmqctl.spark.columns import STRUCTURES
    from rmqctl.spark.pushdown import Bounds

    kinds = {column.name: column.type for column in STRUCTURES[settings.structure]}
    schema = pa.schema([(name, ARROW_TYPES[kinds[name]]) for name in names or kinds])
    bounds = bounds or Bounds()
    rows: Rows = []
    for split in splits.plan(settings, bounds):
        split, settings, bounds = pickle.loads(pickle.dumps((split, settings, bounds)))
        for batch in splits.read(split, settings, bounds, schema):
            batch.validate(full=True)
            rows += table_rows(batch)
    return rows


def table_rows(table: Any) -> Rows:
    """An Arrow table as rows; maps become dicts, and hold no name twice."""
    rows: Rows = table.to_pylist()
    for row in rows:
        if row.get("properties") is not None:
            assert len(dict(row["properties"])) == len(row["properties"])
            row["properties"] = dict(row["properties"])
    return rows
