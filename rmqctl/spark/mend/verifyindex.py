"""Checks the index on Spark: each task gets some files, with their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from rmqctl.spark.mend.facts import KEY_DTYPE, Gathered, arrow_batches, keys_of, rows_of
from rmqctl.spark.mend.told import TOLD, TOLD_DDL, Told, answers, told_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEYS = pa.schema([("part", pa.int32()), ("start", pa.int64()), ("data", pa.binary())])
_KEYS_DDL = "part int, start bigint, data binary"


class _Keys(NamedTuple):
    """Packed keys for a part of the index. ``start`` is the number of the first one in the log."""

    part: int
    start: int
    data: bytes


class _Checked(NamedTuple):
    findings: list[Any]
    items: int
    end: Any


def index_findings(
    spark: SparkSession,
    gathered: Gathered,
    side: Any,
    damage: list[Any],
    rules: ModuleType,
    borders: Sequence[Any],
) -> Iterator[Any]:
    """Compares all keys, in log order, with all items. A part whose premise did not hold is checked
    again, joined with the part before it. ``borders`` are those for which the notes have the
    numbers of keys."""
    counted = [told[1] for told in gathered.notes]
    parts, before = rules.index_parts.plan_parts(borders, counted)
    keys = gathered.facts.where("kind = 'keys'").select("part", "first", "length", "data")
    done: dict[Any, _Checked] = {}
    while True:
        todo = [part for part in parts if part not in done]
        checked = _check(spark, keys, before, todo, (rules.IndexSide, side, damage))
        done |= dict(zip(todo, checked, strict=True))
        ends = {part: done[part].end for part in parts}
        if not rules.index_parts.unmet(parts, ends):
            break
        parts = rules.index_parts.joined(parts, ends, before[-1])
    for part in parts:
        side.summary.index_items += done[part].items
        yield from done[part].findings


def _check(
    spark: SparkSession,
    keys: DataFrame,
    before: list[int],
    parts: list[Any],
    rules: tuple[Any, Any, list[Any]],
) -> list[_Checked]:
    """Checks each part of the index in one task."""
    from pyspark.sql import functions as F

    index_side, side, damage = rules
    snapshot, log_end = side.snapshot, side.summary.max_offset

    def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row in rows_of(batches):
            first = before[row["part"]] + row["first"]
            pieces = _pieces(row["data"], first, first + row["length"], parts)
            yield from arrow_batches(pieces, _KEYS)

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def told() -> Iterator[Told]:
            for number, rows in groupby(rows_of(batches), key=lambda row: row["part"]):
                checker = index_side(snapshot, damage, log_end, parts[number])
                for finding in checker.check(keys_of(row["data"]) for row in rows if row["data"]):
                    yield told_of("finding", (number, finding))
                yield told_of("end", (number, checker.items, checker.end))

        yield from arrow_batches(told(), TOLD)

    # A part without keys must get a task, too.
    every = spark.createDataFrame([(number, -1, b"") for number in range(len(parts))], _KEYS_DDL)
    ordered = (
        keys.mapInArrow(cut, _KEYS_DDL)
        .unionAll(every)
        .repartitionById(len(parts), F.col("part"))
        .sortWithinPartitions("part", "start")
    )
    findings: list[list[Any]] = [[] for _ in parts]
    ends: dict[int, tuple[int, Any]] = {}
    for kind, value in answers(ordered.mapInArrow(check, TOLD_DDL)):
        if kind == "finding":
            findings[value[0]].append(value[1])
        else:
            ends[value[0]] = value[1:]
    return [_Checked(findings[number], *ends[number]) for number in range(len(parts))]


def _pieces(data: bytes, first: int, end: int, parts: Sequence[Any]) -> Iterator[_Keys]:
    """The keys ``[first, end)``, cut for the parts that need them. Keys near a border go to both
    parts."""
    size = KEY_DTYPE.itemsize
    for number, part in enumerate(parts):
        low, high = max(first, part.first_key), min(end, part.end_key)
        if low < high:
            yield _Keys(number, low, data[(low - first) * size : (high - first) * size])
