"""The writing half of a store: puts, from the check of the store's status to the flushed result.

``DefaultMessageStore#putMessage`` around ``CommitLog#asyncPutMessage``: store status, the message's
own checks, append under the lock, dispatch, statistics, flush request, result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from rmqctl.engine.files import paths, writing
from rmqctl.engine.flush.services import GroupCommitRequest
from rmqctl.engine.record.form import RecordForm
from rmqctl.engine.record.message import EncodedMessage, MessageExtBrokerInner, PutMessageResult
from rmqctl.engine.record.status import PutMessageStatus, logged
from rmqctl.engine.write.context import ReplicaService, WriteContext
from rmqctl.engine.write.flags import RunningFlags
from rmqctl.engine.write.put import MessagePutter, refused
from rmqctl.engine.write.stats import StoreStats
from rmqctl.engine.write.storeflusher import FlushedRange, StoreFlusher
from rmqctl.errors import CannotWrite, SystemRefused

if TYPE_CHECKING:
    from rmqctl.engine.derive.writer import PlainRecord, PlainRun
    from rmqctl.engine.record.pieces import LogPiece
    from rmqctl.engine.write.appended import Bulk
    from rmqctl.engine.write.batch import BatchPutter
    from rmqctl.engine.write.bulk import BulkAppender, Message
    from rmqctl.engine.write.onecall import OneCallPutter
    from rmqctl.engine.write.single import QuickPutter


#: From so many puts on it is worth importing the kernel.
_FEW_SINGLES = 16


class StoreWriter:
    """Writes to one store; safe for many threads."""

    def __init__(self, context: WriteContext) -> None:
        self.root = context.root
        self.config = context.config
        self.running_flags = RunningFlags()
        self.stats = StoreStats()
        self.replica: ReplicaService | None = None
        self.is_shutdown = False
        self._log = context.log
        self._tail = context.tail
        self._derived = context.derived
        self._singles = 0
        self._is_quick_made = False
        self._quick: QuickPutter | None = None
        #: The kernel's fastest way for single messages; None: not ready, or not possible.
        self.one_call: OneCallPutter | None = None
        self._batches: BatchPutter | None = None
        self._context, self._lock = context, context.lock
        self._log.on_flush = self.stats.flushed
        self.flusher = StoreFlusher(context, self.running_flags)
        self._putter = MessagePutter(context, self.flusher.before_append)

    @property
    def form(self) -> RecordForm:
        """The form of the records that are put."""
        return self._putter.form

    def write_in(self, form: RecordForm) -> None:
        """Sets the form of records from now on. The default is that of 4.9.3."""
        self._putter.form = form

    def check_store_status(self) -> PutMessageResult | None:
        """The result if no message can be put now (``checkStoreStatus``); None if one can."""
        reason = ""
        if self.is_shutdown:
            reason = "the store is closed"
        elif self.config.broker_role == "SLAVE":
            reason = "the store is a slave's (brokerRole): its master puts"
        elif not self.running_flags.is_writeable:
            reason = f"the store is not writeable: {self.running_flags}"
        if reason:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        if self._putter.is_os_page_cache_busy:
            return PutMessageResult(
                PutMessageStatus.OS_PAGECACHE_BUSY,
                reason="another put holds the lock for longer than "
                f"{self.config.os_page_cache_busy_time_out_mills} ms (osPageCacheBusyTimeOutMills)",
            )
        return None

    def put_messages(
        self, messages: list[MessageExtBrokerInner], *, batch: bool, flush: bool
    ) -> list[PutMessageResult]:
        """``MessageStore.put_messages``."""
        begin = perf_counter()
        results = self._put(messages, batch)
        stored = [result for result in results if result.stored is not None]
        if stored:
            self._await_disk(stored, flush, any(one.is_wait_store_msg_ok for one in messages))
        failed = sum(not result.is_ok for result in results)
        self.stats.put_ended((perf_counter() - begin) * 1000, failed)
        return results

    def _count(self) -> None:
        """Counts a single put or batch. After a few of them the kernel is made ready."""
        self._singles += 1
        # Threads that count at the same time may step over the number.
        if self._singles >= _FEW_SINGLES and not self._is_quick_made:
            self._make_quick()

    def _make_quick(self) -> None:
        """Makes the kernel's parts ready, once, if there is a kernel."""
        from rmqctl.engine.write.single import kernel_ways

        with self._lock, self._putter.alone, self._putter:
            if self._is_quick_made or self.is_shutdown:
                return
            self._is_quick_made = True
            ways = kernel_ways(self._putter, self._context, self)
            if ways is not None:
                self._quick, self._batches, self.one_call = ways

    def put_message(self, message: MessageExtBrokerInner, flush: bool) -> PutMessageResult:
        """``MessageStore.put_message`` for a message that was not put in one call."""
        self._count()
        if self._quick is not None and self.check_store_status() is None:
            begin = perf_counter()
            result = self._put_quickly(self._quick, message)
            if result is not None:
                if result.stored is None:
                    pass  # Its dispatch failed, so nobody waits for the disk.
                elif flush or self.replica is not None:
                    self._await_disk([result], flush, message.is_wait_store_msg_ok)
                else:
                    self.flusher.wakeup()
                failed = int(not result.is_ok)
                self.stats.put_ended((perf_counter() - begin) * 1000, failed)
                return result
        return self.put_messages([message], batch=False, flush=flush)[0]

    def end_put(
        self, message: MessageExtBrokerInner, result: PutMessageResult, flush: bool, begin: float
    ) -> None:
        """Ends the put, begun at ``begin``, of a message in the log: waits as long as a put
        must."""
        self._await_disk([result], flush, message.is_wait_store_msg_ok)
        self.stats.put_ended((perf_counter() - begin) * 1000, int(not result.is_ok))

    def _put_quickly(
        self, quick: QuickPutter, message: MessageExtBrokerInner
    ) -> PutMessageResult | None:
        """Appends and dispatches under the lock. None: the message needs an ordinary put."""
        with self._lock, self._putter.alone, self._putter:
            appended = None if self.is_shutdown else quick.append(message)
            if appended is None:
                return None
            result, record = appended
            self.stats.stored_many(((record.topic, 1, record.size),))
            return self._dispatch(record.physical_offset, 1, record) or result

    def put_batch(self, messages: Sequence[Message], *, flush: bool) -> PutMessageResult:
        """``MessageStore.put_batch``; after a few puts by the kernel."""
        from rmqctl.engine.write.batch import batch_result
        from rmqctl.engine.write.bulk import full

        self._count()
        if self._batches is not None and messages and self.check_store_status() is None:
            begin = perf_counter()
            result = self._append_batch(self._batches, messages)
            if result is not None:
                does_wait = flush or self.replica is not None
                waits = does_wait and any(one.is_wait_store_msg_ok for one in full(messages))
                if result.stored is not None:
                    self._await_disk([result], flush, waits)
                self.stats.put_ended((perf_counter() - begin) * 1000, int(not result.is_ok))
                return result
        return batch_result(self.put_messages(full(messages), batch=True, flush=flush))

    def _append_batch(
        self, batches: BatchPutter, messages: Sequence[Message]
    ) -> PutMessageResult | None:
        """Appends and dispatches under the lock. None: the batch needs an ordinary put."""
        with self._lock, self._putter.alone, self._putter:
            appended = None if self.is_shutdown else batches.append(messages)
            if appended is None:
                return None
            result, run = appended
            self.stats.stored_many(((result.topic, run.messages, run.end - run.start),))
            failure = self._dispatch(run.start, run.messages, runs=(run.derived(),))
            self._context.derived.settle()
            return failure or result

    def _put(self, messages: list[MessageExtBrokerInner], batch: bool) -> list[PutMessageResult]:
        """Checks, then appends and dispatches under the lock."""
        answers = 1 if batch else len(messages)
        unable = self.check_store_status()
        if unable is not None:
            return [unable] * answers
        checked = [self._putter.check(message, in_batch=batch) for message in messages]
        whole = [one for one in checked if isinstance(one, EncodedMessage)]
        if batch and len(whole) < len(checked):
            return [one for one in checked if isinstance(one, PutMessageResult)][:1]
        with self._lock, self._putter.alone, self._putter:
            if self.is_shutdown and (unable := self.check_store_status()) is not None:
                return [unable] * answers
            if batch:
                results = self._putter.append_batch(whole)
            else:
                results = [
                    one if isinstance(one, PutMessageResult) else self._putter.append(one)
                    for one in checked
                ]
            stored = [
                (result.topic, result.stored) for result in results if result.stored is not None
            ]
            if not stored:
                return results
            self.stats.stored((topic, append.wrote_bytes) for topic, append in stored)
            failure = self._dispatch(stored[0][1].wrote_offset, len(stored))
        if failure is not None:
            return [failure if result.stored is not None else result for result in results]
        return results

    def append_stream(self, messages: Iterable[Message | None], *, flush: bool) -> Iterator[Bulk]:
        """``MessageStore.append_stream``."""
        from rmqctl.engine.write.appended import Bulk, Stored
        from rmqctl.engine.write.compiled import appender_of

        appender, derived = appender_of(self._putter, messages), self._context.derived
        try:
            while appender.failure is None and appender.wait():
                unable = self.check_store_status()
                bulk = (
                    Bulk(Stored(), unable)
                    if unable is not None
                    else self._append_bulk(appender, flush)
                )
                # If more messages follow at once, the kernel stores index items while they are
                # read.
                if bulk.refused or not appender.goes_on:
                    derived.settle()
                if bulk.stored or bulk.refused:
                    yield bulk
        finally:
            derived.settle()
        if appender.failure is not None:
            raise appender.failure

    def _append_bulk(self, appender: BulkAppender, flush: bool) -> Bulk:
        """Appends and dispatches one bulk under the lock, then flushes it."""
        begin = perf_counter()
        with self._lock, self._putter.alone, self._putter:
            if self.is_shutdown:
                return appender.refused(self.check_store_status())
            bulk = appender.fill()
            if self._tail.is_let_go:  # The source of messages has forked, and this is the child.
                return appender.refused(self.check_store_status())
            if not bulk.stored:
                return bulk
            self.stats.stored_many(bulk.stored.totals())
            first, last = bulk.stored[0], bulk.stored[-1]
            runs = bulk.stored.derived()
            failure = self._dispatch(first.wrote_offset, len(bulk.stored), runs=runs)
        if failure is None:
            end = last.wrote_offset + last.wrote_bytes
            failure = self._flush_up_to(end, flush, first.wrote_offset, len(bulk.stored))
        if failure is not None:
            bulk = appender.refused(failure, logged=len(bulk.stored))
        self.stats.put_ended((perf_counter() - begin) * 1000, int(bulk.refused is not None))
        return bulk

    def append_piece(self, piece: LogPiece) -> None:
        """Appends a piece of another store's log as it is, and dispatches it
        (``DefaultMessageStore#appendToCommitLog``). Nothing is checked or flushed.

        :raises CannotWrite: the disk failed, or is full. The log may have some whole entries of the
            piece, which the next start dispatches.
        """
        from rmqctl.engine.write.replica import append_piece

        try:
            with self._lock, self._putter.alone, self._putter:
                self.flusher.before_append(piece.first_timestamp)
                begins = not self._log.files.entries
                append_piece(self._log, piece)
                if begins:
                    self._tail.done = piece.physical_offset
                self._tail.complete()
        except OSError as error:
            raise CannotWrite(path=str(self.root), reason=str(error.strerror)) from error

    def _dispatch(
        self,
        start: int,
        count: int,
        record: PlainRecord | None = None,
        runs: Iterable[PlainRun] = (),
    ) -> PutMessageResult | None:
        """Dispatches the ``count`` records appended from ``start`` on, and what an earlier error
        has left, unless a service does so. Returns a result when the disk is too full for that.

        :param record: the only record, known already, when all before it is dispatched.
        :param runs: runs among the records that are known already, in order.
        """
        if self.flusher.reput_message.is_running:
            self.flusher.appended()
            return None
        try:
            self._log.commit_all()
            if record is not None:
                self._tail.appended_plain(record)
            elif runs:
                self._tail.appended_runs(start, runs)
            else:
                self._tail.appended(start, count)
        except (SystemRefused, OSError) as error:
            result = refused(error)
            # A bulk's messages get no answers then, and putting them again would store them twice.
            one = ": it appears in its queue and index as soon as there is room"
            many = ": they appear in their queues and index as soon as there is room"
            has = logged(start, count, one, many)
            result.reason = f"{result.reason.rstrip('.')}. {has}"
            return result
        return None

    def _await_disk(self, stored: list[PutMessageResult], flush: bool, waits: bool) -> None:
        """Waits for disk and slaves, as a put of these must. Failing that becomes their status.

        :param waits: a message asks for it (the property WAIT). Without the flush service the
            disk is waited for all the same: nobody else would flush.
        """
        first, last = stored[0].stored, stored[-1].stored
        assert first is not None and last is not None
        next_offset = last.wrote_offset + last.wrote_bytes
        flush = flush and (waits or not self.flusher.group_commit.is_running)
        failure = self._flush_up_to(next_offset, flush, first.wrote_offset, len(stored))
        if waits and self.replica is not None and self.config.broker_role == "SYNC_MASTER":
            status = self.replica.submit(next_offset, self.config.slave_timeout)
            if status is not PutMessageStatus.PUT_OK:
                failure = PutMessageResult(status, reason="the message is stored here alone")
        if failure is not None:
            for result in stored:
                result.status, result.reason = failure.status, failure.reason

    def _flush_up_to(
        self, next_offset: int, flush: bool, start: int, count: int
    ) -> PutMessageResult | None:
        """Waits until the log is on disk up to ``next_offset`` (``submitFlushRequest``); without
        ``flush`` only wakes the flush services.

        Returns a result when it takes too long or the disk fails. It says that the log has the
        ``count`` messages from ``start`` on all the same.
        """
        if not flush:
            self.flusher.wakeup()
            return None
        timeout = self.config.sync_flush_timeout
        try:
            status = self.flusher.group_commit.submit(GroupCommitRequest(next_offset, timeout))
            reason = f"the disk took longer than {timeout} ms (syncFlushTimeout)"
        except OSError as error:
            status, reason = PutMessageStatus.FLUSH_DISK_TIMEOUT, str(error.strerror)
        # The flush has committed the pool's buffers, so dispatch can go on.
        self.flusher.reput_message.wakeup()
        if status is PutMessageStatus.PUT_OK:
            return None
        one, many = (f", and {who} may be on disk or not" for who in ("it", "they"))
        return PutMessageResult(status, reason=f"{reason}. {logged(start, count, one, many)}")

    def let_go(self) -> None:
        """Ends all puts, and lets go of the store's files."""
        self.is_shutdown = self._tail.is_let_go = True
        self._quick = self.one_call = self._batches = None

    def flush(self, structures: Iterable[str]) -> list[FlushedRange]:
        """``MessageStore.flush_structures``."""
        try:
            return self.flusher.flush(structures)
        except OSError as error:
            raise CannotWrite(path=str(self.root), reason=str(error.strerror)) from error

    def close(self) -> None:
        """Stops cleanly: ends the services, brings everything to disk, removes ``abort``, and then
        writes the final checkpoint.

        ``abort`` stays if the store was not writeable to the end, or its recovery did not end.

        :raises CannotWrite: the disk failed. ``abort`` stays, unless only the checkpoint failed.
        """
        with self._lock, self._putter.alone, self._putter:
            self.is_shutdown = True
        self.flusher.shutdown()
        is_clean = self.running_flags.is_writeable and not self._tail.is_due
        try:
            self.flusher.flush(is_closing=is_clean)
            if is_clean:
                writing.remove_file(self.root, self.root / paths.ABORT)
                self.flusher.closed()
        except OSError as error:
            raise CannotWrite(path=str(self.root), reason=str(error.strerror)) from error
