"""``Store``: one broker store, open for reading. Nothing is changed, whatever its state.

Opening walks over no file: the log's end and the ends of all queues are only looked for when they
are needed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from formats.constants import LONG_MAX
from formats.text import index_key_hash
from rmqctl.engine.dispatch.rules import Dispatcher, every_key
from rmqctl.engine.files import paths
from rmqctl.engine.files.filequeue import FileEntry
from rmqctl.engine.index.indexservice import IndexService, QueryItem
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.end import LogEnd
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.queue.queuetable import ConsumeQueueTable, QueuesSeen, open_queue_table
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.filesizes import batch_queue_file_size, commit_log_file_size
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.laterversions import record_form

if TYPE_CHECKING:
    from rmqctl.engine.filters.tags import MessageFilter
    from rmqctl.engine.index.lookup import KeyRows, RowMaker
    from rmqctl.engine.log.progress import Progress
    from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
    from rmqctl.engine.queue.compactedqueue import CompactedQueue
    from rmqctl.engine.read.getmessage import GetMessageResult
    from rmqctl.engine.record.form import RecordForm
    from rmqctl.engine.record.message import (
        EncodedMessage,
        MessageExtBrokerInner,
        PutMessageResult,
    )
    from rmqctl.engine.start.model import StartPlan


class KeyMatch(NamedTuple):
    """One hit of a query by key. ``matches`` is false if it is only a hash collision (the record
    has another topic or key), or if there is no record (``record`` is None)."""

    hit: QueryItem
    record: Record | None
    matches: bool


class Store:
    """A store at ``root``, open for reading.

    Any thread may read, also while others put: no reader waits for a put. Queues and log files that
    it gives out stay open as long as they are referred to, even when the store is closed.

    :param config: sizes and switches, as in a ``broker.conf``.
    :raises StoreNotFound, NotAStore: there is no store at ``root``.
    :raises FileLengthContradiction: files and configuration disagree.
    """

    #: Whether the store is open for writing.
    writable = False

    def __init__(
        self,
        root: Path | str,
        config: MessageStoreConfig | None = None,
        *,
        writable: Literal[False] = False,
    ) -> None:
        """:param writable: always False here."""
        self.root = Path(root)
        self.config = config or MessageStoreConfig()
        self._files_closed = False
        self._end: LogEnd | None = None
        self._end_lock = threading.RLock()
        self._seen: QueuesSeen | None = None
        self._form: RecordForm | None = None
        self._check()
        self.had_abort = (self.root / paths.ABORT).exists()
        self.dispatcher = Dispatcher.of_store(self.root, self.config)
        #: Topics of which a broker of 5.x keeps only the latest message of each key.
        self.compacted_topics = self.dispatcher.compacted_topics
        self.commit_log = self._open_log()
        self.queues = self._open_queues()
        self.index = self._open_index()

    def _check(self) -> None:
        paths.check_store(self.root)

    def _open_log(self) -> CommitLog:
        file_size = commit_log_file_size(self.root, self.config)
        return open_commit_log(self.root, self.config, file_size)

    def _open_queues(self) -> ConsumeQueueTable:
        return open_queue_table(self.root, self.config, self._log_range)

    def _open_index(self) -> IndexService:
        from rmqctl.engine.index.geometry import known_geometry

        directory = self.root / paths.INDEX
        return IndexService(directory, known_geometry(directory, self.config))

    def _log_range(self) -> tuple[int, int]:
        return self.min_offset, self.max_offset

    def _find_end(self) -> LogEnd:
        """Finds the log's end: mostly by its last record alone, else by all queues."""
        from rmqctl.engine.start.lastrecord import proven_last
        from rmqctl.engine.start.logend import find_end

        # The log's end must not depend on whether a database can be read.
        if not self.queues.in_files:
            return self._settled(find_end(self.commit_log, []))
        last = proven_last(self.commit_log, self.queues)
        if last is not None:
            newest = [(last.physical_offset, last.total_size)]
        else:
            newest = self.newest_units()
        return self._settled(find_end(self.commit_log, newest))

    def _settled(self, end: LogEnd) -> LogEnd:
        if end.obstacle is not None:
            return end._replace(offset=self.commit_log.files.end_offset)
        return end

    def check_log_lengths(self) -> None:
        """:raises FileLengthContradiction: the log has files with which a broker does not start."""
        self.commit_log.check_lengths(drops_empty=self.queues.drops_empty)

    def start_plan(
        self, progress: Progress = lambda done, total: None, *, strict: bool = False
    ) -> StartPlan:
        """Plans a start of the store as it is now; changes nothing.

        :param strict: refuses the same queues as opening for writing.
        """
        from rmqctl.engine.start.model import StoreFiles
        from rmqctl.engine.start.plan import plan_start

        queues = self.queues
        if strict and not queues.is_strict:
            queues = open_queue_table(self.root, self.config, self._log_range, strict=True)
        parts = (self.commit_log, queues, self.index)
        files = StoreFiles(self.root, self.config, *parts, self.dispatcher)
        return plan_start(files, is_clean=not self.had_abort, progress=progress)

    def newest_units(self) -> list[tuple[int, int]]:
        """(physical offset, size) of the last unit of every queue with units."""
        return self._look_at_queues().newest

    @property
    def irregular(self) -> list[FileEntry]:
        """Files of log and queues with another length than the others. Reads every queue's end."""
        if not self.queues.in_files:
            return self.commit_log.files.irregular
        return self.commit_log.files.irregular + self._look_at_queues().irregular

    @property
    def dispatched_to(self) -> int:
        """Where the newest unit's record ends; -1 without units. Reads every queue's end."""
        return max((offset + size for offset, size in self.newest_units()), default=-1)

    def _look_at_queues(self) -> QueuesSeen:
        """The facts from all queues, which are read only once."""
        if self._seen is None:
            self._seen = self.queues.look_at_all()
        return self._seen

    # --- reading -------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """First physical offset of the log."""
        return self.commit_log.min_offset

    @property
    def max_offset(self) -> int:
        """Physical offset after the last record that the files have (``getMaxPhyOffset``)."""
        return self.obstacle.offset

    @property
    def obstacle(self) -> LogEnd:
        """The log's end when it was first needed, with the damage before newer records, if any."""
        with self._end_lock:
            if self._end is None:
                self._end = self._find_end()
            return self._end

    def _check_open(self) -> None:
        """:raises ValueError: the store is closed, as for Python's own files."""
        if self._files_closed:
            raise ValueError(f"the store {self.root} is closed")

    def consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue; None when it has no directory. :raises TopicNotAllowed: no topic has such a
        name."""
        self._check_open()
        return self.queues.find(topic, queue_id)

    def batch_queue(self, topic: str, queue_id: int) -> BatchConsumeQueue | None:
        """A batch queue (5.x) as a broker's start finds it; None when it has no directory. The
        caller closes it.

        :raises CannotRead: its files cannot be read.
        :raises TopicNotAllowed: no topic has such a name.
        """
        self._check_open()
        where = self.root / paths.BATCH_CONSUME_QUEUE / topic / str(queue_id)
        if topic not in self.dispatcher.batch_topics:
            return None
        # topics.json may name any topic.
        paths.check_topic_directory(topic)
        if not where.is_dir():
            return None
        from rmqctl.engine.queue.batchqueue import BatchConsumeQueue

        size = batch_queue_file_size(self.root, self.config)
        queue = BatchConsumeQueue(where, topic, queue_id, size)
        queue.cut(*self._log_range())
        return queue

    def batch_queues(self) -> Iterator[paths.QueueDirectory]:
        """Every batch queue with a directory, sorted by topic and queue id."""
        return paths.queue_directories(self.root / paths.BATCH_CONSUME_QUEUE)

    def compacted_queue(self, topic: str, queue_id: int) -> CompactedQueue | None:
        """The compacted copy that a broker of 5.x keeps of a queue; None without one. The caller
        closes it.

        :raises CannotRead: its files cannot be read.
        :raises TopicNotAllowed: no topic has such a name.
        """
        self._check_open()
        if topic not in self.compacted_topics:
            return None
        paths.check_topic_directory(topic)  # topics.json may name any topic.
        from rmqctl.engine.queue.compactedqueue import CompactedQueue
        from rmqctl.engine.settings.filesizes import compaction_file_sizes

        for name in (paths.COMPACTION_LOG, paths.COMPACTION_QUEUE):
            if not (self.root / name / topic / str(queue_id)).is_dir():
                return None
        return CompactedQueue(self.root, topic, queue_id, compaction_file_sizes(self.root))

    def look_message_by_offset(self, physical_offset: int) -> Record:
        """The record at an offset (``lookMessageByOffset``); :raises NoRecordAt: there is none."""
        self._check_open()
        return self.commit_log.record_at(physical_offset)

    def body(self, record: Record) -> bytes:
        """The record's body as stored (compressed, if its sys flag says so)."""
        self._check_open()
        return self.commit_log.body(record)

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int = 32,
        message_filter: MessageFilter | None = None,
        *,
        physical_memory: int | None = None,
    ) -> GetMessageResult:
        """A master broker's answer to a pull (``DefaultMessageStore#getMessage``).

        :param physical_memory: bytes of the broker's memory, by which messages count as on disk;
            None: this machine's.
        """
        from rmqctl.engine.read.getmessage import get_message

        self._check_open()
        batches = self.batch_queue(topic, queue_id) if self.dispatcher.batch_topics else None
        if batches is not None:
            from rmqctl.engine.read.getbatch import get_batch_message

            with closing(batches):
                return get_batch_message(
                    self,
                    batches,
                    offset,
                    max_msg_nums,
                    message_filter,
                    physical_memory=physical_memory,
                )
        return get_message(
            self,
            topic,
            queue_id,
            offset,
            max_msg_nums,
            message_filter,
            physical_memory=physical_memory,
        )

    def query_message(
        self, topic: str, key: str, begin: int = 0, end: int = LONG_MAX
    ) -> Iterator[KeyMatch]:
        """Hits of a key, newest first, each compared with its record's topic and keys.

        ``begin`` and ``end`` are store times in milliseconds, both inclusive. Items have whole
        seconds only, which decide in the engine. Here the record's own time decides, and the item's
        only if there is no record. The engine returns every hash match; here the caller sees which
        are collisions.
        """
        self._check_open()
        for hit in self.index.query(index_key_hash(topic, key), begin - 999, end):
            record = self.commit_log.find_record(hit.item.physical_offset)
            if record is not None and not begin <= record.store_timestamp <= end:
                continue
            matches = (
                record is not None and record.topic == topic and key in every_key(record.properties)
            )
            yield KeyMatch(hit, record, matches)

    def key_rows(self, rows: RowMaker, topic: str, key: str, most: int) -> KeyRows | None:
        """The newest ``most`` messages that :meth:`query_message` finds, as rows of the kernel's
        ``rows``; None if it cannot make all of them."""
        self._check_open()
        # An item has whole seconds only.
        return self.index.rows_of_key(rows, self.commit_log.files.find, topic, key, -999, most)

    def check_message(self, message: MessageExtBrokerInner) -> EncodedMessage | PutMessageResult:
        """The message as a put would store it, or the result that would refuse it, whatever the
        condition of the store. :raises TopicNotAllowed: as a put does."""
        from rmqctl.engine.write.checks import check_message

        self._check_open()
        log = self.commit_log
        return check_message(message, self.config, self.dispatcher, log.file_size, self.form)

    @property
    def form(self) -> RecordForm:
        """The form of the store's records, and of those that are put into it."""
        if self._form is None:
            newest = max((offset for offset, _ in self.newest_units()), default=-1)
            self._form = record_form(self.root, self.commit_log.find_record(newest))
        return self._form

    # --- closing -------------------------------------------------------------------------

    def close(self) -> None:
        """Lets go of all files; what was given out stays open as long as it is referred to."""
        self._files_closed = True
        self.commit_log.close()
        self.queues.close()
        self.index.close()

    def abandon(self) -> None:
        """:meth:`close`: there is nothing to flush."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error here the store is as valid as after any put, so it is closed cleanly.
        self.close()
