"""Splits of queues, of which retention removes the first files between the plan and its tasks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqctl.arrow.arrays import arrow_schema
from rmqctl.rows.columns import default_names
from rmqctl.spark.source import splits
from rmqctl.spark.source.pushdown import Bounds
from rmqctl.spark.source.split import ReadSettings
from tests.retention import Retention
from tests.test_safety.support import message, small_config
from tests.test_safety.test_beside_retention import put

CONFIG = small_config(log=4096, queue=200, slots=20, items=60)
GONE = "1 files were removed since the plan was made (retention)"


@pytest.mark.parametrize("before", [0, 3, 5, 9])
def test_no_unit_that_is_left_is_lost_or_told_twice(tmp_path: Path, before: int) -> None:
    root = put(tmp_path / "store", CONFIG)
    settings = ReadSettings("queue", [str(root)], CONFIG, split_bytes=16384)
    schema = arrow_schema("queue", default_names("queue"))
    plan = list(splits.plan(settings, Bounds()))
    assert len(plan) > 20
    rows = []
    for number, split in enumerate(plan):
        if number == before:
            Retention(root, CONFIG, 8, 1, at_once=True).go_on(None)
        for batch in splits.read(split, settings, Bounds(), schema):
            rows += batch.to_pylist()
    units = Counter(
        (row["topic"], row["queue_id"], row["queue_offset"]) for row in rows if not row["damage"]
    )
    queues = {(message(number).topic, message(number).queue_id) for number in range(300)}
    left = {(*queue, at) for queue in queues for at in range(20, 50)}
    assert set(units.values()) == {1} and units.keys() >= left
    assert {row["damage"] for row in rows} == {None, GONE}
