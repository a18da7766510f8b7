"""``BatchConsumeQueue`` (5.x): the units of one topic and queue id, 46 bytes each. They are read,
and written anew, but never appended to.

One unit stands for one record, which may hold several messages; dispatch makes it. The place of a
unit does not follow from a queue offset, so a queue offset is found by bisection.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from formats import layouts
from rmqctl.engine.files import writing
from rmqctl.engine.files.filequeue import FILE_NAME_DIGITS, MappedFileQueue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH_UNIT = Struct(layouts.BATCH_QUEUE_UNIT.format)
#: ``compactedOffset`` and the reserved field, as a broker stores them.
LAST_FIELDS = (-1, 0)
#: Files of a queue that stay mapped.
_KEEP = 2
#: Units that are read at once.
_MOST_COPIED = 4096


class BatchUnit(NamedTuple):
    """The unit of a record: ``base_offset`` is the queue offset of its first message."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int

    @property
    def is_written(self) -> bool:
        """Whether a broker takes it for a unit (``BatchConsumeQueue#recover``)."""
        return min(self.physical_offset, self.base_offset) >= 0 < min(self.size, self.batch_size)

    @property
    def end_offset(self) -> int:
        """The queue offset behind the record's last message."""
        return self.base_offset + self.batch_size

    def packed(self) -> bytes:
        """The unit as it is stored."""
        return BATCH_UNIT.pack(*self, *LAST_FIELDS)


class BatchConsumeQueue:
    """One batch queue. ``min_offset`` and ``max_offset`` are queue offsets: that of the first
    message and that of the next one. ``max_physical_offset`` is where the last unit's record ends;
    -1 without units.

    Units are numbered over all files, from 0 in the first file that is there. The queue consists of
    the units ``[first, end)``.
    """

    def __init__(self, directory: Path, topic: str, queue_id: int, file_size: int) -> None:
        """Opens the queue and bisects for its end. A file of a wrong length is read as far as it
        has whole units.

        :param file_size: regular size of the files, in bytes.
        :raises CannotRead: the directory, or a file, cannot be read.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(directory, file_size, keep=_KEEP)
        held = (min(one.size, file_size) // BATCH_UNIT.size for one in self.files.entries)
        #: Number of the first unit of each file, and the number behind the last unit.
        self._firsts = [0, *accumulate(held)]
        self.first, self.end = 0, self._find_end()
        self._note_offsets()

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""
        return BATCH_UNIT.size

    @property
    def room(self) -> int:
        """How many units fit into the files, written or not."""
        return self._firsts[-1]

    def _note_offsets(self) -> None:
        # Even when all messages have expired, the last unit tells the next queue offset.
        last = self.unit(self.end - 1)
        oldest = self.unit(self.first) if self.first < self.end else None
        self.max_offset = 0 if last is None else last.end_offset
        self.min_offset = self.max_offset if oldest is None else oldest.base_offset
        self.max_physical_offset = -1 if last is None else last.physical_offset + last.size

    def _find_end(self) -> int:
        """The number behind the last written unit: a bisection in the last file that has one."""
        for number in range(len(self.files.entries) - 1, -1, -1):
            low, high = self._firsts[number], self._firsts[number + 1]
            end = self._bisect(low, high, lambda unit: unit.is_written)
            if end > low:
                return end
        return 0

    def _bisect(self, low: int, high: int, holds: Callable[[BatchUnit], bool]) -> int:
        """The first unit of ``[low, high)`` for which ``holds`` is false; it is true before
        that."""
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and holds(unit):
                low = middle + 1
            else:
                high = middle
        return low

    def cut(self, log_min: int, log_end: int) -> None:
        """Applies the log's range as the broker's start does: units of records at or beyond
        ``log_end`` are not there (``BatchConsumeQueue#truncateDirtyLogicFiles``), those below
        ``log_min`` are passed over (``correctMinOffset``). Bytes stay as they are."""
        self.end = self._bisect(0, self.end, lambda unit: unit.physical_offset < log_end)
        self.first = self._bisect(0, self.end, lambda unit: unit.physical_offset < log_min)
        self._note_offsets()

    def find(self, queue_offset: int) -> int:
        """The number of the last unit whose ``base_offset`` is not larger than a queue offset: it
        holds that message, if any unit does (``BatchConsumeQueue#getBatchMsgIndexBuffer``). The
        first unit for a smaller queue offset."""
        behind = self._bisect(self.first, self.end, lambda unit: unit.base_offset <= queue_offset)
        return max(behind - 1, self.first)

    def stored_at(self, number: int) -> int | None:
        """The store time (ms) that a unit has; None outside the files."""
        unit = self.unit(number)
        return None if unit is None else unit.store_timestamp

    def place(self, number: int) -> tuple[Path, int] | None:
        """The file of a unit, and its position there (bytes); None outside the files."""
        if not 0 <= number < self.room:
            return None
        file = bisect_right(self._firsts, number) - 1
        return self.files.entries[file].path, (number - self._firsts[file]) * BATCH_UNIT.size

    def unit(self, number: int) -> BatchUnit | None:
        """The unit with a number, as stored; None outside the files."""
        stored = self.stored(number, 1)
        return BatchUnit._make(BATCH_UNIT.unpack(stored)[:-2]) if stored else None

    def units(self, start: int, end: int) -> Iterator[tuple[int, BatchUnit]]:
        """``(number, unit)`` for ``[start, end)``, as they are stored."""
        while start < end:
            stored = self.stored(start, min(end - start, _MOST_COPIED))
            if not stored:
                return
            for fields in BATCH_UNIT.iter_unpack(stored):
                yield start, BatchUnit._make(fields[:-2])
                start += 1

    def units_of_file(self, start: int) -> Iterator[tuple[int, BatchUnit]]:
        """:meth:`units` from a number on, up to the end of its file, or of the queue."""
        file = bisect_right(self._firsts, start) - 1
        if 0 <= start < self.room:
            yield from self.units(start, min(self._firsts[file + 1], self.end))

    def stored(self, number: int, count: int) -> bytes:
        """The bytes of up to ``count`` units: short at the end of a file, none outside."""
        if not 0 <= number < self.room:
            return b""
        file = bisect_right(self._firsts, number) - 1
        count = min(count, self._firsts[file + 1] - number)
        position = (number - self._firsts[file]) * BATCH_UNIT.size
        stored = self.files.file(file).read(position, count * BATCH_UNIT.size)
        # The file may have been cut since it was opened: no part of a unit.
        return stored[: len(stored) - len(stored) % BATCH_UNIT.size]

    def window(self, number: int, count: int) -> NDArray[np.void]:
        """A copy of up to ``count`` units from ``number`` on, over all files, as an array of
        :func:`batch_unit_dtype`; short at the end of the files."""
        import numpy as np

        pieces, wanted = [], count
        while wanted > 0 and (piece := self.stored(number, wanted)):
            pieces.append(piece)
            number += len(piece) // BATCH_UNIT.size
            wanted -= len(piece) // BATCH_UNIT.size
        return np.frombuffer(b"".join(pieces), batch_unit_dtype())

    def last_file(self) -> tuple[int, bytes]:
        """For a queue with units: the offset (bytes) of the file with the last unit, and the stored
        units of that file up to the last one."""
        file = bisect_right(self._firsts, self.end - 1) - 1
        first = self._firsts[file]
        return self.files.entries[file].file_from_offset, self.stored(first, self.end - first)

    def written_end(self) -> int:
        """The number behind the last unit with a byte that is not zero, also behind holes."""
        for file in reversed(range(len(self.files.entries))):
            if end := self.files.file(file).end_of_data(0):
                held = self._firsts[file + 1] - self._firsts[file]
                return self._firsts[file] + min(-(-end // BATCH_UNIT.size), held)
        return 0

    def close(self) -> None:
        self.files.close()


def batch_unit_dtype() -> np.dtype[np.void]:
    from formats.derive import dtype_of

    return dtype_of(layouts.BATCH_QUEUE_UNIT)


class _Queue:
    """A queue that is written: ``pending`` are units without a file yet, ``start`` is the offset
    (bytes) of the file that they go to, ``physical_offset`` that of the last unit's record."""

    def __init__(self) -> None:
        self.pending = bytearray()
        self.start = 0
        self.physical_offset = -1


class BatchQueueTableWriter:
    """Writes batch queues below a new directory. It holds at most one file of each queue in memory.

    :param root: the directory below which no link is followed.
    """

    def __init__(self, directory: Path, file_size: int, root: Path) -> None:
        self._directory = directory
        self._room = file_size - file_size % BATCH_UNIT.size
        self._file_size = file_size
        self._root = root
        self._queues: dict[tuple[str, int], _Queue] = {}

    def put(self, topic: str, queue_id: int, stored: bytes | bytearray) -> int:
        """Appends stored units to a queue; returns how many were given. A unit whose record does
        not lie behind that of the unit before is skipped: the queue has it already.

        :raises OSError, CannotWrite: a file cannot be made.
        """
        queue = self._queues.setdefault((topic, queue_id), _Queue())
        size = BATCH_UNIT.size
        for at, (physical_offset, *_) in enumerate(BATCH_UNIT.iter_unpack(stored)):
            if physical_offset <= queue.physical_offset:
                continue
            queue.pending += stored[at * size : (at + 1) * size]
            queue.physical_offset = physical_offset
            if len(queue.pending) == self._room:
                self._write(topic, queue_id, queue)
        return len(stored) // size

    def finish(self) -> int:
        """Writes the pending units. Returns the number of queues."""
        for (topic, queue_id), queue in self._queues.items():
            if queue.pending:
                self._write(topic, queue_id, queue)
        return len(self._queues)

    def _write(self, topic: str, queue_id: int, queue: _Queue) -> None:
        directory = self._directory / topic / str(queue_id)
        path = directory / f"{queue.start:0{FILE_NAME_DIGITS}d}"
        os.close(writing.create_file(self._root, path, self._file_size, bytes(queue.pending)))
        queue.start += self._file_size
        queue.pending.clear()
