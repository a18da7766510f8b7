"""The append of a stream that comes as lines of NDJSON: most of them by the compiled kernel.

The kernel makes records of lines right in the map of the log, many in one call. It takes only what
it is sure of: whatever is special about a message, a field, a line or the room for it goes the way
of :mod:`rmqctl.engine.write.bulk`, one message at a time, and that one decides about errors too. So
the answers, and all bytes, are the same with and without a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.record.message import LOCALHOST, Host
from rmqctl.engine.write.appended import Run, Stored
from rmqctl.engine.write.bulk import (
    STOP_FOR_ROOM,
    BulkAppender,
    Message,
    record_lengths,
    reserve_room,
)
from rmqctl.kernel import module as compiled

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.engine.write.put import MessagePutter

#: What a bulk has at most: it takes no longer than a smaller one without the kernel.
_BULK_RECORDS, _BULK_BYTES = 1 << 15, 16 << 20
#: Why the kernel stopped, where something can be done (``Stop`` in src/append.rs).
_LINES, _QUEUE = 0, 2


class Lines:
    """Messages as lines, a block of bytes at a time; iterating gives them as messages, one by one.

    ``block`` is the one at hand, of whole lines, and ``at`` where its next line begins; both sides
    move that. A message that says no more comes from 127.0.0.1:0 and was stored by ``store_host``;
    ``clock`` says when it was born (ms).
    """

    block = b""
    at = 0
    store_host: Host
    clock: Callable[[], int]

    def has_lines(self) -> bool:
        """Whether there is a line at hand; reads the next block when this one is used up. What else
        that brings (a pause, the end, an error) comes with the next message."""
        raise NotImplementedError

    def taken(self, at: int, lines: int) -> None:
        """So many lines were taken as they are, up to this place."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Message | None]:
        raise NotImplementedError


def appender_of(putter: MessagePutter, messages: Iterable[Message | None]) -> BulkAppender:
    """Who appends a stream: the kernel, where it is there and can."""
    if isinstance(messages, Lines):
        kernel = compiled()
        if kernel is not None:
            return LineAppender(putter, messages, kernel)
    return BulkAppender(putter, iter(messages))


class LineAppender(BulkAppender):
    """:class:`BulkAppender` for lines, with the kernel."""

    def __init__(self, putter: MessagePutter, lines: Lines, kernel: ModuleType) -> None:
        super().__init__(putter, iter(lines))
        self._lines = lines
        self._most_records, self._most_bytes = _BULK_RECORDS, _BULK_BYTES
        shortest, _, largest = record_lengths(putter.config)
        self._kernel = kernel.LineAppender(
            born_host=_host(LOCALHOST),
            store_host=_host(lines.store_host),
            shortest_properties=shortest,
            largest_record=largest,
        )
        #: The queues that the kernel knows now, by their numbers.
        self._queues: list[tuple[str, int]] = []
        #: Those of this bulk, with the queue offsets before which their units have disk space.
        self._limits: dict[tuple[str, int], int] = {}
        self._is_peeked = False
        #: Messages that are taken one by one before the kernel is asked again.
        self._careful = 1

    def wait(self) -> bool:
        if not self._is_peeked and self._lines.has_lines():
            return True
        self._is_peeked = self._is_peeked or super().wait()
        return self._is_peeked

    def _fill_plain(self, stored: Stored, limit: int, most: int = _BULK_RECORDS) -> Message | None:
        """As there; lines that the kernel is sure of are stored by it."""
        if not stored:
            self._limits.clear()
            self._forget()
        while not self._pauses and len(stored) < self._most_records:
            if self._can_ask():
                if self._putter.log.write_offset >= limit:
                    break
                before = len(stored)
                self._take_lines(stored, limit)
                self._careful = 1 if len(stored) > before else min(2 * self._careful, most)
                if len(stored) >= self._most_records or self._putter.log.write_offset >= limit:
                    break
            self._is_peeked = False
            self._forget()
            special = super()._fill_plain(stored, limit, self._careful)
            if special is not None:
                return special
        return None

    def _can_ask(self) -> bool:
        """Whether the next message may be one of the kernel's. What is special about the store, and
        not about a message, is for a single put."""
        putter = self._putter
        is_usual = putter.has_plain_form and not putter.tail.failed
        is_usual = is_usual and putter.log.write_offset >= putter.log.stale_end
        return is_usual and not self._is_peeked and self._lines.has_lines()

    def _forget(self) -> None:
        """The kernel's queue offsets are not those of the table any more."""
        if self._queues:
            self._kernel.forget()
            self._queues = []

    def _take_lines(self, stored: Stored, limit: int) -> None:
        """Stores lines until there are none for now, the bulk is full, or one needs a closer
        look."""
        mapped, buffer, base, end = self._room()
        if mapped is None:
            return
        log, lines = self._putter.log, self._lines
        reserved = log.write_offset
        while lines.has_lines():
            born, timestamp = lines.clock(), self._putter.clock()
            self._putter.before_append(timestamp)
            position, at, count, stop, needed, columns, totals = self._kernel.append(
                buffer,
                lines.block,
                lines.at,
                position=log.write_offset - base,
                end=reserved - base,
                file_from_offset=base,
                most=self._most_records - len(stored),
                enough=limit - base,
                born_timestamp=born,
                store_timestamp=timestamp,
            )
            lines.taken(at, count)
            if totals:
                host = lines.store_host
                run = Run(self._queues, host, base, timestamp, columns, totals)
                self._advance(run, mapped, position)
                stored.add(run)
            if stop == _LINES or (stop == _QUEUE and self._admit()):
                continue
            if stop == STOP_FOR_ROOM and base + needed <= end:
                reserved = reserve_room(mapped, base + position, needed - position)
                # Behind the last record there is a blank's place.
                reserved = min(reserved, end)
                if reserved:
                    continue
            return

    def _advance(self, run: Run, mapped: MappedFile, position: int) -> None:
        """The log, and the queues' next offsets, behind a run."""
        base = mapped.file_from_offset
        self._putter.log.advance(mapped, position, run.store_timestamp, base + position)
        table = self._putter.topic_queue_table
        for place, messages, _ in run.totals:
            table[self._queues[place]] += messages

    def _admit(self) -> bool:
        """Lets the kernel store into the queue that it asks for; False where a single put has to
        make it, or finds no disk space for its units."""
        key: tuple[str, int] = self._kernel.wanted()
        queue_offset = self._putter.topic_queue_table.get(key)
        if queue_offset is None:
            return False
        if queue_offset >= self._limits.get(key, 0):
            self._limits[key] = self._putter.reserve_units(key, queue_offset)
            if queue_offset >= self._limits[key]:
                return False
        number = self._kernel.admit(*key, queue_offset, self._limits[key])
        if number == len(self._queues):
            self._queues.append(key)
        return True


def _host(host: Host) -> tuple[list[int], int]:
    address, port = host
    return list(address), port
