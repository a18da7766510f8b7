"""The append of a stream by the compiled kernel, and its dry run: which class does it, and the
common part of appends for lines and messages.

The kernel makes many records in one call and stores them into the log. It also makes their units
and index keys, so dispatch reads nothing back. It takes only messages that it is sure of. If a
message, a field, a line or the room for it is special, :mod:`rmqctl.engine.write.bulk` appends that
one message and decides about errors. So answers and bytes are the same with and without a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.index.indexwriter import KeyRun
from rmqctl.engine.record.message import MessageExtBrokerInner
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
    from rmqctl.engine.record.form import RecordForm
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.engine.write.drylines import DryLines
    from rmqctl.engine.write.lines import LineDefaults, Lines
    from rmqctl.engine.write.put import MessagePutter

#: Most records and bytes of a bulk. It takes no longer than a smaller one without the kernel.
_BULK_RECORDS, _BULK_BYTES = 1 << 15, 16 << 20
#: Bytes of log for which disk space is reserved at once.
_RESERVE = 4 << 20
#: Most bytes of small records that the kernel has made but not stored yet (MOST_CHUNKS and
#: CHUNK_BYTES in src/put/behind.rs, and one chunk in each of both threads).
_IN_FLIGHT = 2 << 20


class Stop(IntEnum):
    """Why the kernel took no further message (``Stop`` in src/put/maker.rs)."""

    END = 0
    UNSURE = 1
    QUEUE = 2
    ROOM = 3
    FULL = 4
    HOST = 5
    FAILED = 6
    INDEX = 7


def appender_of(putter: MessagePutter, messages: Iterable[Message | None]) -> BulkAppender:
    """The appender of a stream: the kernel's if there is one."""
    from rmqctl.engine.write.lines import LineAppender, Lines
    from rmqctl.engine.write.messages import MessageAppender

    kernel = compiled()
    if kernel is None:
        return BulkAppender(putter, iter(messages))
    if isinstance(messages, Lines):
        return LineAppender(putter, messages, kernel)
    return MessageAppender(putter, iter(messages), kernel)


def dry_lines(
    config: MessageStoreConfig, file_size: int, form: RecordForm, lines: Lines
) -> DryLines | None:
    """A dry run of lines. None: all must be checked, because there is no kernel, or it makes no
    records of this form.

    :param file_size: bytes of a log file.
    """
    from rmqctl.engine.write.drylines import DryLines

    kernel = compiled()
    return DryLines(config, file_size, lines, kernel) if kernel and form.is_plain else None


class Place:
    """The place of the next records, in the file at the log's end.

    ``base`` is the physical offset of the file's start. ``position`` is where the next record goes,
    ``reserved`` the end of the disk space, and ``end`` the end of the room for records: positions
    in the file. ``descriptor`` is -1 if ``buffer`` is not the file's map.
    """

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
        defaults: LineDefaults | None = None,
    ) -> None:
        """:param defaults: those of lines, if it is lines that are appended."""
        super().__init__(putter, source)
        self._most_records, self._most_bytes = _BULK_RECORDS, _BULK_BYTES
        self._kernel = kernel_appender(
            putter.config, kernel, defaults, indexes_tags=putter.indexes_tags
        )
        #: The queues that the kernel knows now, by their numbers.
        self._queues: list[tuple[str, int]] = []
        #: By queue: the queue offset before which units have disk space. Kept from bulk to bulk:
        #: with more queues than stay open, each question opens a queue's file.
        self._limits: dict[tuple[str, int], int] = {}

    def _begin(self, stored: Stored) -> None:
        """Begins a new bulk if nothing of it is stored yet."""
        if not stored:
            self._forget()

    @property
    def _is_usual(self) -> bool:
        """Whether the kernel may take the next message. If the store itself is in a special state,
        a single put comes first."""
        putter = self._putter
        is_usual = putter.has_plain_form and not putter.tail.failed
        return is_usual and putter.log.write_offset >= putter.log.stale_end

    def _forget(self) -> None:
        """Makes the kernel forget its queue offsets: the table's may be others now."""
        if self._queues:
            self._kernel.forget()
            self._queues = []

    def _place(self) -> Place | None:
        """The place of the next records; None when a single put has to make the file."""
        mapped, buffer, base, end = self._room()
        if mapped is None:
            return None
        return Place(mapped, buffer, base, end, self._putter.log.write_offset)

    def _take(self, stored: Stored, place: Place) -> None:
        """Takes over what the kernel has stored since the last call, messages of one store host:
        moves the log's end and the queues' next offsets."""
        columns, totals, keys, host = self._kernel.taken()
        if not totals:
            return
        log, table = self._putter.log, self._putter.topic_queue_table
        of_queues = [OfQueue(*self._queues[total[0]], *total[1:]) for total in totals]
        of_keys = KeyRun(*keys)
        run = Run(self._queues, host, place.base, log.write_offset, columns, of_queues, of_keys)
        log.advance(place.mapped, run.end - place.base, run.store_timestamp, run.end)
        for queue in of_queues:
            table[queue.topic, queue.queue_id] = queue.next_queue_offset
        stored.add(run)

    def _reserve(self, place: Place, position: int, end: int) -> int | None:
        """The kernel asks for room for its next record, from ``position`` to ``end``. Returns the
        position up to which it may store; None: that record is for a single put, or for the next
        bulk. Another thread of the kernel may be storing meanwhile."""
        if end > place.end:
            return None
        ahead = min(max(end - position, _RESERVE), place.end - position)
        reserved = 0
        for size in (
            ahead,
            end - position,
        ):  # A nearly full disk may still have enough for one record.
            reserved = reserved or reserve_room(
                place.mapped, place.base + position, size, in_flight=_IN_FLIGHT
            )
        if not reserved:
            return None
        # Room for a blank stays behind the last record.
        place.reserved = max(min(reserved - place.base, place.end), position)
        return place.reserved

    def _admit(self, topic: str, queue_id: int, next_offset: int | None) -> tuple[int, int] | None:
        """The kernel asks to store into a queue. Returns its next queue offset, and the one before
        which its units have disk space. None: a single put has to make the queue, there is no disk
        space, or the bulk must end. Another thread of the kernel may be storing meanwhile.

        :param next_offset: the next queue offset, if the kernel knows the queue: the table gets it
            only in :meth:`_take`.
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
    config: MessageStoreConfig,
    kernel: ModuleType,
    defaults: LineDefaults | None = None,
    *,
    indexes_tags: bool = False,
) -> Any:
    """The kernel's part of an append to a store. ``indexes_tags`` as of :class:`Dispatcher`."""
    shortest, _, largest = record_lengths(config)
    return kernel.Appender(
        usual=defaults,
        shortest_properties=shortest,
        largest_record=largest,
        indexes_tags=indexes_tags,
        classes=(MessageExtBrokerInner, PlainMessage),
    )
