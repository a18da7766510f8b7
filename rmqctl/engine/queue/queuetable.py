"""``consumeQueueTable``: the queues of a store, opened when they are asked for.

Of the queues that nobody uses, :func:`kept_queues` stay open: all queues of a store may need more
descriptors than a process gets. :mod:`rmqctl.engine.queue.queuetablewriter` is the table of a store
that is open for writing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from formats.constants import LONG_MAX
from rmqctl.engine.files.opencache import OpenCache
from rmqctl.engine.files.openfiles import open_files
from rmqctl.engine.files.paths import (
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    QueueDirectory,
    check_topic_directory,
    queue_directories,
    queue_paths,
    queue_paths_of,
    scan_names,
    topic_directory_problem,
)
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.queue.ends import QueueEnd, queue_end
from rmqctl.engine.queue.errors import LastUnitTooLong, QueueHasHole, UnitBehindLog
from rmqctl.engine.queue.recovery import first_beyond, has_hole, has_unit_behind, written_units
from rmqctl.engine.settings.filesizes import consume_queue_file_size
from rmqctl.engine.state.laterversions import is_of_5, queues_in_rocksdb
from rmqctl.errors import NoDirectoryToWriteTo, SymbolicLinkRefused

if TYPE_CHECKING:
    from rmqctl.engine.files.filequeue import FileEntry
    from rmqctl.engine.queue.extension import ConsumeQueueExt
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

#: Queues that a table keeps open, at most and at least.
_MOST_KEPT, _LEAST_KEPT = 1024, 16

LogRange = Callable[[], tuple[int, int]]


def kept_queues() -> int:
    """How many queues that nobody uses a table keeps open; a writer has as many wait for their
    units. Each has up to two files, with two descriptors each (file and map). So at most three
    quarters of the process's soft limit of open files are used: 96 queues where it is 1,024."""
    allowed = open_files()
    fitting = _MOST_KEPT if allowed is None else allowed * 3 // 32
    return min(max(fitting, _LEAST_KEPT), _MOST_KEPT)


class QueuesSeen(NamedTuple):
    """The facts from all queues of a table: (physical offset, size) of their last units, and their
    files of a wrong length."""

    newest: list[tuple[int, int]]
    irregular: list[FileEntry]


class ConsumeQueueTable(ABC):
    """Queues below ``directory``, for reading or for writing. Any thread may ask for a queue and
    read it while one writes."""

    #: Whether the queues have files of their own; False: they lie in RocksDB.
    in_files = True

    def __init__(
        self,
        directory: Path,
        file_size: int,
        *,
        ext_directory: Path | None,
        log_range: LogRange | None,
        strict: bool,
        drops_empty: bool,
    ) -> None:
        """:param ext_directory: the directory of the queues' extension; None: they have none.
        :param log_range: returns the log's first and end offset, to which a queue is cut when it is
            opened; None: queues are not cut.
        :param strict: as in :class:`ConsumeQueue`. :param drops_empty: as in
            :class:`ConsumeQueue`, for :meth:`check_goes_on` and a start's plan."""
        self.directory = directory
        self.file_size = file_size
        self.ext_directory = ext_directory
        #: Whether a queue with irregular files is refused; always so in a table that is written.
        self.is_strict = strict
        self.drops_empty = drops_empty
        self._log_range = log_range

    def directories(self) -> Iterator[QueueDirectory]:
        """Every queue that has a directory, sorted by topic and number."""
        return queue_directories(self.directory)

    def topics(self) -> list[str]:
        """Names of topics that have queues, sorted."""
        return list(dict.fromkeys(topic for topic, _, _ in queue_paths(self.directory)))

    def directories_of(self, topic: str) -> Iterator[QueueDirectory]:
        """The queues of one topic, sorted by queue id; none for a topic that cannot have any."""
        if topic_directory_problem(topic) is not None:
            return
        for queue_id, path in queue_paths_of(self.directory, topic):
            yield QueueDirectory(topic, queue_id, Path(path))

    @abstractmethod
    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when it has no directory.

        :raises TopicNotAllowed: the topic names no directory of its own.
        """

    def look_at_all(self) -> QueuesSeen:
        """The facts from all queues, as they are stored. Reads each queue's end."""
        seen = QueuesSeen([], [])
        for topic, queue_id, path in queue_paths(self.directory):
            end = queue_end(topic, queue_id, path, self.file_size)
            if end is not None:
                last = end.last
                self._looked_at(end)
            else:
                queue = ConsumeQueue(
                    Path(path), topic, queue_id, self.file_size, strict=self.is_strict
                )
                last = queue.unit(queue.max_offset - 1)
                seen.irregular.extend(queue.files.irregular)
            if last is not None and not last.is_pre_blank:
                seen.newest.append((last.physical_offset, last.size))
        return seen

    def _looked_at(self, end: QueueEnd) -> None:  # noqa: B027 (a table need not use it)
        """Called by :meth:`look_at_all` with the end of a queue that it did not open."""

    def as_stored(self, where: QueueDirectory) -> ConsumeQueue | None:
        """The queue as it is stored: not cut to the log's range, and with the units that irregular
        files have. None: there is none."""
        return ConsumeQueue(where.path, where.topic, where.queue_id, self.file_size)

    def next_offset(self, topic: str, queue_id: int, log_end: int = LONG_MAX) -> int:
        """The queue offset of the next unit; 0 for a queue that does not exist.

        :param log_end: where the log ends (physical).
        :raises QueueHasHole, UnitBehindLog: a start would cut the queue.
        :raises LastUnitTooLong: a new message would get no unit.
        :raises SymbolicLinkRefused, NoDirectoryToWriteTo: the queue's place cannot be written to.
        """
        queue = self.find(topic, queue_id)
        if queue is None:
            _check_place(self.directory / topic / str(queue_id))
            return 0
        _check_goes_on(queue, log_end)
        return queue.max_offset

    def check_goes_on(self, topic: str, queue_id: int, log_end: int, cut: int | None) -> None:
        """The checks of :meth:`next_offset`, for a dry run by a table that only reads. The queue is
        opened as it is stored, since this table may cut it to the log.

        :param cut: the queue offset from which on a start would remove all units; None: of none.
        :raises QueueUnsound, FileLengthContradiction: as in :meth:`next_offset`.
        :raises SymbolicLinkRefused, NoDirectoryToWriteTo: likewise, and when a file is a link.
        """
        where = self._directory_of(topic, queue_id)
        _check_place(self.directory / topic / str(queue_id))
        if where is not None:
            queue = ConsumeQueue(
                where,
                topic,
                queue_id,
                self.file_size,
                strict=True,
                drops_empty=self.drops_empty,
            )
            if cut is None:
                _check_goes_on(queue, log_end)
            elif (end := written_units(queue).end) < cut:
                raise QueueHasHole(topic=topic, queue_id=queue_id, queue_offset=end)

    @abstractmethod
    def close(self) -> None:
        """Drops all queues. A queue that is asked for again is opened anew."""

    def _directory_of(self, topic: str, queue_id: int) -> Path | None:
        """The directory of a queue; None when there is none.

        :raises TopicNotAllowed: the topic names no directory of its own.
        """
        check_topic_directory(topic)
        where = self.directory / topic / str(queue_id)
        return where if queue_id >= 0 and where.is_dir() else None

    def _existing_ext(self, topic: str, queue_id: int) -> ConsumeQueueExt | None:
        """A queue's extension for reading, when its topic has any."""
        if self.ext_directory is None:
            return None
        from rmqctl.engine.queue.extension import ConsumeQueueExt

        where = self.ext_directory / topic / str(queue_id)
        return ConsumeQueueExt(where) if where.parent.is_dir() else None

    def _cut(self, queue: ConsumeQueue) -> None:
        """Cuts a queue to the log's range, if the table has one."""
        if self._log_range is not None:
            queue.cut(*self._log_range())


def _check_place(where: Path) -> None:
    """Refuses a queue's directory that cannot be written to: a link, or something else in its
    place."""
    for directory in (where.parent, where):
        if directory.is_symlink():
            raise SymbolicLinkRefused(path=str(directory))
        if directory.exists() and not directory.is_dir():
            raise NoDirectoryToWriteTo(path=str(directory))
    newest = max(scan_names(where), default=None)
    if newest is not None and (where / newest).is_symlink():
        raise SymbolicLinkRefused(path=str(where / newest))


def _check_goes_on(queue: ConsumeQueue, log_end: int) -> None:
    """Refuses a queue to which nothing may be put (:meth:`ConsumeQueueTable.next_offset`)."""
    topic, queue_id = queue.topic, queue.queue_id
    if has_hole(queue):
        end = written_units(queue).end
        raise QueueHasHole(topic=topic, queue_id=queue_id, queue_offset=end)
    if has_unit_behind(queue, log_end):
        queue_offset = first_beyond(queue, log_end, queue.max_offset)
        raise UnitBehindLog(
            topic=topic, queue_id=queue_id, queue_offset=queue_offset, log_end=log_end
        )
    if (end := queue.max_physical_offset) > log_end:
        raise LastUnitTooLong(topic=topic, queue_id=queue_id, physical_offset=end, log_end=log_end)


class ConsumeQueueTableReader(ConsumeQueueTable):
    """The queues of a store that is open for reading."""

    def __init__(
        self,
        directory: Path,
        file_size: int,
        *,
        ext_directory: Path | None = None,
        log_range: LogRange | None = None,
        strict: bool = False,
        drops_empty: bool = False,
    ) -> None:
        super().__init__(
            directory,
            file_size,
            ext_directory=ext_directory,
            log_range=log_range,
            strict=strict,
            drops_empty=drops_empty,
        )
        self._open: OpenCache[tuple[str, int], ConsumeQueue] = OpenCache(kept_queues(), _let_go)
        #: Ends that :meth:`look_at_all` has found, until the queue is opened.
        self._ends: dict[tuple[str, int], QueueEnd] = {}

    def _looked_at(self, end: QueueEnd) -> None:
        if end.first_offset is not None:
            self._ends[end.topic, end.queue_id] = end

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        key = topic, queue_id
        return self._open.get(key) or self._open.get(key, lambda: self._open_existing(*key))

    def _open_existing(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        check_topic_directory(topic)
        place, ext = f"{self.directory}/{topic}/{queue_id}", self._existing_ext(topic, queue_id)
        if self._log_range is not None and not self.is_strict and queue_id >= 0:
            end = self._ends.pop((topic, queue_id), None)
            end = end or queue_end(topic, queue_id, place, self.file_size)
            if end is not None and end.first_within(*self._log_range()) is not None:
                return ConsumeQueue(
                    Path(place), topic, queue_id, self.file_size, ext=ext, known=end
                )
        where = self._directory_of(topic, queue_id)
        if where is None:
            return None
        queue = ConsumeQueue(where, topic, queue_id, self.file_size, ext=ext, strict=self.is_strict)
        self._cut(queue)
        return queue

    def close(self) -> None:
        self._open.clear()
        self._ends.clear()


def open_queue_table(
    root: Path, config: MessageStoreConfig, log_range: LogRange, *, strict: bool = False
) -> ConsumeQueueTable:
    """The queues of a store for reading, in files or in RocksDB, whichever its broker reads.
    Without the package that reads RocksDB, a store with queues there seems to have none.

    :param strict: as in :class:`ConsumeQueue`.
    """
    database = queues_in_rocksdb(root, config)
    if database is not None:
        from rmqctl.engine.state.rocksdb import is_readable

        if is_readable():
            from rmqctl.engine.queue.rocksdbqueue import RocksDBQueueTable

            size = config.mapped_file_size_consume_queue
            return RocksDBQueueTable(root / database, size, log_range)
    ext = root / CONSUME_QUEUE_EXT
    return ConsumeQueueTableReader(
        root / CONSUME_QUEUE,
        consume_queue_file_size(root, config),
        ext_directory=ext if ext.is_dir() else None,
        drops_empty=is_of_5(root),
        log_range=log_range,
        strict=strict,
    )


def _let_go(key: tuple[str, int], queue: ConsumeQueue) -> None:
    """Closes the files of a queue that is dropped. It stays usable: its files are mapped again when
    somebody who still holds it reads."""
    queue.close()
