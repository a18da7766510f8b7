"""``consumeQueueTable``: the queues of a store, opened when they are asked for.

At most ``_KEEP`` stay open, so that a store of many thousand queues needs few descriptors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from rmqctl.engine.consumequeue import ConsumeQueue
from rmqctl.engine.consumequeue_ext import ConsumeQueueExt
from rmqctl.engine.mappedfile import sync_files
from rmqctl.engine.paths import QueueDirectory, check_topic_directory, queue_directories

_KEEP = 96

LogRange = Callable[[], tuple[int, int]]


class ConsumeQueueTable:
    """Queues below ``directory``. ``log_range`` tells the log's (min, end) that a queue is cut to
    when it is opened; without it a queue is taken as its files are."""

    def __init__(
        self,
        directory: Path,
        file_size: int,
        *,
        ext_directory: Path | None = None,
        writable_root: Path | None = None,
        log_range: LogRange | None = None,
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self._ext_directory = ext_directory
        self._root = writable_root
        self._log_range = log_range
        self._open: OrderedDict[tuple[str, int], ConsumeQueue] = OrderedDict()
        self._unsynced: set[Path] = set()

    def directories(self) -> Iterator[QueueDirectory]:
        """Every queue that has a directory, sorted by topic and number."""
        return queue_directories(self.directory)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when it has no directory.

        :raises TopicNotAllowed: the topic names no directory of its own.
        """
        opened = self._open.get((topic, queue_id))
        if opened is not None:
            self._open.move_to_end((topic, queue_id))
            return opened
        check_topic_directory(topic)
        if queue_id < 0 or not (self.directory / topic / str(queue_id)).is_dir():
            return None
        return self._remember(topic, queue_id)

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; one without a directory gets it with its first unit."""
        return self.find(topic, queue_id) or self._remember(topic, queue_id)

    def _remember(self, topic: str, queue_id: int) -> ConsumeQueue:
        where = self.directory / topic / str(queue_id)
        ext = None
        if self._ext_directory is not None and (self._ext_directory / topic).is_dir():
            ext = ConsumeQueueExt(self._ext_directory / topic / str(queue_id))
        queue = ConsumeQueue(
            where, topic, queue_id, self.file_size, ext=ext, writable_root=self._root
        )
        if self._log_range is not None:
            queue.cut(*self._log_range())
        self._open[topic, queue_id] = queue
        while len(self._open) > _KEEP:
            self._close_queue(self._open.popitem(last=False)[1])
        return queue

    def _close_queue(self, queue: ConsumeQueue) -> None:
        queue.close()
        self._unsynced |= queue.files.take_unsynced()

    def flush(self) -> None:
        """Forces every queue to disk. :raises OSError: the disk failed."""
        for queue in self._open.values():
            queue.flush()
        unsynced, self._unsynced = self._unsynced, set()
        sync_files(unsynced)

    def close(self) -> None:
        while self._open:
            self._close_queue(self._open.popitem()[1])
