"""Finds earlier records of a queue: first by their units, then by the records themselves.

Sizes and tags codes of units are compared as arrays, so a queue with millions of messages is
searched without reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.record.record import Record

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore

_FIRST_WINDOW, _LARGEST_WINDOW = 32, 1 << 16


class QueueSearch:
    """Finds records that were in the store when this object was made, and none put since.

    Each queue is searched once, forward: so records are found in the order of the queue, and each
    at most once. In a store that is open for reading, records that a killed writer left without
    units count as the end of their queues.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._end = store.max_offset
        self._next: dict[tuple[str, int], int] = {}
        self._tail = list(undispatched(store))

    def find(
        self,
        topic: str,
        queue_id: int,
        *,
        after: int,
        size: int,
        tags_code: int | None,
        same: Callable[[Record], bool],
    ) -> Record | None:
        """The next record behind physical offset ``after`` for which ``same`` is true. Without
        one: None, and the place in the queue does not move.

        :param size: bytes of the record.
        :param tags_code: tags code of its unit; None if that is a time.
        """
        found = self._find_in_queue(topic, queue_id, after, size, tags_code, same)
        if found is not None:
            return found
        for number, record in enumerate(self._tail):
            place = record.topic, record.queue_id, record.total_size
            if place == (topic, queue_id, size) and same(record):
                return self._tail.pop(number)
        return None

    def _find_in_queue(
        self,
        topic: str,
        queue_id: int,
        after: int,
        size: int,
        tags_code: int | None,
        same: Callable[[Record], bool],
    ) -> Record | None:
        key = topic, queue_id
        queue = self._store.consume_queue(topic, queue_id)
        if queue is None:
            return None
        start = max(self._next.get(key, 0), _first_behind(queue, after))
        count = _FIRST_WINDOW
        while start < queue.max_offset:
            units = queue.window(start, min(count, queue.max_offset - start))
            if not len(units):
                return None
            hits = units["size"] == size
            if tags_code is not None and queue.ext is None:
                hits &= units["tags_code"] == tags_code
            for at in hits.nonzero()[0].tolist():
                physical_offset = int(units["physical_offset"][at])
                if physical_offset >= self._end:
                    return None
                record = self._store.commit_log.find_record(physical_offset)
                if record is not None and record.total_size == size and same(record):
                    self._next[key] = start + at + 1
                    return record
            start += len(units)
            count = min(count * 4, _LARGEST_WINDOW)
        return None


def _first_behind(queue: ConsumeQueue, physical_offset: int) -> int:
    """Queue offset of the first unit whose record starts behind ``physical_offset``."""
    low, high = queue.min_offset, queue.max_offset
    while low < high:
        middle = (low + high) // 2
        unit = queue.unit(middle)
        if unit is not None and unit.physical_offset > physical_offset:
            high = middle
        else:
            low = middle + 1
    return low


def records_of_sizes(
    store: MessageStore, topic: str, queue_id: int, after: int, sizes: set[int]
) -> Iterator[Record]:
    """Records of a queue behind physical offset ``after`` with one of these sizes, in order. No
    others are read."""
    import numpy as np

    queue = store.consume_queue(topic, queue_id)
    if queue is None:
        return
    wanted = np.array(sorted(sizes))
    start, end = _first_behind(queue, after), queue.max_offset
    while start < end:
        units = queue.window(start, min(_LARGEST_WINDOW, end - start))
        if not len(units):
            return
        hits = np.isin(units["size"], wanted)
        for physical_offset in units["physical_offset"][hits].tolist():
            record = store.commit_log.find_record(physical_offset)
            if record is not None and record.total_size in sizes:
                yield record
        start += len(units)


def undispatched(store: MessageStore) -> Iterator[Record]:
    """Records that a killed writer left without units, in order, in a store that is open for
    reading: the next start dispatches them. A store that is open for writing has none."""
    if not store.writable and 0 <= store.dispatched_to < store.max_offset:
        for entry in store.commit_log.walk(store.dispatched_to, store.max_offset):
            if isinstance(entry, Record):
                yield entry
