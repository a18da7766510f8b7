"""What a check that goes on in the middle of the log must know of the records before it.

A stretch gets nothing from the one before it but the physical offset at which it begins. What it
needs is in the store: a unit that leads to a record which asks for just this unit proves how far
the records had come. Where the units, or items, around the beginning are not like that, the records
from the last such one on are taken again, and what is found at that is not told: the stretch before
has told it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.record.record import Record

#: How many bytes of log are taken again at most. Where that is not enough, as in a queue that lay
#: idle for long and lost its last unit, damage may be told by two stretches.
MOST_AGAIN = 1 << 30
#: How many units, or items, are looked up in search of one that leads to its record.
MOST_LOOKED_UP = 1 << 12
#: How many units, or items, are read at once: 1.3 MB.
WINDOW = 1 << 16


class Beginning(NamedTuple):
    """Where to begin, as far as one queue, or the index, says it. ``again_from`` is the record
    (physical offset) from which on records must be taken again; None: that is not needed.
    ``store_timestamp`` (ms) is that of the last record before the stretch; 0 if there is none."""

    again_from: int | None
    store_timestamp: int = 0


class QueuePlace(NamedTuple):
    """The last unit that is known to be its record's: its queue offset, how many units it is behind
    the offset that the record names (:class:`QueueState`), and the record."""

    queue_offset: int
    shift: int
    record: Record


class EarlierRecords:
    """The records before a physical offset, as the units of a queue tell them.

    ``begin`` is where the records begin that the check of the queues takes.
    """

    def __init__(self, log: CommitLog, dispatcher: Dispatcher, begin: int, log_min: int) -> None:
        self.begin = begin
        self._log = log
        self._dispatcher = dispatcher
        self._log_min = log_min

    def beginning(self, queue: ConsumeQueue, first: int, end: int) -> Beginning:
        """What a queue says about where to begin. Its units have queue offsets ``[first, end)``."""
        place, is_clear = self._find(queue, first, end)
        stamp = 0 if place is None else place.record.store_timestamp
        if is_clear:
            return Beginning(None, stamp)
        return Beginning(self._log_min if place is None else place.record.physical_offset, stamp)

    def last_place(self, queue: ConsumeQueue, first: int, end: int) -> QueuePlace | None:
        """The place of the last record before ``begin`` that the queue has; None if there is
        none."""
        return self._find(queue, first, end)[0]

    def begins_again(self, queue: ConsumeQueue, first: int, end: int) -> tuple[int, int] | None:
        """Queue offset and physical offset of the first unit whose record is at ``begin`` or behind
        it; None if that record does not ask for it. If that queue offset is one of an earlier
        record, the queue has begun again."""
        found = self._first_behind(queue, first, end)
        place = self._placed(queue, found)
        if place is None or place.shift or place.record.physical_offset < self.begin:
            return None
        return found, place.record.physical_offset

    def _find(self, queue: ConsumeQueue, first: int, end: int) -> tuple[QueuePlace | None, bool]:
        """The place, and whether no record need be taken again: that place, and the next unit,
        are sound and on both sides of ``begin``."""
        behind = self._first_behind(queue, first, end)
        place = self._placed(queue, behind - 1) if behind > first else None
        if place is not None and place.record.physical_offset >= self.begin:
            place = None
        following = self._placed(queue, behind) if behind < end else None
        shift = 0 if place is None else place.shift
        goes_on = behind >= end or (
            following is not None
            and following.record.physical_offset >= self.begin
            and following.shift == shift
        )
        has_none = behind == first or self._is_expired(queue, behind - 1)
        if goes_on and (place is not None or has_none):
            return place, True
        for queue_offset in islice(self._earlier_units(queue, first, end), MOST_LOOKED_UP):
            place = self._placed(queue, queue_offset)
            if place is not None:
                return place, False
        return None, False

    def _first_behind(self, queue: ConsumeQueue, low: int, high: int) -> int:
        """The first queue offset of ``[low, high)`` whose unit leads to ``begin`` or behind it, if
        the units are in order."""
        while low < high:
            middle = (low + high) // 2
            unit = queue.unit(middle)
            if unit is not None and unit.physical_offset < self.begin:
                low = middle + 1
            else:
                high = middle
        return low

    def _is_expired(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        unit = queue.unit(queue_offset)
        if unit is None or not unit.is_written:
            return False
        return unit.is_pre_blank or unit.physical_offset < self._log_min

    def _placed(self, queue: ConsumeQueue, queue_offset: int) -> QueuePlace | None:
        """The place of a unit; None if it is not its record's. A unit in front of its own offset
        counts only together with the one before it: a single one may be a stray copy."""
        found = self._shift(queue, queue_offset)
        if found is None:
            return None
        shift, record = found
        before = self._shift(queue, queue_offset - 1) if shift else found
        is_alone = before is None or before[0] != shift
        return None if is_alone else QueuePlace(queue_offset, shift, record)

    def _shift(self, queue: ConsumeQueue, queue_offset: int) -> tuple[int, Record] | None:
        """How far in front of its own offset a unit is (0 or negative), and its record; None if the
        record does not ask for it."""
        unit = queue.unit(queue_offset)
        if unit is None or not unit.is_written:
            return None
        record = self._log.find_record(unit.physical_offset)
        if record is None:
            return None
        for one in self._dispatcher.units(record):
            if one[:2] == (queue.topic, queue.queue_id) and queue_offset <= one.queue_offset:
                return queue_offset - one.queue_offset, record
        return None

    def _earlier_units(self, queue: ConsumeQueue, first: int, end: int) -> Iterator[int]:
        """The queue offsets of units that lead into the log before ``begin``, the last one
        first."""
        while end > first:
            start = max(end - WINDOW, first)
            offsets, at = np.full(end - start, -1, np.int64), start
            while at < end and len(window := queue.window(at, end - at)):
                offsets[at - start : at - start + len(window)] = window["physical_offset"]
                at += len(window)
            within = (offsets >= self._log_min) & (offsets < self.begin)
            yield from (start + np.flatnonzero(within)[::-1]).tolist()
            end = start
