"""``verify`` on Spark: the checks of ``operations.verify``, in parts.

The log is scanned in parts, with body CRCs. The same tasks look up the units in the files of their
queues. The units that are not there go to the task that checks the queue, together with the
positions of those that are. The keys go to the tasks that check the index, some files each. If one
such task does not end with the premise of the next one, both are checked again as one.

The checks come from the caller (``operations.verify.inparts``). This module only moves their rows.
"""

from __future__ import annotations

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
from rmqctl.errors import CannotRead
from rmqctl.spark.mend.facts import (
    FACTS,
    KEYS,
    Fact,
    Gathered,
    Packer,
    arrow_batches,
    gather,
    keys_of,
    rows_of,
    text_of,
    units_of,
)
from rmqctl.spark.mend.rebuild import open_log
from rmqctl.spark.mend.told import TOLD, TOLD_DDL, Told, answers, told_of
from rmqctl.spark.mend.verifyindex import index_findings
from rmqctl.spark.session.failures import end_of_java
from rmqctl.spark.session.jobs import parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDING_DDL = (
    "store string, code string, severity string, structure string, path string, "
    "physical_offset bigint, position bigint, topic string, queue_id bigint, "
    "queue_offset bigint, expected string, found string, advice string"
)


def verify(
    spark: SparkSession,
    root: Path,
    config: MessageStoreConfig,
    rules: ModuleType,
    part_bytes: int | None = None,
    least: tuple[int, int] | None = None,
) -> tuple[list[Any], Any]:
    """The findings of a store, sorted by place, and its summary. If a broker's retention removes
    files of the log that are yet to be read, the check begins anew with those that are left.

    :param least: the fewest units of a run that is looked up by the task which scans it, and the
        fewest index items of a task; None: the defaults.

    :raises StoreNotFound, NotAStore, FileLengthContradiction: as verify without Spark.
    """
    paths.check_store(root)
    arguments = {} if part_bytes is None else {"part_bytes": part_bytes}
    while True:
        side = rules.StoreSide(root, config, None)
        with closing(side.log):
            try:
                found = _found(spark, side, rules, arguments, least)
                break
            except end_of_java():
                if not _begins_later(side):
                    raise
    summary = side.summary
    for one in found:
        summary.severities[one.severity] += 1
    return sorted(map(rules.Adviser(root, config), found), key=_place), summary


def _begins_later(side: Any) -> bool:
    """Whether the first files of the log have been removed since the check began."""
    with closing(side.snapshot.open_log()) as log:
        return bool(log.min_offset > side.log.min_offset)


def _found(
    spark: SparkSession,
    side: Any,
    rules: ModuleType,
    arguments: dict[str, int],
    least: tuple[int, int] | None,
) -> list[Any]:
    """All findings, in no particular order."""
    found: list[Any] = list(side.before())
    least_units, least_items = least or (rules.LEAST_STORED, rules.index_parts.LEAST_ITEMS)
    has_index = side.snapshot.config.message_index_enable
    borders = rules.index_parts.index_borders(side.snapshot, least_items) if has_index else []
    kernel = _kernel(side.snapshot, rules, least_units, borders)
    gathered = gather(spark, side.log, kernel, **arguments)
    try:
        parts = [told[0] for told in gathered.notes]
        found += side.join(parts)
        damage = [one for part in parts for one in part.damage]
        found += _queues(spark, gathered, side, damage, rules)
        if has_index:
            found += index_findings(spark, gathered, side, damage, rules, borders)
    finally:
        gathered.facts.unpersist()
    return [*found, *side.after()]


def _place(finding: Any) -> tuple[Any, ...]:
    """The sort key of a finding: file, position in it, physical offset. Findings of the whole store
    come first."""
    keys = (finding.path, finding.position, finding.physical_offset, finding.queue_offset)
    return (*((value is not None, value) for value in keys), finding.code)


def _kernel(snapshot: Any, rules: ModuleType, least: int, borders: list[Any]) -> Any:
    log_side, units_lookup, part_keys = rules.LogSide, rules.UnitsLookup, rules.index_parts.PartKeys

    def scan(part: LogPart) -> Iterator[Fact]:
        with closing(open_log(snapshot.root, snapshot.config, snapshot.log_file_size, part)) as log:
            dispatcher = snapshot.dispatcher()
            scanner = Scanner(log, check=True, indexes_tags=dispatcher.indexes_tags)
            side = log_side(snapshot, log)
            packer = Packer(
                part.number,
                dispatcher,
                scanner.topics,
                units=True,
                keys=snapshot.config.message_index_enable,
            )
            looked, keys = units_lookup(snapshot, least), part_keys(borders)
            entries = PartScan(scanner, part)
            for entry in entries:
                side.add(entry)
                if isinstance(entry, Batch):
                    for fact in packer.add(entry):
                        yield _looked_at(fact, looked, keys)
            for fact in packer.finish():
                yield _looked_at(fact, looked, keys)
            yield packer.note(side.finish())
            yield packer.note(keys)
            yield packer.note(entries.bounds)

    return scan


def _looked_at(fact: Fact, looked: Any, keys: Any) -> Fact:
    """A fact without its units, if they are all in the queue's files, where they can be read
    again."""
    if fact.kind == KEYS:
        keys.add(keys_of(fact.data))
        return fact
    units = units_of(fact.data)
    is_stored = looked.find(fact.topic, fact.queue_id, units) is not None
    return fact._replace(data=b"") if is_stored else fact


def _queues(
    spark: SparkSession, gathered: Gathered, side: Any, damage: list[Any], rules: ModuleType
) -> Iterator[Any]:
    """Checks each queue in one task: its units in log order, and then the rest of its files. A run
    that was found in the files comes as its position and length only."""
    snapshot, log_end = side.snapshot, side.summary.max_offset
    queue_side, stored_units = rules.QueueSide, rules.StoredUnits
    runs = gathered.facts.where("kind = 'units'").select(*_Run._fields)
    # A queue that has files but no records must get a task, too.
    rows = runs.unionAll(_directories(spark, Path(snapshot.root)))
    ordered = rows.repartition(2 * parallelism(spark), "topic", "queue_id").sortWithinPartitions(
        "topic", "queue_id", "part", "seq"
    )

    def check(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        checker = queue_side(snapshot, damage, log_end)

        def told() -> Iterator[Told]:
            for key, runs in groupby(rows_of(batches), lambda row: (row["topic"], row["queue_id"])):
                number = checker.number(key[0])
                units = (
                    _units(row, number)
                    if row["data"]
                    else stored_units(row["first"], row["length"])
                    for row in runs
                    if row["part"] >= 0
                )
                for finding in checker.check(*key, units):
                    yield told_of("finding", finding)
            yield told_of("waits", checker.waits())
            yield told_of("units", checker.units)

        yield from arrow_batches(told(), TOLD)

    waits = []
    for kind, value in answers(ordered.mapInArrow(check, TOLD_DDL)):
        if kind == "finding":
            yield value
        elif kind == "waits":
            waits.append(value)
        else:
            side.summary.units += value
    yield from side.together(waits)


class _Run(NamedTuple):
    """A run of units, or the directory of a queue, which belongs to no part."""

    topic: str
    queue_id: int
    part: int = -1
    seq: int = 0
    first: int = 0
    length: int = 0
    data: bytes = b""


_RUNS_DDL = (
    "topic string, queue_id bigint, part int, seq int, first bigint, length bigint, data binary"
)
_RUNS = pa.schema([FACTS.field(name) for name in _Run._fields])


def _directories(spark: SparkSession, root: Path) -> DataFrame:
    """The queues that have files, as listed by a task, because there may be more than fit into the
    driver. The task raises CannotRead if its node does not see them."""
    base = root / paths.CONSUME_QUEUE
    has_some = next(paths.queue_paths(base), None) is not None

    def listed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        is_seen = not has_some
        for _ in rows_of(batches):
            queues = (_Run(text_of(topic), number) for topic, number, _ in paths.queue_paths(base))
            for batch in arrow_batches(queues, _RUNS):
                is_seen = True
                yield batch
        if not is_seen:
            raise CannotRead(
                path=str(base),
                reason="a worker of Spark does not see its queues: they were removed meanwhile, or "
                "that node does not see the store under the same path",
            )

    return spark.range(0, 1, 1, 1).mapInArrow(listed, _RUNS_DDL)


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


def write_findings(spark: SparkSession, rows: list[tuple[Any, ...]], output: str) -> None:
    """Writes rows of :data:`FINDING_DDL`, and the command line of each, as Parquet files into a new
    directory.

    :raises OutputExists: it exists already.
    """
    from rmqctl.spark.session.staging import in_new_directory

    frame = spark.createDataFrame(rows, f"{FINDING_DDL}, command string").coalesce(1)
    with in_new_directory(output) as place:
        frame.write.mode("overwrite").parquet(place)
