"""The queues of a store that is open for writing: made when their first unit comes, and forced to
disk together."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files.dirty import DirtyRange, Unsynced, take_unsynced
from rmqctl.engine.files.filequeue import sync_files
from rmqctl.engine.files.opencache import OpenCache
from rmqctl.engine.files.paths import check_topic_directory
from rmqctl.engine.queue.queuetable import KEEP, ConsumeQueueTable, LogRange
from rmqctl.engine.queue.queuewriter import ConsumeQueueWriter

if TYPE_CHECKING:
    from rmqctl.engine.queue.extension import ConsumeQueueExt

#: Queues that are remembered when they are closed, in a few KiB each.
_REMEMBERED = 1 << 15
#: Queues of those that wait that are looked at when one is let go: more than come to wait.
_LOOKED_AT = 2
#: Queues that wait before who stores more has them get their units, as many again as are kept open.
#: Each has two files, and either a descriptor for its map, too: of 1,024 that a shell gives a
#: process this takes three quarters at the most.
_MOST_WAITING = KEEP


class ConsumeQueueTableWriter(ConsumeQueueTable):
    """Queues below ``directory``, open for writing. With ``ext_file_size`` they write extension
    files of that size.

    With ``is_new`` nobody else knows of the directory yet, which gets queues one after the other,
    each again and again: where a closed one ends is remembered, and its files are on disk after
    :meth:`flush` only, their names after :func:`~rmqctl.engine.files.durable.sync_directories`.

    :param root: the directory below which no link is followed.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        root: Path,
        *,
        ext_directory: Path | None = None,
        ext_file_size: int | None = None,
        log_range: LogRange | None = None,
        drops_empty: bool = False,
        is_new: bool = False,
    ) -> None:
        super().__init__(
            directory,
            file_size,
            ext_directory=ext_directory,
            log_range=log_range,
            strict=True,
            drops_empty=drops_empty,
        )
        self._root = root
        self._ext_file_size = ext_file_size
        self._is_new = is_new
        self._closed: dict[tuple[str, int], ConsumeQueueWriter] = {}
        #: Whether some that were closed are looked for where they lie.
        self._has_forgotten = False
        self._open: OpenCache[tuple[str, int], ConsumeQueueWriter] = OpenCache(KEEP, self._let_go)
        #: Those that made room for units to come, and would lose it.
        self._waiting: OrderedDict[tuple[str, int], ConsumeQueueWriter] = OrderedDict()
        self._unsynced: Unsynced = {}
        #: Changes when a queue that was lent may not be the one that is lent from now on.
        self.generation = 0

    @property
    def writes_ext(self) -> bool:
        """Whether tags codes go to extension files."""
        return self._ext_file_size is not None

    @property
    def is_crowded(self) -> bool:
        """Whether many queues wait for units, so that those should come before there are more."""
        if len(self._waiting) < _MOST_WAITING:
            return False
        self._look_at_waiting(len(self._waiting))
        return len(self._waiting) >= _MOST_WAITING

    def find(self, topic: str, queue_id: int) -> ConsumeQueueWriter | None:
        key = topic, queue_id
        return self._open.get(key) or self._open.get(key, lambda: self._open_existing(*key))

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueueWriter:
        """The queue; one without a directory gets it with its first unit."""
        key = topic, queue_id
        return self.find(*key) or self._open.get(key, lambda: self._open_queue(*key))

    def _open_existing(self, topic: str, queue_id: int) -> ConsumeQueueWriter | None:
        closed = self._closed.pop((topic, queue_id), None)
        if closed is not None:
            return closed
        if self._is_new and not self._has_forgotten:
            check_topic_directory(topic)
            return None
        where = self._directory_of(topic, queue_id)
        return None if where is None else self._open_queue(topic, queue_id)

    def _open_queue(self, topic: str, queue_id: int) -> ConsumeQueueWriter:
        queue = ConsumeQueueWriter(
            self.directory / topic / str(queue_id),
            topic,
            queue_id,
            self.file_size,
            self._root,
            ext=self._ext_of(topic, queue_id),
            unsynced=self._unsynced,
        )
        queue.files.is_durable = not self._is_new
        queue.files.names_wait = True
        self._cut(queue)
        return queue

    def _ext_of(self, topic: str, queue_id: int) -> ConsumeQueueExt | None:
        if self.ext_directory is None or self._ext_file_size is None:
            return self._existing_ext(topic, queue_id)
        from rmqctl.engine.queue.extension import ConsumeQueueExtWriter

        return ConsumeQueueExtWriter(
            self.ext_directory / topic / str(queue_id),
            self._ext_file_size,
            self._root,
            unsynced=self._unsynced,
        )

    def _let_go(self, key: tuple[str, int], queue: ConsumeQueueWriter) -> None:
        self._look_at_waiting(_LOOKED_AT)
        if queue.files.is_ahead:
            self._waiting[key] = queue
            return
        self._waiting.pop(key, None)
        # Who holds the queue gets its files again; closed, it holds nothing but where it ends.
        queue.close()
        if self._is_new and len(self._closed) < _REMEMBERED:
            self._closed[key] = queue
        else:
            self._has_forgotten = True

    def _look_at_waiting(self, most: int) -> None:
        """Lets go of queues that wait no more, among so many of those that have waited longest: to
        look at all of them each time that one is let go takes a stream of new queues minutes."""
        for _ in range(min(len(self._waiting), most)):
            key, queue = self._waiting.popitem(last=False)
            if queue.files.is_ahead:
                self._waiting[key] = queue

    def clear_from(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Takes away the units of a queue from ``queue_offset`` on: zeros stand there then.

        :raises OSError: the disk failed.
        """
        queue = ConsumeQueueWriter(
            self.directory / topic / str(queue_id),
            topic,
            queue_id,
            self.file_size,
            self._root,
            drops_empty=self.drops_empty,
            unsynced=self._unsynced,
        )
        queue.clear_from(queue_offset)
        self._open.forget((topic, queue_id))
        self.generation += 1

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
        self.generation += 1
        self._open.clear()
        self._waiting.clear()
