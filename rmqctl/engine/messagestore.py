"""``MessageStore``: one broker store, opened for reading or, under its lock, for writing.

A store that is open for reading changes nothing at all, and opening it walks over no whole file
(:mod:`rmqctl.engine.store`). One that is open for writing first takes the lock and then does what a
broker's start would do (:mod:`rmqctl.engine.write.recovery`). :meth:`WritableStore.close` forces
everything to disk, removes ``abort`` and writes the checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from rmqctl.engine.files import owner, paths, writing
from rmqctl.engine.files.filequeue import FileEntry
from rmqctl.engine.log.end import LogEnd
from rmqctl.engine.settings.clock import system_clock
from rmqctl.engine.settings.filesizes import (
    check_new_queue_files,
    commit_log_file_size,
    consume_queue_ext_file_size,
    consume_queue_file_size,
)
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.laterversions import abort_content, check_understood, is_of_5, record_form
from rmqctl.engine.store import KeyMatch, Store

if TYPE_CHECKING:
    from rmqctl.engine.files.lock import StoreLock
    from rmqctl.engine.index.indexwriter import IndexServiceWriter
    from rmqctl.engine.log.logwriter import CommitLogWriter
    from rmqctl.engine.log.progress import Progress
    from rmqctl.engine.queue.queuetablewriter import ConsumeQueueTableWriter
    from rmqctl.engine.record.form import RecordForm
    from rmqctl.engine.record.message import MessageExtBrokerInner, PutMessageResult
    from rmqctl.engine.state.checkpoint import Checkpoint
    from rmqctl.engine.write.appended import Bulk
    from rmqctl.engine.write.bulk import PlainMessage
    from rmqctl.engine.write.storeflusher import FlushedRange

__all__ = ["KeyMatch", "MessageStore", "Store", "WritableStore", "system_clock"]


class MessageStore(Store):
    """A store at ``root``. With ``writable`` it is a :class:`WritableStore`, and takes its
    parameters; else it is open for reading, and refuses every put by its status."""

    @overload
    def __new__(
        cls,
        root: Path | str,
        config: MessageStoreConfig | None = None,
        *,
        writable: Literal[True],
        create: bool = False,
        catches_up: bool = True,
        puts: bool = False,
        clock: Callable[[], int] = system_clock,
        progress: Progress = lambda done, total: None,
    ) -> WritableStore: ...

    @overload
    def __new__(
        cls,
        root: Path | str,
        config: MessageStoreConfig | None = None,
        *,
        writable: Literal[False] = False,
    ) -> MessageStore: ...

    @overload
    def __new__(
        cls,
        root: Path | str,
        config: MessageStoreConfig | None = None,
        *,
        writable: bool,
        **named: Any,
    ) -> MessageStore: ...

    def __new__(cls, *arguments: Any, writable: bool = False, **named: Any) -> MessageStore:
        return super().__new__(WritableStore if writable and cls is MessageStore else cls)

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
        """Appends messages of one queue as a batch. As in the engine there is one result, with all
        message ids joined by commas, and each ``prepared_transaction_offset`` is stored as 0."""
        return _read_only()

    def put_messages(
        self, messages: Iterable[MessageExtBrokerInner], *, batch: bool = False, flush: bool = True
    ) -> list[PutMessageResult]:
        """Appends messages one by one; with ``batch`` as a batch, all in one file, and with one
        result when it is refused. One flush serves all."""
        listed = list(messages)
        return [_read_only() for _ in (listed[:1] if batch else listed)]

    def put_stream(
        self, messages: Iterable[MessageExtBrokerInner | PlainMessage | None], *, flush: bool = True
    ) -> Iterator[Sequence[PutMessageResult]]:
        """Appends a stream, dispatched and flushed in bulks. Yields the results of each bulk, in
        order, once it is safe (with ``flush``: on disk). A None in ``messages`` ends a bulk: there
        is no message for now. Until then other readers may find a bulk's keys some milliseconds
        later. If ``messages`` raises, all messages before are stored and yielded first. If it puts
        into this store itself, that raises a RuntimeError.
        """
        from rmqctl.engine.write.appended import Results

        return (Results(bulk) for bulk in self.append_stream(messages, flush=flush))

    def append_stream(
        self, messages: Iterable[MessageExtBrokerInner | PlainMessage | None], *, flush: bool = True
    ) -> Iterator[Bulk]:
        """:meth:`put_stream` with the bulks of the append. A bulk with a refused message is not the
        last one: the caller decides whether to go on."""
        from rmqctl.engine.write.appended import Bulk, Stored

        return iter((Bulk(Stored(), _read_only()),))


class WritableStore(MessageStore):
    """A store that is open for writing.

    :param config: sizes and switches, as in a ``broker.conf``.
    :param writable: always True, for :class:`MessageStore`.
    :param create: make the store if there is none.
    :param catches_up: dispatch what the plan names; else the caller dispatches the whole log.
    :param puts: refuse damage before the log's end now, before anything is changed, instead of with
        the first put.
    :param clock: gives the store time of an append, in milliseconds.
    :param progress: called with the bytes of log that a recovery has read, and then dispatched.
    :raises StoreNotFound, NotAStore: there is no store at ``root``.
    :raises StoreInUse: somebody holds the lock; nothing was changed.
    :raises FileLengthContradiction: files and configuration disagree.
    :raises FileLengthUnproven: nothing tells the size of the log's files.
    :raises QueueFilesTooSmall: no broker would start with the queue files that would be made.
    :raises DamagedStore, CommitLogMissing: a start would lose records; nothing was changed.
    """

    writable = True
    commit_log: CommitLogWriter
    queues: ConsumeQueueTableWriter
    index: IndexServiceWriter

    def __init__(
        self,
        root: Path | str,
        config: MessageStoreConfig | None = None,
        *,
        writable: bool = True,
        create: bool = False,
        catches_up: bool = True,
        puts: bool = False,
        clock: Callable[[], int] = system_clock,
        progress: Progress = lambda done, total: None,
    ) -> None:
        self.clock, self._create, self._puts = clock, create, puts
        self._closed, self._is_opening = False, True
        self._lock: StoreLock | None = None
        self._put_lock = threading.RLock()
        with ExitStack() as undo:
            self._undo = undo
            super().__init__(root, config)
            undo.callback(super().close)
            self._start_writing(undo, catches_up, progress)
            self._undo, self._is_opening = undo.pop_all(), False

    # --- opening -------------------------------------------------------------------------

    def _check(self) -> None:
        """Takes the lock before anything of the store is read or made."""
        from rmqctl.engine.files.lock import StoreLock

        check_new_queue_files(self.root, self.config)
        if self._create and not self.root.exists():
            try:
                owner.make_directories(self.root)
            except OSError as error:
                raise writing.writing_error(self.root, error) from error
        # A writer that was killed at once may have left lock and abort.
        left = {paths.LOCK, paths.ABORT}
        if not (self._create and {path.name for path in self.root.iterdir()} <= left):
            super()._check()
        paths.check_writable(self.root)
        check_understood(self.root, self.config)
        self._undo.callback(self._release)  # First: an interrupt may come between the two.
        self._lock = StoreLock(self.root, self._forked)
        paths.check_writable(self.root)  # A repair may have begun, and was killed, since.

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _open_log(self) -> CommitLogWriter:
        from rmqctl.engine.log.openlog import open_log_writer

        file_size = commit_log_file_size(self.root, self.config, writes=True)
        return open_log_writer(self.root, self.config, file_size)

    def _open_queues(self) -> ConsumeQueueTableWriter:
        from rmqctl.engine.queue.queuetablewriter import ConsumeQueueTableWriter

        root, config, ext = self.root, self.config, self.root / paths.CONSUME_QUEUE_EXT
        writes_ext = config.enable_consume_queue_ext
        return ConsumeQueueTableWriter(
            root / paths.CONSUME_QUEUE,
            consume_queue_file_size(root, config),
            root,
            ext_directory=ext if writes_ext or ext.is_dir() else None,
            ext_file_size=consume_queue_ext_file_size(root, config) if writes_ext else None,
            drops_empty=is_of_5(root),
            log_range=self._log_range,
        )

    def _open_index(self) -> IndexServiceWriter:
        from rmqctl.engine.index.indexwriter import IndexServiceWriter

        return IndexServiceWriter(self.root / paths.INDEX, self.config.index_geometry, self.root)

    def _start_writing(self, undo: ExitStack, catches_up: bool, progress: Progress) -> None:
        # Imported here, because a store that is read does not need them.
        from rmqctl.engine.derive.catchup import CatchUp
        from rmqctl.engine.derive.writer import DerivedWriter
        from rmqctl.engine.write import recovery
        from rmqctl.engine.write.context import WriteContext
        from rmqctl.engine.write.storewriter import StoreWriter

        config, log = self.config, self.commit_log
        self.check_log_lengths()
        self.index.last()  # Refuses a wrong geometry before anything is changed.
        #: The plan that opening has carried out.
        self.plan = self.start_plan(progress)
        is_unread = self.plan.is_clean and not self._puts
        recovery.check(self.plan, self.root, log, self.index, self.dispatcher, config, is_unread)
        form = record_form(self.root, log.find_record(self.plan.newest[0]))
        log.start_writing(self.plan.end, is_unread=is_unread)
        index = self.index if config.message_index_enable else None
        derived = DerivedWriter(self.dispatcher, self.queues, index)
        tail = CatchUp(log, self.queues, self.index, derived)
        context = WriteContext(
            self.root, config, log, self.queues, derived, tail, self._put_lock, self.clock
        )
        #: The writing half: statistics, flags, services.
        self.writer = StoreWriter(context)
        undo.callback(self.writer.flusher.shutdown, finish=False)
        self.writer.write_in(form)
        self._recovery = recovery.Recovery(self.plan, context, self.index, self.writer.flusher)
        self.index.before_flush = lambda: log.force(log.read_offset)
        self._recovery.begin(abort_content(form), from_first=not catches_up)
        if catches_up:
            self._recovery.dispatch(progress)

    def catch_up(self) -> None:
        """Finishes the recovery after opening without ``catches_up``. :raises CannotWrite: the disk
        is full."""
        self._recovery.dispatch()

    # --- reading -------------------------------------------------------------------------

    @property
    def max_offset(self) -> int:
        """Physical offset after the last record that the files have (``getMaxPhyOffset``)."""
        return self.commit_log.read_offset

    @property
    def obstacle(self) -> LogEnd:
        """The log's end when it was opened. It never has an obstacle."""
        return self.plan.end

    @property
    def dispatched_to(self) -> int:
        """Where the record of the newest unit ended when the store was opened; -1 without
        units."""
        return self.plan.dispatched_to

    @property
    def irregular(self) -> list[FileEntry]:
        """Always empty: a store with files of a wrong length is not opened for writing."""
        return []

    def newest_units(self) -> list[tuple[int, int]]:
        """(physical offset, size) of the present last unit of each queue."""
        return self.queues.look_at_all().newest

    @property
    def form(self) -> RecordForm:
        """The form of the store's records, and of those that are put into it."""
        return self.writer.form

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint in memory."""
        return self.writer.flusher.checkpoint

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of log that are not dispatched yet (``dispatchBehindBytes``)."""
        return self.writer.flusher.reput_message.behind

    # --- writing -------------------------------------------------------------------------

    def put_message(
        self, message: MessageExtBrokerInner, *, flush: bool = True
    ) -> PutMessageResult:
        return (self.writer.one_call or self.writer).put_message(message, flush)

    def start(self, *, dispatch: bool = True) -> None:
        """Starts the services of a long-lived store (``DefaultMessageStore#start``): the flush
        services of the configured type and, with ``dispatch``, the dispatch behind the puts.

        Without this call nothing runs in the background, and a put dispatches before it returns.
        """
        self.writer.flusher.start(dispatch=dispatch)

    def put_batch(
        self, messages: Iterable[MessageExtBrokerInner | PlainMessage], *, flush: bool = True
    ) -> PutMessageResult:
        return self.writer.put_batch(list(messages), flush=flush)

    def put_messages(
        self, messages: Iterable[MessageExtBrokerInner], *, batch: bool = False, flush: bool = True
    ) -> list[PutMessageResult]:
        return self.writer.put_messages(list(messages), batch=batch, flush=flush)

    def append_stream(
        self, messages: Iterable[MessageExtBrokerInner | PlainMessage | None], *, flush: bool = True
    ) -> Iterator[Bulk]:
        return self.writer.append_stream(messages, flush=flush)

    def flush(self) -> Checkpoint:
        """Forces log, queues and index to disk and advances the checkpoint, as the broker's flush
        services do. :raises CannotWrite: the disk failed."""
        from rmqctl.engine.write.storeflusher import STRUCTURES

        self.writer.flush(STRUCTURES)
        return self.checkpoint

    def flush_log(self) -> None:
        """Forces the records of all puts to disk, as a group commit does, and nothing else.
        :raises CannotWrite: the disk failed."""
        self.writer.flusher.flush_log()

    def flush_structures(self, structures: Iterable[str]) -> list[FlushedRange]:
        """:meth:`flush` for some of ``commitlog``, ``queues`` and ``index``; what it flushed."""
        return self.writer.flush(structures)

    # --- closing -------------------------------------------------------------------------

    def close(self) -> None:
        """Stops cleanly (:meth:`StoreWriter.close`)."""
        if self._closed:
            return
        try:
            self._closed = True
            self.writer.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes without flushing, as a killed process would: ``abort`` stays."""
        self._closed = True
        self.writer.let_go()
        self._undo.close()

    def _forked(self) -> None:
        """Called in a forked child, which has neither lock nor services: the store belongs to its
        parent. Puts are refused, and closing changes nothing."""
        self._closed, self._lock = True, None
        self._undo.pop_all()
        self._undo.callback(super().close)
        # If another thread was opening it when the process forked, nothing refers to it here.
        if not self._is_opening:
            # A thread that does not exist here may hold the put lock.
            self.writer.let_go()


def _read_only() -> PutMessageResult:
    from rmqctl.engine.record.message import PutMessageResult
    from rmqctl.engine.record.status import PutMessageStatus

    return PutMessageResult(
        PutMessageStatus.SERVICE_NOT_AVAILABLE, reason="the store is open for reading"
    )
