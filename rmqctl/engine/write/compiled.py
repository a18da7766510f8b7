"""The append of a stream by the compiled kernel: what lines and messages have in common.

The kernel makes records and stores them into the log, many in one call, and makes of each what
dispatch does: so nothing has to be read back. It takes only what it is sure of: whatever is
special about a message, a field, a line or the room for it goes the way of
:mod:`rmqctl.engine.write.bulk`, one message at a time, and that one decides about errors too. So
the answers, and all bytes, are the same with and without a kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import IntEnum
from types import ModuleType
from typing import TYPE_CHECKING, Any

from formats.constants import CQ_STORE_UNIT_SIZE
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
#: Messages of a queue in one bulk, of which the next bulk will have as many.
_MANY = 64
#: Bytes of log that disk space is asked for at once.
_RESERVE = 4 << 20
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
        #: How many messages of this bulk went to each queue.
        self._counts: Counter[tuple[str, int]] = Counter()

    def _begin(self, stored: Stored) -> None:
        """A bulk begins where nothing is stored of it. The queues of most of the one before are
        let in at once: at each that the kernel has to ask for it stops all that it does."""
        if not stored:
            self._limits.clear()
            self._forget()
            before, self._counts = self._counts, Counter()
            for key, count in before.items():
                if count >= _MANY and not self._putter.queues.is_crowded:
                    self._expect(key, count + count // 8)

    def _expect(self, key: tuple[str, int], count: int) -> None:
        """Lets the kernel store so many messages into a queue, as far as its units have disk space
        in its last file; where they have none it asks for it itself."""
        queue_offset = self._putter.topic_queue_table.get(key)
        if queue_offset is None:
            return
        in_file = self._putter.queues.file_size // CQ_STORE_UNIT_SIZE
        limit, end = queue_offset, queue_offset + count
        while limit < end and (limit == queue_offset or limit % in_file):
            before, limit = limit, self._putter.reserve_units(key, limit)
            if limit == before:
                break
        if limit > queue_offset:
            self._limits[key] = limit
            self._kernel.admit(*key, queue_offset, limit)
            self._queues.append(key)

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
        for queue, total in zip(of_queues, totals, strict=True):
            key = queue.topic, queue.queue_id
            table[key] = queue.next_queue_offset
            self._counts[key] += total[1]
        stored.add(run)

    def _can_go_on(self, place: Place, stop: int, needed: int) -> bool:
        """Does what the kernel needs to take the message at which it stopped; False where that one
        is for a single put, or for the next bulk."""
        if stop == Stop.QUEUE:
            return self._admit()
        if stop != Stop.ROOM or needed > place.end:
            return False
        start = place.base + place.position
        size = needed - place.position
        ahead = min(max(size, _RESERVE), place.end - place.position)
        # A disk that has not so much left may have enough.
        reserved = reserve_room(place.mapped, start, ahead) or reserve_room(
            place.mapped, start, size
        )
        # Behind the last record there is a blank's place.
        place.reserved = max(min(reserved - place.base, place.end), place.position)
        return bool(reserved)

    def _admit(self) -> bool:
        """Lets the kernel store into the queue that it asks for; False where a single put has to
        make it, or finds no disk space for its units, or is to end the bulk."""
        topic, queue_id, next_offset = self._kernel.wanted()
        key = topic, queue_id
        # Of a queue that the kernel knows the table is not told before all is taken.
        known = self._putter.topic_queue_table.get(key)
        queue_offset = known if next_offset is None else next_offset
        if queue_offset is None:
            return False
        if queue_offset >= self._limits.get(key, 0):
            if self._putter.queues.is_crowded:
                return False
            self._limits[key] = self._putter.reserve_units(key, queue_offset)
            if queue_offset >= self._limits[key]:
                return False
        number = self._kernel.admit(*key, queue_offset, self._limits[key])
        if number == len(self._queues):
            self._queues.append(key)
        return True


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
