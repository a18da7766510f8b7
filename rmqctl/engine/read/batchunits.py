"""The units of a batch queue (5.x), looked up by queue offset as those of a consume queue are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.engine.queue.batchqueue import BatchConsumeQueue, BatchUnit


class BatchUnits:
    """A batch queue in which a unit is found by the queue offset of any message of its record.

    Its files are open as long as this object lives.
    """

    def __init__(self, queue: BatchConsumeQueue) -> None:
        self._queue = queue
        self.min_offset, self.max_offset = queue.min_offset, queue.max_offset

    def unit(self, queue_offset: int) -> BatchUnit | None:
        """The unit whose record holds the message with a queue offset; None where there is
        none."""
        if not self.min_offset <= queue_offset < self.max_offset:
            return None
        unit = self._queue.unit(self._queue.find(queue_offset))
        holds = unit is not None and unit.base_offset <= queue_offset < unit.end_offset
        return unit if holds else None

    def units(self, start: int, end: int) -> Iterator[tuple[int, BatchUnit]]:
        """``(queue offset, unit)`` for each queue offset in ``[start, end)`` that has a unit."""
        low, high = max(start, self.min_offset), min(end, self.max_offset)
        if low >= high:
            return
        for _, unit in self._queue.units(self._queue.find(low), self._queue.end):
            if unit.base_offset >= high:
                return
            low = max(low, unit.base_offset)
            if unit.is_written:
                held = range(low, min(unit.end_offset, high))
                yield from ((queue_offset, unit) for queue_offset in held)
                low += len(held)

    def stored_at(self, queue_offset: int) -> int | None:
        """The store time (ms) of a message; None where no unit holds it."""
        unit = self.unit(queue_offset)
        return None if unit is None else unit.store_timestamp
