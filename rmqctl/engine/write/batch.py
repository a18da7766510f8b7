"""Batches (``MessageExtBatch``): messages for one queue that get one log file, one store time and
one answer.

The compiled kernel makes the records of a whole batch in one call, outside the log. A last store of
eight bytes makes them appear in the log together. The kernel does so if store and messages have
nothing unusual; every other batch goes to :mod:`rmqctl.engine.write.put`, which also refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqctl.engine.index.indexwriter import KeyRun
from rmqctl.engine.log.commitlog import RECORD_HEAD
from rmqctl.engine.record.form import room_of
from rmqctl.engine.record.message import (
    AppendMessageResult,
    PutMessageResult,
)
from rmqctl.engine.record.record import offset_msg_id
from rmqctl.engine.record.status import AppendMessageStatus, PutMessageStatus
from rmqctl.engine.write.appended import OfQueue, Run
from rmqctl.engine.write.bulk import Message, reserve_room
from rmqctl.engine.write.compiled import Stop, kernel_appender

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.engine.files.mappedfile import MappedFile
    from rmqctl.engine.write.put import MessagePutter

#: Bytes of the buffer for records at first.
_FIRST_ROOM = 1 << 16


def batch_result(results: list[PutMessageResult]) -> PutMessageResult:
    """Makes the one answer to a batch from those to its messages: either only the first was
    refused, or all were stored."""
    appends = [result.stored for result in results if result.stored is not None]
    if not appends:
        return results[0]
    whole = replace(
        appends[0],
        wrote_bytes=sum(append.wrote_bytes for append in appends),
        msg_id=",".join(append.msg_id for append in appends),
        msg_num=len(appends),
    )
    return replace(results[0], append=whole)


class BatchPutter:
    """Appends batches of plain messages; the put lock is held."""

    def __init__(self, putter: MessagePutter, kernel: ModuleType) -> None:
        self._putter = putter
        self._kernel = kernel_appender(putter.config, kernel, indexes_tags=putter.indexes_tags)
        self._most = putter.config.max_message_size
        #: The buffer for records, as large as the largest batch so far.
        self._records = bytearray(min(self._most, _FIRST_ROOM))

    def append(self, messages: Sequence[Message]) -> tuple[PutMessageResult, Run] | None:
        """Stores a batch in the log. Returns its answer and the run to dispatch. None: nothing was
        done, because something is unusual."""
        first, log = messages[0], self._putter.log
        if any(one.prepared_transaction_offset for one in messages):
            return None  # In a batch it is stored as 0.
        mapped = self._file()
        if mapped is None:
            return None
        units = self._units((first.topic, first.queue_id), len(messages))
        if units is None:
            return None
        run = self._made(messages, units, log.write_offset, min(self._most, room_of(mapped.size)))
        if run is None:
            return None
        start, size = run.start, run.end - run.start
        position = start - mapped.file_from_offset
        if position + size > room_of(mapped.size) or not reserve_room(mapped, start, size):
            return None
        buffer, head = log.buffer_of(mapped), position + RECORD_HEAD
        records = memoryview(self._records)[:size]
        # The head of the first record is stored last: with it all records appear at once.
        buffer[head : position + size] = records[RECORD_HEAD:]
        buffer[position:head] = records[:RECORD_HEAD]
        log.advance(mapped, position + size, run.store_timestamp, start + size)
        (queue,) = run.of_queues
        self._putter.topic_queue_table[queue.topic, queue.queue_id] = queue.next_queue_offset
        return _answer(run, size), run

    def _file(self) -> MappedFile | None:
        """The file at the log's end; None when an ordinary put has to come first."""
        putter, log = self._putter, self._putter.log
        start = log.write_offset
        is_usual = putter.tail.done == start and not putter.tail.failed and putter.has_plain_form
        return log.files.find(start) if is_usual and start >= log.stale_end else None

    def _units(self, key: tuple[str, int], count: int) -> tuple[int, int] | None:
        """The queue's next offset, and the offset before which its units have disk space. None: the
        queue was not put to yet, or there is no space for ``count`` units."""
        next_offset = limit = self._putter.topic_queue_table.get(key, -1)
        if next_offset < 0:
            return None
        while limit < next_offset + count:
            before, limit = limit, self._putter.reserve_units(key, limit)
            if limit <= before:
                return None
        return next_offset, limit

    def _made(
        self, messages: Sequence[Message], units: tuple[int, int], start: int, most: int
    ) -> Run | None:
        """Makes the records of a batch for physical offset ``start``, in ``_records``. None: one is
        not plain, or they have more than ``most`` bytes."""
        timestamp = self._putter.clock()
        self._putter.before_append(timestamp)
        key, stop, needed = (messages[0].topic, messages[0].queue_id), Stop.ROOM, 0
        while stop == Stop.ROOM and needed <= most:
            if needed > len(self._records):
                self._records = bytearray(min(2 * needed, most))
            self._kernel.forget()
            self._kernel.admit(*key, *units)
            try:
                _, _, stop, needed = self._kernel.append_messages(
                    self._records,
                    iter(messages),
                    None,
                    position=0,
                    end=min(len(self._records), most),
                    file_from_offset=start,
                    most=len(messages) + 1,
                    enough=most + 1,
                    clock=lambda: timestamp,
                )
            finally:
                # Also after an error, so the next batch begins without it.
                columns, totals, keys, host = self._kernel.taken()
        if stop != Stop.END or len(totals) != 1:
            return None
        queue = OfQueue(*key, *totals[0][1:])
        return Run([key], host, start, start, columns, [queue], KeyRun(*keys))


def _answer(run: Run, size: int) -> PutMessageResult:
    (queue,) = run.of_queues
    append = AppendMessageResult(
        AppendMessageStatus.PUT_OK,
        run.start,
        size,
        ",".join(offset_msg_id(*row.store_host, row.wrote_offset) for row in run.rows()),
        run.store_timestamp,
        queue.next_queue_offset - queue.messages,
        msg_num=queue.messages,
    )
    return PutMessageResult(PutMessageStatus.PUT_OK, append, queue.topic, queue.queue_id)
