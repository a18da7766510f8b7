"""``TimerWheel``: a slot for each time, with its newest unit in the timer log.

The file is one ring of slots and mostly a hole; only its written parts are read. A delivered slot
stays as it is until it is used for a later time.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats import constants, layouts
from formats.derive import dtype_of
from rmqctl.engine.files.mappedfile import MappedFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

SLOT = Struct(layouts.TIMER_SLOT.format)
SLOT_SIZE = SLOT.size
WHEEL_SIZE = constants.TIMER_SLOTS * SLOT_SIZE
_DTYPE = dtype_of(layouts.TIMER_SLOT)
#: Bytes that are read at once: whole slots.
_BYTES_AT_ONCE = 32768 * SLOT_SIZE


class Slot(NamedTuple):
    """A slot and its number. ``time`` counts units of the precision since the epoch; positions are
    those in the timer log."""

    number: int
    time: int
    first_position: int
    last_position: int
    messages: int

    @property
    def is_in_place(self) -> bool:
        """Whether the slot's time belongs in this slot (``TimerWheel#getSlotIndex``)."""
        return self.time > 0 and self.time % constants.TIMER_SLOTS == self.number


class TimerWheel:
    """The used slots, those with a time, in the order of the file.

    ``size`` is the file's length. With another one than :data:`WHEEL_SIZE` no broker starts, but
    here the existing slots are read.
    """

    def __init__(self, path: Path) -> None:
        """:raises CannotRead: it is no regular file, or the system refuses."""
        mapped = MappedFile.open(path)
        try:
            self.size = mapped.size
            parts = list(_read(mapped))
        finally:
            mapped.close()
        self._numbers = np.concatenate([part[0] for part in parts] or [np.empty(0, np.int64)])
        self._slots = np.concatenate([part[1] for part in parts] or [np.empty(0, _DTYPE)])

    def __len__(self) -> int:
        return len(self._slots)

    def slot(self, time: int) -> Slot | None:
        """The slot of a time; None when it is not used, or has another time."""
        at = int(np.searchsorted(self._numbers, time % constants.TIMER_SLOTS))
        if at == len(self._slots) or self._numbers[at] != time % constants.TIMER_SLOTS:
            return None
        found, first, last, count, _ = self._slots[at].item()
        return Slot(int(self._numbers[at]), found, first, last, count) if found == time else None

    def slots(self, from_time: int = 0) -> Iterator[Slot]:
        """The slots with a time of ``from_time`` or later, ordered by time."""
        times = self._slots["time"].astype(np.int64)
        chosen = (times >= from_time).nonzero()[0]
        for at in chosen[np.argsort(times[chosen], kind="stable")].tolist():
            time, first, last, count, _ = self._slots[at].item()
            yield Slot(int(self._numbers[at]), time, first, last, count)


def _read(mapped: MappedFile) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
    end = min(mapped.size, WHEEL_SIZE) // SLOT_SIZE * SLOT_SIZE
    done = 0
    for low, high in mapped.extents(0, end):
        start = max(low // SLOT_SIZE * SLOT_SIZE, done)
        done = min(-(-high // SLOT_SIZE) * SLOT_SIZE, end)
        for at in range(start, done, _BYTES_AT_ONCE):
            data = mapped.read_aside(at, min(_BYTES_AT_ONCE, done - at))
            slots = np.frombuffer(data, _DTYPE, len(data) // SLOT_SIZE)
            used = (slots["time"] != 0).nonzero()[0]
            if len(used):
                yield used + at // SLOT_SIZE, slots[used]
