"""``TimerLog``: a unit for each message in the wheel, and for each that recalls one.

The log's end is stored nowhere: it is the first unit that is none. Units of one time are a chain
that only goes backwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from formats import constants, layouts
from rmqctl.engine.files.filequeue import MappedFileQueue

UNIT = Struct(layouts.TIMER_UNIT.format)
UNIT_SIZE = UNIT.size
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
    """The units of a slot, the newest first; ``broken`` says why it ends before its first one."""

    units: list[TimerUnit]
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
            for _ in self.units():
                pass
        assert self._end is not None
        return self._end

    def units(self) -> Iterator[TimerUnit]:
        """All, in order, up to the first that is none
        (``TimerMessageStore#recoverAndRevise``)."""
        position = self.min_position
        for number, entry in enumerate(self.files.entries):
            if entry.file_from_offset != position:
                break  # A file lacks.
            mapped = self.files.file(number)
            at, whole = 0, mapped.size // UNIT_SIZE * UNIT_SIZE
            while at < whole:
                data = mapped.read(at, min(_UNITS_AT_ONCE * UNIT_SIZE, whole - at))
                for fields in UNIT.iter_unpack(data):
                    if not _is_unit(fields):
                        break
                    yield _unit(entry.file_from_offset + at, fields)
                    at += UNIT_SIZE
                else:
                    continue
                break
            position = entry.file_from_offset + at
            if at < whole and fields[2] != _BLANK_MAGIC:
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

    def chain(self, last_position: int, time: int, precision: int) -> Chain:
        """The units from a slot's newest one on, as far as they are of its ``time``.

        Each stands before the one that leads to it, so that it comes to an end; and a unit is of
        one time only, so that all chains together are no longer than the log.
        """
        units: list[TimerUnit] = []
        position, before = last_position, constants.LONG_MAX
        while position != _NONE:
            if position >= before:
                return Chain(units, f"the unit at {before} leads forward, to {position}")
            found = self.unit(position)
            if found is None:
                return Chain(units, f"no unit stands at {position}")
            if found.slot_timestamp // precision != time:
                return Chain(units, f"the unit at {position} is of {found.slot_timestamp}")
            units.append(found)
            position, before = found.prev_position, position
        return Chain(units)


def _is_unit(fields: tuple[int, ...]) -> bool:
    size, _, magic = fields[:3]
    return size == UNIT_SIZE and magic | _MAGIC_BITS == _MAGIC_BITS


def _unit(position: int, fields: tuple[int, ...]) -> TimerUnit:
    return TimerUnit(position, *fields[1:8])
