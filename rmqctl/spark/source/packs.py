"""Small splits put into one task, as Spark packs the small files of its own sources
(``FilePartition#maxSplitBytes``, ``#getFilePartitions``)."""

from __future__ import annotations

import os
from collections.abc import Iterable

from pyspark.sql.datasource import InputPartition

from rmqctl.spark.source.split import Pack, ReadSettings, Split

#: Bytes that could be read in the time in which a split is opened: ``openCostInBytes``.
OPEN_COST = 4 << 20


def packed(splits: Iterable[Split], settings: ReadSettings) -> list[InputPartition]:
    """Splits in their order, neighbours together that are small: a task has about ``split_bytes``
    at the most, and there are as many tasks as can run at once, where there are so many splits.
    With ``min_partitions`` every split stays a task."""
    every = list(splits)
    if settings.min_partitions > 0:
        return list(every)
    total = sum(map(_weight, every))
    tasks = max(1, min(settings.parallelism or os.cpu_count() or 1, total // OPEN_COST))
    if settings.split_bytes > 0:
        tasks = max(tasks, -(-total // settings.split_bytes))
    packs: dict[int, list[Split]] = {}
    before = 0
    for split in every:
        # By where its middle lies, so that all tasks have about the same.
        middle = 2 * before + _weight(split)
        packs.setdefault(middle * tasks // (2 * total), []).append(split)
        before += _weight(split)
    return [some[0] if len(some) == 1 else Pack(tuple(some)) for some in packs.values()]


def _weight(split: Split) -> int:
    return split.size + OPEN_COST
