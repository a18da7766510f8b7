"""``CompactionLog`` (5.x), for reading: the messages that a queue of a compacted topic keeps.

The queue has a log of its own, with copies of the commit log's records, and a unit for each copy
(``SparseConsumeQueue``). A file of units has the same name as the log file that its units point
into. Units have the form of batch queues, one message each. Queue offsets rise, with gaps where
messages were compacted. A full file of units ends with :data:`END_UNIT`, a compacted one with
zeros. Between compacted files and later ones, offsets of files may be missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from formats import layouts
from rmqctl.engine.files import paths
from rmqctl.engine.files.filequeue import FileEntry, MappedFileQueue
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.batchqueue import BatchUnit
from rmqctl.engine.state import brokerjson

_UNIT = Struct(layouts.BATCH_QUEUE_UNIT.format)
#: Directories beside a queue's files: of a compaction, or a copy from the master, in progress.
PARTS = ("compacting", "replicating")
#: The unit behind the last one of a full file (``SparseConsumeQueue#putEndPositionInfo``).
END_UNIT = (-1, 0, 0, 0, 0, 0, -1, 0)
_UNITS_AT_ONCE = 4096
_KEEP = 2


class StoredUnit(NamedTuple):
    """A unit, its position in its file (bytes), and its last two fields, which have no meaning."""

    position: int
    unit: BatchUnit
    rest: tuple[int, int]

    @property
    def is_end(self) -> bool:
        """Whether it is :data:`END_UNIT`."""
        return self.fields == END_UNIT

    @property
    def fields(self) -> tuple[int, ...]:
        """All stored fields."""
        return (*self.unit, *self.rest)


class CompactedQueue:
    """One queue of a compacted topic. Offsets in ``log`` are its own: those that PHYSICALOFFSET of
    its records names."""

    def __init__(self, root: Path, topic: str, queue_id: int, sizes: tuple[int, int]) -> None:
        """:param sizes: bytes of a log file and of a file of units
            (:func:`~rmqctl.engine.settings.filesizes.compaction_file_sizes`).
        :raises CannotRead: a directory, or a file, cannot be read.
        """
        self.topic = topic
        self.queue_id = queue_id
        where = f"{topic}/{queue_id}"
        self.log = CommitLog(root / paths.COMPACTION_LOG / where, sizes[0])
        self.files = MappedFileQueue(root / paths.COMPACTION_QUEUE / where, sizes[1], keep=_KEEP)

    def pairs(self) -> Iterator[tuple[FileEntry, int, int]]:
        """The log files that have a file of units, each with the numbers of both files."""
        units = {one.file_from_offset: number for number, one in enumerate(self.files.entries)}
        for number, entry in enumerate(self.log.files.entries):
            if entry.file_from_offset in units:
                yield entry, number, units[entry.file_from_offset]

    def units_of(self, number: int) -> Iterator[StoredUnit]:
        """The units of a file, up to the first place without one
        (``SparseConsumeQueue#recover``)."""
        return takewhile(lambda one: one.unit.is_written, self.places_of(number))

    def places_of(self, number: int) -> Iterator[StoredUnit]:
        """All places of a file as units, written or not, up to the last one that is not zero."""
        mapped = self.files.file(number)
        step, end = _UNITS_AT_ONCE * _UNIT.size, mapped.end_of_data(0)
        for start in range(0, end, step):
            data = mapped.read(start, min(step, mapped.size - start))
            whole = memoryview(data)[: len(data) // _UNIT.size * _UNIT.size]
            for place, fields in enumerate(_UNIT.iter_unpack(whole)):
                position = start + place * _UNIT.size
                if position >= end:
                    return
                yield StoredUnit(position, BatchUnit._make(fields[:-2]), fields[-2:])

    def units(self) -> Iterator[StoredUnit]:
        """The units of all files, in order."""
        for number in range(len(self.files.entries)):
            yield from self.units_of(number)

    def ends(self) -> tuple[int, int, int]:
        """As a broker's start finds them: queue offset of the first message (-1 without any), the
        next queue offset (0 without any), and where the log ends (bytes)."""
        count = len(self.files.entries)
        first = next(self.units_of(0), None) if count else None
        low = -1 if first is None else first.unit.base_offset
        # A kill may have left new files without a unit.
        for number in range(count - 1, max(count - 3, -1), -1):
            last = self._last_of(number)
            if last is not None:
                is_end = number == count - 1
                log_end = last.physical_offset + last.size if is_end else self.log.files.end_offset
                return low, last.end_offset, log_end
        return low, 0, self.log.files.end_offset

    def _last_of(self, number: int) -> BatchUnit | None:
        last = deque(self.units_of(number), 1)
        return last[0].unit if last else None

    def max_physical_offset(self) -> int:
        """Where the last unit's record ends in the log; -1 without units."""
        for number in reversed(range(len(self.files.entries))):
            last = self._last_of(number)
            if last is not None:
                return last.physical_offset + last.size
        return -1

    def file_of(self, queue_offset: int) -> list[StoredUnit]:
        """The units of the first file whose last unit has a queue offset, or a later one
        (``SparseConsumeQueue#searchFileByOffsetOrRight``); none behind the last file."""
        low, high = 0, len(self.files.entries)
        while low < high:
            middle = (low + high) // 2
            last = self._last_of(middle)
            if last is not None and last.base_offset < queue_offset:
                low = middle + 1
            else:
                high = middle
        return list(self.units_of(low)) if low < len(self.files.entries) else []

    def close(self) -> None:
        self.log.close()
        self.files.close()


def compacted_queues(root: Path) -> Iterator[paths.QueueDirectory]:
    """Every queue of a compacted topic, sorted by topic and queue id, with the directory of its
    log. A queue without a directory of units does not exist for a broker
    (``CompactionStore#load``)."""
    for where in paths.queue_directories(root / paths.COMPACTION_LOG):
        if (root / paths.COMPACTION_QUEUE / where.topic / str(where.queue_id)).is_dir():
            yield where


def compaction_positions(root: Path) -> dict[str, int]:
    """``topic_queue`` → the last queue offset that was compacted (``CompactionPositionMgr``).

    :raises ConfigFileUnreadable: the file is broken and its ``.bak`` does not help.
    """
    value = brokerjson.read_kept(root / paths.COMPACTION_POSITION)
    table = brokerjson.table_of(value, "queueOffsetMap")
    offsets = ((str(name), brokerjson.whole(offset)) for name, offset in table.items())
    return {name: offset for name, offset in offsets if offset is not None}
