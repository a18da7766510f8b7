"""verify on Spark: the rules of ``operations.verify``, over parts of the log at a time.

The log is scanned in parts, with body CRCs; its units go to the queues' checks, all units of a
queue in log order to one task, and its keys to the check of the index, which follows all files in
order and is one task. The rules come from the caller (``operations.verify.parts``): this only moves
their rows about.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from rmqctl.engine.dispatch.batches import UnitBatch
from rmqctl.engine.files import paths
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.ranges import LogPart, PartScan
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.spark.mend.facts import (
    Fact,
    Gathered,
    Packer,
    arrow_batches,
    gather,
    keys_of,
    rows_of,
    units_of,
)
from rmqctl.spark.mend.rebuild import open_log
from rmqctl.spark.session.jobs import parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDING_DDL = (
    "store string, code string, severity string, structure string, path string, "
    "physical_offset bigint, position bigint, topic string, queue_id bigint, "
    "queue_offset bigint, expected string, found string, advice string"
)
_TOLD = pa.schema([("kind", pa.string()), ("data", pa.binary())])
_TOLD_DDL = "kind string, data binary"


class Told(NamedTuple):
    """Findings, waits or counts of a task, pickled."""

    kind: str
    data: bytes


def _told(kind: str, value: object) -> Told:
    return Told(kind, pickle.dumps(value))


def verify(
    spark: SparkSession,
    root: Path,
    config: MessageStoreConfig,
    rules: ModuleType,
    part_bytes: int | None = None,
) -> tuple[list[Any], Any]:
    """The findings of a store, sorted by place, and its summary.

    :raises StoreNotFound, NotAStore, FileLengthContradiction: as verify without Spark.
    """
    paths.check_store(root)
    side = rules.StoreSide(root, config, None)
    with closing(side.log):
        found = _found(spark, side, rules, {} if part_bytes is None else {"part_bytes": part_bytes})
    summary = side.summary
    for one in found:
        summary.severities[one.severity] += 1
    return sorted(found, key=_place), summary


def _found(
    spark: SparkSession, side: Any, rules: ModuleType, arguments: dict[str, int]
) -> list[Any]:
    """All findings, in no order."""
    found: list[Any] = list(side.before())
    gathered = gather(spark, side.log, _kernel(side.snapshot, rules), **arguments)
    try:
        parts = [told[0] for told in gathered.notes]
        found += side.join(parts)
        damage = [one for part in parts for one in part.damage]
        found += _queues(spark, gathered, side, damage, rules)
        if side.snapshot.config.message_index_enable:
            found += _index(gathered, side, damage, rules)
    finally:
        gathered.facts.unpersist()
    return [*found, *side.after()]


def _place(finding: Any) -> tuple[Any, ...]:
    """Where a finding is: by file, place in it, place in the log; the store as a whole first."""
    keys = (finding.path, finding.position, finding.physical_offset, finding.queue_offset)
    return (*((value is not None, value) for value in keys), finding.code)


def _kernel(snapshot: Any, rules: ModuleType) -> Any:
    log_side = rules.LogSide

    def scan(part: LogPart) -> Iterator[Fact]:
        with closing(open_log(snapshot.root, snapshot.config, snapshot.log_file_size, part)) as log:
            dispatcher = snapshot.dispatcher()
            scanner = Scanner(log, check=True)
            side = log_side(snapshot, log)
            packer = Packer(
                part.number,
                dispatcher,
                scanner.topics,
                units=True,
                keys=snapshot.config.message_index_enable,
            )
            entries = PartScan(scanner, part)
            for entry in entries:
                side.add(entry)
                if isinstance(entry, Batch):
                    yield from packer.add(entry)
            yield from packer.finish()
            yield packer.note(side.finish())
            yield packer.note(entries.bounds)

    return scan


def _queues(
    spark: SparkSession, gathered: Gathered, side: Any, damage: list[Any], rules: ModuleType
) -> Iterator[Any]:
    """Each queue in one task: its units in log order, then what its files have beyond them."""
    snapshot, log_end = side.snapshot, side.summary.max_offset
    queue_side = rules.QueueSide
    # A queue that has files but no records must come to some task, too.
    directories = [
        (where.topic, where.queue_id, -1, 0, b"")
        for where in paths.queue_directories(Path(snapshot.root) / paths.CONSUME_QUEUE)
    ]
    schema = "topic string, queue_id bigint, part int, seq int, data binary"
    runs = gathered.facts.where("kind = 'units'").select("topic", "queue_id", "part", "seq", "data")
    rows = runs.unionAll(spark.createDataFrame(directories, schema)) if directories else runs
    ordered = rows.repartition(2 * parallelism(spark), "topic", "queue_id").sortWithinPartitions(
        "topic", "queue_id", "part", "seq"
    )

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        checker = queue_side(snapshot, damage, log_end)

        def told() -> Iterator[Told]:
            for key, runs in groupby(rows_of(batches), lambda row: (row["topic"], row["queue_id"])):
                number = checker.number(key[0])
                units = (_units(row, number) for row in runs if row["part"] >= 0)
                for finding in checker.check(*key, units):
                    yield _told("finding", finding)
            yield _told("waits", checker.waits())
            yield _told("units", checker.units)

        yield from arrow_batches(told(), _TOLD)

    waits = []
    for kind, value in _answers(ordered.mapInArrow(check, _TOLD_DDL)):
        if kind == "finding":
            yield value
        elif kind == "waits":
            waits.append(value)
        else:
            side.summary.units += value
    yield from side.together(waits)


def _units(row: dict[str, Any], topic_number: int) -> UnitBatch:
    import numpy as np

    units = units_of(row["data"])
    count = len(units)
    return UnitBatch(
        np.full(count, topic_number, np.int64),
        np.full(count, row["queue_id"], np.int64),
        units["queue_offset"].astype(np.int64),
        units["physical_offset"].astype(np.int64),
        units["size"].astype(np.int64),
        units["tags_code"].astype(np.int64),
    )


def _index(gathered: Gathered, side: Any, damage: list[Any], rules: ModuleType) -> Iterator[Any]:
    """All keys in log order against all items."""
    snapshot, log_min, log_end = side.snapshot, side.log.min_offset, side.summary.max_offset
    index_side = rules.IndexSide
    keys = gathered.facts.where("kind = 'keys'").select("part", "seq", "data")

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        checker = index_side(snapshot, damage, log_min, log_end)

        def told() -> Iterator[Told]:
            for finding in checker.check(keys_of(row["data"]) for row in rows_of(batches)):
                yield _told("finding", finding)
            yield _told("items", checker.items)

        yield from arrow_batches(told(), _TOLD)

    ordered = keys.repartition(1).sortWithinPartitions("part", "seq")
    for kind, value in _answers(ordered.mapInArrow(check, _TOLD_DDL)):
        if kind == "finding":
            yield value
        else:
            side.summary.index_items += value


def _answers(frame: DataFrame) -> Iterator[tuple[str, Any]]:
    """What tasks told; all of it comes to the driver, which puts it in order."""
    for row in frame.collect():
        yield row["kind"], pickle.loads(row["data"])


def write_findings(spark: SparkSession, rows: list[tuple[Any, ...]], output: str) -> None:
    """Rows of :data:`FINDING_DDL`, and the command line of each, as Parquet files in a new
    directory.

    :raises OutputExists: there is something.
    """
    from rmqctl.spark.session.staging import in_new_directory

    frame = spark.createDataFrame(rows, f"{FINDING_DDL}, command string").coalesce(1)
    with in_new_directory(output) as place:
        frame.write.mode("overwrite").parquet(place)
