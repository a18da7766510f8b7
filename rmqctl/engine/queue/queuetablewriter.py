"""The queues of a store that is open for writing: made when their first unit comes, and forced to
disk together."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files.dirty import Unsynced
from rmqctl.engine.files.opencache import OpenCache
from rmqctl.engine.files.paths import check_topic_directory
from rmqctl.engine.queue.outofplace import OutOfPlace
from rmqctl.engine.queue.queuetable import ConsumeQueueTable, LogRange, kept_queues
from rmqctl.engine.queue.queuewriter import ConsumeQueueWriter

if TYPE_CHECKING:
    from rmqctl.engine.queue.extension import ConsumeQueueExt

#: Closed queues whose ends are remembered, with a few KiB each.
_REMEMBERED = 1 << 15
#: Waiting queues that are checked each time a queue is dropped: more than the one that may be
#: added.
_LOOKED_AT = 2


class ConsumeQueueTableWriter(ConsumeQueueTable):
    """Queues below ``directory``, open for writing.

    :param root: the directory below which no link is followed.
    :param ext_file_size: bytes of an extension file; None: no extension is written.
    :param is_new: nobody else uses the directory yet, as in a rebuild. Files are on disk only after
        :meth:`flush`, and their names after
        :func:`~rmqctl.engine.files.durable.sync_directories`.

    A stream writes to its queues again and again, so the ends of closed ones are remembered. The
    store's lock keeps others from writing to them.
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
        #: Whether queues were closed that are not remembered: then directories are looked at.
        self._has_forgotten = False
        kept = kept_queues()
        self._open: OpenCache[tuple[str, int], ConsumeQueueWriter] = OpenCache(kept, self._let_go)
        #: Waiting queues after which a bulk is ended, so that they get their units: as many as stay
        #: open.
        self._most_waiting = kept
        #: Dropped queues with blocks reserved in an unnamed file, which closing would give back.
        self._waiting: OrderedDict[tuple[str, int], ConsumeQueueWriter] = OrderedDict()
        #: The files of all queues, and of their extensions, that are not on disk.
        self.unsynced = Unsynced()
        #: Records whose unit could not be put where they name it.
        self.out_of_place = OutOfPlace()
        #: Changes whenever a queue that was lent may differ from what :meth:`find` returns now.
        self.generation = 0

    @property
    def writes_ext(self) -> bool:
        """Whether tags codes go to extension files."""
        return self._ext_file_size is not None

    @property
    def is_crowded(self) -> bool:
        """Whether many queues wait for their units (``_waiting``), so that they should be
        dispatched before more are opened."""
        if len(self._waiting) < self._most_waiting:
            return False
        self._look_at_waiting(len(self._waiting))
        return len(self._waiting) >= self._most_waiting

    def find(self, topic: str, queue_id: int) -> ConsumeQueueWriter | None:
        key = topic, queue_id
        return self._open.get(key) or self._open.get(key, lambda: self._open_existing(*key))

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueueWriter:
        """The queue. A new one gets its directory with its first unit."""
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
            unsynced=self.unsynced,
        )
        queue.files.is_durable = not self._is_new
        queue.files.names_wait = True
        queue.out_of_place = self.out_of_place
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
            unsynced=self.unsynced,
        )

    def _let_go(self, key: tuple[str, int], queue: ConsumeQueueWriter) -> None:
        """Closes a queue that the cache drops, or has it wait for its units."""
        self._look_at_waiting(_LOOKED_AT)
        if queue.files.is_ahead:
            self._waiting[key] = queue
            return
        self._waiting.pop(key, None)
        # Whoever still holds the queue can go on: its files are mapped again when it is used.
        queue.close()
        if len(self._closed) < _REMEMBERED:
            self._closed[key] = queue
        else:
            self._has_forgotten = True

    def _look_at_waiting(self, most: int) -> None:
        """Drops those of the ``most`` longest waiting queues that have got their units. Checking
        all of them each time would be quadratic in a stream of new queues."""
        for _ in range(min(len(self._waiting), most)):
            key, queue = self._waiting.popitem(last=False)
            if queue.files.is_ahead:
                self._waiting[key] = queue

    def clear_from(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Removes the units of a queue from ``queue_offset`` on; their places become zeros.

        :raises OSError: the disk failed.
        """
        queue = ConsumeQueueWriter(
            self.directory / topic / str(queue_id),
            topic,
            queue_id,
            self.file_size,
            self._root,
            drops_empty=self.drops_empty,
            unsynced=self.unsynced,
        )
        queue.clear_from(queue_offset)
        self._open.forget((topic, queue_id))
        self._closed.pop((topic, queue_id), None)
        self.generation += 1

    def flush(self) -> None:
        """Forces every queue to disk. :raises OSError: the disk failed, now or before."""
        self.unsynced.sync()

    def close(self) -> None:
        self.generation += 1
        self._open.clear()
        self._waiting.clear()
        self._closed.clear()
        self._has_forgotten = True
