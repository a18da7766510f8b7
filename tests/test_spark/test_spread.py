"""A log in several directories: Spark reads it as the engine does, or says why it does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.operations.verify import inparts
from tests.test_engine.test_multipath import write
from tests.test_spark.conftest import engine_rows, read_rows, table_rows, verdict
from tests.test_spark.test_commands import assert_rebuilt_alike, run

pytest.importorskip("pyspark", reason="pip install '.[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from rmqctl.rows.columns import ddl
from rmqctl.spark import RocketMQDataSource, scan
from rmqctl.spark.sink.newstore import WriteRefused, write_store
from rmqctl.spark.source.options import Following
from rmqctl.spark.source.split import ReadSettings
from rmqctl.spark.source.stream import RocketMQStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")
COUNT = 30
#: Two parts a file.
PART_BYTES = 600


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """The broker.conf of a store whose log lies on three disks, and on a fourth for reading."""
    disks = ",".join(str(tmp_path / f"disk-{name}") for name in "bca")
    path = tmp_path / "broker.conf"
    path.write_text(
        f"storePathCommitLog={disks}\nreadOnlyCommitLogStorePaths={tmp_path / 'disk-d'}\n"
        "mappedFileSizeCommitLog=1000\nmappedFileSizeConsumeQueue=400\n"
        "maxHashSlotNum=10\nmaxIndexNum=500\n"
    )
    write(tmp_path / "store", config_of(path), last=COUNT)
    (tmp_path / "disk-d").mkdir()
    first = tmp_path / "disk-a" / f"{0:020d}"
    first.rename(tmp_path / "disk-d" / first.name)
    return path


def config_of(conf: Path) -> MessageStoreConfig:
    return parse_broker_conf(conf.read_text())


def test_every_reader_sees_all_directories(spark: SparkSession, conf: Path, tmp_path: Path) -> None:
    from rmqctl.spark.mend import verify as on_spark

    root, config = tmp_path / "store", config_of(conf)
    assert not (root / "commitlog").exists()
    expected = engine_rows("commitlog", root, config)
    assert len(expected) == COUNT

    settings = ReadSettings("commitlog", [str(root)], config, split_bytes=PART_BYTES)
    assert read_rows(settings) == expected
    found = scan(spark, str(root), columns=list(expected[0]), brokerConf=str(conf)).toArrow()
    assert table_rows(found) == expected

    columns = spark.createDataFrame([], ddl("commitlog", ["physical_offset"])).schema
    reader = RocketMQStreamReader(settings, columns, str(root), Following())
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    followed = [
        row["physical_offset"]
        for split in reader.partitions(start, end)
        for batch in reader.read(split)
        for row in batch.to_pylist()
    ]
    assert followed == [row["physical_offset"] for row in expected]

    engines, summary = verdict(root, config)
    assert on_spark.verify(spark, root, config, inparts, PART_BYTES) == (engines, summary)
    assert summary.records == COUNT
    assert_rebuilt_alike(spark, root, config, tmp_path, PART_BYTES)


def test_it_is_the_log_of_one_store_here(spark: SparkSession, conf: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", config_of(conf), last=1)
    for words in (["verify"], ["sql", "SELECT 1"], ["rebuild", "all", "--in-place", "--yes"]):
        stores = ["--store", str(tmp_path / "store"), "--store", str(tmp_path / "other")]
        _, _, error = run(*words, *stores, "--broker-conf", str(conf), "--master", "local[2]")
        assert isinstance(error, click.UsageError)
        assert "lists the directories of one store on this machine" in str(error)
    for path in (f"{tmp_path}/store,{tmp_path}/other", "s3://bucket/store"):
        source = RocketMQDataSource({"path": path, "brokerConf": str(conf)})
        with pytest.raises(ValueError, match="read it alone"):
            source.reader(spark.range(1).schema)
    frame = spark.range(1).selectExpr("'t' AS topic", "'b' AS body")
    with pytest.raises(WriteRefused, match="take storePathCommitLog out of its conf"):
        write_store(frame, str(tmp_path / "new"), config_of(conf))
    assert not (tmp_path / "new").exists()
