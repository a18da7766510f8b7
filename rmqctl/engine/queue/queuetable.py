"""``consumeQueueTable``: the queues of a store, opened when they are asked for.

Of those that nobody holds at most ``_KEEP`` stay open, so that a store of many thousand queues
needs few descriptors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rmqctl.engine.files.filequeue import sync_files
from rmqctl.engine.files.mappedfile import DirtyRange, Unsynced, take_unsynced
from rmqctl.engine.files.opencache import OpenCache
from rmqctl.engine.files.paths import (
    QueueDirectory,
    check_topic_directory,
    queue_directories,
    queue_paths_of,
    topic_directory_problem,
)
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.queue.queuewriter import ConsumeQueueWriter
from rmqctl.engine.queue.recovery import has_hole, written_units
from rmqctl.errors import QueueHasHole

_KEEP = 96
#: Queues that are remembered when they are closed, in a few KiB each.
_REMEMBERED = 1 << 15

LogRange = Callable[[], tuple[int, int]]


class ConsumeQueueTable:
    """Queues below ``directory``. ``log_range`` tells the log's (min, end) that a queue is cut to
    when it is opened; without it a queue is taken as its files are. With ``ext_file_size`` queues
    write extension files of that size. ``strict`` is that of :class:`ConsumeQueue`, and so is
    ``drops_empty`` where a start looks at the queues. Any thread may ask for a queue and read it
    while one writes.

    With ``is_new`` nobody else knows of the directory yet, which gets queues one after the other,
    each again and again: where a closed one ends is remembered, and its files are on disk after
    :meth:`flush` only, their names after :func:`~rmqctl.engine.files.paths.sync_directories`."""

    def __init__(
        self,
        directory: Path,
        file_size: int,
        *,
        ext_directory: Path | None = None,
        ext_file_size: int | None = None,
        writable_root: Path | None = None,
        log_range: LogRange | None = None,
        strict: bool = False,
        drops_empty: bool = False,
        is_new: bool = False,
    ) -> None:
        self._is_new = is_new
        self._closed: dict[tuple[str, int], ConsumeQueue] = {}
        self.directory = directory
        self.file_size = file_size
        #: Where the queues' extension lies; None: they have none.
        self.ext_directory = ext_directory
        self._ext_file_size = ext_file_size
        self._root = writable_root
        self._log_range = log_range
        #: Whether a queue with irregular files is refused: always of one that is written to.
        self.is_strict = strict or writable_root is not None
        self.drops_empty = drops_empty
        self._open: OpenCache[tuple[str, int], ConsumeQueue] = OpenCache(_KEEP, self._let_go)
        #: Those that made room for units to come, and would lose it.
        self._waiting: dict[tuple[str, int], ConsumeQueue] = {}
        self._unsynced: Unsynced = {}

    @property
    def writes_ext(self) -> bool:
        """Whether tags codes go to extension files."""
        return self._ext_file_size is not None and self._root is not None

    def directories(self) -> Iterator[QueueDirectory]:
        """Every queue that has a directory, sorted by topic and number."""
        return queue_directories(self.directory)

    def directories_of(self, topic: str) -> Iterator[QueueDirectory]:
        """Those of one topic, sorted by number; none where no queue can have it."""
        if topic_directory_problem(topic) is not None:
            return
        for queue_id, path in queue_paths_of(self.directory, topic):
            yield QueueDirectory(topic, queue_id, Path(path))

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when it has no directory.

        :raises TopicNotAllowed: the topic names no directory of its own.
        """
        key = topic, queue_id
        return self._open.get(key) or self._open.get(key, lambda: self._open_existing(*key))

    def _open_existing(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        closed = self._closed.pop((topic, queue_id), None)
        if closed is not None:
            return closed
        check_topic_directory(topic)
        if queue_id < 0 or not (self.directory / topic / str(queue_id)).is_dir():
            return None
        return self._open_queue(topic, queue_id)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset of the next unit, 0 in a queue that is not there.

        :raises QueueHasHole: a start would cut the queue before that.
        """
        queue = self.find(topic, queue_id)
        if queue is None:
            return 0
        if has_hole(queue):
            end = written_units(queue).end
            raise QueueHasHole(topic=topic, queue_id=queue_id, queue_offset=end)
        return queue.max_offset

    def clear_from(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Takes away the units of a queue from ``queue_offset`` on: zeros stand there then.

        :raises OSError: the disk failed.
        """
        where = self.directory / topic / str(queue_id)
        assert self._root is not None, "opened for reading"
        queue = ConsumeQueueWriter(
            where,
            topic,
            queue_id,
            self.file_size,
            self._root,
            drops_empty=self.drops_empty,
            unsynced=self._unsynced,
        )
        queue.clear_from(queue_offset)
        self._open.forget((topic, queue_id))

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueueWriter:
        """The queue; one without a directory gets it with its first unit."""
        key = topic, queue_id
        queue = self.find(*key) or self._open.get(key, lambda: self._open_queue(*key))
        assert isinstance(queue, ConsumeQueueWriter), "opened for reading"
        return queue

    def _open_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        where = self.directory / topic / str(queue_id)
        ext = None
        if self.ext_directory is not None:
            from rmqctl.engine.queue.extension import ConsumeQueueExt

            ext_where = self.ext_directory / topic / str(queue_id)
            if self.writes_ext:
                assert self._ext_file_size is not None
                ext = ConsumeQueueExt(
                    ext_where,
                    self._ext_file_size,
                    writable_root=self._root,
                    unsynced=self._unsynced,
                )
            elif ext_where.parent.is_dir():
                ext = ConsumeQueueExt(ext_where)
        queue = (
            ConsumeQueue(where, topic, queue_id, self.file_size, ext=ext, strict=self.is_strict)
            if self._root is None
            else ConsumeQueueWriter(
                where,
                topic,
                queue_id,
                self.file_size,
                self._root,
                ext=ext,
                unsynced=self._unsynced,
            )
        )
        if self._is_new:
            queue.files.is_durable = False
        if self._log_range is not None:
            queue.cut(*self._log_range())
        return queue

    def _let_go(self, key: tuple[str, int], queue: ConsumeQueue) -> None:
        self._waiting = {key: one for key, one in self._waiting.items() if one.files.is_ahead}
        if queue.files.is_ahead:
            self._waiting[key] = queue
            return
        # Who holds the queue gets its files again; closed, it holds nothing but where it ends.
        queue.close()
        if self._is_new and len(self._closed) < _REMEMBERED:
            self._closed[key] = queue

    def flush(self) -> None:
        """Forces every queue to disk. :raises OSError: the disk failed."""
        unsynced = self.take_unsynced()
        try:
            sync_files(unsynced, may_be_gone=True)
        except OSError:
            self.note_unsynced(unsynced)
            raise

    def take_unsynced(self, least_pages: int = 0) -> set[Path]:
        """Files of queues with something that is not on disk, of at least so many pages; the caller
        syncs them, and says with :meth:`note_unsynced` when it could not."""
        return take_unsynced(self._unsynced, least_pages)

    def note_unsynced(self, unsynced: set[Path]) -> None:
        for path in unsynced:
            self._unsynced.setdefault(path, DirtyRange(0, 1))

    def close(self) -> None:
        """Lets go of all queues: who asks for one again gets it as its files are then."""
        self._open.clear()
        self._waiting.clear()
