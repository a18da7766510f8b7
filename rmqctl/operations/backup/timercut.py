"""Cuts the timer of 5.x, in a store that is being written, at one of its check points.

A broker puts a message into the timer log and into the wheel, and then counts it in
``config/timercheck``. After a start it goes on in the timer's queue behind the messages that are
counted, so those behind them must not be in the wheel already: they would be delivered twice
(``TimerMessageStore#recover``). Units of records that the log has not are worse. In their places
come other records, and their slots lead behind the end of the timer log.

So the check point is read before the end of the log is noted, and what follows the messages that it
counts is cut off. The timer log is only appended to. A slot of the wheel is overwritten, but the
first unit behind the cut tells what stood in it before (``prev_position``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from formats import constants
from rmqctl.engine.files.filequeue import is_offset_name
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.timer.timercheck import TimerCheckpoint, encode
from rmqctl.operations.backup.content import Content
from rmqctl.operations.backup.listing import Opener, SourceFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.services.timer import Timer
    from rmqctl.engine.timer.timerlog import TimerLog

#: Gives what a look at the store finds, opened anew for it.
Looked = Callable[[Callable[["MessageStore"], int]], int]
#: Length of the check point's fields, in bytes.
_FIELDS = 8 * len(TimerCheckpoint._fields)


class TimerCut:
    """Openers of the timer's files. The wheel has to come first, so that all units that its slots
    lead to are in the timer log when that is read; the files of the timer log have to come newest
    first.

    :param checkpoint: the check point, read before the end of the log was noted; zeros without
        one.
    :param limit: physical offset up to which the queues are copied.
    :param copied: copies a file into a temporary one, which can be written.
    """

    def __init__(
        self,
        checkpoint: TimerCheckpoint,
        limit: int,
        looked: Looked,
        copied: Callable[[MappedFile], MappedFile],
    ) -> None:
        self._checkpoint = checkpoint
        self._limit = limit
        self._looked = looked
        self._copied = copied
        self._wheel: MappedFile | None = None
        self._found: int | None = None

    def _end(self) -> int:
        """The position at which the timer log is cut. The first call cuts the wheel there, too."""
        if self._found is None:
            self._found = self._looked(self._cut)
        return self._found

    def wheel(self, mapped: MappedFile) -> Content:
        """An opener of ``timerwheel``. With a wrong length, with which no broker starts, it is
        copied as it is."""
        from rmqctl.engine.timer.wheel import WHEEL_SIZE

        if mapped.size != WHEEL_SIZE:
            return Content(mapped)
        try:
            self._wheel = self._copied(mapped)
        finally:
            mapped.close()
        try:
            self._end()
        except BaseException:
            self._wheel.close()
            raise
        return Content(self._wheel)

    def log(self, file: SourceFile) -> Opener:
        """An opener of a file of the timer log. A file in which the first unit is cut off stays: a
        start goes on in it."""

        def opened(mapped: MappedFile) -> Content | None:
            name = file.place.name
            if not is_offset_name(name):
                return Content(mapped)
            room = self._end() - int(name)
            return Content(mapped, room) if room >= 0 else None

        return opened

    def checkpoint(self, mapped: MappedFile) -> Content:
        """An opener of ``config/timercheck``. Units that had been flushed, but not been counted,
        are cut off, so that the flushed position may lie before the check point's own."""
        if mapped.size < _FIELDS:
            return Content(mapped)
        flushed = min(self._checkpoint.flushed_position, self._end())
        fields = encode(self._checkpoint._replace(flushed_position=flushed))[:_FIELDS]
        try:
            copy = self._copied(mapped)
        finally:
            mapped.close()
        copy.write_aside(0, fields)
        return Content(copy)

    def _cut(self, store: MessageStore) -> int:
        """Finds the end of the timer log, and puts the slots of the copied wheel right."""
        from rmqctl.engine.services.timer import Timer

        timer = Timer(store, self._checkpoint)
        try:
            limit = min(_first_again(timer, self._limit), self._limit)
            end = _end_before(timer.log, limit, timer.recovery_position)
            if self._wheel is not None:
                _cut_wheel(timer, end, self._wheel)
            return end
        finally:
            timer.close()


def _first_again(timer: Timer, limit: int) -> int:
    """Physical offset of the first message that is not counted in the check point; ``limit``
    without one."""
    queue, checkpoint = timer.queue, timer.checkpoint
    if queue is None:
        return limit
    offset = min(checkpoint.queue_offset, checkpoint.master_queue_offset)
    units = queue.units(max(offset, queue.min_offset), queue.max_offset)
    places = (one.physical_offset for _, one in units if one.is_written and not one.is_pre_blank)
    return next(places, limit)


def _end_before(log: TimerLog, limit: int, start: int) -> int:
    """Position behind the last unit of a record before a physical offset, and behind the blank
    there; the log's first position without such a unit. Positions before ``start`` are only looked
    at if there is none behind it."""
    for begin in (start, 0):
        end = -1
        for position, units in _whole_units(log, begin):
            before = (units["physical_offset"] < limit).nonzero()[0]
            if len(before):
                end = int(position[before[-1]]) + constants.TIMER_UNIT_SIZE
        if end >= 0:
            return log.closed(end)
    return log.min_position


def _whole_units(log: TimerLog, start: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
    """The units from the file on that holds a position, some thousand at a time: their positions,
    and the units, with the dtype of the timer log. A unit of which the end is not written yet is
    left out."""
    import numpy as np

    from rmqctl.engine.timer.timerlog import DTYPE, UNIT_SIZE, has_right_magic

    for position, data in log.pieces(start):
        units = np.frombuffer(data, DTYPE)
        rows = np.flatnonzero(has_right_magic(units) & (units["total_size"] > 0))
        yield position + rows * UNIT_SIZE, units[rows]


def _cut_wheel(timer: Timer, end: int, wheel: MappedFile) -> None:
    """Gives each slot to come the units before a position in the timer log.

    Slots of which no unit stands behind the place where a start begins to read have none behind
    ``end``. The others are compared with the timer log: a flush that was going on may also have
    left half a slot.
    """
    from rmqctl.engine.timer.wheel import SLOT, SLOT_SIZE

    for time, head in _heads(timer, end).items():
        place = time % constants.TIMER_SLOTS * SLOT_SIZE
        stored, first, last, *_ = SLOT.unpack(wheel.read(place, SLOT_SIZE))
        if (stored, last) == (time, head) and 0 <= first <= last < end:
            continue
        chain = timer.log.chain(head, time, timer.precision).positions
        positions = [position for position in chain if position < end]
        if not positions:
            # What was there before is of a time a whole ring ago.
            wheel.write_aside(place, bytes(SLOT_SIZE))
            continue
        recalls = sum(unit.is_delete for unit in timer.log.units_at(positions))
        count = len(positions) - 2 * recalls
        wheel.write_aside(place, SLOT.pack(time, positions[-1], positions[0], count, 0))


def _heads(timer: Timer, end: int) -> dict[int, int]:
    """Slot times, in units of the precision, of the units that a start reads, or that stand behind
    a position, each with the position of its newest unit before it; -1: none."""
    import numpy as np

    clock = timer.checkpoint.read_timestamp // timer.precision
    found: dict[int, int] = {}
    for position, units in _whole_units(timer.log, min(timer.recovery_position, end)):
        delay = units["delay_milliseconds"].astype(np.int64)
        time = (units["write_timestamp"].astype(np.int64) + delay) // timer.precision
        before = ((time >= clock) & (position < end)).nonzero()[0]
        found.update(zip(time[before].tolist(), position[before].tolist(), strict=True))
        behind = ((time >= clock) & (position >= end)).nonzero()[0]
        previous = units["prev_position"][behind].tolist()
        for one, head in zip(time[behind].tolist(), previous, strict=True):
            found.setdefault(one, head)
    return found
