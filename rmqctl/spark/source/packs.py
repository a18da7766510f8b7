"""Packs small splits into one task, as Spark does with the small files of its own sources
(``FilePartition#maxSplitBytes``, ``#getFilePartitions``)."""

from __future__ import annotations

import os
from collections.abc import Iterable

from pyspark.sql.datasource import InputPartition

from rmqctl.spark.source.split import Pack, ReadSettings, Split

#: The cost of opening a split, as the bytes that could be read meanwhile (``openCostInBytes``).
OPEN_COST = 4 << 20


def packed(splits: Iterable[Split], settings: ReadSettings) -> list[InputPartition]:
    """Packs neighbouring small splits together. A task gets at most about ``split_bytes``. There
    are at least as many tasks as can run at once, if there are so many splits. With
    ``min_partitions`` each split stays a task."""
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
        # The task is chosen by the split's middle, so that all tasks get about the same.
        middle = 2 * before + _weight(split)
        packs.setdefault(middle * tasks // (2 * total), []).append(split)
        before += _weight(split)
    return [some[0] if len(some) == 1 else Pack(tuple(some)) for some in packs.values()]


def _weight(split: Split) -> int:
    return split.size + OPEN_COST
