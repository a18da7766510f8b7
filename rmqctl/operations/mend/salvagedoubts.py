"""Whole records whose topic, queue number or queue offset may be damaged.

Nothing in a record proves these fields. A record with damage there would be dispatched to another
queue, and the messages behind it in its own queue would get other queue offsets. The queues tell
such a record: there is no unit of it where the record says, and a unit elsewhere points to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from formats.constants import TRANSACTION_TYPE_MASK
from rmqctl.engine.derive.writer import bulk_units, group_by_queue
from rmqctl.engine.dispatch.batches import UnitBatch, unit_batch
from rmqctl.engine.dispatch.rules import NO_UNIT
from rmqctl.engine.files.paths import topic_directory_problem

if TYPE_CHECKING:
    from rmqctl.engine.dispatch.rules import Dispatcher
    from rmqctl.engine.queue.consumequeue import ConsumeQueue
    from rmqctl.engine.queue.queuetable import ConsumeQueueTableReader
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.topics import TopicTable

#: With so many doubts it is the queues that lack much; they say nothing of the records then.
_MOST = 1 << 20


class Doubts:
    """Collects the records of a log that have no unit at the queue offset that they name."""

    def __init__(self, queues: ConsumeQueueTableReader, dispatcher: Dispatcher) -> None:
        self._queues = queues
        self._dispatcher = dispatcher
        self._found: list[NDArray[np.int64]] = []
        self._count = 0
        self._topics: TopicTable | None = None
        #: Units that are not compared yet: a queue is opened once for many batches.
        self._pending: list[UnitBatch] = []
        self._pending_units = self._most_queues = 0

    def add(self, batch: Batch) -> None:
        """Takes the batches of one scan, in log order."""
        if self._count > _MOST:
            self._pending.clear()
            return
        units = unit_batch(batch, self._dispatcher)
        self._add_without_unit(batch, units)
        self._topics = batch.topics
        self._pending.append(units)
        self._pending_units += len(units.size)
        if self._pending_units >= bulk_units(self._most_queues):
            self._compare()

    def _compare(self) -> None:
        """Compares what is pending with the queues."""
        pending, self._pending, self._pending_units = self._pending, [], 0
        if not pending or self._topics is None:
            return
        units, queues = UnitBatch(*map(np.concatenate, zip(*pending, strict=True))), 0
        for topic_id, queue_id, rows in group_by_queue(units.topic_id, units.queue_id):
            queues += 1
            topic = self._topics.names[topic_id]
            queue = None
            if topic_directory_problem(topic) is None:
                queue = self._queues.find(topic, queue_id)
            place = np.stack([units.physical_offset[rows], units.size[rows]], axis=1)
            if queue is not None:
                place = place[~_is_there(queue, units.queue_offset[rows], place[:, 0])]
            self._note(place)
        self._most_queues = max(self._most_queues, queues)

    def _add_without_unit(self, batch: Batch, units: UnitBatch) -> None:
        """Adds the records whose queue offsets no queue can have."""
        kind = batch.sys_flag & TRANSACTION_TYPE_MASK
        rows = np.flatnonzero((kind != NO_UNIT[0]) & (kind != NO_UNIT[1]))
        if len(rows) > len(units.size):
            rows = rows[~np.isin(batch.physical_offset[rows], units.physical_offset)]
            self._note(np.stack([batch.physical_offset[rows], batch.total_size[rows]], axis=1))

    def _note(self, places: NDArray[np.int64]) -> None:
        if len(places):
            self._found.append(places)
            self._count += len(places)

    def places(self) -> NDArray[np.int64]:
        """Physical offset and size of each doubtful record: int64, shape ``(records, 2)``, in log
        order. Empty where there are too many."""
        self._compare()
        if not self._found or self._count > _MOST:
            return np.empty((0, 2), np.int64)
        return np.unique(np.concatenate(self._found), axis=0)


def _is_there(
    queue: ConsumeQueue, queue_offset: NDArray[np.int64], physical_offset: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the unit at each queue offset points to the record: bool, parallel to both."""
    found = np.zeros(len(queue_offset), bool)
    for start, end in _stretches(queue_offset):
        while start < end:
            window = queue.window(int(queue_offset[start]), end - start)
            if not len(window):
                break
            till = start + len(window)
            found[start:till] = window["physical_offset"] == physical_offset[start:till]
            start = till
    return found


def _stretches(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """``(first row, end)`` of rows whose numbers follow each other."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    bounds = [0, *breaks.tolist(), len(numbers)]
    yield from pairwise(bounds)
