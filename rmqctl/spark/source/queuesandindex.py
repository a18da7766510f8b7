"""Reads queue units and index items as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from formats import constants
from rmqctl.arrow.arrays import ARROW_TYPES, problem_batch, times
from rmqctl.engine.files import paths
from rmqctl.engine.files.filequeue import FileMisnamed
from rmqctl.engine.files.paths import QueueDirectory
from rmqctl.engine.index.geometry import known_geometry
from rmqctl.engine.index.header import item_store_time
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import (
    UNIT_SIZE,
    ConsumeQueue,
    Unit,
    unit_dtype,
    whole_units,
)
from rmqctl.engine.queue.queuetable import ConsumeQueueTable
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import NotAFile, RmqctlError
from rmqctl.operations.look.walkqueues import file_holes, written_units
from rmqctl.rows.columns import STRUCTURES, Source
from rmqctl.spark.remote import remote
from rmqctl.spark.session.staging import is_remote
from rmqctl.spark.source.pushdown import Bounds

if TYPE_CHECKING:
    from rmqctl.spark.source.split import Part, ReadSettings, Split

_ROWS = 1 << 16


def queue_batches(
    split: Split, settings: ReadSettings, bounds: Bounds, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The units of some queues, as ``walk queue`` shows them: as they are in the files, without
    regard to the log."""
    source = settings.source(split.store)
    opened = ExitStack()
    open_queue = _opener(split.store, settings.config, opened)
    with opened:
        for part in split.parts:
            try:
                queue = open_queue(part)
                if queue is None:
                    continue
                try:
                    yield from _Queue(queue, source, bounds, schema).batches(part)
                finally:
                    queue.close()
            except (RmqctlError, OSError) as error:
                where = {"topic": part.name, "queue_id": part.queue_id}
                yield problem_batch(schema, source, str(error), **where)


def _opener(
    store: str, config: MessageStoreConfig, opened: ExitStack
) -> Callable[[Part], ConsumeQueue | None]:
    """A function that opens queues of one store; None: the database has no such queue. The store is
    opened only once, because the length of its files is determined then, from a list of topics."""
    if is_remote(store):
        return lambda part: remote.RemoteStore(store, config).queue(part.name, part.queue_id)

    @cache
    def queues() -> ConsumeQueueTable:
        return opened.enter_context(MessageStore(store, config)).queues

    def as_stored(part: Part) -> ConsumeQueue | None:
        place = Path(store, paths.CONSUME_QUEUE, part.name, str(part.queue_id))
        return queues().as_stored(QueueDirectory(part.name, part.queue_id, place))

    return as_stored


class _Queue:
    """Reads the files of one queue. A unit of zeros was never written. It is damage if a later unit
    was written, and else the end of the queue. A file of a wrong length is read as far as it has
    units."""

    def __init__(
        self, queue: ConsumeQueue, source: Source, bounds: Bounds, schema: pa.Schema
    ) -> None:
        self._queue, self._source, self._bounds, self._schema = queue, source, bounds, schema

    def batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        if not self._queue.in_files:
            yield from self._of_database()
            return
        entries, gone = self._queue.files.entries, self._gone(part)
        first_file, end_file = max(part.start - gone, 0), max(part.end - gone, 0)
        if end_file > len(entries):
            text = f"the queue has {len(entries)} files on this machine, the plan {end_file}"
            yield self._problem(text)
        if part.start < min(gone, part.end):
            count = min(gone, part.end) - part.start
            yield self._problem(f"{count} files were removed since the plan was made (retention)")
        if not part.start:
            yield from self._irregular()
        expected = self._place_before(first_file)
        for number in range(first_file, min(end_file, len(entries))):
            start, end = self._range(number)
            if number and expected == self._range(number - 1)[1]:
                expected = start
            for at, window in self._written(number, end):
                if at > expected:
                    yield self._hole(expected, at - expected)
                batch = self._units(at, window)
                if batch is not None:
                    yield batch
                expected = at + len(window)

    def _gone(self, part: Part) -> int:
        """How many of the first files of the plan are no longer there."""
        files = self._queue.files
        return max(files.min_offset - part.first, 0) // files.file_size if part.first >= 0 else 0

    def _of_database(self) -> Iterator[pa.RecordBatch]:
        """The units of a queue in RocksDB, and stretches without units."""
        units: list[Unit] = []
        start = 0
        for queue_offset, unit in chain(written_units(self._queue), [(-1, 0)]):
            is_next = isinstance(unit, Unit) and queue_offset == start + len(units)
            if units and (len(units) == _ROWS or not is_next):
                batch = self._units(start, np.array(units, unit_dtype()))
                units = []
                if batch is not None:
                    yield batch
            if isinstance(unit, Unit):
                start = start if units else queue_offset
                units.append(unit)
            elif isinstance(unit, int) and unit:
                yield self._hole(queue_offset, unit)

    def _irregular(self) -> Iterator[pa.RecordBatch]:
        """What is wrong with the queue's files: rows for what has a file's name and is none, for a
        name that fits none, and for each stretch that files lack."""
        files = self._queue.files
        for entry in files.irregular:
            if entry.size < 0:
                error = NotAFile(path=str(entry.path), reason=paths.NOT_REGULAR)
                yield self._problem(str(error))
        try:
            files.check_names()
        except FileMisnamed as error:
            yield self._problem(str(error))
        for start, hole in file_holes(self._queue):
            text = f"{hole.reason}: expected {hole.expected}, found {hole.found}"
            yield self._problem(text, queue_offset=start)

    def _range(self, number: int) -> tuple[int, int]:
        """The queue offsets ``[start, end)`` that a file has."""
        entry = self._queue.files.entries[number]
        start = entry.file_from_offset // UNIT_SIZE
        return start, start + self._queue.units_from(start, entry)

    def _place_before(self, number: int) -> int:
        """The queue offset behind the last unit that was written before a file; if there is none,
        that of the first file."""
        for before in range(number - 1, -1, -1):
            mapped = self._queue.files.file(before)
            start, end = self._range(before)
            written = -(-mapped.end_of_data(0) // UNIT_SIZE)
            if written and end > start:
                return min(start + written, end)
        return self._range(0)[0] if self._queue.files.entries else 0

    def _written(self, number: int, end: int) -> Iterator[tuple[int, NDArray[np.void]]]:
        """The runs of units in one file that are not zeros, each with its queue offset. ``end`` is
        where the units of the file end."""
        mapped = self._queue.files.file(number)
        base = mapped.file_from_offset // UNIT_SIZE
        done = 0
        # Holes are skipped without reading them, because queue files are mostly empty.
        for low, high in mapped.extents(0, mapped.size):
            first = max(low // UNIT_SIZE, done)
            done = min(-(-high // UNIT_SIZE), end - base)
            for at in range(first, done, _ROWS):
                data = mapped.read(at * UNIT_SIZE, min(_ROWS, done - at) * UNIT_SIZE)
                yield from _runs(base + at, whole_units(data))

    def _units(self, start: int, window: NDArray[np.void]) -> pa.RecordBatch | None:
        """The units of a run whose queue offsets can match; None if none can."""
        low = max(start, self._bounds.low.get("queue_offset", start))
        high = min(start + len(window), self._bounds.high.get("queue_offset", 2**62) + 1)
        if low >= high:
            return None
        window, count = window[low - start : high - start], high - low
        blank = np.array(constants.PRE_BLANK_UNIT, unit_dtype())
        states = pa.array(["ok", "pre-blank"], pa.string())
        values: dict[str, Any] = {
            "topic": pa.repeat(self._queue.topic, count),
            "queue_id": np.full(count, self._queue.queue_id),
            "queue_offset": np.arange(low, high),
            "physical_offset": window["physical_offset"],
            "size": window["size"],
            "tags_code": window["tags_code"],
            "status": states.take(pa.array((window == blank).astype(np.int64))),
            "damage": pa.nulls(count, pa.string()),
            "store": pa.repeat(self._source.store, count),
            "broker": pa.repeat(self._source.broker, count),
        }
        return _batch("queue", values, self._schema)

    def _hole(self, start: int, count: int) -> pa.RecordBatch:
        text = f"units-never-written: expected {count} units, found zeros"
        return self._problem(text, queue_offset=start)

    def _problem(self, text: str, **where: int) -> pa.RecordBatch:
        where["queue_id"] = self._queue.queue_id
        return problem_batch(self._schema, self._source, text, topic=self._queue.topic, **where)


def _runs(start: int, data: bytes) -> Iterator[tuple[int, NDArray[np.void]]]:
    """The runs of units that are not zeros, each with its queue offset."""
    window = np.frombuffer(data, unit_dtype())
    octets = np.frombuffer(data, np.uint8).reshape(-1, UNIT_SIZE)
    # A unit that was written rarely has the size 0, so the size is checked first.
    written = window["size"] != 0
    empty = np.flatnonzero(~written)
    written[empty] = octets[empty].any(axis=1)
    edges = np.flatnonzero(np.diff(written, prepend=False, append=False))
    for low, high in zip(edges[0::2].tolist(), edges[1::2].tolist(), strict=True):
        yield start + low, window[low:high]


def index_batches(
    split: Split, settings: ReadSettings, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The items of index files, as ``walk index`` shows them."""
    source = settings.source(split.store)
    for part in split.parts:
        try:
            file = open_index_file(split.store, part.name, settings.config)
            yield from _items(file, part, source, schema)
        except (RmqctlError, OSError) as error:
            yield problem_batch(schema, source, str(error), file=part.name)


def open_index_file(store: str, name: str, config: MessageStoreConfig) -> IndexFile:
    """One file of a store's index, for reading."""
    if is_remote(store):
        return remote.RemoteStore(store, config).index_file(name)
    directory = Path(store) / paths.INDEX
    return IndexService(directory, known_geometry(directory, config)).open(directory / name)


def _items(
    file: IndexFile, part: Part, source: Source, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    try:
        at = part.start
        while len(items := file.items(at, min(_ROWS, part.end - at))):
            count = len(items)
            stamps = file.header.begin_timestamp + items["time_diff_seconds"].astype(
                np.int64
            ) * np.int64(1000)
            if at == 1:
                first = int(items["time_diff_seconds"][0])
                stamps[0] = item_store_time(file.header.begin_timestamp, at, first)
            values: dict[str, Any] = {
                "file": pa.repeat(part.name, count),
                "index_no": np.arange(at, at + count),
                "store_timestamp": stamps,
                "store_time": times(stamps),
                "status": pa.repeat("ok", count),
                "damage": pa.nulls(count, pa.string()),
                "store": pa.repeat(source.store, count),
                "broker": pa.repeat(source.broker, count),
            }
            names = ("key_hash", "physical_offset", "time_diff_seconds", "prev_index_no")
            values |= {name: items[name] for name in names}
            yield _batch("index", values, schema)
            at += count
    finally:
        file.close()


def _batch(structure: str, values: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    types = {column.name: ARROW_TYPES[column.type] for column in STRUCTURES[structure]}
    arrays = [
        value
        if isinstance(value := values[name], pa.Array)
        else pa.array(np.asarray(value).astype(np.int64), pa.int64()).cast(types[name])
        for name in schema.names
    ]
    return pa.record_batch(arrays, schema=schema)
