"""``MessageStore``: one broker store, opened for reading or, under its lock, for writing.

A reading store changes nothing at all, and opening it costs no walk of whole files. A writing one
takes the lock before anything else, does what a broker's start would do
(:mod:`rmqctl.engine.write.recovery`), and on :meth:`~MessageStore.close` forces everything to disk,
removes ``abort`` and writes the checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from formats.constants import LONG_MAX
from formats.text import index_key_hash
from rmqctl.engine.derive.catchup import DispatchTail
from rmqctl.engine.derive.writer import Reput
from rmqctl.engine.dispatch.rules import Dispatcher, message_keys
from rmqctl.engine.files import paths
from rmqctl.engine.files.filequeue import FileEntry
from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.filters.tags import MessageFilter
from rmqctl.engine.index.indexservice import IndexService, QueryItem
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.end import LogEnd
from rmqctl.engine.log.logwriter import open_log_writer
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.queue.ends import queue_end
from rmqctl.engine.queue.queuetable import ConsumeQueueTable
from rmqctl.engine.read.getmessage import GetMessageResult, get_message
from rmqctl.engine.record.message import (
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    RecordForm,
)
from rmqctl.engine.record.record import Record
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.settings.filesizes import (
    check_new_queue_files,
    commit_log_file_size,
    consume_queue_ext_file_size,
    consume_queue_file_size,
)
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.start.lastrecord import proven_last
from rmqctl.engine.start.logend import find_end
from rmqctl.engine.start.model import Progress, StartPlan, StoreFiles
from rmqctl.engine.start.plan import plan_start
from rmqctl.engine.state.checkpoint import Checkpoint
from rmqctl.engine.state.laterversions import abort_content, check_understood, is_of_5, record_form
from rmqctl.engine.write import recovery
from rmqctl.engine.write.bulk import Bulk, PlainMessage
from rmqctl.engine.write.context import StoreParts
from rmqctl.engine.write.put import check_message
from rmqctl.engine.write.storeflusher import STRUCTURES, FlushedRange
from rmqctl.engine.write.storewriter import StoreWriter


def system_clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class KeyMatch(NamedTuple):
    """One hit of a query by key. ``matches`` is false for a hash collision (the record has another
    topic or key) and where no record stands; ``record`` is None then."""

    hit: QueryItem
    record: Record | None
    matches: bool


class _QueuesSeen(NamedTuple):
    """What every queue has to say: (physical offset, size) of its last unit, and its files of a
    wrong length."""

    newest: list[tuple[int, int]]
    irregular: list[FileEntry]


class MessageStore:
    """A store below ``root``.

    Any thread may read, also while others put: no reader waits for a put. What is lent, queues and
    files of the log, lives while somebody refers to it, also when the store is closed.

    :param config: sizes and switches, as a ``broker.conf`` gives them.
    :param writable: open for writing: takes the lock, recovers, creates ``abort``.
    :param create: with ``writable``: make the store when there is none.
    :param catches_up: with ``writable``: dispatch what the plan says; else the caller does, from
        the log's first record on.
    :param clock: gives the store time of an append, in milliseconds.
    :param progress: told of the bytes of log that a recovery has read, and then dispatched.
    :raises StoreNotFound, NotAStore: there is no store at ``root``.
    :raises StoreInUse: somebody holds the lock; nothing was changed.
    :raises FileLengthContradiction: files and configuration disagree.
    :raises FileLengthUnproven: with ``writable``: nothing tells the size of the log's files.
    :raises QueueFilesTooSmall: no broker would start on the queue files that it would make.
    :raises DamagedStore: a start would lose what is there; nothing was changed.
    :raises CommitLogMissing: there are queues, and no log.
    """

    def __init__(
        self,
        root: Path | str,
        config: MessageStoreConfig | None = None,
        *,
        writable: bool = False,
        create: bool = False,
        catches_up: bool = True,
        clock: Callable[[], int] = system_clock,
        progress: Progress = lambda done, total: None,
    ) -> None:
        self.root = Path(root)
        self.config = config or MessageStoreConfig()
        self.writable = writable
        self.clock = clock
        self._closed = False
        self._lock: StoreLock | None = None
        self._put_lock = threading.RLock()
        self._end_lock = threading.RLock()
        self._seen: _QueuesSeen | None = None
        self._writer: StoreWriter | None = None
        if writable:
            check_new_queue_files(self.root, self.config)
        if create and not self.root.exists():
            try:
                self.root.mkdir(parents=True)
            except OSError as error:
                raise paths.writing_error(self.root, error) from error
        # A writer that was killed at once has left a lock and perhaps an abort.
        if not (create and {p.name for p in self.root.iterdir()} <= {paths.LOCK, paths.ABORT}):
            paths.check_store(self.root)
        if writable:
            paths.check_writable(self.root)
            check_understood(self.root)
            self._lock = StoreLock(self.root, self._forked)
        try:
            self._open(catches_up, progress)
        except BaseException:
            self.abandon()
            raise

    def _open(self, catches_up: bool, progress: Progress) -> None:
        root, config = self.root, self.config
        self.had_abort = (root / paths.ABORT).exists()
        writable_root = root if self.writable else None
        log_file_size = commit_log_file_size(root, config, writes=self.writable)
        if self.writable:
            self._log = open_log_writer(root, config, log_file_size)
            self.commit_log: CommitLog = self._log
        else:
            self.commit_log = open_commit_log(root, config, log_file_size)
        self.dispatcher = Dispatcher(config)
        ext = root / paths.CONSUME_QUEUE_EXT
        writes_ext = self.writable and config.enable_consume_queue_ext
        self._end: LogEnd | None = None
        self.queues = ConsumeQueueTable(
            root / paths.CONSUME_QUEUE,
            consume_queue_file_size(root, config),
            ext_directory=ext if writes_ext or ext.is_dir() else None,
            ext_file_size=consume_queue_ext_file_size(root, config) if writes_ext else None,
            writable_root=writable_root,
            drops_empty=is_of_5(root),
            log_range=lambda: (self.min_offset, self.max_offset),
        )
        self.index = IndexService(
            root / paths.INDEX, config.index_geometry, writable_root=writable_root
        )
        if self.writable:
            self._start_writing(catches_up, progress)

    def _find_end(self) -> LogEnd:
        """Where the log ends: mostly its last record tells, else all queues have to."""
        last = proven_last(self.commit_log, self.queues)
        if last is not None:
            newest = [(last.physical_offset, last.total_size)]
        else:
            newest = self.newest_units()
        end = find_end(self.commit_log, newest)
        if end.obstacle is not None:
            return end._replace(offset=self.commit_log.files.end_offset)
        return end

    def check_log_lengths(self) -> None:
        """:raises FileLengthContradiction: the log has files on which a broker does not start."""
        self.commit_log.check_lengths(drops_empty=self.queues.drops_empty)

    def start_plan(self, progress: Progress = lambda done, total: None) -> StartPlan:
        """What a start would do with the store as it is now; changes nothing."""
        parts = (self.commit_log, self.queues, self.index)
        files = StoreFiles(self.root, self.config, *parts)
        return plan_start(files, is_clean=not self.had_abort, progress=progress)

    def newest_units(self) -> list[tuple[int, int]]:
        """(physical offset, size) of the last unit of every queue that has one."""
        return self._look_at_queues().newest

    @property
    def irregular(self) -> list[FileEntry]:
        """Files of log and queues of another length than the others; looks at every queue. A store
        that is open for writing has none."""
        files = self.commit_log.files.irregular
        return files if self.writable else files + self._look_at_queues().irregular

    @property
    def dispatched_to(self) -> int:
        """Where the record of the newest unit ended when the store was opened; -1 without units.
        Looks at every queue, but in a store that is open for writing."""
        if self.writable:
            return self.plan.dispatched_to
        return max((offset + size for offset, size in self.newest_units()), default=-1)

    def _look_at_queues(self) -> _QueuesSeen:
        """What every queue has to say; of a store that is read it is asked once."""
        if self._seen is not None and not self.writable:
            return self._seen
        seen, table = _QueuesSeen([], []), self.queues
        for topic, queue_id, path in paths.queue_paths(table.directory):
            end = queue_end(topic, queue_id, path, table.file_size)
            last = None
            if end is not None:
                last = end.last
            else:
                queue = ConsumeQueue(
                    Path(path), topic, queue_id, table.file_size, strict=self.writable
                )
                last = queue.unit(queue.max_offset - 1)
                seen.irregular.extend(queue.files.irregular)
            if last is not None and not last.is_pre_blank:
                seen.newest.append((last.physical_offset, last.size))
        self._seen = seen
        return seen

    # --- reading -------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """First physical offset of the log."""
        return self.commit_log.min_offset

    @property
    def max_offset(self) -> int:
        """Physical offset after the last record that the files have (``getMaxPhyOffset``)."""
        written = self._log.read_offset if self.writable else -1
        return written if written >= 0 else self.obstacle.offset

    @property
    def obstacle(self) -> LogEnd:
        """The end as the first one to ask found it, in a store that is written the opening, with
        the damage that stands before newer records."""
        with self._end_lock:
            if self._end is None:
                self._end = self._find_end()
            return self._end

    def consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue; None when it has no directory. :raises TopicNotAllowed: no such name can be."""
        return self.queues.find(topic, queue_id)

    def look_message_by_offset(self, physical_offset: int) -> Record:
        """The record at an offset (``lookMessageByOffset``); :raises NoRecordAt: there is none."""
        return self.commit_log.record_at(physical_offset)

    def body(self, record: Record) -> bytes:
        """The record's body as stored (compressed, when its sys flag says so)."""
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
        """What a master broker answers to a pull (``DefaultMessageStore#getMessage``).

        :param physical_memory: bytes of the broker's memory, which decide what counts as on disk;
            None: this machine's.
        """
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

        ``begin`` and ``end`` are store times in milliseconds, both inclusive. An item knows whole
        seconds, by which the engine judges; here the record's own time counts, and only of an item
        without a record that of the item. The engine answers every hash match; here the caller
        sees which of them are collisions.
        """
        for hit in self.index.query(index_key_hash(topic, key), begin - 999, end):
            record = self.commit_log.find_record(hit.item.physical_offset)
            if record is not None and not begin <= record.store_timestamp <= end:
                continue
            matches = (
                record is not None
                and record.topic == topic
                and key in message_keys(record.properties)
            )
            yield KeyMatch(hit, record, matches)

    def check_message(self, message: MessageExtBrokerInner) -> EncodedMessage | PutMessageResult:
        """The message as a put would store it, or the result with which it would be refused for
        what it is; the store's own condition has no say. :raises TopicNotAllowed: as of a put."""
        log = self.commit_log
        return check_message(message, self.config, self.dispatcher, log.file_size, self.form)

    # --- writing -------------------------------------------------------------------------

    def _start_writing(self, catches_up: bool, progress: Progress) -> None:
        config, log = self.config, self._log
        self.check_log_lengths()
        self.index.last()  # Refuses a wrong geometry before anything is changed.
        self.plan = self.start_plan(progress)
        recovery.check(self.plan, self.root, log)
        self._end = self.plan.end
        form = record_form(self.root, log.find_record(self.plan.newest[0]))
        log.start_writing(self._end)
        reput = Reput(
            self.dispatcher, self.queues, self.index if config.message_index_enable else None
        )
        tail = DispatchTail(log, self.queues, self.index, reput)
        parts = StoreParts(
            self.root, config, log, self.queues, reput, tail, self._put_lock, self.clock
        )
        self._writer = StoreWriter(parts)
        self._writer.write_in(form)
        self._recovery = recovery.Recovery(self.plan, parts, self.index, self._writer.flusher)
        self.index.before_flush = lambda: log.force(log.read_offset)
        self._recovery.begin(abort_content(form), from_first=not catches_up)
        if catches_up:
            self._recovery.dispatch(progress)

    def catch_up(self) -> None:
        """Ends the recovery that opening without ``catches_up`` has begun. :raises CannotWrite: the
        disk is full."""
        self._recovery.dispatch()

    @property
    def writer(self) -> StoreWriter:
        """The writing half: statistics, flags, services. Only a writing store has one."""
        assert self._writer is not None, "opened for reading"
        return self._writer

    @property
    def form(self) -> RecordForm:
        """How the store's records end, and how those end that are put into it."""
        if self._writer is not None:
            return self._writer.form
        newest = max((offset for offset, _ in self.newest_units()), default=-1)
        return record_form(self.root, self.commit_log.find_record(newest))

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of a writing store as it is in memory."""
        return self.writer.flusher.checkpoint

    def start(self, *, dispatch: bool = True) -> None:
        """Starts the services of a long-lived store (``DefaultMessageStore#start``): flushing by
        the configuration's flush type and, with ``dispatch``, dispatching behind the puts.

        Without it nothing runs in the background: a put dispatches before it returns.
        """
        self.writer.flusher.start(dispatch=dispatch)

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of log that wait for their units and index items (``dispatchBehindBytes``)."""
        return self.writer.flusher.reput_message.behind

    def put_message(
        self, message: MessageExtBrokerInner, *, flush: bool = True
    ) -> PutMessageResult:
        """Appends one message (``DefaultMessageStore#putMessage``); safe for many threads.

        With ``flush`` the record is on disk when this returns PUT_OK (SYNC_FLUSH).

        :raises TopicNotAllowed: the topic could leave ``consumequeue/``.
        :raises CannotWrite: the disk failed.
        """
        return self.put_messages([message], flush=flush)[0]

    def put_batch(
        self, messages: Iterable[MessageExtBrokerInner], *, flush: bool = True
    ) -> PutMessageResult:
        """Appends messages of one queue as a batch, and answers as the engine does: one result,
        whose message id is all of theirs with commas between."""
        if self._writer is None:
            return _read_only()
        return self._writer.put_batch(list(messages), flush=flush)

    def put_messages(
        self, messages: Iterable[MessageExtBrokerInner], *, batch: bool = False, flush: bool = True
    ) -> list[PutMessageResult]:
        """Appends messages one by one; with ``batch`` all of them into one file, as a batch, which
        has one result when it is refused. One flush serves them all."""
        listed = list(messages)
        if self._writer is None:
            return [_read_only() for _ in (listed[:1] if batch else listed)]
        return self._writer.put_messages(listed, batch=batch, flush=flush)

    def put_stream(
        self,
        messages: Iterable[MessageExtBrokerInner | None],
        *,
        flush: bool = True,
    ) -> Iterator[list[PutMessageResult]]:
        """Appends a stream, dispatching and flushing in bulks; yields the results of each bulk,
        in order, once it is safe (with ``flush``: on disk). None among the messages ends a bulk:
        the source has nothing more for now.

        When ``messages`` raises, what came before it is stored and yielded first.
        """
        for bulk in self.append_stream(messages, flush=flush):
            results = [appended.result() for appended in bulk.stored]
            yield results if bulk.refused is None else [*results, bulk.refused]

    def append_stream(
        self, messages: Iterable[MessageExtBrokerInner | PlainMessage | None], *, flush: bool = True
    ) -> Iterator[Bulk]:
        """:meth:`put_stream` with the results as the append has them. A bulk with a refused
        message is not the last one: the caller decides whether to go on."""
        if self._writer is None:
            return iter((Bulk([], _read_only()),))
        return self._writer.append_stream(iter(messages), flush=flush)

    def flush(self) -> Checkpoint:
        """Forces log, queues and index to disk and advances the checkpoint, as the broker's flush
        services do. :raises CannotWrite: the disk failed."""
        self.writer.flush(STRUCTURES)
        return self.checkpoint

    def flush_structures(self, structures: Iterable[str]) -> list[FlushedRange]:
        """:meth:`flush` of some of ``commitlog``, ``queues`` and ``index``; what that changed."""
        return self.writer.flush(structures)

    # --- closing -------------------------------------------------------------------------

    def close(self) -> None:
        """A clean stop (:meth:`StoreWriter.close`)."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes without flushing, as a killed process would: ``abort`` stays."""
        self._closed = True
        if self._writer is not None:
            self._writer.is_shutdown = True
            self._writer.flusher.shutdown(finish=False)
        for part in ("commit_log", "queues", "index"):
            opened = getattr(self, part, None)
            if opened is not None:
                opened.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _forked(self) -> None:
        """In a forked child, which holds no lock: the store is its parent's. Puts are refused, and
        closing it changes nothing."""
        self._closed = True
        if self._writer is not None:
            self._writer.is_shutdown = True
        self._writer = self._lock = None

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error of ours the store is as valid as after any put: it is closed cleanly.
        self.close()


def _read_only() -> PutMessageResult:
    return PutMessageResult(
        PutMessageStatus.SERVICE_NOT_AVAILABLE, reason="the store is open for reading"
    )
