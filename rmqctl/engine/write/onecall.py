"""Puts of single messages in one call of the compiled kernel, from the message to the answer.

The kernel stores record, unit and index items, and moves the ends of log, queue and index file. It
does so only in the simplest case: the store has no transient store pool and no extensions, its
records have the form of 4.9.3, its whole log is dispatched, the message is plain, its queue has a
file, and disk space was reserved here. All other messages are put by
:mod:`rmqctl.engine.write.single` or one by one, with the same bytes and answers.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.record.form import room_of
from rmqctl.engine.record.message import MessageExtBrokerInner, PutMessageResult
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.settings.clock import system_clock
from rmqctl.engine.write.bulk import PlainMessage, record_lengths, reserve_room
from rmqctl.engine.write.compiled import Stop
from rmqctl.engine.write.flags import NO_FLAG
from rmqctl.engine.write.stats import PUT_TIME_CLASSES

if TYPE_CHECKING:
    from rmqctl.engine.index.indexfilewriter import IndexFileWriter
    from rmqctl.engine.record.form import RecordForm
    from rmqctl.engine.write.context import WriteContext
    from rmqctl.engine.write.put import MessagePutter
    from rmqctl.engine.write.storewriter import StoreWriter

#: Index items for which disk space is reserved at once, and how many at first in an index file.
_ITEMS_AHEAD, _FIRST_ITEMS = 1 << 13, 1 << 8
#: The most steps for one message: queue, log and index once each, and the log again in a new file.
_MOST_STEPS = 4


class _Parts(NamedTuple):
    """``Parts`` of src/python/single.rs."""

    log: Any
    tail: Any
    table: Any
    derived: Any
    has_index: bool


class _Answers(NamedTuple):
    """``Answers`` of src/python/single.rs."""

    new: Any
    put_ok: Any


def one_call_putter(
    kernel: ModuleType, context: WriteContext, putter: MessagePutter, writer: StoreWriter
) -> OneCallPutter | None:
    """The putter of a store; None if its puts have more steps, or its records another form."""
    if context.config.is_transient_store_pool_enable or context.queues.writes_ext:
        return None
    if not putter.has_plain_form:
        return None
    return OneCallPutter(kernel, context, putter, writer)


class OneCallPutter:
    """Puts messages into one store, one at a time."""

    def __init__(
        self, kernel: ModuleType, context: WriteContext, putter: MessagePutter, writer: StoreWriter
    ) -> None:
        self._putter, self._writer = putter, writer
        self._lock, self._flusher, self._flags = context.lock, writer.flusher, writer.running_flags
        self._log, self._queues, self._index = context.log, context.queues, context.derived.index
        self._tail = context.tail
        shortest, _, largest = record_lengths(context.config)
        counts = kernel.PutCounts([end for end in PUT_TIME_CLASSES.values() if end is not None])
        writer.stats.counted_by(counts)
        clock = context.clock
        table, has_index = putter.topic_queue_table, self._index is not None
        self._kernel = kernel.SingleAppender(
            shortest_properties=shortest,
            largest_record=largest,
            indexes_tags=putter.indexes_tags,
            classes=(MessageExtBrokerInner, PlainMessage),
            parts=_Parts(context.log, context.tail, table, context.derived, has_index),
            answers=_Answers(partial(object.__new__, PutMessageResult), PutMessageStatus.PUT_OK),
            clock=None if clock is system_clock else clock,
            counts=counts,
        )
        self._kernel_put = self._kernel.put
        #: The store's form, once it is known to be one that the kernel writes.
        self._form: RecordForm | None = None
        self._reserved = (-1, -1)
        #: The index file of the last put.
        self._index_file: IndexFileWriter | None = None

    def put_message(self, message: MessageExtBrokerInner, flush: bool) -> PutMessageResult:
        """``MessageStore.put_message``: in one call if nothing is unusual about the message and its
        place."""
        writer, putter = self._writer, self._putter
        # A call in Python costs as much as storing the unit, so there is none before the kernel's.
        # With services running, they must be woken, so such puts go elsewhere. The conditions
        # cover what ``check_store_status`` checks; a slave has no OneCallPutter.
        if (
            self._flusher.has_services
            or self._flags.flag_bits is not NO_FLAG
            or putter.begin_time_in_lock
            or (putter.form is not self._form and not self._knows_form())
            or type(message) is not MessageExtBrokerInner
        ):
            return writer.put_message(message, flush)
        waits = flush or writer.replica is not None
        begin = perf_counter() if waits else 0.0
        log, tail, queues, index = self._log, self._tail, self._queues, self._index
        answer, steps = None, 0
        with self._lock:
            while not writer.is_shutdown:
                newest = None if index is None else index.newest
                answer = self._kernel_put(
                    message.topic,
                    message.body,
                    message.queue_id,
                    message.flag,
                    message.sys_flag,
                    message.properties,
                    message.properties_bytes,
                    message.born_timestamp,
                    message.born_host,
                    message.store_host,
                    message.reconsume_times,
                    message.prepared_transaction_offset,
                    log.write_offset,
                    tail.failed,
                    queues.generation,
                    None if newest is None else newest.live,
                    waits,
                )
                if type(answer) is not int:
                    break
                stop, answer, steps = answer, None, steps + 1
                if steps > _MOST_STEPS or not self._prepare(message, stop):
                    break
        if answer is None:
            return writer.put_message(message, flush)
        result: PutMessageResult = answer
        if waits:
            writer.end_put(message, result, flush, begin)
        return result

    def _knows_form(self) -> bool:
        """Whether the kernel writes records in the store's form, after that has changed."""
        if self._putter.has_plain_form:
            self._form = self._putter.form
        return self._putter.form is self._form

    def _prepare(self, message: MessageExtBrokerInner, stop: int) -> bool:
        """Prepares what the kernel stopped for. False: it cannot be had here."""
        with self._lock, self._putter.alone, self._putter:
            if stop == Stop.QUEUE:
                return self._admit((message.topic, message.queue_id))
            if stop == Stop.ROOM:
                return self._open_log()
            return stop == Stop.INDEX and self._open_index()

    def _admit(self, key: tuple[str, int]) -> bool:
        queue_offset = self._putter.topic_queue_table.get(key)
        if queue_offset is None or self._putter.reserve_units(key, queue_offset) <= queue_offset:
            return False
        queue = self._queues.find_or_create(*key)
        place = queue_offset * UNIT_SIZE
        mapped = queue.files.find(place)
        if mapped is None or queue.ext is not None or queue.max_offset != queue_offset:
            return False
        position = place - mapped.file_from_offset
        units = (mapped.room_behind(position) - position) // UNIT_SIZE
        first = mapped.file_from_offset // UNIT_SIZE
        held = queue, mapped, mapped.dirty, mapped.buffer
        self._kernel.admit(*key, *held, first, queue_offset + units)
        return units > 0

    def _open_log(self) -> bool:
        start = self._log.write_offset
        mapped = self._log.files.find(start)
        if mapped is None:
            return False
        base = mapped.file_from_offset
        end = base + room_of(mapped.size)
        goes_on = self._reserved[0] >= 0
        reserved = base, min(reserve_room(mapped, start, 0, goes_on=goes_on), end) - base
        if reserved == self._reserved or reserved[1] < start - base:
            # The next record does not fit, or there is no space.
            return False
        self._reserved = reserved
        self._kernel.set_log(mapped.buffer, *reserved)
        return True

    def _open_index(self) -> bool:
        file = None if self._index is None else self._index.last()
        if file is None or file.is_full:
            return False
        geometry, header, mapped = file.geometry, file.header, file.mapped
        goes_on, self._index_file = file is self._index_file, file
        limit = file.room_for(_ITEMS_AHEAD if goes_on else _FIRST_ITEMS)
        if goes_on:
            # Slots are hit in random order, so after some puts most of their pages are used.
            mapped.touch(0, geometry.item_position(limit))
        file.live = self._kernel.set_index(
            mapped,
            mapped.dirty,
            mapped.buffer,
            geometry.slot_position(0),
            geometry.hash_slot_num,
            geometry.item_position(0),
            limit,
            header,
        )
        return limit > header.index_count
