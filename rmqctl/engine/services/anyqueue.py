"""One interface for both kinds of queues: consume queues, and the batch queues of 5.x.

For questions that mean both, such as how far a group has read, or which topics there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.engine.files.filequeue import FileEntry
    from rmqctl.engine.files.paths import QueueDirectory
    from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
    from rmqctl.engine.queue.consumequeue import ConsumeQueue
    from rmqctl.engine.store import Store


class AnyQueue(ABC):
    """An open queue. Offsets are queue offsets; ``max_offset`` is the next message's.
    ``max_physical_offset`` is where the queue's last record ends."""

    def __init__(self, queue: ConsumeQueue | BatchConsumeQueue) -> None:
        self.topic, self.queue_id = queue.topic, queue.queue_id
        self.min_offset, self.max_offset = queue.min_offset, queue.max_offset
        self.max_physical_offset = queue.max_physical_offset
        self._opened = queue

    @property
    def irregular(self) -> list[FileEntry]:
        """The queue's files of a wrong length."""
        return self._opened.files.irregular

    @property
    def messages(self) -> int:
        """How many messages the queue has, by its offsets."""
        return max(self.max_offset - self.min_offset, 0)

    @abstractmethod
    def stored_at(self, queue_offset: int) -> int | None:
        """Store time (ms) of a message; None if its record cannot be read, or outside the queue."""

    @abstractmethod
    def first_stored_from(self, time: int) -> int | None:
        """Queue offset of the first message stored at ``time`` (ms) or later; None without one."""


class _OfUnits(AnyQueue):
    """A consume queue: the times are those of the records."""

    def __init__(self, store: Store, queue: ConsumeQueue) -> None:
        super().__init__(queue)
        self._log, self._queue = store.commit_log, queue

    def stored_at(self, queue_offset: int) -> int | None:
        if not self.min_offset <= queue_offset < self.max_offset:
            return None
        unit = self._queue.unit(queue_offset)
        record = None if unit is None else self._log.find_record(unit.physical_offset)
        return None if record is None else record.store_timestamp

    def first_stored_from(self, time: int) -> int | None:
        from rmqctl.engine.read.bytime import Boundary, bisect, store_times

        times = store_times(self._log, self._queue)
        return bisect(times, self.min_offset, self.max_offset, time, Boundary.CEIL)


class _OfBatches(AnyQueue):
    """A batch queue. Its units have the store times: all messages of a record have the same."""

    def __init__(self, queue: BatchConsumeQueue) -> None:
        super().__init__(queue)
        self._batches = queue

    def stored_at(self, queue_offset: int) -> int | None:
        if not self.min_offset <= queue_offset < self.max_offset:
            return None
        return self._batches.stored_at(self._batches.find(queue_offset))

    def first_stored_from(self, time: int) -> int | None:
        from rmqctl.engine.read.bytime import Boundary, bisect

        queue = self._batches
        number = bisect(queue.stored_at, queue.first, queue.end, time, Boundary.CEIL)
        unit = None if number is None else queue.unit(number)
        return None if unit is None else unit.base_offset


def queue_directories(store: Store, topic: str | None = None) -> Iterator[QueueDirectory]:
    """Every queue with a directory, of one topic or of all: consume queues, then batch queues."""
    table = store.queues
    yield from table.directories() if topic is None else table.directories_of(topic)
    if topic is None and store.dispatcher.batch_topics:
        yield from store.batch_queues()
    elif topic in store.dispatcher.batch_topics:
        yield from (where for where in store.batch_queues() if where.topic == topic)


@contextmanager
def opened_queue(store: Store, topic: str, queue_id: int) -> Iterator[AnyQueue | None]:
    """Opens a queue for the ``with`` block; None when it has no directory.

    :raises CannotRead: its files cannot be read.
    :raises TopicNotAllowed: no queue can have this topic.
    """
    batches = store.batch_queue(topic, queue_id)
    if batches is not None:
        try:
            yield _OfBatches(batches)
        finally:
            batches.close()
        return
    queue = store.consume_queue(topic, queue_id)
    yield None if queue is None else _OfUnits(store, queue)
