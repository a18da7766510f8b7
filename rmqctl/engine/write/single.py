"""Puts of single plain messages by the compiled kernel.

It does what :mod:`rmqctl.engine.write.put` and :mod:`rmqctl.engine.derive.catchup` do for a
message, with the same bytes and answers. Special messages go to those two.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.derive.writer import PlainRecord
from rmqctl.engine.record.form import room_of
from rmqctl.engine.record.message import (
    AppendMessageResult,
    MessageExtBrokerInner,
    PutMessageResult,
)
from rmqctl.engine.record.record import offset_msg_id
from rmqctl.engine.record.status import AppendMessageStatus, PutMessageStatus
from rmqctl.engine.write.bulk import reserve_room
from rmqctl.engine.write.compiled import Stop, kernel_appender
from rmqctl.kernel import module as compiled

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.engine.write.batch import BatchPutter
    from rmqctl.engine.write.context import WriteContext
    from rmqctl.engine.write.onecall import OneCallPutter
    from rmqctl.engine.write.put import MessagePutter
    from rmqctl.engine.write.storewriter import StoreWriter


class KernelWays(NamedTuple):
    """The kernel's parts for puts that are not in a stream. A slave puts nothing itself, so it has
    no ``one_call``."""

    quick: QuickPutter
    batches: BatchPutter
    one_call: OneCallPutter | None


def kernel_ways(
    putter: MessagePutter, context: WriteContext, writer: StoreWriter
) -> KernelWays | None:
    """The kernel's parts for a store; None without a kernel."""
    from rmqctl.engine.write.batch import BatchPutter
    from rmqctl.engine.write.onecall import one_call_putter

    kernel = compiled()
    if kernel is None:
        return None
    if context.derived.index is not None:
        context.derived.index.kernel = kernel
    is_slave = context.config.broker_role == "SLAVE"
    return KernelWays(
        QuickPutter(putter, kernel),
        BatchPutter(putter, kernel),
        None if is_slave else one_call_putter(kernel, context, putter, writer),
    )


class QuickPutter:
    """Appends plain messages, one at a time."""

    def __init__(self, putter: MessagePutter, kernel: ModuleType) -> None:
        self._putter = putter
        self._kernel = kernel_appender(putter.config, kernel, indexes_tags=putter.indexes_tags)
        #: By queue: the queue offset before which units have disk space.
        self._limits: dict[tuple[str, int], int] = {}
        #: Physical offset up to which the log has disk space.
        self._reserved = 0

    def append(self, message: MessageExtBrokerInner) -> tuple[PutMessageResult, PlainRecord] | None:
        """Appends a message, with the put lock held. None: nothing was done, because the message is
        not plain, or an ordinary put has to come first."""
        putter, log = self._putter, self._putter.log
        start, key = log.write_offset, (message.topic, message.queue_id)
        queue_offset = putter.topic_queue_table.get(key)
        if queue_offset is None or putter.tail.done != start or putter.tail.failed:
            return None
        mapped = log.files.find(start)
        if mapped is None or start < log.stale_end or not putter.has_plain_form:
            return None
        if queue_offset >= self._limits.get(key, 0) and not self._reserve(key, queue_offset):
            return None
        base = mapped.file_from_offset
        end = base + room_of(mapped.size)
        begin = perf_counter()
        while True:
            # Up to the reserved space, and within this file.
            room = min(max(self._reserved, start), end) - base
            buffer, position = log.buffer_of(mapped), start - base
            answer = self._kernel.put(
                message, buffer, position, room, base, queue_offset, self._now
            )
            if len(answer) == 4:
                break
            stop, needed = answer
            if stop != Stop.ROOM or base + needed > end:
                return None
            self._reserved = reserve_room(mapped, start, needed - position)
            if not self._reserved:
                return None
        size, tags_code, key_hashes, timestamp = answer
        log.advance(mapped, position + size, timestamp, start + size)
        putter.topic_queue_table[key] = queue_offset + 1
        result = AppendMessageResult(
            AppendMessageStatus.PUT_OK,
            start,
            size,
            offset_msg_id(*message.store_host, start),
            timestamp,
            queue_offset,
            int((perf_counter() - begin) * 1000),
        )
        record = PlainRecord(*key, queue_offset, start, size, timestamp, tags_code, key_hashes)
        return PutMessageResult(PutMessageStatus.PUT_OK, result, *key), record

    def _now(self) -> int:
        """The store time (ms) of the next record."""
        timestamp = self._putter.clock()
        self._putter.before_append(timestamp)
        return timestamp

    def _reserve(self, key: tuple[str, int], queue_offset: int) -> bool:
        """Reserves disk space for the next units of a queue; False: there is none."""
        limit = self._putter.reserve_units(key, queue_offset)
        self._limits[key] = limit
        return limit > queue_offset
