"""Queues in RocksDB (5.x, ``storeType=defaultRocksDB``), read through the interface of those in
files.

The bytes of a queue are those that its files would have; they are made from the database when they
are read. A unit that is not stored reads as zeros. The queue begins at the first unit whose record
the log still has, and ends behind the last unit that the database notes; other units in the
database are no part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqctl.engine.files.filequeue import FileEntry, MappedFileQueue
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.opencache import OpenCache
from rmqctl.engine.files.paths import QueueDirectory
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue, Unit
from rmqctl.engine.queue.queuetable import ConsumeQueueTable, LogRange, QueuesSeen
from rmqctl.engine.state.rocksdbqueues import Place, QueueDatabase

#: Units of an imaginary file. A stretch of so many without a stored unit is skipped at once.
_UNITS_IN_FILE = 1 << 14
_FILE_SIZE = _UNITS_IN_FILE * UNIT_SIZE
_KEPT_FILES = 8
#: Queues that nobody uses and that stay open.
_KEPT_QUEUES = 96


class _Units:
    """The units of one queue by their offsets in the queue."""

    def __init__(self, database: QueueDatabase, topic: str, queue_id: int, end: int) -> None:
        self.path = database.path
        self.end = end
        self._database = database
        self._queue = topic, queue_id

    def unit(self, queue_offset: int) -> Unit | None:
        if queue_offset >= self.end:
            return None
        found = self._database.unit(*self._queue, queue_offset)
        return None if found is None else Unit._make(found[:3])

    def first_from(self, start: int, end: int) -> int | None:
        """The first queue offset of ``[start, end)`` at which a unit is stored."""
        units = self._database.units(*self._queue, start, min(end, self.end))
        return next((queue_offset for queue_offset, _ in units), None)

    def last_before(self, end: int) -> int | None:
        """The last queue offset before ``end`` at which a unit is stored."""
        return self._database.last_stored(*self._queue, min(end, self.end))

    def stored(self, start: int, end: int) -> bytearray:
        """The units at ``[start, end)`` as a file has them."""
        data = bytearray((end - start) * UNIT_SIZE)
        for queue_offset, value in self._database.units(*self._queue, start, min(end, self.end)):
            at = (queue_offset - start) * UNIT_SIZE
            data[at : at + UNIT_SIZE] = value[:UNIT_SIZE]
        return data


class _UnitsFile(MappedFile):
    """Some units of a queue in the shape of a file, which has no map."""

    __slots__ = ("_units",)

    def __init__(self, units: _Units, entry: FileEntry) -> None:
        self.path = entry.path
        self.file_from_offset = entry.file_from_offset
        self.size = entry.size
        self.descriptor = -1
        self.buffer = b""
        self.whole = (0, 0)
        self._units = units

    @property
    def _start(self) -> int:
        return self.file_from_offset // UNIT_SIZE

    @property
    def _end(self) -> int:
        return (self.file_from_offset + self.size) // UNIT_SIZE

    def read_aside(self, position: int, size: int) -> bytes:
        end = min(position + size, self.size)
        if end <= position:
            return b""
        first, last = position // UNIT_SIZE, -(-end // UNIT_SIZE)
        data = self._units.stored(self._start + first, self._start + last)
        return bytes(data[position - first * UNIT_SIZE : end - first * UNIT_SIZE])

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        last = self.end_of_data(0)
        first = self.first_nonzero(start, end)
        if first < min(last, end):
            yield first, min(last, end)

    def end_of_first_data(self) -> int:
        return self.end_of_data(0)

    def first_nonzero(self, start: int, end: int) -> int:
        first = self._units.first_from(self._start + start // UNIT_SIZE, self._end)
        return end if first is None else min(max((first - self._start) * UNIT_SIZE, start), end)

    def end_of_data(self, start: int) -> int:
        last = self._units.last_before(self._end)
        if last is None or last < self._start:
            return start
        return max((last + 1 - self._start) * UNIT_SIZE, start)


class _UnitsFiles(MappedFileQueue):
    """The units of a queue from queue offset ``first`` on in the shape of files."""

    def __init__(self, units: _Units, first: int) -> None:
        self._units = units
        self._first = first
        super().__init__(units.path, _FILE_SIZE, keep=_KEPT_FILES)

    def _list_files(self) -> Iterator[FileEntry]:
        start, end = self._first, self._units.end
        while start < end and (found := self._units.first_from(start, end)) is not None:
            start = max(start, found // _UNITS_IN_FILE * _UNITS_IN_FILE)
            following = min((start // _UNITS_IN_FILE + 1) * _UNITS_IN_FILE, end)
            yield FileEntry(start * UNIT_SIZE, self.directory, (following - start) * UNIT_SIZE)
            start = following

    def _open_file(self, entry: FileEntry) -> MappedFile:
        return _UnitsFile(self._units, entry)

    @property
    def irregular(self) -> list[FileEntry]:
        return []


class RocksDBQueue(ConsumeQueue):
    """One queue in RocksDB (``RocksDBConsumeQueue``). It begins at the queue offset that a broker
    reports (``RocksDBConsumeQueueOffsetTable#getMinCqOffset``) and ends behind its last unit."""

    in_files = False

    def __init__(
        self, database: QueueDatabase, topic: str, queue_id: int, last: Place, log_min: int
    ) -> None:
        end = last.queue_offset + 1
        self._units = units = _Units(database, topic, queue_id, end)
        #: The last unit as the database notes it.
        self.last = last
        self._noted_first = database.first(topic, queue_id)
        #: The first unit whose record is not older than the log.
        self.first_stored = self._first_from(log_min)
        files = _UnitsFiles(units, self.first_stored)
        super().__init__(units.path, topic, queue_id, _FILE_SIZE, files=files)
        self.min_offset = self._min_offset(log_min)

    def _first_from(self, log_min: int) -> int:
        """The first queue offset with a unit whose record is not before ``log_min``; the queue's
        end when there is none."""
        low, high = 0, self._units.end
        while low < high:
            middle = (low + high) // 2
            following = self._units.first_from(middle, self._units.end)
            unit = None if following is None else self._units.unit(following)
            if following is None or unit is None or unit.physical_offset >= log_min:
                high = middle
            else:
                low = following + 1
        following = self._units.first_from(low, self._units.end)
        return self._units.end if following is None else following

    def _find_end(self) -> int:
        return self._units.end * UNIT_SIZE

    def _min_offset(self, log_min: int) -> int:
        first, end = self._noted_first, self._units.end
        if first is not None and first.physical_offset >= log_min:
            return first.queue_offset
        if self.last.physical_offset < log_min:
            return end
        low = 0 if first is None else first.queue_offset
        found = self._bisect(low, end, log_min)
        return low if found == end else found

    def cut(self, log_min: int, log_end: int) -> None:
        """Applies the log's end: units at or beyond it are not there
        (``RocksDBConsumeQueueOffsetTable#truncateDirty``). Where the queue begins was determined
        when it was opened; ``log_min`` changes nothing."""
        if self.last.physical_offset >= log_end:
            high = self._bisect(self.min_offset, self._units.end, log_end)
            self._wrote = high * UNIT_SIZE
        self.max_physical_offset = self._max_physical_offset()

    def _bisect(self, low: int, high: int, physical_offset: int) -> int:
        """As for files, but a unit that is not stored counts as expired
        (``RocksDBConsumeQueueTable#binarySearchInCQ``)."""
        while low < high:
            middle = (low + high) // 2
            unit = self._units.unit(middle)
            if unit is None or unit.physical_offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def end_of_file(self, queue_offset: int) -> int:
        return self.max_offset

    def behind_hole(self, queue_offset: int) -> int:
        """The next stored unit. A broker would send the consumer back to 0 for ever
        (``RocksDBConsumeQueueStore#rollNextFile``)."""
        found = self._units.first_from(queue_offset, self.max_offset)
        return self.max_offset if found is None else found

    def first_from(self, start: int, end: int) -> int | None:
        return self._units.first_from(start, end)

    def last_before(self, end: int) -> int | None:
        return self._units.last_before(end)

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit at a queue offset; None where none is stored."""
        return self._units.unit(queue_offset)


class RocksDBQueueTable(ConsumeQueueTable):
    """The queues of a store whose broker keeps them in RocksDB. The database is opened at the first
    use. Every method that needs it may raise RocksDBUnreadable.
    """

    in_files = False

    def __init__(self, directory: Path, file_size: int, log_range: LogRange) -> None:
        """:param directory: where the database lies."""
        super().__init__(
            directory,
            file_size,
            ext_directory=None,
            log_range=log_range,
            strict=False,
            drops_empty=False,
        )
        self._databases: OpenCache[int, QueueDatabase] = OpenCache(1)
        self._open: OpenCache[tuple[str, int], ConsumeQueue] = OpenCache(_KEPT_QUEUES)

    @property
    def _log_begin(self) -> int:
        return 0 if self._log_range is None else self._log_range()[0]

    @property
    def database(self) -> QueueDatabase:
        return self._databases.get(0, lambda: QueueDatabase(self.directory))

    def directories(self) -> Iterator[QueueDirectory]:
        """Every queue that has had a unit; ``path`` is that of the database."""
        for topic, queue_id in sorted(place[:2] for place in self.database.places()):
            yield QueueDirectory(topic, queue_id, self.directory)

    def directories_of(self, topic: str) -> Iterator[QueueDirectory]:
        for queue_id in self.database.queue_ids(topic):
            yield QueueDirectory(topic, queue_id, self.directory)

    def topics(self) -> list[str]:
        return sorted({topic for topic, _, _ in self.database.places()})

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; None when it has had no unit."""
        key = topic, queue_id
        return self._open.get(key) or self._open.get(key, lambda: self._opened(*key))

    def _opened(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        queue = self.as_stored(QueueDirectory(topic, queue_id, self.directory))
        if queue is not None:
            self._cut(queue)
        return queue

    def as_stored(self, where: QueueDirectory) -> RocksDBQueue | None:
        """The queue, not cut to the log's end; None when it has had no unit."""
        database, queue = self.database, (where.topic, where.queue_id)
        last = database.last(*queue)
        return None if last is None else RocksDBQueue(database, *queue, last, self._log_begin)

    def look_at_all(self) -> QueuesSeen:
        """The facts from all queues. A queue whose last unit is not stored says nothing."""
        ends = self.database.ends()
        newest = [(end.physical_offset, end.size) for end in ends if end.size is not None]
        return QueuesSeen(newest, [])

    def close(self) -> None:
        self._open.clear()
        self._databases.clear()
