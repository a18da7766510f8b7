"""Scans a log in parts, for rebuild and verify, into rows of units, of index keys, and of notes.

Most rows are *runs*: up to :data:`RUN` units of one queue, or index keys, packed as bytes.
``(part, seq)`` gives the order of the log. So one row stands for thousands of records, and a
shuffle moves bytes.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from rmqctl.engine.derive.writer import ext_timestamps, group_by_queue
from rmqctl.engine.dispatch.batches import KeyBatch, UnitBatch, marked_key_batch, unit_batch
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.ranges import LogPart, PartBounds, numbered, plan_parts, unmet
from rmqctl.engine.scan.scanner import TopicTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN = 1 << 16
PART_BYTES = 256 << 20
_PENDING_UNITS = 1 << 18
_BATCH_BYTES = 8 << 20

UNITS, KEYS, NOTE = "units", "keys", "note"
#: The file number of a run that cannot be cut into files: its queue offsets, or those of its queue,
#: are not consecutive.
NO_FILE = -1

FACTS = pa.schema(
    [
        ("kind", pa.string()),
        ("part", pa.int32()),
        ("seq", pa.int32()),
        ("topic", pa.string()),
        ("queue_id", pa.int64()),
        ("file_no", pa.int64()),
        ("first", pa.int64()),
        ("length", pa.int64()),
        ("lost", pa.int64()),
        ("data", pa.binary()),
    ]
)
FACTS_DDL = (
    "kind string, part int, seq int, topic string, queue_id bigint, file_no bigint, "
    "first bigint, length bigint, lost bigint, data binary"
)
UNIT_DTYPE = np.dtype(
    [
        ("queue_offset", "<i8"),
        ("physical_offset", "<i8"),
        ("size", "<i4"),
        ("tags_code", "<i8"),
    ]
)
#: Units of queues with an extension. NO_EXT: the tags code of the unit is not in the extension.
EXT_UNIT_DTYPE = np.dtype([*UNIT_DTYPE.descr, ("ext_timestamp", "<i8")])
KEY_DTYPE = np.dtype([("key_hash", "<i4"), ("physical_offset", "<i8"), ("store_timestamp", "<i8")])


class Fact(NamedTuple):
    """A row. For a run of units, ``first`` is its queue offset and ``length`` its number of units.
    For a run of keys, ``first`` is the number of keys before it in the part, and ``length`` its
    number of keys. ``lost`` is how many bytes of damage come before the run in the part."""

    kind: str
    part: int
    seq: int
    topic: str = ""
    queue_id: int = 0
    file_no: int = 0
    first: int = 0
    length: int = 0
    lost: int = 0
    data: bytes = b""


#: A function that makes the facts of one part. It runs on an executor.
Kernel = Callable[[LogPart], Iterator[Fact]]


class Packer:
    """Packs the units and keys of one part's batches.

    Runs are cut at multiples of ``units_per_file``, where a queue's files end; 0: they are not cut.
    With ``ext`` the units have :data:`EXT_UNIT_DTYPE`.
    """

    def __init__(
        self,
        part: int,
        dispatcher: Dispatcher,
        topics: TopicTable,
        *,
        units: bool,
        keys: bool,
        units_per_file: int = 0,
        ext: bool = False,
    ) -> None:
        self.lost = 0
        self.keys = 0
        self.units = 0
        self._part = part
        self._seq = 0
        self._dispatcher = dispatcher
        self._topics = topics
        self._wants = units, keys
        self._units_per_file = units_per_file
        self._ext = ext
        self._pending: list[UnitBatch] = []
        self._pending_ext: list[np.ndarray[Any, Any]] = []
        self._pending_units = 0
        self._pending_keys: list[KeyBatch] = []
        self._pending_key_count = 0

    def add(self, batch: Batch) -> Iterator[Fact]:
        """Takes a batch of records."""
        wants_units, wants_keys = self._wants
        if wants_units:
            self._pending.append(unit_batch(batch, self._dispatcher))
            self._pending_units += len(self._pending[-1].size)
            if self._ext:
                self._pending_ext.append(ext_timestamps(batch, self._pending[-1]))
            if self._pending_units >= _PENDING_UNITS:
                yield from self.flush_units()
        if wants_keys:
            self._pending_keys.append(marked_key_batch(batch))
            self._pending_key_count += len(self._pending_keys[-1].key_hash)
            if self._pending_key_count >= RUN:
                yield from self._flush_keys()

    def flush_units(self) -> Iterator[Fact]:
        """Yields the units so far. Call this before damage, so that ``lost`` is right for each."""
        if not self._pending:
            return
        bulk = UnitBatch(*(np.concatenate(columns) for columns in zip(*self._pending, strict=True)))
        stamps = np.concatenate(self._pending_ext) if self._ext else None
        self._pending, self._pending_ext, self._pending_units = [], [], 0
        self.units += len(bulk.size)
        for topic_id, queue_id, rows in group_by_queue(bulk.topic_id, bulk.queue_id):
            packed = np.empty(len(rows), UNIT_DTYPE if stamps is None else EXT_UNIT_DTYPE)
            if stamps is not None:
                packed["ext_timestamp"] = stamps[rows]
            for name in UNIT_DTYPE.names or ():
                packed[name] = getattr(bulk, name)[rows]
            for file_no, start, end in self._runs(packed):
                run = packed[start:end]
                yield Fact(
                    UNITS,
                    self._part,
                    self._next(),
                    self._topics.names[topic_id],
                    queue_id,
                    file_no,
                    int(run["queue_offset"][0]),
                    len(run),
                    self.lost,
                    run.tobytes(),
                )

    def _runs(self, packed: np.ndarray[Any, Any]) -> Iterator[tuple[int, int, int]]:
        """``(queue file, start, end)`` of each run of a queue's units."""
        per_file = self._units_per_file
        offset, place = packed["queue_offset"], packed["physical_offset"]
        is_plain = bool((np.diff(offset) == 1).all() and (np.diff(place) > 0).all())
        step = RUN
        at = 0
        while at < len(packed):
            end = min(at + step, len(packed))
            file_no = NO_FILE
            if is_plain and per_file:
                file_no = int(offset[at]) // per_file
                end = min(end, at + (file_no + 1) * per_file - int(offset[at]))
            yield file_no, at, end
            at = end

    def _flush_keys(self) -> Iterator[Fact]:
        if not self._pending_key_count:
            return
        packed = np.empty(self._pending_key_count, KEY_DTYPE)
        for name in KEY_DTYPE.names or ():
            packed[name] = np.concatenate([getattr(keys, name) for keys in self._pending_keys])
        self._pending_keys, self._pending_key_count = [], 0
        for at in range(0, len(packed), RUN):
            run = packed[at : at + RUN]
            yield Fact(
                KEYS,
                self._part,
                self._next(),
                first=self.keys,
                length=len(run),
                data=run.tobytes(),
            )
            self.keys += len(run)

    def finish(self) -> Iterator[Fact]:
        """Yields what is left after the last batch."""
        yield from self.flush_units()
        yield from self._flush_keys()

    def note(self, value: object) -> Fact:
        """A row for the driver."""
        return Fact(NOTE, self._part, self._next(), data=pickle.dumps(value))

    def _next(self) -> int:
        self._seq += 1
        return self._seq


def units_of(data: bytes, ext: bool = False) -> np.ndarray[Any, Any]:
    return np.frombuffer(data, EXT_UNIT_DTYPE if ext else UNIT_DTYPE)


def keys_of(data: bytes) -> KeyBatch:
    packed = np.frombuffer(data, KEY_DTYPE)
    return KeyBatch(
        packed["key_hash"].astype(np.int32),
        packed["physical_offset"].astype(np.int64),
        packed["store_timestamp"].astype(np.int64),
    )


def arrow_batches(
    facts: Iterable[NamedTuple], schema: pa.Schema = FACTS
) -> Iterator[pa.RecordBatch]:
    """Packs rows into record batches of some megabytes."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    for fact in facts:
        rows.append(tuple(fact))
        size += len(fact[-1]) if isinstance(fact[-1], bytes) else 0
        if size >= _BATCH_BYTES or len(rows) >= 4096:
            yield _arrow_batch(rows, schema)
            rows, size = [], 0
    if rows:
        yield _arrow_batch(rows, schema)


def _arrow_batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yields the rows of record batches, with one batch at a time in memory."""
    for batch in batches:
        yield from batch.to_pylist()


def text_of(name: str) -> str:
    """A file name as text that Spark can hold. A name that is not UTF-8 is changed, but no record
    has such a name."""
    return os.fsencode(name).decode("utf-8", "replace")


def on_executors(
    spark: SparkSession, items: list[Any], work: Callable[[Any], Iterator[Fact]]
) -> DataFrame:
    """The facts that ``work`` makes of each item, with one task for each item."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row in rows_of(batches):
            yield from arrow_batches(work(items[row["id"]]))

    count = max(len(items), 1)
    numbers = spark.range(0, len(items), 1, count)
    return numbers.mapInArrow(run, FACTS_DDL)


class Gathered(NamedTuple):
    """The facts of a whole log, persisted, and the notes of its parts in order."""

    facts: DataFrame
    notes: list[list[Any]]
    """By part number: the values that the scan noted for the driver, :class:`PartBounds` last."""


def gather(
    spark: SparkSession, log: CommitLog, kernel: Kernel, part_bytes: int = PART_BYTES
) -> Gathered:
    """Scans a log in parts. If a part did not end exactly where the next one begins, the two are
    joined, and all parts are scanned again.

    The caller must unpersist the facts.
    """
    from pyspark import StorageLevel

    parts = plan_parts(log, part_bytes)
    while True:
        facts = on_executors(spark, parts, kernel).persist(StorageLevel.MEMORY_AND_DISK)
        notes: list[list[Any]] = [[] for _ in parts]
        told = facts.where("kind = 'note'").select("part", "seq", "data")
        for row in sorted(told.collect()):
            notes[row["part"]].append(pickle.loads(row["data"]))
        bounds = [told[-1] for told in notes]
        assert all(isinstance(bound, PartBounds) for bound in bounds)
        wrong = unmet(bounds, log.files.end_offset)
        if not wrong:
            return Gathered(facts, notes)
        facts.unpersist()
        parts = numbered(part.start for part in parts if part.number not in wrong)
