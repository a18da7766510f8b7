"""Puts of single messages in one call of the compiled kernel, from the message to the answer.

The kernel stores record, unit and index items, and tells log, queue and index file. It does so
where all of it simply goes on: in a store without a transient store pool and without extensions,
whose records end as those of 4.9.3 do and whose log is dispatched, for a plain message to a queue
that has a file, with disk space that was made sure of here. Everything else goes another way
(:mod:`rmqctl.engine.write.single`, a put of its own), with the same bytes and answers.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from formats import constants
from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.record.message import MessageExtBrokerInner, PutMessageResult
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.settings.clock import system_clock
from rmqctl.engine.write.bulk import PlainMessage, record_lengths, reserve_room
from rmqctl.engine.write.compiled import Stop
from rmqctl.engine.write.stats import PUT_TIME_CLASSES, StoreStats

if TYPE_CHECKING:
    from rmqctl.engine.record.form import RecordForm
    from rmqctl.engine.write.context import WriteContext
    from rmqctl.engine.write.put import MessagePutter

#: Items of the index for which disk space is made sure of at once.
_ITEMS_AHEAD = 1 << 13
#: What one message may need, and again at the end of a file.
_MOST_STEPS = 4


class _Parts(NamedTuple):
    """``Parts`` of src/pysingle.rs."""

    log: Any
    tail: Any
    table: Any
    derived: Any
    has_index: bool


class _Answers(NamedTuple):
    """``Answers`` of src/pysingle.rs."""

    new: Any
    put_ok: Any


def one_call_putter(
    kernel: ModuleType, context: WriteContext, putter: MessagePutter, stats: StoreStats
) -> OneCallPutter | None:
    """One for a store; None for one where more is to be done, or whose records end otherwise."""
    if context.config.is_transient_store_pool_enable or context.queues.writes_ext:
        return None
    if not putter.has_plain_form:
        return None
    return OneCallPutter(kernel, context, putter, stats)


class OneCallPutter:
    """Puts messages into one store, one at a time; the put lock is held."""

    def __init__(
        self, kernel: ModuleType, context: WriteContext, putter: MessagePutter, stats: StoreStats
    ) -> None:
        self._putter = putter
        self._log, self._queues, self._index = context.log, context.queues, context.derived.index
        self._tail = context.tail
        shortest, _, largest = record_lengths(context.config)
        counts = kernel.PutCounts([end for end in PUT_TIME_CLASSES.values() if end is not None])
        stats.counted_by(counts)
        clock = context.clock
        table, has_index = putter.topic_queue_table, self._index is not None
        self._kernel = kernel.SingleAppender(
            shortest_properties=shortest,
            largest_record=largest,
            classes=(MessageExtBrokerInner, PlainMessage),
            parts=_Parts(context.log, context.tail, table, context.derived, has_index),
            answers=_Answers(partial(object.__new__, PutMessageResult), PutMessageStatus.PUT_OK),
            clock=None if clock is system_clock else clock,
            counts=counts,
        )
        self._kernel_put = self._kernel.put
        #: The form of which is known that the kernel writes it.
        self._form: RecordForm | None = None
        self._reserved = (-1, -1)

    def put(self, message: MessageExtBrokerInner, waits: bool) -> PutMessageResult | None:
        """Appends and dispatches a message; None: nothing was done, for it, or the place for it, is
        not usual. ``waits``: the put does not end with this."""
        if self._putter.form is not self._form:
            if not self._putter.has_plain_form:
                return None
            self._form = self._putter.form
        answer = self._stored(message, waits)
        if type(answer) is int:
            with self._putter.lock, self._putter.alone, self._putter:
                return self._put_carefully(message, waits, answer)
        result: PutMessageResult = answer
        return result

    def _stored(self, message: MessageExtBrokerInner, waits: bool) -> Any:
        """``SingleAppender.put``."""
        if type(message) is not MessageExtBrokerInner:
            return Stop.UNSURE.value
        index = self._index
        newest = None if index is None else index.newest
        return self._kernel_put(
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
            self._log.write_offset,
            self._tail.failed,
            self._queues.generation,
            None if newest is None else newest.live,
            waits,
        )

    def _put_carefully(
        self, message: MessageExtBrokerInner, waits: bool, stop: int
    ) -> PutMessageResult | None:
        for _ in range(_MOST_STEPS):
            if not self._prepare(message, stop):
                return None
            answer = self._stored(message, waits)
            if type(answer) is not int:
                result: PutMessageResult = answer
                return result
            stop = answer
        return None

    def _prepare(self, message: MessageExtBrokerInner, stop: int) -> bool:
        """Whether there is now what the kernel stopped for."""
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
        end = base + mapped.size - constants.END_FILE_MIN_BLANK_LENGTH
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
        limit = file.room_for(_ITEMS_AHEAD)
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
