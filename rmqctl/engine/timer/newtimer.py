"""Makes a new wheel, timer log and check point, as a broker of 5.x writes them
(``TimerMessageStore#doEnqueue``, ``TimerWheel#putSlot``, ``TimerLog#append``).

Units are written in queue order, because a start goes on in the queue behind the message of the
timer log's last unit (``reviseQueueOffset``).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from formats import constants
from rmqctl.engine.files import paths
from rmqctl.engine.timer.timercheck import TimerCheckpoint, encode
from rmqctl.engine.timer.timerlog import BLANK, BLANK_MAGIC, UNIT, UNIT_SIZE
from rmqctl.engine.timer.wheel import SLOT, SLOT_SIZE, WHEEL_SIZE

if TYPE_CHECKING:
    from io import BufferedWriter


class Place(NamedTuple):
    """The record of a new unit: its place in the log, and the hash code of its real topic."""

    physical_offset: int
    total_size: int
    topic_hash: int


class NewTimer:
    """New timer files in the empty ``directory``. :meth:`finish` completes them and forces them to
    disk.

    :param precision: milliseconds of a slot.
    :param window: ``timerRollWindowSlot`` in milliseconds; messages further away are rolled.
    :param clock: the first slot that will be delivered (ms), a multiple of ``precision``.
    """

    def __init__(
        self, directory: Path, file_size: int, precision: int, window: int, clock: int
    ) -> None:
        self._directory = directory
        self._file_size = file_size
        self._precision = precision
        self._window = window
        self._clock = clock
        #: Slot time (ms) → positions of its first and newest unit, and messages minus recalls.
        self._slots: dict[int, list[int]] = {}
        self._end = 0
        self._file: BufferedWriter | None = None
        (directory / paths.TIMER_LOG).mkdir(parents=True)

    def add(self, place: Place, out_timestamp: int, *, recalls: bool) -> None:
        """Puts a message into a slot: that of its time, or of its next roll, but never one before
        ``clock``."""
        write = self._clock - self._precision
        slot = max(out_timestamp // self._precision * self._precision, self._clock)
        magic = constants.TIMER_MAGIC_DEFAULT
        if slot - write >= self._window:
            magic |= constants.TIMER_MAGIC_ROLL
            is_near = slot - write - self._window < self._window // self._precision // 3 * (
                self._precision
            )
            # This leaves enough time for the next roll.
            half = self._window // self._precision // 2 * self._precision
            slot = write + (half if is_near else self._window)
        if recalls:
            magic |= constants.TIMER_MAGIC_DELETE
        self._append(place, magic, write, slot, -1 if recalls else 1)

    def steer(self, place: Place) -> None:
        """Ends the timer log with a unit for the queue's last message, in a slot that is done
        already: so a start goes on behind that message."""
        write = self._clock - self._precision
        self._append(place, constants.TIMER_MAGIC_DEFAULT, write, write, 1)

    def _append(self, place: Place, magic: int, write: int, slot: int, number: int) -> None:
        entry = self._slots.get(slot)
        before = -1 if entry is None else entry[1]
        position = self._room()
        assert self._file is not None
        self._file.write(UNIT.pack(UNIT_SIZE, before, magic, write, slot - write, *place, 0))
        self._end = position + UNIT_SIZE
        if entry is None:
            self._slots[slot] = [position, position, number]
        else:
            entry[1] = position
            entry[2] += number

    def _room(self) -> int:
        """Position of the next unit; a file keeps room for its blank (``TimerLog#append``)."""
        used = self._end % self._file_size
        left = self._file_size - used
        if self._file is not None and used and left >= UNIT_SIZE + constants.TIMER_MIN_BLANK_LENGTH:
            return self._end
        if self._file is not None:
            if used:
                self._file.write(BLANK.pack(left, 0, BLANK_MAGIC))
                self._end += left
            self._close()
        name = self._directory / paths.TIMER_LOG / f"{self._end:020d}"
        self._file = name.open("wb")
        return self._end

    def _close(self) -> None:
        if self._file is not None:
            self._file.truncate(self._file_size)
            _force(self._file)
            self._file.close()
            self._file = None

    def finish(self, before: TimerCheckpoint, queue_offset: int) -> TimerCheckpoint:
        """Writes wheel and check point. All messages before ``queue_offset`` are in the wheel."""
        self._close()
        with (self._directory / paths.TIMER_WHEEL).open("wb") as wheel:
            wheel.truncate(WHEEL_SIZE)
            for slot, (first, last, number) in sorted(self._slots.items()):
                time = slot // self._precision
                wheel.seek(time % constants.TIMER_SLOTS * SLOT_SIZE)
                wheel.write(SLOT.pack(time, first, last, number, 0))
            _force(wheel)
        made = before._replace(
            read_timestamp=self._clock,
            flushed_position=self._end,
            queue_offset=queue_offset,
            master_queue_offset=queue_offset,
        )
        path = self._directory / paths.TIMER_CHECKPOINT
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.write(encode(made))
            _force(file)
        return made

    def close(self) -> None:
        """Closes an unfinished file."""
        if self._file is not None:
            self._file.close()


def _force(file: BufferedWriter) -> None:
    file.flush()
    os.fsync(file.fileno())
