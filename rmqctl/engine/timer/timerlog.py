"""``TimerLog``: one unit for each message in the wheel, and for each recall.

Its end is not stored: it is the first place without a unit in the part that a start checks. The
units of one slot are a chain that only goes backwards.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats import constants, layouts
from formats.derive import dtype_of
from rmqctl.engine.files.filequeue import MappedFileQueue
from rmqctl.engine.files.holes import is_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmqctl.engine.files.mappedfile import MappedFile

UNIT = Struct(layouts.TIMER_UNIT.format)
UNIT_SIZE = UNIT.size
#: The dtype of the bytes of :meth:`TimerLog.pieces`.
DTYPE = dtype_of(layouts.TIMER_UNIT)
BLANK = Struct(layouts.TIMER_BLANK.format)
BLANK_MAGIC = constants.BLANK_MAGIC_CODE - (1 << 32)
#: ``isMagicOK``: these bits may be set.
_MAGIC_BITS = 0xF
_UNITS_AT_ONCE = 20_000
_FILES_OPEN = 64
_NONE = -1


class TimerUnit(NamedTuple):
    """A unit, and its position in the timer log."""

    position: int
    prev_position: int
    magic: int
    write_timestamp: int
    delay_milliseconds: int
    physical_offset: int
    total_size: int
    topic_hash: int

    @property
    def slot_timestamp(self) -> int:
        """The time (ms) of its slot: that of the delivery, or of the next roll."""
        return self.write_timestamp + self.delay_milliseconds

    @property
    def is_roll(self) -> bool:
        return bool(self.magic & constants.TIMER_MAGIC_ROLL)

    @property
    def is_delete(self) -> bool:
        return bool(self.magic & constants.TIMER_MAGIC_DELETE)


class Chain(NamedTuple):
    """The units of a slot, newest first: their positions in the timer log, and the physical offsets
    of their records, both as arrays of type ``q``. ``recalls`` tells whether any of them is a
    recall. ``broken`` says why the chain ends too early; empty if it does not."""

    positions: array[int]
    offsets: array[int]
    recalls: bool = False
    broken: str = ""


class TimerLog:
    """The timer log in a directory. Positions are bytes from its start, over all its files.

    ``checked_from`` is a position in the first file that a start checks: from that file on, the
    first place without a unit ends the log. In earlier files a unit's magic code is never checked
    (``TimerMessageStore#dequeue``).
    """

    def __init__(self, directory: Path, file_size: int) -> None:
        # A chain leads through all files.
        self.files = MappedFileQueue(directory, file_size, keep=_FILES_OPEN)
        self.checked_from = 0
        self._end: int | None = None

    def close(self) -> None:
        self.files.close()

    @property
    def min_position(self) -> int:
        return max(self.files.min_offset, 0)

    @property
    def end(self) -> int:
        """Position where a start goes on: behind the last unit, or at the start of a file without
        units. The checked part is read once for this."""
        if self._end is None:
            for _ in self._to_end(self._number(self.checked_from)):
                pass
        assert self._end is not None
        return self._end

    @property
    def closed_end(self) -> int:
        """:meth:`closed` of :attr:`end`."""
        return self.closed(self.end)

    def closed(self, position: int) -> int:
        """A position behind a unit; but if a blank stands there, the end of the file that it
        closes."""
        mapped = self.files.find(position)
        if mapped is None or not _is_blank(mapped, position - mapped.file_from_offset):
            return position
        return mapped.file_from_offset + mapped.size

    def units(self, from_position: int = 0) -> Iterator[TimerUnit]:
        """The units of :meth:`pieces`, one by one."""
        for position, data in self.pieces(from_position):
            for number, fields in enumerate(UNIT.iter_unpack(data)):
                yield _unit(position + number * UNIT_SIZE, fields)

    def pieces(self, from_position: int = 0) -> Iterator[tuple[int, bytes]]:
        """Position and bytes of some thousand whole units at a time, in order, from the start of
        the file that holds ``from_position`` up to the log's end
        (``TimerMessageStore#recoverAndRevise``)."""
        return self._to_end(self._number(from_position))

    def _to_end(self, number: int) -> Iterator[tuple[int, bytes]]:
        """:meth:`pieces` from the file with a number on."""
        entries, checked = self.files.entries, self._number(self.checked_from)
        end = start = entries[number].file_from_offset if entries else 0
        for at in range(number, len(entries)):
            if entries[at].file_from_offset != start:
                break  # A file is missing.
            mapped = self.files.file(at)
            stop, goes_on = yield from _pieces_of(mapped, is_checked=at >= checked)
            end, start = start + stop, start + mapped.size
            if not goes_on:
                break
        if number <= checked:
            self._end = end

    def _number(self, position: int) -> int:
        """Number of the last file that does not begin behind a position."""
        offsets = [entry.file_from_offset for entry in self.files.entries]
        return max(bisect_right(offsets, position) - 1, 0)

    def unit(self, position: int) -> TimerUnit | None:
        """The unit at a position; None without one."""
        mapped = self.files.find(position) if 0 <= position < self.end else None
        if mapped is None:
            return None
        at = position - mapped.file_from_offset
        if at % UNIT_SIZE or at + UNIT_SIZE > mapped.size:
            return None
        if is_whole(mapped, at, at + UNIT_SIZE):
            fields = UNIT.unpack_from(mapped.buffer, at)
        else:
            stored = mapped.read(at, UNIT_SIZE)
            if len(stored) < UNIT_SIZE:  # The file has been cut since it was opened.
                return None
            fields = UNIT.unpack(stored)
        is_unit = fields[0] == UNIT_SIZE and fields[2] != BLANK_MAGIC
        return _unit(position, fields) if is_unit else None

    def units_at(self, positions: Iterable[int]) -> Iterator[TimerUnit]:
        """The units at these positions, in their order."""
        for position in positions:
            unit = self.unit(position)
            if unit is not None:
                yield unit

    def chain(self, last_position: int, time: int, precision: int) -> Chain:
        """The chain from a slot's newest unit on, as long as its units have the slot's ``time``.

        Each unit must stand before the one that leads to it, so the chain ends. Each unit has only
        one time, so all chains together are not longer than the log.
        """
        positions, offsets, recalls = array("q"), array("q"), False

        def ended(broken: str = "") -> Chain:
            return Chain(positions, offsets, recalls, broken)

        position, before = last_position, constants.LONG_MAX
        low = self.min_position  # Units before it are deleted.
        while position != _NONE and not 0 <= position < low:
            if position >= before:
                return ended(f"the unit at {before} leads forward, to {position}")
            found = self.unit(position)
            if found is None:
                return ended(f"no unit stands at {position}")
            if found.slot_timestamp // precision != time:
                return ended(f"the unit at {position} is of {found.slot_timestamp}")
            positions.append(position)
            offsets.append(found.physical_offset)
            recalls = recalls or found.is_delete
            position, before = found.prev_position, position
        return ended()


def _pieces_of(
    mapped: MappedFile, *, is_checked: bool
) -> Generator[tuple[int, bytes], None, tuple[int, bool]]:
    """The pieces of one file. Returns where its units end, and whether the log goes on behind
    it."""
    whole = mapped.size // UNIT_SIZE * UNIT_SIZE
    for at in range(0, whole, _UNITS_AT_ONCE * UNIT_SIZE):
        data = mapped.read(at, min(_UNITS_AT_ONCE * UNIT_SIZE, whole - at))
        units = np.frombuffer(data, DTYPE)
        is_blank = units["magic"] == BLANK_MAGIC
        bad = (units["size"] != UNIT_SIZE) | is_blank
        if is_checked:
            bad |= ~has_right_magic(units)
        stops = np.flatnonzero(bad if is_checked else is_blank)
        end = int(stops[0]) if len(stops) else len(units)
        bounds = np.flatnonzero(np.diff(bad[:end], prepend=True, append=True)) * UNIT_SIZE
        for low, high in zip(bounds[::2].tolist(), bounds[1::2].tolist(), strict=True):
            yield mapped.file_from_offset + at + low, data[low:high]
        if end < len(units):
            return at + end * UNIT_SIZE, bool(is_blank[end])
    is_full = whole == mapped.size or _is_blank(mapped, whole)
    return whole, is_full or not is_checked


def _is_blank(mapped: MappedFile, at: int) -> bool:
    """Whether a blank stands at a position in a file."""
    data = mapped.read(at, min(BLANK.size, mapped.size - at))
    return len(data) == BLANK.size and BLANK.unpack(data)[2] == BLANK_MAGIC


def has_right_magic(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which units have a valid magic code (``TimerMessageStore#isMagicOK``): bool, parallel to
    ``units``, which have :data:`DTYPE`."""
    right: NDArray[np.bool_] = units["magic"] & ~_MAGIC_BITS == 0
    return right


def _unit(position: int, fields: tuple[int, ...]) -> TimerUnit:
    return TimerUnit(position, *fields[1:8])
