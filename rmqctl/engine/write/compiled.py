"""The append of a stream by the compiled kernel: what lines and messages have in common.

The kernel makes records and stores them into the log, many in one call, and makes of each what
dispatch does: so nothing has to be read back. It takes only what it is sure of: whatever is
special about a message, a field, a line or the room for it goes the way of
:mod:`rmqctl.engine.write.bulk`, one message at a time, and that one decides about errors too. So
the answers, and all bytes, are the same with and without a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.index.indexwriter import KeyRun
from rmqctl.engine.record.message import LOCALHOST, Host, MessageExtBrokerInner
from rmqctl.engine.write.appended import OfQueue, Run, Stored
from rmqctl.engine.write.bulk import (
    BulkAppender,
    Message,
    PlainMessage,
    record_lengths,
    reserve_room,
)
from rmqctl.kernel import module as compiled

if TYPE_CHECKING:
    from rmqctl.engine.write.put import MessagePutter

#: What a bulk has at most: it takes no longer than a smaller one without the kernel.
_BULK_RECORDS, _BULK_BYTES = 1 << 15, 16 << 20
#: Bytes of log that disk space is asked for at once.
_RESERVE = 4 << 20
#: Bytes of records that are made and wait to be stored, of small ones at most (MOST_CHUNKS and
#: CHUNK_BYTES in src/put/behind.rs, and what both threads have at hand).
_IN_FLIGHT = 2 << 20
#: A host as the kernel takes it.
KernelHost = tuple[list[int], int]


class Stop(IntEnum):
    """Why the kernel took no further message (``Stop`` in src/put/append.rs)."""

    END = 0
    UNSURE = 1
    QUEUE = 2
    ROOM = 3
    FULL = 4
    HOST = 5
    FAILED = 6
    INDEX = 7


def appender_of(putter: MessagePutter, messages: Iterable[Message | None]) -> BulkAppender:
    """Who appends a stream: the kernel, where there is one."""
    from rmqctl.engine.write.lines import LineAppender, Lines
    from rmqctl.engine.write.messages import MessageAppender

    kernel = compiled()
    if kernel is None:
        return BulkAppender(putter, iter(messages))
    if isinstance(messages, Lines):
        return LineAppender(putter, messages, kernel)
    return MessageAppender(putter, iter(messages), kernel)


class Place:
    """The file at the log's end: its buffer, its descriptor where that is its map (else -1), the
    physical offset at which it begins, and positions in it: where the next record goes, up to where
    there is disk space, and before which records end."""

    def __init__(self, mapped: MappedFile, buffer: Any, base: int, end: int, start: int) -> None:
        self.mapped, self.buffer, self.base = mapped, buffer, base
        self.descriptor = mapped.descriptor if buffer is mapped.buffer else -1
        self.position = self.reserved = start - base
        self.end = end - base


class CompiledAppender(BulkAppender):
    """:class:`BulkAppender` with the kernel."""

    def __init__(
        self,
        putter: MessagePutter,
        source: Iterator[Message | None],
        kernel: ModuleType,
        hosts: tuple[KernelHost, KernelHost] | None = None,
    ) -> None:
        """:param hosts: born and store host of lines."""
        super().__init__(putter, source)
        self._most_records, self._most_bytes = _BULK_RECORDS, _BULK_BYTES
        self._kernel = kernel_appender(putter, kernel, hosts)
        #: The queues that the kernel knows now, by their numbers.
        self._queues: list[tuple[str, int]] = []
        #: Those of this bulk, with the queue offsets before which their units have disk space.
        self._limits: dict[tuple[str, int], int] = {}

    def _begin(self, stored: Stored) -> None:
        """A bulk begins where nothing is stored of it."""
        if not stored:
            self._limits.clear()
            self._forget()

    @property
    def _is_usual(self) -> bool:
        """Whether the next message may be one of the kernel's. What is special about the store, and
        not about a message, is for a single put."""
        putter = self._putter
        is_usual = putter.has_plain_form and not putter.tail.failed
        return is_usual and putter.log.write_offset >= putter.log.stale_end

    def _forget(self) -> None:
        """The kernel's queue offsets are not those of the table any more."""
        if self._queues:
            self._kernel.forget()
            self._queues = []

    def _place(self) -> Place | None:
        """Where the next records go; None where a single put makes that file."""
        mapped, buffer, base, end = self._room()
        if mapped is None:
            return None
        return Place(mapped, buffer, base, end, self._putter.log.write_offset)

    def _take(self, stored: Stored, place: Place, host: Host = LOCALHOST) -> None:
        """What the kernel has stored since it was taken last: the log, and the queues' next
        offsets, are behind it. :param host: the store host of lines."""
        columns, totals, keys, said = self._kernel.taken()
        if not totals:
            return
        log, table = self._putter.log, self._putter.topic_queue_table
        of_queues = [OfQueue(*self._queues[total[0]], *total[1:]) for total in totals]
        host, of_keys = said or host, KeyRun(*keys)
        run = Run(self._queues, host, place.base, log.write_offset, columns, of_queues, of_keys)
        log.advance(place.mapped, run.end - place.base, run.store_timestamp, run.end)
        for queue in of_queues:
            table[queue.topic, queue.queue_id] = queue.next_queue_offset
        stored.add(run)

    def _reserve(self, place: Place, position: int, end: int) -> int | None:
        """Where the kernel may store up to, of which the next record lies between two positions;
        None where that one is for a single put, or for the next bulk. Others store meanwhile."""
        if end > place.end:
            return None
        ahead = min(max(end - position, _RESERVE), place.end - position)
        reserved = 0
        for size in (ahead, end - position):  # A disk that has not so much left may have enough.
            reserved = reserved or reserve_room(
                place.mapped, place.base + position, size, in_flight=_IN_FLIGHT
            )
        if not reserved:
            return None
        # Behind the last record there is a blank's place.
        place.reserved = max(min(reserved - place.base, place.end), position)
        return place.reserved

    def _admit(self, topic: str, queue_id: int, next_offset: int | None) -> tuple[int, int] | None:
        """Lets the kernel store into a queue, from its next queue offset up to the one before which
        its units have disk space; None where a single put has to make it, or finds no disk space,
        or is to end the bulk. Others store meanwhile.

        :param next_offset: of a queue that the kernel knows; the table is not told before all is
            taken.
        """
        key = topic, queue_id
        is_new = next_offset is None
        queue_offset = self._putter.topic_queue_table.get(key) if is_new else next_offset
        if queue_offset is None:
            return None
        if queue_offset >= self._limits.get(key, 0):
            if self._putter.queues.is_crowded:
                return None
            self._limits[key] = self._putter.reserve_units(key, queue_offset)
            if queue_offset >= self._limits[key]:
                return None
        if is_new:
            self._queues.append(key)
        return queue_offset, self._limits[key]


def kernel_appender(
    putter: MessagePutter, kernel: ModuleType, hosts: tuple[KernelHost, KernelHost] | None = None
) -> Any:
    """The kernel's part of an append to a store."""
    born, store = hosts or (kernel_host(LOCALHOST),) * 2
    shortest, _, largest = record_lengths(putter.config)
    return kernel.Appender(
        born_host=born,
        store_host=store,
        shortest_properties=shortest,
        largest_record=largest,
        classes=(MessageExtBrokerInner, PlainMessage),
    )


def kernel_host(host: Host) -> KernelHost:
    address, port = host
    return list(address), port
