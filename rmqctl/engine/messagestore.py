"""``MessageStore``: one broker store, opened for reading or, under its lock, for writing.

Opening costs no walk of whole files. A reading store changes nothing at all. A writing store takes
the lock before anything else, creates ``abort``, dispatches what a killed writer left behind, and
on :meth:`~MessageStore.close` forces everything to disk, writes the checkpoint and removes its
``abort``; an ``abort`` that it found stays: what a crash left elsewhere is not its to judge.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from formats import constants
from formats.text import index_key_hash
from rmqctl.engine import paths
from rmqctl.engine.bulkappend import Bulk, BulkAppender, PlainMessage
from rmqctl.engine.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rmqctl.engine.commitlog import CommitLog, LogEnd
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.consumequeue import ConsumeQueue
from rmqctl.engine.dispatch import Dispatcher, message_keys
from rmqctl.engine.dispatchtail import DispatchTail
from rmqctl.engine.filesizes import commit_log_file_size, consume_queue_file_size
from rmqctl.engine.getmessage import GetMessageResult, TagFilter, get_message
from rmqctl.engine.indexservice import IndexService, QueryItem
from rmqctl.engine.lock import StoreLock
from rmqctl.engine.mappedfile import MappedFile
from rmqctl.engine.message import (
    AppendMessageResult,
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    delay_rewritten,
    encode,
)
from rmqctl.engine.multidispatch import add_queue_offsets
from rmqctl.engine.queuetable import ConsumeQueueTable
from rmqctl.engine.record import Record, offset_msg_id
from rmqctl.engine.reput import Reput
from rmqctl.engine.status import AppendMessageStatus, PutMessageStatus
from rmqctl.engine.versions import check_understood
from rmqctl.errors import CannotWrite, UnsupportedStore

_MAX_TIME = 0x7FFFFFFFFFFFFFFF


def system_clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class KeyMatch(NamedTuple):
    """One hit of a query by key. ``matches`` is false for a hash collision (the record has another
    topic or key) and where no record stands; ``record`` is None then."""

    hit: QueryItem
    record: Record | None
    matches: bool


class MessageStore:
    """A store below ``root``.

    :param config: sizes and switches, as a ``broker.conf`` gives them.
    :param writable: open for writing: takes the lock, recovers, creates ``abort``.
    :param create: with ``writable``: make the store when there is none.
    :param clock: gives the store time of an append, in milliseconds.
    :raises StoreNotFound, NotAStore: there is no store at ``root``.
    :raises StoreInUse: somebody holds the lock; nothing was changed.
    :raises FileLengthContradiction: files and configuration disagree.
    :raises DamagedStore: writing would overwrite newer records behind damage.
    """

    def __init__(
        self,
        root: Path | str,
        config: MessageStoreConfig | None = None,
        *,
        writable: bool = False,
        create: bool = False,
        clock: Callable[[], int] = system_clock,
    ) -> None:
        self.root = Path(root)
        self.config = config or MessageStoreConfig()
        self.writable = writable
        self.clock = clock
        self._closed = False
        self._lock: StoreLock | None = None
        self._put_lock = threading.Lock()
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
            self._lock = StoreLock(self.root)
        try:
            self._open()
        except BaseException:
            self.abandon()
            raise

    def _open(self) -> None:
        root, config = self.root, self.config
        if config.store_path_commit_log and "," in config.store_path_commit_log:
            raise UnsupportedStore(
                path="storePathCommitLog", reason="the log lies in several directories"
            )
        self.had_abort = (root / paths.ABORT).exists()
        writable_root = root if self.writable else None
        self.commit_log = CommitLog(
            root / paths.COMMIT_LOG, commit_log_file_size(root, config), writable_root=writable_root
        )
        self.dispatcher = Dispatcher(config)
        ext = root / paths.CONSUME_QUEUE_EXT
        self._end = LogEnd(0, 0, None)
        self.queues = ConsumeQueueTable(
            root / paths.CONSUME_QUEUE,
            consume_queue_file_size(root, config),
            ext_directory=ext if ext.is_dir() else None,
            writable_root=writable_root,
            log_range=lambda: (self.min_offset, self.max_offset),
        )
        self.index = IndexService(
            root / paths.INDEX, config.index_geometry, writable_root=writable_root
        )
        self._end = self._find_end()
        if self.writable:
            self._start_writing()

    def _find_end(self) -> LogEnd:
        newest = self.newest_units()
        end = self.commit_log.find_end(newest)
        self.dispatched_to = max((offset + size for offset, size in newest), default=-1)
        if end.obstacle is not None and not self.writable:
            return end._replace(offset=self.commit_log.files.end_offset)
        return end

    def newest_units(self) -> list[tuple[int, int]]:
        """(physical offset, size) of the last unit of every queue that has one."""
        newest = []
        for where in self.queues.directories():
            queue = ConsumeQueue(where.path, where.topic, where.queue_id, self.queues.file_size)
            last = queue.unit(queue.max_offset - 1)
            if last is not None and not last.is_pre_blank:
                newest.append((last.physical_offset, last.size))
            queue.close()
        return newest

    # --- reading -------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """First physical offset of the log."""
        return self.commit_log.min_offset

    @property
    def max_offset(self) -> int:
        """Physical offset after the last record."""
        written = self.commit_log.write_offset
        return written if written >= 0 else self._end.offset

    @property
    def obstacle(self) -> LogEnd:
        """The end as opening found it, with the damage that stands before newer records."""
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
        tag_filter: TagFilter | None = None,
    ) -> GetMessageResult:
        """What a master broker answers to a pull (``DefaultMessageStore#getMessage``)."""
        return get_message(self, topic, queue_id, offset, max_msg_nums, tag_filter)

    def query_message(
        self, topic: str, key: str, begin: int = 0, end: int = _MAX_TIME
    ) -> Iterator[KeyMatch]:
        """Hits of a key, newest first, each compared with its record's topic and keys.

        ``begin`` and ``end`` are store times in milliseconds. The engine answers every hash match;
        here the caller sees which of them are collisions.
        """
        for hit in self.index.query(index_key_hash(topic, key), begin, end):
            record = self.commit_log.find_record(hit.item.physical_offset)
            matches = (
                record is not None
                and record.topic == topic
                and key in message_keys(record.properties)
            )
            yield KeyMatch(hit, record, matches)

    # --- writing -------------------------------------------------------------------------

    def _start_writing(self) -> None:
        self.commit_log.check_lengths()
        self.commit_log.start_writing(self._end)
        self.topic_queue_table: dict[tuple[str, int], int] = {}
        self.last_store_timestamp = self._end.store_timestamp
        self.checkpoint = read_checkpoint(self.root / paths.CHECKPOINT) or Checkpoint()
        self.reput = Reput(
            self.dispatcher,
            self.queues,
            self.index if self.config.message_index_enable else None,
        )
        self.index.last()  # Refuses a wrong geometry before anything is changed.
        if not self.had_abort:
            MappedFile.create(self.root, self.root / paths.ABORT, 0).close()
        self._is_first = self.max_offset == 0 and self.checkpoint == Checkpoint()
        self._tail = DispatchTail(self.commit_log, self.queues, self.index, self.reput)
        try:
            self._tail.recover(self.dispatched_to, self.config, unclean=self.had_abort)
        except OSError as error:
            raise CannotWrite(path=str(self.root), reason=str(error.strerror)) from error

    def put_message(
        self, message: MessageExtBrokerInner, *, flush: bool = True
    ) -> PutMessageResult:
        """Appends one message and dispatches it (``DefaultMessageStore#putMessage``).

        With ``flush`` the record is on disk when this returns (SYNC_FLUSH).

        :raises TopicNotAllowed: the topic could leave ``consumequeue/``.
        """
        return self.put_messages([message], flush=flush)[0]

    def put_messages(
        self, messages: Iterable[MessageExtBrokerInner], *, batch: bool = False, flush: bool = True
    ) -> list[PutMessageResult]:
        """Appends messages one by one; with ``batch`` all of them into one file, as a batch."""
        with self._put_lock:
            encoded = [self.check(message) for message in messages]
            results: list[PutMessageResult] = []
            if batch:
                refused = [e for e in encoded if isinstance(e, PutMessageResult)]
                if refused:
                    return refused[:1]
                whole = [e for e in encoded if isinstance(e, EncodedMessage)]
                results += self._append_batch(whole)
            else:
                for one in encoded:
                    results.append(one if isinstance(one, PutMessageResult) else self.append(one))
            stored = [result.append for result in results if result.append is not None]
            failure = self._finish(stored[0].wrote_offset, len(stored), flush) if stored else None
            if failure is not None:
                return [failure if result.append is not None else result for result in results]
            return results

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
            results = [
                PutMessageResult(
                    PutMessageStatus.PUT_OK,
                    AppendMessageResult(
                        AppendMessageStatus.PUT_OK,
                        offset,
                        size,
                        offset_msg_id(*store_host, offset),
                        timestamp,
                        queue_offset,
                    ),
                    topic,
                    queue_id,
                )
                for (
                    topic,
                    queue_id,
                    store_host,
                    offset,
                    size,
                    queue_offset,
                    timestamp,
                ) in bulk.stored
            ]
            yield results if bulk.refused is None else [*results, bulk.refused]

    def append_stream(
        self, messages: Iterable[MessageExtBrokerInner | PlainMessage | None], *, flush: bool = True
    ) -> Iterator[Bulk]:
        """:meth:`put_stream` with the results as the append has them. A bulk with a refused
        message is not the last one: the caller decides whether to go on."""
        with self._put_lock:
            appender = BulkAppender(self, iter(messages))
            while not appender.exhausted and appender.failure is None:
                bulk = appender.fill()
                failure = None
                if bulk.stored:
                    failure = self._finish(bulk.stored[0].wrote_offset, len(bulk.stored), flush)
                if failure is not None:
                    bulk = Bulk([], failure)
                if bulk.stored or bulk.refused:
                    yield bulk
            if appender.failure is not None:
                raise appender.failure

    def check(self, message: MessageExtBrokerInner) -> EncodedMessage | PutMessageResult:
        """Everything before the lock: status, lengths, delay rewriting, host flags, encoding."""
        if self._closed or not self.writable:
            reason = "the store is closed" if self._closed else "the store is open for reading"
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, reason=reason)
        paths.check_topic_directory(message.topic)
        if message.queue_id < 0:
            return PutMessageResult(
                PutMessageStatus.MESSAGE_ILLEGAL, reason=f"queue id {message.queue_id} is negative"
            )
        kind = message.sys_flag & constants.TRANSACTION_TYPE_MASK
        prepares = kind in (
            constants.TRANSACTION_PREPARED_TYPE,
            constants.TRANSACTION_ROLLBACK_TYPE,
        )
        if message.delay_time_level > 0 and not prepares:
            message = delay_rewritten(message, len(self.dispatcher.delay_levels))
        encoded = encode(message, self.config.max_message_size)
        room = self.commit_log.file_size - constants.END_FILE_MIN_BLANK_LENGTH
        if isinstance(encoded, EncodedMessage) and encoded.size > room:
            return PutMessageResult(
                PutMessageStatus.MESSAGE_ILLEGAL,
                reason=f"the record has {encoded.size} bytes, a commit log file holds {room}",
            )
        return encoded

    def append(self, encoded: EncodedMessage) -> PutMessageResult:
        """Under the lock: place, queue offset, store (``CommitLog#asyncPutMessage``)."""
        message = encoded.message
        key = message.topic, message.queue_id
        kind = encoded.sys_flag & constants.TRANSACTION_TYPE_MASK
        counts = kind in (constants.TRANSACTION_NOT_TYPE, constants.TRANSACTION_COMMIT_TYPE)
        try:
            if self._tail.failed:
                self._tail.complete()
            queue_offset = self._next_queue_offset(*key)
            multi: list[tuple[tuple[str, int], int]] = []
            if self.config.enable_multi_dispatch and counts:
                names = self.multi_queues(message)
                multi = [(name, self._next_queue_offset(*name)) for name in names]
                if multi:
                    rewritten = add_queue_offsets(message, [offset for _, offset in multi])
                    again = encode(rewritten, self.config.max_message_size)
                    if isinstance(again, PutMessageResult):
                        return again
                    encoded = again
            mapped, position, _ = self.commit_log.file_for(encoded.size)
            if counts:
                for place, unit_offset in ((key, queue_offset), *multi):
                    self.queues.find_or_create(*place).reserve(unit_offset)
            timestamp = self.clock()
            if self._is_first:
                self._write_first_checkpoint(timestamp)
        except (CannotWrite, OSError) as error:
            return _refused(error)
        offset = mapped.file_from_offset + position
        self.last_store_timestamp = timestamp
        stored_offset = queue_offset if counts else 0
        self.commit_log.store(mapped, position, encoded.record(stored_offset, offset, timestamp))
        if counts:
            self.topic_queue_table[key] = queue_offset + 1
            for name, multi_offset in multi:
                self.topic_queue_table[name] = multi_offset + 1
        append = AppendMessageResult(
            AppendMessageStatus.PUT_OK,
            offset,
            encoded.size,
            encoded.msg_id(offset),
            timestamp,
            stored_offset,
        )
        return PutMessageResult(PutMessageStatus.PUT_OK, append, message.topic, message.queue_id)

    def _append_batch(self, encoded: list[EncodedMessage]) -> list[PutMessageResult]:
        """A batch lies in one file: room for all of it is made first."""
        size = sum(e.size for e in encoded)
        room = self.commit_log.file_size - constants.END_FILE_MIN_BLANK_LENGTH
        reason = ""
        if size > min(self.config.max_message_size, room):
            reason = f"the batch has {size} bytes, more than a message or a commit log file may"
        if any(e.sys_flag & constants.TRANSACTION_TYPE_MASK for e in encoded):
            reason = "a batch holds no transactional messages"
        if any(e.message.delay_time_level > 0 for e in encoded):
            reason = "a batch holds no delayed messages"
        if reason:
            return [PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, reason=reason)]
        try:
            self.commit_log.file_for(size)
        except (CannotWrite, OSError) as error:
            return [_refused(error)]
        return [self.append(e) for e in encoded]

    def _write_first_checkpoint(self, timestamp: int) -> None:
        """A store has a checkpoint before its first record; a broker writes one with its start.
        The time of the first record is always safe: a recovery starts before it."""
        self.checkpoint = Checkpoint(timestamp, timestamp)
        write_checkpoint(self.root, self.root / paths.CHECKPOINT, self.checkpoint)
        self._is_first = False

    def multi_queues(self, message: MessageExtBrokerInner) -> list[tuple[str, int]]:
        """The extra queues that a message names, with their queue ids."""
        names = message.properties.get(constants.PROPERTY_INNER_MULTI_DISPATCH, "")
        if not names.strip():
            return []
        for name in names.split(constants.MULTI_DISPATCH_QUEUE_SPLITTER):
            paths.check_topic_directory(name)
        return [
            (name, self.dispatcher.multi_queue_id(name, message.queue_id))
            for name in names.split(constants.MULTI_DISPATCH_QUEUE_SPLITTER)
        ]

    def _next_queue_offset(self, topic: str, queue_id: int) -> int:
        """``topicQueueTable``: the end of the queue, then counted here."""
        known = self.topic_queue_table.get((topic, queue_id))
        if known is None:
            queue = self.queues.find(topic, queue_id)
            known = queue.max_offset if queue is not None else 0
            self.topic_queue_table[topic, queue_id] = known
        return known

    def _finish(self, start: int, count: int, flush: bool) -> PutMessageResult | None:
        """Dispatches the ``count`` records appended from ``start`` on (and what an error before
        them has left) and, when asked, forces the log to disk. The answer when the disk is too
        full for units or index items.

        :raises CannotWrite: the disk failed.
        """
        try:
            self._tail.appended(start, count)
        except (CannotWrite, OSError) as error:
            refused = _refused(error)
            refused.reason += (
                f". The log has the message (from {start} on): it appears in its queue and index "
                "as soon as there is room"
            )
            return refused
        try:
            if flush:
                self.commit_log.flush()
        except OSError as error:
            raise CannotWrite(path=str(self.root), reason=str(error.strerror)) from error
        return None

    def flush(self) -> Checkpoint:
        """Forces log, queues and index to disk and advances the checkpoint, as the broker's flush
        services do. :raises CannotWrite: the disk failed."""
        try:
            self._tail.complete()
            self.commit_log.flush()
            self.reput.flush()
            self.checkpoint = self.checkpoint._replace(
                physic_msg_timestamp=max(
                    self.checkpoint.physic_msg_timestamp, self.last_store_timestamp
                ),
                logics_msg_timestamp=max(
                    self.checkpoint.logics_msg_timestamp, self.last_store_timestamp
                ),
                index_msg_timestamp=max(
                    self.checkpoint.index_msg_timestamp, self.reput.index_msg_timestamp
                ),
            )
            write_checkpoint(self.root, self.root / paths.CHECKPOINT, self.checkpoint)
        except OSError as error:
            raise CannotWrite(path=str(self.root), reason=str(error.strerror)) from error
        return self.checkpoint

    # --- closing -------------------------------------------------------------------------

    def close(self) -> None:
        """A clean stop: everything on disk, checkpoint written, own ``abort`` removed."""
        if self._closed:
            return
        try:
            if self.writable:
                self.flush()
                if not self.had_abort:
                    (self.root / paths.ABORT).unlink(missing_ok=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes without flushing, as a killed process would: ``abort`` stays."""
        self._closed = True
        for part in ("commit_log", "queues", "index"):
            opened = getattr(self, part, None)
            if opened is not None:
                opened.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

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


def _refused(error: Exception) -> PutMessageResult:
    """The status of an append for which there was no room."""
    if isinstance(error, CannotWrite):
        return PutMessageResult(PutMessageStatus.CREATE_MAPEDFILE_FAILED, reason=str(error))
    reason = getattr(error, "strerror", None) or str(error)
    return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, reason=reason)
