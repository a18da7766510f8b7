"""``ConsumeQueue``: the units of one topic and queue id, 20 bytes each.

Queue offset = byte offset / 20. A unit is valid when its physical offset is not negative and its
size is positive; a place of zeros was never written. The writing half is
:mod:`rmqctl.engine.queue.queuewriter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from formats import constants, layouts
from rmqctl.engine.files.filequeue import FileEntry, MappedFileQueue
from rmqctl.engine.files.mappedfile import MappedFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.queue.ends import QueueEnd
    from rmqctl.engine.queue.extension import ConsumeQueueExt

UNIT = Struct(layouts.QUEUE_UNIT.format)
#: Where a unit's size stands in it, and how many bytes it has.
SIZE_AT, SIZE_BYTES = next(
    (field.offset, field.size) for field in layouts.QUEUE_UNIT.fields if field.name == "size"
)
UNIT_SIZE = UNIT.size
#: Files of a queue that stay mapped.
KEEP = 2
MAX_ROWS_COPIED = 4096
#: A bisection among so few units reads all of them at once.
_UNITS_AT_ONCE = 1024
_NOT_WRITTEN = (0, 0, 0)
#: Files that ``ConsumeQueue#recover`` reads.
_EXT_SEARCH_FILES = 3


def is_ext_addr(tags_code: int) -> bool:
    """Whether a unit's tags code is an address (``ConsumeQueueExt#isExtAddr``)."""
    return tags_code <= constants.MAX_ADDR


class Unit(NamedTuple):
    """One queue unit. ``tags_code`` may be an address in ``consumequeue_ext/``."""

    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_written(self) -> bool:
        """Whether a broker takes it for a unit."""
        return self.physical_offset >= 0 and self.size > 0

    @property
    def is_pre_blank(self) -> bool:
        """Whether it is a filler in front of the first unit (``ConsumeQueue#fillPreBlank``)."""
        return self == constants.PRE_BLANK_UNIT


class ConsumeQueue:
    """One queue. ``min_offset`` and ``max_offset`` are queue offsets: that of the first message and
    that of the next one. ``max_physical_offset`` is where the last unit's record ends; -1 without
    units.
    """

    #: Whether the queue has files of its own; False: it lies in RocksDB.
    in_files = True

    def __init__(
        self,
        directory: Path,
        topic: str,
        queue_id: int,
        file_size: int,
        *,
        ext: ConsumeQueueExt | None = None,
        files: MappedFileQueue | None = None,
        strict: bool = False,
        drops_empty: bool = False,
        known: QueueEnd | None = None,
    ) -> None:
        """Opens the queue; only units near its end are read.

        :param file_size: regular size of the files, in bytes. :param ext: the queue's extension.
        :param files: the queue's files, when they do not lie in ``directory`` or are open for
            writing.
        :param strict: refuse irregular files; else such a file is read as far as it has units.
        :param drops_empty: as in :meth:`MappedFileQueue.check_lengths`.
        :param known: where the queue ends, and begins: its files are listed when they are read.
        :raises FileLengthContradiction, FileMisnamed, NotAFile: a file is irregular, and ``strict``
            is set.
        :raises CannotRead: the system refuses.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.ext = ext
        self._directory, self._file_size = directory, file_size
        #: The queue's first and last unit, and where they stand, if that is all that was read.
        self.known = known
        if known is not None:
            self.min_offset = known.first_offset or 0
            self._wrote = known.max_offset * UNIT_SIZE
            self.max_physical_offset = known.max_physical_offset
            return
        if files is not None:
            self.files = files
        if strict:
            self.files.check_lengths("consume queue", drops_empty=drops_empty)
            self.files.check_names()
        self.min_offset = 0
        self._wrote = self._find_end()
        self.max_physical_offset = self._max_physical_offset()

    @cached_property
    def files(self) -> MappedFileQueue:
        """The queue's files."""
        return MappedFileQueue(self._directory, self._file_size, keep=KEEP)

    @property
    def max_offset(self) -> int:
        return self._wrote // UNIT_SIZE

    def units_from(self, queue_offset: int, entry: FileEntry | MappedFile) -> int:
        """How many units a file holds from a queue offset on; at most those of a regular file. None
        when the file does not begin at a multiple of the unit's size."""
        position = queue_offset * UNIT_SIZE - entry.file_from_offset
        if position % UNIT_SIZE:
            return 0
        return max(min(entry.size, self.files.file_size) - position, 0) // UNIT_SIZE

    def end_of_file(self, queue_offset: int) -> int:
        """The queue offset behind the last unit of the file that holds ``queue_offset``. An answer
        to a pull never goes beyond it."""
        file_units = self.files.file_size // UNIT_SIZE
        return queue_offset + file_units - queue_offset % file_units

    def behind_hole(self, queue_offset: int) -> int:
        """The queue offset at which a consumer goes on when it asked for a unit in a missing file
        (``ConsumeQueue#rollNextFile``)."""
        return self.end_of_file(queue_offset)

    def _find_end(self) -> int:
        """Byte offset behind the last valid unit: a bisection in the last file that holds one."""
        for number in range(len(self.files.entries) - 1, -1, -1):
            mapped = self.files.file(number)
            count = self.units_from(mapped.file_from_offset // UNIT_SIZE, mapped)
            written = count_written(mapped.read, count, mapped.end_of_first_data())
            if written or number == 0:
                return mapped.file_from_offset + written * UNIT_SIZE
        return 0

    def _max_physical_offset(self) -> int:
        at = self.max_offset - 1
        while (last := self.unit(at)) is not None and last.is_pre_blank:
            at -= 1  # A kill may have come between fillers and the unit that they are for.
        return -1 if last is None else last.physical_offset + last.size

    def cut(self, log_min: int, log_end: int) -> None:
        """Applies the log's range ``[log_min, log_end)`` as a broker's start does. The queue ends
        before the first unit of a record at or beyond ``log_end`` (``truncateDirtyLogicFiles``) and
        begins at the first one at or beyond ``log_min`` (``correctMinOffset``). No byte is changed.
        """
        low, high = self._first_file_offset(), self.max_offset
        self.known = None
        while low < high:
            last = self.unit(high - 1)
            if last is None or last.physical_offset < log_end:
                break
            high = self._bisect(low, high, log_end)
        self._wrote = high * UNIT_SIZE
        self.max_physical_offset = self._max_physical_offset()
        if log_min:
            low = self._bisect(low, high, log_min)
        # With log_min 0 a broker takes the first unit, even a filler, but none before the log.
        while low < high and (first := self.unit(low)) is not None and first.physical_offset < 0:
            low += 1
        self.min_offset = low

    def _first_file_offset(self) -> int:
        return max(self.files.min_offset, 0) // UNIT_SIZE

    def _bisect(self, low: int, high: int, physical_offset: int) -> int:
        """First queue offset in ``[low, high)`` whose record starts at or behind an offset."""
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and unit.physical_offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit at a queue offset, as it stands in the file; None outside the files."""
        mapped = self.files.find(queue_offset * UNIT_SIZE) if queue_offset >= 0 else None
        if mapped is None or not self.units_from(queue_offset, mapped):
            return None
        position = queue_offset * UNIT_SIZE - mapped.file_from_offset
        stored = mapped.read(position, UNIT_SIZE)
        # It is short when the file has been cut since it was opened.
        return Unit._make(UNIT.unpack(stored)) if len(stored) == UNIT_SIZE else None

    def ends(self) -> tuple[Unit | None, Unit | None]:
        """The units at ``min_offset`` and before ``max_offset``; None twice for an empty queue."""
        if self.known is not None:
            return self.known.first, self.known.last
        if self.min_offset >= self.max_offset:
            return None, None
        return self.unit(self.min_offset), self.unit(self.max_offset - 1)

    def units(self, start: int, end: int) -> Iterator[tuple[int, Unit]]:
        """``(queue offset, unit)`` for ``[start, end)``; queue offsets in no file are skipped."""
        while start < end:
            mapped = self.files.find(start * UNIT_SIZE)
            count = 0 if mapped is None else self.units_from(start, mapped)
            if mapped is None or not count:
                starts = (entry.file_from_offset // UNIT_SIZE for entry in self.files.entries)
                following = next((first for first in starts if first > start), None)
                if following is None:
                    return
                start = following
                continue
            count = min(count, end - start, MAX_ROWS_COPIED)
            window = mapped.read(start * UNIT_SIZE - mapped.file_from_offset, count * UNIT_SIZE)
            for queue_offset, values in enumerate(UNIT.iter_unpack(whole_units(window)), start):
                yield queue_offset, Unit._make(values)
            start += count

    def first_from(self, start: int, end: int) -> int | None:
        """The first queue offset of ``[start, end)`` that may have a unit."""
        return start if start < end else None

    def last_before(self, end: int) -> int | None:
        """The last queue offset before ``end`` that may have a unit."""
        return end - 1 if end > 0 else None

    def tags_code(self, unit: Unit) -> int | None:
        """The unit's tags code; if that is an address, the tags code of the extension unit there,
        or None when there is none."""
        if not is_ext_addr(unit.tags_code):
            return unit.tags_code
        found = self.ext.get(unit.tags_code) if self.ext is not None else None
        return None if found is None else found.tags_code

    def newest_address(self) -> int | None:
        """The last address in the extension that a unit of the last three files with units holds;
        None when none does. Reads units one by one, from the end backwards."""
        last = self.files.index_of((self.max_offset - 1) * UNIT_SIZE)
        if last < 0:
            return None
        first = max(last + 1 - _EXT_SEARCH_FILES, 0)
        low = self.files.entries[first].file_from_offset // UNIT_SIZE
        for queue_offset in range(self.max_offset - 1, low - 1, -1):
            unit = self.unit(queue_offset)
            if unit is not None and is_ext_addr(unit.tags_code):
                return unit.tags_code
        return None

    def window(self, start: int, count: int) -> NDArray[np.void]:
        """A copy of up to ``count`` units from queue offset ``start`` on, as an array of
        :func:`unit_dtype`; short at the end of a file, empty outside the files."""
        import numpy as np

        return np.frombuffer(self.stored(start, count), unit_dtype())

    def stored(self, start: int, count: int) -> bytes:
        """The bytes of :meth:`window`."""
        mapped = self.files.find(start * UNIT_SIZE) if start >= 0 else None
        if mapped is None:
            return b""
        count = min(count, self.units_from(start, mapped))
        position = start * UNIT_SIZE - mapped.file_from_offset
        return whole_units(mapped.read_aside(position, count * UNIT_SIZE)) if count > 0 else b""

    def close(self) -> None:
        if "files" in vars(self):
            self.files.close()
        if self.ext is not None:
            self.ext.close()


def count_written(read: Callable[[int, int], bytes], count: int, data_end: int) -> int:
    """How many of the first ``count`` units of a file are written. A bisection: written units stand
    in front of all others.

    :param read: returns a copy of the bytes at a position, and of a size; short when the file has
        been cut meanwhile.
    :param data_end: position from which on the file has only zeros, which are not read.
    """
    low, high = 0, min(count, -(-data_end // UNIT_SIZE))
    near, near_from = b"", 0
    while low < high:
        middle = (low + high) // 2
        position = middle * UNIT_SIZE
        if not near and high - low <= _UNITS_AT_ONCE:
            near, near_from = read(low * UNIT_SIZE, (high - low) * UNIT_SIZE), low * UNIT_SIZE
        if near:
            stored = near[position - near_from : position - near_from + UNIT_SIZE]
        else:
            stored = read(position, UNIT_SIZE)
        offset, size, _ = UNIT.unpack(stored) if len(stored) == UNIT_SIZE else _NOT_WRITTEN
        if offset >= 0 and size > 0:
            low = middle + 1
        else:
            high = middle
    return low


def whole_units(stored: bytes) -> bytes:
    """Stored bytes without an incomplete unit at the end, which a file that was cut may have."""
    return stored[: len(stored) - len(stored) % UNIT_SIZE]


def is_part_of(stored: bytes, wanted: bytes) -> bool:
    """Whether ``stored`` is a torn store of ``wanted``: each byte is the wanted one, or still 0."""
    return all(byte in (0, other) for byte, other in zip(stored, wanted, strict=True))


@cache
def unit_dtype() -> np.dtype[np.void]:
    """The dtype of a unit as it is stored: fields ``physical_offset`` (>i8), ``size`` (>i4) and
    ``tags_code`` (>i8)."""
    from formats.derive import dtype_of

    return dtype_of(layouts.QUEUE_UNIT)
