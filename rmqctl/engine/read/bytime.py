"""Which message of a queue was stored at a time (``ConsumeQueue#getOffsetInQueueByTime``).

The engine chooses a queue *file* by its modification time, which a copy or a restore changes, and
then bisects in it. Here only the store times of the records count, over the whole queue. The file
matters only where several messages were stored at exactly the time: there the engine answers with
the one that its bisection meets first, and so does NEAREST.

Bisection is exact as long as store times never fall along the queue. They fall only if the broker's
clock was set back; then several places may answer. :func:`bisect` finds one at which the times
cross the wanted time (for CEIL a message at or after it, with an earlier readable message before).
:func:`scan` reads every message and finds exactly what the boundary means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING

from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue

if TYPE_CHECKING:
    from rmqctl.engine.log.commitlog import CommitLog

#: Gives the store time (ms) of the message at a queue offset; None if its record cannot be read.
#: :class:`StoreTimes` does so for a queue.
Times = Callable[[int], int | None]


class Boundary(Enum):
    """Which message answers a time.

    FIRST and LAST are of those stored exactly then. FLOOR is the last at or before it, CEIL the
    first at or after it. NEAREST is the engine's own: one that was stored exactly then, else the
    nearer of both neighbours, and the earlier one if both are equally near. Of several that were
    stored exactly then it is the one that 4.9.3 meets first in their queue file; in queues that are
    not in such files it is the first.
    """

    NEAREST = "nearest"
    FIRST = "first"
    LAST = "last"
    FLOOR = "floor"
    CEIL = "ceil"


class StoreTimes:
    """The store times (ms) behind a queue's units. Gaps between stored units are skipped at no
    cost."""

    def __init__(self, log: CommitLog, queue: ConsumeQueue) -> None:
        self._log = log
        self._queue = queue
        self.first_from, self.last_before = queue.first_from, queue.last_before

    def __call__(self, queue_offset: int) -> int | None:
        unit = self._queue.unit(queue_offset)
        record = None if unit is None else self._log.find_record(unit.physical_offset)
        if unit is None or record is None or record.total_size != unit.size:
            return None
        return record.store_timestamp

    def met_at(self, time: int, first: int, low: int, high: int) -> int:
        """The message that the engine's bisection meets, of those that were stored exactly at
        ``time`` (ms): it looks into the file that has ``first``, the first of them.

        All but the time are queue offsets, and the queue has ``[low, high)``.
        """
        if not self._queue.in_files:
            return first
        units = self._queue.files.file_size // UNIT_SIZE
        begin = first // units * units
        left, right = max(begin, low), min(begin + units, high) - 1
        while left <= right:
            middle = (left + right) // 2
            found = self(middle)
            if found == time:
                return middle
            if found is None or found < time:
                left = middle + 1
            else:
                right = middle - 1
        return first


def store_times(log: CommitLog, queue: ConsumeQueue) -> Times:
    """The store times behind a queue's units."""
    return StoreTimes(log, queue)


def bisect(times: Times, low: int, high: int, time: int, boundary: Boundary) -> int | None:
    """The queue offset in ``[low, high)`` that answers ``time``; None when none does.

    Reads about log2(high - low) messages, and more only beside unreadable ones.
    """
    ceil = _first(times, low, high, lambda found: found >= time)
    if boundary is Boundary.CEIL:
        return ceil
    is_exact = ceil is not None and times(ceil) == time
    if boundary is Boundary.FIRST:
        return ceil if is_exact else None
    if boundary is Boundary.NEAREST and is_exact and ceil is not None:
        return _exact(times, ceil, low, high, time)
    later = _first(times, low, high, lambda found: found > time)
    floor = readable_before(times, low, high if later is None else later)
    if boundary is Boundary.LAST:
        return floor if floor is not None and times(floor) == time else None
    if boundary is Boundary.FLOOR or ceil is None:
        return floor
    if floor is None:
        return ceil
    return _nearer(floor, times(floor), ceil, times(ceil), time)


def scan(times: Times, low: int, high: int, time: int, boundary: Boundary) -> int | None:
    """As :func:`bisect`, but reads every message: right even if the clock was set back.

    FLOOR is then the last message, in the order of the queue, that was stored at or before the
    time, and CEIL the first that was stored at or after it.
    """
    first = last = floor = ceil = None
    below: tuple[int, int] | None = None
    above: tuple[int, int] | None = None
    for queue_offset, found in _readable(times, low, high):
        if found <= time:
            floor = queue_offset
            below = (found, queue_offset) if below is None or found >= below[0] else below
        if found >= time:
            ceil = queue_offset if ceil is None else ceil
            above = (found, queue_offset) if above is None or found < above[0] else above
        if found == time:
            first = queue_offset if first is None else first
            last = queue_offset
    if boundary is not Boundary.NEAREST:
        answers = {
            Boundary.FIRST: first,
            Boundary.LAST: last,
            Boundary.FLOOR: floor,
            Boundary.CEIL: ceil,
        }
        return answers[boundary]
    if first is not None:
        return _exact(times, first, low, high, time)
    if below is None or above is None:
        rest = below or above
        return None if rest is None else rest[1]
    return _nearer(below[1], below[0], above[1], above[0], time)


def _exact(times: Times, first: int, low: int, high: int, time: int) -> int:
    """NEAREST, where ``first`` is the first message that was stored exactly then."""
    return times.met_at(time, first, low, high) if isinstance(times, StoreTimes) else first


def _nearer(floor: int, floor_time: int | None, ceil: int, ceil_time: int | None, time: int) -> int:
    """Whichever is nearer to a time, unless a broker has deleted it meanwhile."""
    if floor_time is None or ceil_time is None:
        return ceil if floor_time is None else floor
    return ceil if abs(time - floor_time) > abs(ceil_time - time) else floor


def _first(times: Times, low: int, high: int, holds: Callable[[int], bool]) -> int | None:
    """The first readable message in the range whose time ``holds``, if times never fall."""
    answer = None
    while low < high:
        middle = (low + high) // 2
        at, found = next(_readable(times, middle, high), (middle, None))
        if found is None:
            high = middle
        elif holds(found):
            answer, high = at, middle
        else:
            low = at + 1
    return answer


def readable_before(times: Times, low: int, high: int) -> int | None:
    """The last readable message in the range."""
    at: int | None = high
    while at is not None and at > low:
        at = times.last_before(at) if isinstance(times, StoreTimes) else at - 1
        if at is not None and at >= low and times(at) is not None:
            return at
    return None


def _readable(times: Times, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Queue offsets and store times of the readable messages in the range, in order."""
    at: int | None = low
    while at is not None and at < high:
        if isinstance(times, StoreTimes):
            at = times.first_from(at, high)
        found = None if at is None else times(at)
        if at is None:
            return
        if found is not None:
            yield at, found
        at += 1
