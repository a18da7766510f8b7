"""``TimerLog``: a unit for each message in the wheel, and for each that recalls one.

The log's end is stored nowhere: it is the first unit that is none. Units of one time are a chain
that only goes backwards.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np

from formats import constants, layouts
from formats.derive import dtype_of
from rmqctl.engine.files.filequeue import MappedFileQueue

UNIT = Struct(layouts.TIMER_UNIT.format)
UNIT_SIZE = UNIT.size
#: Of the bytes of :meth:`TimerLog.pieces`.
DTYPE = dtype_of(layouts.TIMER_UNIT)
_BLANK_MAGIC = constants.BLANK_MAGIC_CODE - (1 << 32)
#: ``isMagicOK``: these bits may be set.
_MAGIC_BITS = 0xF
_UNITS_AT_ONCE = 20_000
_NONE = -1


class TimerUnit(NamedTuple):
    """A unit, and where it stands in the log."""

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
        """The time of its slot: of the delivery, or of the next roll."""
        return self.write_timestamp + self.delay_milliseconds

    @property
    def is_roll(self) -> bool:
        return bool(self.magic & constants.TIMER_MAGIC_ROLL)

    @property
    def is_delete(self) -> bool:
        return bool(self.magic & constants.TIMER_MAGIC_DELETE)


class Chain(NamedTuple):
    """Where the units of a slot stand, the newest first: eight bytes each. ``broken`` says why the
    chain ends before its first one."""

    positions: array[int]
    broken: str = ""


class TimerLog:
    """The log below a directory; positions are bytes from its start, over all its files."""

    def __init__(self, directory: Path, file_size: int) -> None:
        self.files = MappedFileQueue(directory, file_size, keep=2)
        self._end: int | None = None

    def close(self) -> None:
        self.files.close()

    @property
    def min_position(self) -> int:
        return max(self.files.min_offset, 0)

    @property
    def end(self) -> int:
        """Behind the last unit, where a start goes on; the log is read once for it."""
        if self._end is None:
            for _ in self.pieces():
                pass
        assert self._end is not None
        return self._end

    def last(self, from_position: int) -> TimerUnit | None:
        """The last unit of the log as a start finds it that begins with the file that holds
        ``from_position``; None when no unit stands in it and behind it."""
        last = None
        for position, data in self.pieces(from_position):
            at = len(data) - UNIT_SIZE
            last = position + at, data[at:]
        return None if last is None else _unit(last[0], UNIT.unpack(last[1]))

    def units(self, from_position: int = 0) -> Iterator[TimerUnit]:
        """All of :meth:`pieces`, one by one."""
        for position, data in self.pieces(from_position):
            for number, fields in enumerate(UNIT.iter_unpack(data)):
                yield _unit(position + number * UNIT_SIZE, fields)

    def pieces(self, from_position: int = 0) -> Iterator[tuple[int, bytes]]:
        """Where whole units stand and their bytes, some thousands at a time, in order, from the
        start of the file that holds a position up to the first that is none
        (``TimerMessageStore#recoverAndRevise``)."""
        number = max(self.files.index_of(from_position), 0)
        entries = self.files.entries[number:]
        position = entries[0].file_from_offset if entries else 0
        for entry in entries:
            if entry.file_from_offset != position:
                break  # A file lacks.
            mapped = self.files.file(number)
            number += 1
            at, whole = 0, mapped.size // UNIT_SIZE * UNIT_SIZE
            is_blank = True
            while at < whole:
                data = mapped.read(at, min(_UNITS_AT_ONCE * UNIT_SIZE, whole - at))
                valid = _valid_bytes(data)
                if valid:
                    yield position, data[:valid]
                at, position = at + valid, position + valid
                if valid < len(data):
                    is_blank = UNIT.unpack_from(data, valid)[2] == _BLANK_MAGIC
                    break
            if not is_blank:
                break
            position = entry.file_from_offset + mapped.size
        self._end = position

    def unit(self, position: int) -> TimerUnit | None:
        """The unit that starts at a position; None where none does."""
        mapped = self.files.find(position) if position >= 0 else None
        if mapped is None:
            return None
        at = position - mapped.file_from_offset
        if at % UNIT_SIZE or at + UNIT_SIZE > mapped.size:
            return None
        fields = UNIT.unpack(mapped.read(at, UNIT_SIZE))
        return _unit(position, fields) if _is_unit(fields) else None

    def units_at(self, positions: Iterable[int]) -> Iterator[TimerUnit]:
        """The units at these positions, in their order."""
        for position in positions:
            unit = self.unit(position)
            if unit is not None:
                yield unit

    def chain(self, last_position: int, time: int, precision: int) -> Chain:
        """The units from a slot's newest one on, as far as they are of its ``time``.

        Each stands before the one that leads to it, so that it comes to an end; and a unit is of
        one time only, so that all chains together are no longer than the log.
        """
        positions = array("q")
        position, before = last_position, constants.LONG_MAX
        low = self.min_position  # What was before it is deleted.
        while position != _NONE and not 0 <= position < low:
            if position >= before:
                return Chain(positions, f"the unit at {before} leads forward, to {position}")
            found = self.unit(position)
            if found is None:
                return Chain(positions, f"no unit stands at {position}")
            if found.slot_timestamp // precision != time:
                return Chain(positions, f"the unit at {position} is of {found.slot_timestamp}")
            positions.append(position)
            position, before = found.prev_position, position
        return Chain(positions)


def _valid_bytes(data: bytes) -> int:
    """Length of the units in front of the first that is none."""
    units = np.frombuffer(data, DTYPE)
    bad = (units["size"] != UNIT_SIZE) | (units["magic"] & ~_MAGIC_BITS != 0)
    return (int(bad.argmax()) if bad.any() else len(units)) * UNIT_SIZE


def _is_unit(fields: tuple[int, ...]) -> bool:
    size, _, magic = fields[:3]
    return size == UNIT_SIZE and magic | _MAGIC_BITS == _MAGIC_BITS


def _unit(position: int, fields: tuple[int, ...]) -> TimerUnit:
    return TimerUnit(position, *fields[1:8])
