"""``ConsumeQueue``: the units of one topic and queue number, 20 bytes each.

Queue offset = byte offset / 20. A unit is valid when its offset is not negative and its size is
positive; zeros were never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from formats import constants, layouts
from rmqctl.engine.consumequeue_ext import ConsumeQueueExt, is_ext_addr
from rmqctl.engine.mappedfile import MappedFile, MappedFileQueue, sync_files
from rmqctl.errors import FileLengthContradiction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNIT = Struct(layouts.QUEUE_UNIT.format)
UNIT_SIZE = UNIT.size
PRE_BLANK = UNIT.pack(*constants.PRE_BLANK_UNIT)
_MAX_ROWS_COPIED = 4096
#: ``ConsumeQueue#recover`` looks at so many files.
_EXT_SEARCH_FILES = 3
#: A store time that no message has: the unit's tags code stays out of the extension.
NO_EXT = -(2**63)


class Unit(NamedTuple):
    """One queue unit. ``tags_code`` may be an address in ``consumequeue_ext/``."""

    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_written(self) -> bool:
        return self.physical_offset >= 0 and self.size > 0

    @property
    def is_pre_blank(self) -> bool:
        """Whether it fills the place before the first unit (``ConsumeQueue#fillPreBlank``)."""
        return self == constants.PRE_BLANK_UNIT


class ConsumeQueue:
    """One queue. ``min_offset`` and ``max_offset`` are queue offsets, the latter the next one to
    be written; ``max_physical_offset`` is where the last unit's record ends, -1 without units.
    """

    def __init__(
        self,
        directory: Path,
        topic: str,
        queue_id: int,
        file_size: int,
        *,
        ext: ConsumeQueueExt | None = None,
        writable_root: Path | None = None,
        files: MappedFileQueue | None = None,
    ) -> None:
        """Maps the queue; nothing is read but its last units. ``files`` are the queue's files where
        they do not lie in ``directory``.

        :raises FileLengthContradiction: a file's length is not ``file_size``.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.ext = ext
        if files is None:
            files = MappedFileQueue(directory, file_size, writable_root=writable_root, keep=2)
        self.files = files
        for entry in self.files.entries:
            if entry.size != file_size:
                raise FileLengthContradiction(
                    path=str(entry.path),
                    found=entry.size,
                    expected=file_size,
                    why="every consume queue file has the same length",
                )
        self.min_offset = 0
        self._newest: int | None = None
        self._wrote = self._find_end()
        self.max_physical_offset = self._max_physical_offset()

    @property
    def max_offset(self) -> int:
        return self._wrote // UNIT_SIZE

    def _find_end(self) -> int:
        """Byte offset after the last valid unit: a bisection in the last file that holds one."""
        for number in range(len(self.files.entries) - 1, -1, -1):
            mapped = self.files.file(number)
            low, high = 0, mapped.size // UNIT_SIZE
            while low < high:
                middle = (low + high) // 2
                if Unit._make(UNIT.unpack_from(mapped.buffer, middle * UNIT_SIZE)).is_written:
                    low = middle + 1
                else:
                    high = middle
            if low or number == 0:
                return mapped.file_from_offset + low * UNIT_SIZE
        return 0

    def _max_physical_offset(self) -> int:
        last = self.unit(self.max_offset - 1)
        return -1 if last is None or last.is_pre_blank else last.physical_offset + last.size

    def cut(self, log_min: int, log_end: int) -> None:
        """Applies the log's range as the broker's start does: units at or beyond ``log_end`` are
        not there (``truncateDirtyLogicFiles``), those below ``log_min`` are passed over
        (``correctMinOffset``). Bytes stay as they are.
        """
        low, high = self._first_file_offset(), self.max_offset
        while low < high:
            last = self.unit(high - 1)
            if last is None or last.physical_offset < log_end:
                break
            high = self._bisect(low, high, log_end)
        self._wrote = high * UNIT_SIZE
        self.max_physical_offset = self._max_physical_offset()
        # Without expired files the engine stops at the first unit, a pre-blank one too.
        self.min_offset = self._bisect(low, high, log_min) if log_min else low

    def _first_file_offset(self) -> int:
        return max(self.files.min_offset, 0) // UNIT_SIZE

    def _bisect(self, low: int, high: int, physical_offset: int) -> int:
        """First queue offset in the range whose record is at or after ``physical_offset``."""
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and unit.physical_offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def last_unit_before(self, physical_offset: int) -> Unit | None:
        """The last unit whose record starts at or before an offset; None when there is none."""
        low = self._first_file_offset()
        at = self._bisect(low, self.max_offset, physical_offset + 1) - 1
        return self.unit(at) if at >= low else None

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit at a queue offset, as it stands in the file; None outside the files."""
        mapped = self.files.find(queue_offset * UNIT_SIZE) if queue_offset >= 0 else None
        if mapped is None:
            return None
        position = queue_offset * UNIT_SIZE - mapped.file_from_offset
        if position + UNIT_SIZE > mapped.size:
            return None
        return Unit._make(UNIT.unpack_from(mapped.buffer, position))

    def units(self, start: int, end: int) -> Iterator[tuple[int, Unit]]:
        """``(queue offset, unit)`` for ``[start, end)``; places in no file are left out."""
        while start < end:
            mapped = self.files.find(start * UNIT_SIZE)
            if mapped is None:
                following = [
                    e for e in self.files.entries if e.file_from_offset > start * UNIT_SIZE
                ]
                if not following:
                    return
                start = following[0].file_from_offset // UNIT_SIZE
                continue
            position = start * UNIT_SIZE - mapped.file_from_offset
            count = min((mapped.size - position) // UNIT_SIZE, end - start, _MAX_ROWS_COPIED)
            if count <= 0:
                return
            window = mapped.read(position, count * UNIT_SIZE)
            for values in UNIT.iter_unpack(window):
                yield start, Unit._make(values)
                start += 1

    def tags_code(self, unit: Unit) -> int | None:
        """The unit's tags code, looked up in ``consumequeue_ext/`` when it is an address there;
        None when nothing stands there."""
        if not is_ext_addr(unit.tags_code):
            return unit.tags_code
        found = self.ext.get(unit.tags_code) if self.ext is not None else None
        return None if found is None else found.tags_code

    def put_message_position_info(
        self,
        physical_offset: int,
        size: int,
        tags_code: int,
        queue_offset: int,
        *,
        max_gap: int = 0,
        store_timestamp: int | None = None,
    ) -> bool:
        """Appends one unit (``ConsumeQueue#putMessagePositionInfo``); False: skipped as known.

        With ``store_timestamp`` the tags code goes to the extension, when the queue writes one.

        A gap of at most ``max_gap`` units is filled with pre-blank ones, so that the unit gets its
        own place; else it lands at the current end, as the engine's does.

        :raises OSError: the disk is full. :raises CannotWrite: no new file can be made.
        """
        if physical_offset + size <= self.max_physical_offset:
            return False
        expected = queue_offset * UNIT_SIZE
        self._file_for_next(expected)
        if queue_offset != 0 and expected < self._wrote:
            return False
        gap = (expected - self._wrote) // UNIT_SIZE
        if 0 < gap <= max_gap:
            self._fill(gap)
        if store_timestamp is not None:
            tags_code = self._ext_address(tags_code, store_timestamp)
        self._append(UNIT.pack(physical_offset, size, tags_code))
        self.max_physical_offset = physical_offset + size
        return True

    def newest_address(self) -> int | None:
        """The last address of the extension that a unit holds, looked for in the last files that
        have one; behind them others may be made ahead."""
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

    def put_units(
        self,
        physical_offset: NDArray[np.int64],
        size: NDArray[np.int64],
        tags_code: NDArray[np.int64],
        queue_offset: NDArray[np.int64],
        *,
        max_gap: int = 0,
        store_timestamp: NDArray[np.int64] | None = None,
    ) -> None:
        """:meth:`put_message_position_info` for parallel arrays in log order.

        A run that simply goes on where the queue ends is stored as one block. In
        ``store_timestamp`` those that go to no extension have :data:`NO_EXT`.
        """
        import numpy as np

        columns = [physical_offset, size, tags_code, queue_offset]
        if store_timestamp is not None:
            columns.append(store_timestamp)
        # By the leading ones: a damaged size may make an end that is before the last one's.
        is_beyond = physical_offset + size > self.max_physical_offset
        known = int(is_beyond.argmax()) if is_beyond.any() else len(size)
        columns = [column[known:] for column in columns]
        physical_offset, size, tags_code, queue_offset = columns[:4]
        count, done = len(size), 0
        if count and (not self.files.entries or queue_offset[0] != self.max_offset):
            for row in zip(*(column.tolist() for column in columns), strict=True):
                self._put_row(row, max_gap)
                done += 1
                if done < count and queue_offset[done] == self.max_offset:
                    break
        if done == count:
            return
        columns = [column[done:] for column in columns]
        physical_offset, size, tags_code, queue_offset = columns[:4]
        goes_on = (np.diff(queue_offset, prepend=self.max_offset - 1) == 1) & (
            np.diff(physical_offset, prepend=self.max_physical_offset - 1) > 0
        )
        if not goes_on.all():
            for row in zip(*(column.tolist() for column in columns), strict=True):
                self._put_row(row, max_gap)
            return
        if len(columns) > 4:
            rows = zip(tags_code.tolist(), columns[4].tolist(), strict=True)
            tags_code = np.array([self._ext_address(*row) for row in rows], np.int64)
        try:
            self._append(_pack_units(physical_offset, size, tags_code))
        finally:
            # A full disk may have cut it off at a file's end.
            self.max_physical_offset = self._max_physical_offset()

    def _put_row(self, row: tuple[int, ...], max_gap: int) -> None:
        store_timestamp = row[4] if row[4:] and row[4] != NO_EXT else None
        self.put_message_position_info(*row[:4], max_gap=max_gap, store_timestamp=store_timestamp)

    def _ext_address(self, tags_code: int, store_timestamp: int) -> int:
        """What a unit gets for a tags code: its address in the extension when it has a place
        there, else the code itself."""
        if store_timestamp == NO_EXT or self.ext is None or not self.ext.is_writable:
            return tags_code
        newest = self.newest_address() if self._newest is None else self._newest
        address = self.ext.put(tags_code, store_timestamp, newest)
        if address is None:
            return tags_code
        self._newest = address
        return address

    def restore(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        """Completes a unit of which a killed writer stored a part; any other one is left alone."""
        wanted = UNIT.pack(physical_offset, size, tags_code)
        mapped = self.files.find(queue_offset * UNIT_SIZE)
        if mapped is None or queue_offset >= self.max_offset:
            return
        position = queue_offset * UNIT_SIZE - mapped.file_from_offset
        stored = mapped.read(position, UNIT_SIZE)
        if self._is_cut_address(queue_offset, stored, wanted):
            # The dispatch behind this puts it again, and its extension unit where it was.
            self._wrote -= UNIT_SIZE
            self.max_physical_offset = self._max_physical_offset()
        elif stored != wanted and is_part_of(stored, wanted):
            mapped.reserve(position, UNIT_SIZE)
            mapped.write(position, wanted)
            self.max_physical_offset = self._max_physical_offset()

    def _is_cut_address(self, queue_offset: int, stored: bytes, wanted: bytes) -> bool:
        """Whether the queue's last unit has the first half of an address in the extension."""
        if self.ext is None or not self.ext.is_writable or queue_offset != self.max_offset - 1:
            return False
        unit = Unit._make(UNIT.unpack(stored))
        is_cut = stored[:12] == wanted[:12] and not any(stored[16:])
        return (
            is_cut
            and is_ext_addr(unit.tags_code)
            and self.tags_code(unit) != UNIT.unpack(wanted)[2]
        )

    def restore_units(
        self,
        physical_offset: NDArray[np.int64],
        size: NDArray[np.int64],
        tags_code: NDArray[np.int64],
        queue_offset: NDArray[np.int64],
    ) -> None:
        """:meth:`restore` for parallel arrays in log order."""
        import numpy as np

        wanted = np.frombuffer(_pack_units(physical_offset, size, tags_code), unit_dtype())
        breaks = np.flatnonzero(np.diff(queue_offset) != 1) + 1
        for start, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(size)], strict=True):
            at = start
            while at < end and len(window := self.window(int(queue_offset[at]), end - at)):
                for row in (at + np.flatnonzero(window != wanted[at : at + len(window)])).tolist():
                    columns = (physical_offset, size, tags_code, queue_offset)
                    self.restore(*(int(column[row]) for column in columns))
                at += len(window)

    def _fill(self, count: int) -> None:
        """Appends pre-blank units, some thousands at a time."""
        while count > 0:
            self._append(PRE_BLANK * min(count, _MAX_ROWS_COPIED))
            count -= _MAX_ROWS_COPIED

    def _append(self, data: bytes) -> None:
        """Stores whole units at the end, over as many files as it takes."""
        while data:
            mapped = self._file_for_next(self._wrote)
            position = self._wrote - mapped.file_from_offset
            piece = data[: mapped.size - position]
            mapped.reserve(position, len(piece))
            mapped.write(position, piece)
            self._wrote += len(piece)
            data = data[len(piece) :]

    def reserve(self, queue_offset: int) -> None:
        """Makes sure that the unit at the end, or behind others that wait for their dispatch, can
        be stored, before its record is.

        :raises OSError: the disk is full. :raises CannotWrite: no new file can be made.
        """
        place = queue_offset * UNIT_SIZE
        if not self.files.entries:
            self._file_for_next(place)
        mapped = self.files.find(place)
        while mapped is None and place >= self.files.end_offset:
            self.files.append_file(self.files.end_offset)
            mapped = self.files.find(place)
        if mapped is not None:
            mapped.reserve(place - mapped.file_from_offset, UNIT_SIZE)

    def _file_for_next(self, expected: int) -> MappedFile:
        """The file of the next unit, made when needed (``getLastMappedFile(startOffset)``)."""
        if not self.files.entries:
            self._wrote = expected - expected % self.files.file_size
            self.files.append_file(self._wrote)
        if self.max_physical_offset < 0:
            # No unit yet: the one to come is the queue's first (``ConsumeQueue#fillPreBlank``). A
            # killed writer may have filled a part.
            first = self.files.file(0)
            before = expected - first.file_from_offset
            if 0 < before < first.size and first.read(0, before) != PRE_BLANK * (
                before // UNIT_SIZE
            ):
                self._wrote = first.file_from_offset
                first.reserve(0, before)
                first.write(0, PRE_BLANK * (before // UNIT_SIZE))
                self._wrote = expected
                self.min_offset = expected // UNIT_SIZE
                return first
        found = self.files.find(self._wrote)
        return found if found is not None else self.files.append_file(self._wrote)

    def window(self, start: int, count: int) -> NDArray[np.void]:
        """Up to ``count`` units from queue offset ``start``, as one array of the unit's dtype.

        Copied, so the caller keeps it; short at the end of a file, empty outside the files.
        """
        import numpy as np

        mapped = self.files.find(start * UNIT_SIZE) if start >= 0 else None
        data = b""
        if mapped is not None:
            position = start * UNIT_SIZE - mapped.file_from_offset
            data = mapped.read(
                position, min(count, (mapped.size - position) // UNIT_SIZE) * UNIT_SIZE
            )
        return np.frombuffer(data, unit_dtype())

    def flush(self) -> None:
        """Forces the queue to disk. :raises OSError: the disk failed."""
        sync_files(self.take_unsynced())

    def take_unsynced(self, least_pages: int = 0) -> set[Path]:
        """:meth:`MappedFileQueue.take_unsynced` of the queue and its extension."""
        unsynced = self.files.take_unsynced(least_pages)
        if self.ext is not None:
            unsynced |= self.ext.files.take_unsynced(least_pages)
        return unsynced

    def close(self) -> None:
        self.files.close()
        if self.ext is not None:
            self.ext.close()


def is_part_of(stored: bytes, wanted: bytes) -> bool:
    """Whether ``stored`` is what a store of ``wanted`` leaves that was cut: the rest is zeros."""
    return all(byte in (0, other) for byte, other in zip(stored, wanted, strict=True))


def unit_dtype() -> np.dtype[np.void]:
    from formats.derive import dtype_of

    return dtype_of(layouts.QUEUE_UNIT)


def _pack_units(
    physical_offset: NDArray[np.int64], size: NDArray[np.int64], tags_code: NDArray[np.int64]
) -> bytes:
    import numpy as np

    units = np.empty(len(size), unit_dtype())
    units["physical_offset"], units["size"], units["tags_code"] = physical_offset, size, tags_code
    return units.tobytes()
