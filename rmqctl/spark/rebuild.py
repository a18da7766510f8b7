"""rebuild on Spark: the files that the engine's own writers make, many at a time.

Units are packed into runs where the log is scanned, and each queue file is written by one task
through :class:`ConsumeQueue`; so one queue that has most of the messages is still many tasks. A
queue with a gap or an offset out of order cannot be cut so, and is one task. Items of the index are
numbered by counts of the parts, and each index file is one task, too. A task builds in a directory
of its own attempt and renames what is whole: retried or doubled tasks do no harm.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from formats import layouts
from formats.constants import MIN_RECORD_SIZE
from formats.geometry import Geometry
from rmqctl.engine import paths
from rmqctl.engine.commitlog import CommitLog
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.engine.dispatch import Dispatcher
from rmqctl.engine.indexfile import IndexFile, IndexHeader, first_header
from rmqctl.engine.logparts import LogPart, PartScan
from rmqctl.engine.mappedfile import MappedFile
from rmqctl.engine.multipath import log_directories, open_commit_log
from rmqctl.engine.record import Damage
from rmqctl.engine.scanner import Batch, Scanner
from rmqctl.errors import CannotRead
from rmqctl.spark.facts import (
    NO_FILE,
    Fact,
    Gathered,
    Packer,
    arrow_batches,
    gather,
    keys_of,
    rows_of,
    units_of,
)
from rmqctl.spark.staging import NotShared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HEADER = Struct(layouts.INDEX_HEADER.format)
_ATTEMPTS = "rmqctl-attempts-"
#: Units of 320 MiB of queue, as in a rebuild without Spark.
_MOST_FILLED = 1 << 24
_WRITTEN = pa.schema([("path", pa.string())])


class Plan(Protocol):
    """What to build: ``operations.rebuild.RebuildPlan``."""

    @property
    def root(self) -> Path: ...
    @property
    def config(self) -> MessageStoreConfig: ...
    @property
    def queues(self) -> bool: ...
    @property
    def index(self) -> bool: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def queue_id(self) -> int | None: ...
    @property
    def commit_log_file_size(self) -> int: ...
    @property
    def consume_queue_file_size(self) -> int: ...


class PartNote(NamedTuple):
    """What a part tells the driver."""

    records: int
    keys: int
    lost: int
    last_record: int
    last_key: int
    damage: list[Damage]
    topics: list[tuple[str, bool]]


@dataclass(frozen=True)
class _Job:
    """What tasks are told; plain values only."""

    root: str
    output: str
    attempts: str
    config: MessageStoreConfig
    log_file_size: int
    queue_file_size: int
    queues: bool
    index: bool

    @property
    def units_per_file(self) -> int:
        """0 when a file does not end with a unit: then queues are not cut."""
        return 0 if self.queue_file_size % UNIT_SIZE else self.queue_file_size // UNIT_SIZE


@dataclass
class Built:
    """The fields of ``operations.rebuild.RebuildSummary`` that a build knows."""

    records: int
    units: int
    index_items: int
    queues: int
    damage: list[Damage]
    refused_topics: list[str]


def build(spark: SparkSession, plan: Plan, output: Path, part_bytes: int | None = None) -> Built:
    """Builds ``consumequeue/`` and ``index/`` of a plan below ``output``, an existing directory
    that all nodes see. When it fails nothing of it is left there.
    """
    attempts = output / f"{_ATTEMPTS}{uuid.uuid4().hex}"
    job = _Job(
        str(plan.root.absolute()),
        str(output.absolute()),
        str(attempts.absolute()),
        plan.config,
        plan.commit_log_file_size,
        plan.consume_queue_file_size,
        plan.queues,
        plan.index,
    )
    made = [output / paths.CONSUME_QUEUE, output / paths.INDEX, attempts]
    attempts.mkdir()
    try:
        return _build(spark, plan, job, part_bytes)
    except BaseException:
        stop_tasks(spark)
        for directory in made:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(attempts, ignore_errors=True)


def stop_tasks(spark: SparkSession) -> None:
    """Nothing may be written after the clean-up."""
    context = getattr(spark, "_sc", None)
    if context is not None:
        try:
            context.cancelAllJobs()
        except Exception:
            pass  # Java has ended already, and its tasks with it.


def _build(spark: SparkSession, plan: Plan, job: _Job, part_bytes: int | None) -> Built:
    log = open_commit_log(plan.root, plan.config, plan.commit_log_file_size)
    arguments = {} if part_bytes is None else {"part_bytes": part_bytes}
    gathered = gather(spark, log, _kernel(job), **arguments)
    try:
        notes: list[PartNote] = [told[0] for told in gathered.notes]
        units = queues = 0
        if job.queues:
            units, queues = _write_queues(spark, gathered, notes, job, plan)
        if job.index:
            _write_index(gathered, notes, job)
    finally:
        gathered.facts.unpersist()
        log.close()
    topics = dict(topic for note in notes for topic in note.topics)
    return Built(
        records=sum(note.records for note in notes),
        units=units,
        index_items=sum(note.keys for note in notes),
        queues=queues,
        damage=[damage for note in notes for damage in note.damage],
        refused_topics=[name for name, allowed in topics.items() if not allowed],
    )


def _kernel(job: _Job) -> Callable[[LogPart], Iterator[Fact]]:
    def scan(part: LogPart) -> Iterator[Fact]:
        log = open_log(job.root, job.config, job.log_file_size, part)
        dispatcher = Dispatcher(job.config)
        scanner = Scanner(log, dispatcher)
        packer = Packer(
            part.number,
            dispatcher,
            scanner.topics,
            units=job.queues,
            keys=job.index,
            units_per_file=job.units_per_file,
        )
        records, last_record, last_key = 0, -1, -1
        damage: list[Damage] = []
        entries = PartScan(scanner, part)
        for entry in entries:
            if isinstance(entry, Batch):
                yield from packer.add(entry)
                records += len(entry)
                last_record = int(entry.physical_offset[-1])
                if len(entry.key_row):
                    last_key = _last_key(entry, last_key)
            elif isinstance(entry, Damage):
                yield from packer.flush_units()
                packer.lost += entry.length
                damage.append(entry)
        yield from packer.finish()
        allowed = scanner.topics.allowed_array().tolist()
        topics = list(zip(scanner.topics.names, allowed, strict=True))
        yield packer.note(
            PartNote(records, packer.keys, packer.lost, last_record, last_key, damage, topics)
        )
        yield packer.note(entries.bounds)
        log.close()

    return scan


def _last_key(batch: Batch, otherwise: int) -> int:
    """Physical offset of the last record of a batch that has an index key."""
    from rmqctl.engine.dispatch import key_batch

    keys = key_batch(batch)
    return int(keys.physical_offset[-1]) if len(keys.physical_offset) else otherwise


def open_log(root: str, config: MessageStoreConfig, file_size: int, part: LogPart) -> CommitLog:
    """The log as this node sees it; :raises CannotRead: it has not the file of the part."""
    log = open_commit_log(Path(root), config, file_size)
    known = {entry.file_from_offset for entry in log.files.entries}
    if log.files.index_of(part.start) < 0 and part.start not in known:
        raise CannotRead(
            path=", ".join(map(str, log_directories(Path(root), config).all)),
            reason=f"a worker of Spark does not see the file with offset {part.start}; every node "
            "must see the store under the same path",
        )
    return log


# --- queues --------------------------------------------------------------------------------


def _write_queues(
    spark: SparkSession, gathered: Gathered, notes: list[PartNote], job: _Job, plan: Plan
) -> tuple[int, int]:
    """Units and queues written."""
    from pyspark.sql import functions as F

    runs = gathered.facts.where("kind = 'units'")
    if plan.topic is not None:
        runs = runs.where(F.col("topic") == plan.topic)
    if plan.queue_id is not None:
        runs = runs.where(F.col("queue_id") == plan.queue_id)
    queues = _queues(runs)
    counts = queues.agg(F.sum("units"), F.count("*"), F.sum("files")).first()
    units, count, files = (int(value or 0) for value in counts or (0, 0, 0))
    if not count:
        return 0, 0
    lost_before = _prefix_sums([note.lost for note in notes])
    tasks = max(1, min(files, 4 * _parallelism(spark)))
    hard = queues.where("is_hard").select("topic", "queue_id", "is_hard")
    ordered = (
        runs.join(F.broadcast(hard), ["topic", "queue_id"], "left")
        .withColumn("file_no", F.when(F.col("is_hard"), F.lit(NO_FILE)).otherwise(F.col("file_no")))
        .select("topic", "queue_id", "file_no", "part", "seq", "lost", "data")
        .repartition(tasks, "topic", "queue_id", "file_no")
        .sortWithinPartitions("topic", "queue_id", "file_no", "part", "seq")
    )

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = "topic", "queue_id", "file_no"
        for key, rows in groupby(rows_of(batches), key=lambda row: tuple(row[n] for n in names)):
            topic, queue_id, _ = key
            yield from arrow_batches(
                (
                    Written(str(path))
                    for path in _write_queue(job, topic, queue_id, rows, lost_before)
                ),
                _WRITTEN,
            )

    _run(ordered.mapInArrow(write, "path string"))
    return units, count


class Written(NamedTuple):
    path: str


def _queues(runs: DataFrame) -> DataFrame:
    """One row a queue; ``is_hard`` when its runs do not simply follow each other."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy("topic", "queue_id").orderBy("part", "seq")
    follows = F.lag(F.col("first") + F.col("length")).over(order)
    told = runs.select("topic", "queue_id", "file_no", "part", "seq", "first", "length")
    breaks = (F.col("file_no") == NO_FILE) | (follows.isNotNull() & (follows != F.col("first")))
    return (
        told.select("*", breaks.alias("breaks"))
        .groupBy("topic", "queue_id")
        .agg(
            F.max("breaks").alias("is_hard"),
            F.sum("length").alias("units"),
            F.countDistinct("file_no").alias("files"),
        )
    )


def _write_queue(
    job: _Job, topic: str, queue_id: int, rows: Iterable[dict[str, Any]], lost_before: list[int]
) -> Iterator[Path]:
    """Writes one queue, or one file of it, and puts its files in place."""
    attempt = _attempt(job)
    relative = Path(paths.CONSUME_QUEUE) / topic / str(queue_id)
    building = attempt / relative
    queue = ConsumeQueue(building, topic, queue_id, job.queue_file_size, writable_root=attempt)
    try:
        for row in rows:
            units = units_of(row["data"])
            lost = lost_before[row["part"]] + row["lost"]
            queue.put_units(
                units["physical_offset"].astype("i8"),
                units["size"].astype("i8"),
                units["tags_code"].astype("i8"),
                units["queue_offset"].astype("i8"),
                max_gap=min(lost // MIN_RECORD_SIZE, _MOST_FILLED),
            )
        queue.flush()
    finally:
        queue.close()
    yield from _put_in_place(building, Path(job.output), relative)
    shutil.rmtree(attempt)


def _attempt(job: _Job) -> Path:
    """A directory for one attempt of a task; :raises NotShared: this node has not the one that the
    driver has made for all of them."""
    attempt = Path(job.attempts) / uuid.uuid4().hex
    try:
        attempt.mkdir()
    except FileNotFoundError as error:
        raise NotShared(path=job.output) from error
    return attempt


def _put_in_place(building: Path, output: Path, relative: Path) -> Iterator[Path]:
    """Renames the files of a directory into one below the output, durably. The output itself is
    never made: a task that comes too late must leave nothing."""
    for parent in (*reversed(relative.parents[:-1]), relative):
        (output / parent).mkdir(exist_ok=True)
    place = output / relative
    for source in sorted(building.iterdir()):
        os.replace(source, place / source.name)
        yield place / source.name
    descriptor = os.open(place, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


# --- index ---------------------------------------------------------------------------------


def _write_index(gathered: Gathered, notes: list[PartNote], job: _Job) -> None:
    """Every index file through the engine's own writer, each in one task."""
    from pyspark.sql import functions as F

    geometry = job.config.index_geometry
    capacity = geometry.index_num - 1
    counts = [note.keys for note in notes]
    before, total = _prefix_sums(counts), sum(counts)
    records = sum(note.records for note in notes)
    if not records:
        return
    files = -(-total // capacity)
    newest_record = max(note.last_record for note in notes)
    newest_key = max(note.last_key for note in notes)
    # A record behind a full file makes the next one, keys or not, and so does the first record.
    has_empty_last = total % capacity == 0 and (not total or newest_record > newest_key)
    names = _index_names(files + has_empty_last)
    os.makedirs(Path(job.output) / paths.INDEX, exist_ok=True)
    last_item: dict[int, IndexHeader] = {}
    if files:

        def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for row in rows_of(batches):
                start = before[row["part"]] + row["first"]
                yield from arrow_batches(_pieces(row["data"], start, capacity), _PIECES)

        def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for file_no, rows in groupby(rows_of(batches), key=lambda row: row["file_no"]):
                end = _write_index_file(job, names[file_no], geometry, file_no * capacity, rows)
                yield _end_row(file_no, end)

        pieces = gathered.facts.where("kind = 'keys'").mapInArrow(cut, _PIECES_DDL)
        placed = (
            pieces.where(F.col("file_no") < files)
            .repartitionById(files, F.col("file_no").cast("int"))
            .sortWithinPartitions("file_no", "start")
        )
        ends = placed.mapInArrow(write, _ENDS_DDL).collect()
        newest = max(ends, key=lambda row: row["file_no"])
        last_item[files - 1] = IndexHeader(0, newest["timestamp"], 0, newest["offset"], 0, 1)
    if has_empty_last:
        head = _HEADER.pack(*first_header(last_item.get(files - 1)))
        path = Path(job.output) / paths.INDEX / names[files]
        MappedFile.create(Path(job.output), path, geometry.file_size, head=head).close()


_PIECES = pa.schema([("file_no", pa.int64()), ("start", pa.int64()), ("data", pa.binary())])
_PIECES_DDL = "file_no bigint, start bigint, data binary"
_ENDS_DDL = "file_no bigint, timestamp bigint, offset bigint"


class Piece(NamedTuple):
    file_no: int
    start: int
    data: bytes


def _pieces(data: bytes, start: int, capacity: int) -> Iterator[Piece]:
    """Keys cut where index files end. The last key of a file goes to the next one as well, which
    begins with its time."""
    size = 20
    count, at = len(data) // size, 0
    while at < count:
        file_no = (start + at) // capacity
        end = min(count, (file_no + 1) * capacity - start)
        yield Piece(file_no, start + at, data[at * size : end * size])
        if start + end == (file_no + 1) * capacity:
            yield Piece(file_no + 1, start + end - 1, data[(end - 1) * size : end * size])
        at = end


def _end_row(file_no: int, header: IndexHeader) -> pa.RecordBatch:
    values = [[file_no], [header.end_timestamp], [header.end_phy_offset]]
    return pa.record_batch(
        [pa.array(value, pa.int64()) for value in values], ["file_no", "timestamp", "offset"]
    )


def _write_index_file(
    job: _Job, name: str, geometry: Geometry, first_item: int, rows: Iterable[dict[str, Any]]
) -> IndexHeader:
    """Writes one file from its keys in order, the last key of the file before in front of them."""
    attempt = _attempt(job)
    file: IndexFile | None = None
    previous: IndexHeader | None = None
    try:
        for row in rows:
            keys = keys_of(row["data"])
            if row["start"] < first_item:
                stamp, offset = int(keys.store_timestamp[0]), int(keys.physical_offset[0])
                previous = IndexHeader(0, stamp, 0, offset, 0, 1)
                continue
            if file is None:
                head = _HEADER.pack(*first_header(previous))
                mapped = MappedFile.create(attempt, attempt / name, geometry.file_size, head=head)
                file = IndexFile(mapped, geometry)
            taken = file.put_key_batch(keys, 0)
            assert taken == len(keys.key_hash), "an index file was planned too small"
        assert file is not None
        header = file.header
        file.flush()
    finally:
        if file is not None:
            file.close()
    for _ in _put_in_place(attempt, Path(job.output), Path(paths.INDEX)):
        pass
    attempt.rmdir()
    return header


def _index_names(count: int) -> list[str]:
    """Names of the current local time, one millisecond apart or more, as the engine counts on."""
    first = int(datetime.now().strftime("%Y%m%d%H%M%S%f")[:17])
    return [str(first + number) for number in range(count)]


# --- plumbing ------------------------------------------------------------------------------


def _prefix_sums(counts: list[int]) -> list[int]:
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    return sums[:-1]


def _parallelism(spark: SparkSession) -> int:
    context = getattr(spark, "_sc", None)
    return context.defaultParallelism if context is not None else 16


def _run(frame: DataFrame) -> None:
    """Runs a job for what it does."""
    frame.write.format("noop").mode("overwrite").save()
