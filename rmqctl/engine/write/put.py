"""The put path: ``CommitLog#asyncPutMessage``.

The steps are in the engine's order: checks of the message, delay, host flags and encoding without
the lock (:mod:`rmqctl.engine.write.checks`); then place, queue offsets and store under the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter

from formats import constants
from rmqctl.engine.derive.catchup import CatchUp
from rmqctl.engine.dispatch.rules import NO_UNIT
from rmqctl.engine.files import paths
from rmqctl.engine.files.mappedfile import MappedFile, reserved_chunk
from rmqctl.engine.record.form import RecordForm, room_of
from rmqctl.engine.record.message import (
    AppendMessageResult,
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    encode,
    illegal,
    longest_record,
)
from rmqctl.engine.record.status import AppendMessageStatus, PutMessageStatus
from rmqctl.engine.start.nearend import check_near_end
from rmqctl.engine.write.checks import check_message
from rmqctl.engine.write.context import WriteContext
from rmqctl.errors import CannotWrite, SystemRefused

#: A longer time (ms) does not count, as in the engine (``isOSPageCacheBusy``).
_NOT_IN_LOCK = 10_000_000
#: Amid a bulk the log does not know its own end yet.
_AMID_A_BULK = (
    "what gives the messages of a stream puts into the same store, whose next place is taken: "
    "yield that message, too, or put it when the stream has ended"
)


class MessagePutter:
    """Appends checked messages to the log of a store.

    :param before_append: called with the store time before the first bytes are stored.
    """

    def __init__(self, context: WriteContext, before_append: Callable[[int], None]) -> None:
        self.config = context.config
        self.log = context.log
        self.queues = context.queues
        self.clock = context.clock
        #: The form of the store's records; set when the newest record is known.
        self.form = RecordForm()
        #: Next queue offset of each queue that was put to, including light queues.
        self.topic_queue_table: dict[tuple[str, int], int] = {}
        self._dispatcher = context.derived.dispatcher
        self._tail, self.lock = context.tail, context.lock
        self._alone = threading.Lock()
        self.before_append = before_append
        #: When the current put got the lock; 0: no put has it, as far as is known.
        self.begin_time_in_lock = 0.0
        self._lmq_queues: set[str] | None = None

    @property
    def alone(self) -> threading.Lock:
        """All appends are done ``with putter.lock, putter.alone, putter``. Both locks are
        implemented in C, so an interrupt never leaves them held.
        :raises RuntimeError: this thread is amid a bulk."""
        if self._alone.locked():
            raise RuntimeError(_AMID_A_BULK)
        return self._alone

    def __enter__(self) -> None:
        if self.begin_time_in_lock:  # An interrupt came while the put before ended.
            self._doubt()
        self.begin_time_in_lock = perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._doubt()
        self.begin_time_in_lock = 0.0

    def _doubt(self) -> None:
        if self._tail.doubt():
            self.topic_queue_table.clear()  # The queues know them again when all is dispatched.

    @property
    def tail(self) -> CatchUp:
        """The dispatch of the log. After it has failed, queues may lack units: the next append of
        a single message completes it first."""
        return self._tail

    @property
    def indexes_tags(self) -> bool:
        """Whether messages get an index item of their tags (:class:`Dispatcher`)."""
        return self._dispatcher.indexes_tags

    @property
    def has_plain_form(self) -> bool:
        """:attr:`RecordForm.is_plain` of the store's records."""
        return self.form.is_plain

    @property
    def is_os_page_cache_busy(self) -> bool:
        """Whether a put has held the lock for too long (``isOSPageCacheBusy``)."""
        begin = self.begin_time_in_lock
        if not begin or not self._alone.locked():
            return False
        held = (perf_counter() - begin) * 1000
        return self.config.os_page_cache_busy_time_out_mills < held < _NOT_IN_LOCK

    # --- before the lock -----------------------------------------------------------------

    def check(
        self, message: MessageExtBrokerInner, *, in_batch: bool = False
    ) -> EncodedMessage | PutMessageResult:
        """:func:`check_message`, with the number of light queues."""
        given = self.config, self._dispatcher, self.log.file_size, self.form
        return check_message(message, *given, in_batch=in_batch, check_lmq=self._check_lmq)

    @property
    def _room(self) -> int:
        return room_of(self.log.file_size)

    def _check_lmq(self) -> PutMessageResult | None:
        """``checkLmqMessage``. The engine of 4.9.3 calls it too, but then tests another result, so
        there the limit has no effect on a put."""
        if not self.config.enable_lmq:
            return None
        with self.lock:
            if self._lmq_queues is None:
                names = paths.scan_names(self.queues.directory)
                self._lmq_queues = {n for n in names if n.startswith(constants.LMQ_PREFIX)}
            if len(self._lmq_queues) <= self.config.max_lmq_consume_queue_num:
                return None
        return PutMessageResult(
            PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
            reason=f"the store has more than {self.config.max_lmq_consume_queue_num} light "
            "queues (maxLmqConsumeQueueNum)",
        )

    def units_reserved(self, queue_offset: int) -> int:
        """How many units from one on have disk space if that one has: space is reserved in chunks
        of a file."""
        file_size = self.queues.file_size
        position = queue_offset * constants.CQ_STORE_UNIT_SIZE % file_size
        end = min(reserved_chunk(position)[1], file_size)
        return (end - position) // constants.CQ_STORE_UNIT_SIZE

    def reserve_units(self, key: tuple[str, int], queue_offset: int) -> int:
        """Reserves disk space for a queue's unit at ``queue_offset``. Returns the queue offset
        before which there is space; ``queue_offset`` itself when a single put must decide."""
        if len(key[0].encode()) > constants.MAX_TOPIC_LENGTH:
            return queue_offset
        try:
            self.queues.find_or_create(*key).reserve(queue_offset)
        except (SystemRefused, OSError):
            return queue_offset
        # The unit itself has space, even if it lies across the end of a chunk.
        return queue_offset + max(self.units_reserved(queue_offset), 1)

    # --- under the lock ------------------------------------------------------------------

    def append(self, encoded: EncodedMessage) -> PutMessageResult:
        """Appends one message: place, queue offsets, store."""
        message = encoded.message
        key, counts = (message.topic, message.queue_id), _has_unit(encoded)
        start, queue_offset = self.log.write_offset, 0
        try:
            if self._tail.failed:
                self._tail.complete()
            queue_offset = self._next_queue_offset(*key)
            multi: list[tuple[tuple[str, int], int]] = []
            if self.config.enable_multi_dispatch:
                from rmqctl.engine.dispatch.multi import (
                    add_queue_offsets,
                    gets_queue_offsets,
                    multi_queues,
                )

                # A prepared message takes no place, but it gets these offsets as well: the next
                # message's.
                names = multi_queues(message, self.form, self._dispatcher)
                multi = [(name, self._next_queue_offset(*name)) for name in names]
                if gets_queue_offsets(message, self.form):
                    rewritten = add_queue_offsets(message, [offset for _, offset in multi])
                    again = self._encoded_again(rewritten)
                    if isinstance(again, PutMessageResult):
                        return again
                    encoded = again
            mapped, position = self.log.file_for(encoded.size)
            if counts:
                for place, unit_offset in ((key, queue_offset), *multi):
                    self.queues.find_or_create(*place).reserve(unit_offset)
            timestamp = self.clock()
            self.before_append(timestamp)
        except (SystemRefused, OSError) as error:
            return self._refused(error, start, encoded, queue_offset)
        queue_offset = queue_offset if counts else 0
        record = encoded.record(queue_offset, mapped.file_from_offset + position, timestamp)
        result = self._store(encoded, mapped, position, record, queue_offset, timestamp)
        if counts:
            self.topic_queue_table[key] = queue_offset + 1
            for name, multi_offset in multi:
                self.topic_queue_table[name] = multi_offset + 1
                self._note_queue(name[0])
        return result

    def _encoded_again(self, message: MessageExtBrokerInner) -> EncodedMessage | PutMessageResult:
        """A message with the offsets of its light queues; or what refuses it, if it is too long
        then. ``MultiDispatch#wrapMultiDispatch`` answers so for any obstacle."""
        again = encode(message, self.config.max_message_size, self.form)
        if isinstance(again, EncodedMessage) and again.size <= self._room:
            return again
        return PutMessageResult(
            PutMessageStatus.UNKNOWN_ERROR,
            AppendMessageResult(AppendMessageStatus.UNKNOWN_ERROR),
            reason="with the offsets of its light queues the message is too long",
        )

    def append_batch(self, encoded: list[EncodedMessage]) -> list[PutMessageResult]:
        """Appends a batch (``MessageExtBatch``): in one file, with one store time and consecutive
        queue offsets. Returns one result when it is refused.

        As in the engine, its messages go to no light queues.
        """
        problem = self._batch_problem(encoded)
        if problem:
            return [illegal(problem)]
        key = encoded[0].message.topic, encoded[0].message.queue_id
        start, first = self.log.write_offset, 0
        try:
            if self._tail.failed:
                self._tail.complete()
            first = self._next_queue_offset(*key)
            mapped, position = self.log.file_for(sum(one.size for one in encoded))
            queue = self.queues.find_or_create(*key)
            for queue_offset in range(first, first + len(encoded)):
                queue.reserve(queue_offset)
            timestamp = self.clock()
            self.before_append(timestamp)
        except (SystemRefused, OSError) as error:
            return [self._refused(error, start, encoded[0], first)]
        # All are encoded before the first is stored, so an impossible value stops them all.
        records, offset = [], mapped.file_from_offset + position
        for queue_offset, one in enumerate(encoded, first):
            records.append(one.record(queue_offset, offset, timestamp))
            offset += one.size
        results = []
        for queue_offset, (one, record) in enumerate(zip(encoded, records, strict=True), first):
            results.append(self._store(one, mapped, position, record, queue_offset, timestamp))
            position += one.size
        self.topic_queue_table[key] = first + len(encoded)
        return results

    def _refused(
        self, error: Exception, start: int, encoded: EncodedMessage, queue_offset: int
    ) -> PutMessageResult:
        """:func:`refused` for an append at ``start``. If a blank has filled the file and the next
        one cannot be made, the append's own status is END_OF_FILE, and its bytes are the
        blank's."""
        result, end = refused(error), self.log.write_offset
        if end > start and self.log.files.find(end) is None:
            result.append = AppendMessageResult(
                AppendMessageStatus.END_OF_FILE,
                start,
                end - start,
                encoded.msg_id(start),
                self.clock(),
                queue_offset,
            )
        return result

    def _store(
        self,
        encoded: EncodedMessage,
        mapped: MappedFile,
        position: int,
        record: bytes,
        queue_offset: int,
        timestamp: int,
    ) -> PutMessageResult:
        """Stores one record at its place."""
        offset = mapped.file_from_offset + position
        begin = perf_counter()
        self.log.store(mapped, position, record, timestamp)
        append = AppendMessageResult(
            AppendMessageStatus.PUT_OK,
            offset,
            encoded.size,
            encoded.msg_id(offset),
            timestamp,
            queue_offset,
            page_cache_rt=int((perf_counter() - begin) * 1000),
        )
        message = encoded.message
        return PutMessageResult(PutMessageStatus.PUT_OK, append, message.topic, message.queue_id)

    def _batch_problem(self, encoded: list[EncodedMessage]) -> str:
        """Why these messages cannot be a batch; empty when they can."""
        size = sum(one.size for one in encoded)
        if not encoded:
            return "a batch holds a message at least"
        if any(one.sys_flag & constants.TRANSACTION_TYPE_MASK for one in encoded):
            return "a batch holds no transactional messages"
        if len({(one.message.topic, one.message.queue_id) for one in encoded}) > 1:
            return "a batch goes to one queue"
        if size > min(longest_record(self.config.max_message_size, self.form), self._room):
            return f"the batch has {size} bytes, more than a message or a commit log file may"
        return ""

    def _next_queue_offset(self, topic: str, queue_id: int) -> int:
        """``topicQueueTable``: at first the end of the queue, then counted here."""
        known = self.topic_queue_table.get((topic, queue_id))
        if known is None:
            check_near_end(self.log)
            known = self.queues.next_offset(topic, queue_id, self.log.write_offset)
            self.topic_queue_table[topic, queue_id] = known
        return known

    def _note_queue(self, name: str) -> None:
        if self._lmq_queues is not None and name.startswith(constants.LMQ_PREFIX):
            self._lmq_queues.add(name)


def _has_unit(encoded: EncodedMessage) -> bool:
    return encoded.sys_flag & constants.TRANSACTION_TYPE_MASK not in NO_UNIT


def refused(error: Exception) -> PutMessageResult:
    """The result of an append that the system has refused, mostly for want of disk space."""
    if isinstance(error, CannotWrite):
        return PutMessageResult(PutMessageStatus.CREATE_MAPEDFILE_FAILED, reason=str(error))
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, SystemRefused):  # The status has its own next step.
        reason = error.template.format(**error.values)
    return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, reason=reason)
