"""The units of messages in the gaps of a log: the queues still have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats import constants
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.queue.queuetable import ConsumeQueueTableReader
from rmqctl.engine.queue.recovery import unit_ranges

if TYPE_CHECKING:
    from rmqctl.operations.mend.salvagelog import Gap

#: How many units are read at once (1.3 MB).
_WINDOW = 1 << 16


class LostUnit(NamedTuple):
    """A unit whose record lies in a gap. ``tags_code`` may be an address of an extension."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int

    @property
    def end(self) -> int:
        return self.physical_offset + self.size


def units_in_gaps(
    queues: ConsumeQueueTableReader, gaps: list[Gap], log_end: int, goes_on: Callable[[], bool]
) -> Iterator[LostUnit]:
    """Units that point into gaps, or behind the end of the log, queue by queue in their order.

    The queues may be damaged as well, so a unit counts only if it fits between its neighbours: its
    record lies behind that of the unit before it, and ends before that of the unit behind it.

    :param goes_on: whether the log has an entry at ``log_end`` by now. What is behind it was then
        appended since the log was read, and is not lost: its units are left out.
    """
    starts = np.array([gap.start for gap in gaps] + [log_end], np.int64)
    ends = np.array([gap.end for gap in gaps] + [constants.LONG_MAX], np.int64)
    is_behind = None
    for unit in units_in_ranges(queues, starts, ends):
        if unit.physical_offset >= log_end:
            if is_behind is None:
                # An entry is in the log before its unit is in a queue, so now it is seen.
                is_behind = not goes_on()
            if not is_behind:
                continue
        yield unit


def units_in_ranges(
    queues: ConsumeQueueTableReader, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> Iterator[LostUnit]:
    """:func:`units_in_gaps` of ranges of the log: int64, parallel, disjoint and ascending."""
    for where in queues.directories():
        # A file of a wrong length is damage: what is there of it is read.
        queue = ConsumeQueue(where.path, where.topic, where.queue_id, queues.file_size)
        try:
            for queue_offset, window in windows(queue):
                for row in _rows_in(window, starts, ends).tolist():
                    yield LostUnit(
                        where.topic, where.queue_id, queue_offset + row, *window[row].tolist()
                    )
        finally:
            queue.close()


def windows(queue: ConsumeQueue) -> Iterator[tuple[int, NDArray[np.void]]]:
    """All written units of a queue, piece by piece, each piece with the queue offset of its first
    unit. Holes of the files are left out: a file of 6 MB often has a few units, and a store many
    thousand such files."""
    for number, entry in enumerate(queue.files.entries):
        first = entry.file_from_offset // constants.CQ_STORE_UNIT_SIZE
        for low, high in unit_ranges(queue.files.file(number), queue.units_from(first, entry)):
            start, end = first + low, first + high
            while start < end:
                window = queue.window(start, min(end - start, _WINDOW))
                if not len(window):
                    break
                yield start, window
                start += len(window)


def _rows_in(
    window: NDArray[np.void], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.intp]:
    """The rows of the units in gaps: shape ``(rows,)``, ascending. ``starts`` and ``ends`` are the
    physical offsets of the gaps (int64, ascending)."""
    offset = window["physical_offset"].astype(np.int64)
    size = window["size"].astype(np.int64)
    inside = (offset >= 0) & (size >= constants.MIN_RECORD_SIZE)
    gap = np.searchsorted(starts, offset, "right") - 1
    inside &= (gap >= 0) & (offset < ends[gap]) & (size <= ends[gap] - offset)
    written = (offset >= 0) & (size > 0) & (size != constants.PRE_BLANK_UNIT[1])
    follows = np.ones(len(window), bool)
    follows[1:] = ~written[:-1] | (offset[:-1] + size[:-1] <= offset[1:])
    leads = np.ones(len(window), bool)
    leads[:-1] = ~written[1:] | (offset[:-1] + size[:-1] <= offset[1:])
    return np.flatnonzero(inside & follows & leads)


def by_place(units: list[LostUnit]) -> list[LostUnit]:
    """One unit for each physical offset at which no units contradict each other, in log order.
    Where light queues have units of a record as well, it is the unit of the record's own queue."""
    chosen: dict[int, LostUnit] = {}
    for unit in units:
        other = chosen.get(unit.physical_offset)
        is_light = unit.topic.startswith(constants.LMQ_PREFIX)
        if other is None or (other.topic.startswith(constants.LMQ_PREFIX) and not is_light):
            chosen[unit.physical_offset] = unit
    placed: list[LostUnit] = []
    for offset in sorted(chosen):
        if not placed or placed[-1].end <= offset:
            placed.append(chosen[offset])
    return placed
