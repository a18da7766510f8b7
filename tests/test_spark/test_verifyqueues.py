"""The queues that verify on Spark looks at come from a task: there may be very many."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqctl.engine.files import paths
from rmqctl.spark.session.failures import SparkFailed, failures_told

pytest.importorskip("pyarrow", reason="pip install '.[spark]'")

from rmqctl.spark.mend.verify import _directories

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


def test_the_driver_holds_no_list_of_them(
    spark: SparkSession, golden: Callable[[str], Path]
) -> None:
    root = golden("basic")
    rows = _directories(spark, root)
    known = paths.queue_directories(root / paths.CONSUME_QUEUE)
    expected = [(one.topic, one.queue_id) for one in known]
    assert sorted((row["topic"], row["queue_id"]) for row in rows.collect()) == sorted(expected)
    assert "LocalTableScan" not in rows._jdf.queryExecution().toString()


def test_a_task_that_does_not_see_them_is_no_store_without_queues(
    spark: SparkSession, copy_store: Callable[[str], Path]
) -> None:
    root = copy_store("basic")
    rows = _directories(spark, root)
    shutil.rmtree(root / paths.CONSUME_QUEUE)
    with pytest.raises(SparkFailed, match="does not see its queues"), failures_told():
        rows.collect()


def test_a_name_that_is_no_text_ends_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "a\udcff" / "0").mkdir(parents=True)
    (row,) = _directories(spark, tmp_path).collect()
    assert (row["topic"], row["queue_id"], row["part"]) == ("a\ufffd", 0, -1)
