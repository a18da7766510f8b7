"""The messages that the append of a stream has stored: one message, a run, all of a bulk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, overload

from rmqctl.engine.derive.writer import PlainRun, UnitRun
from rmqctl.engine.index.indexwriter import KeyRun
from rmqctl.engine.record.message import AppendMessageResult, Host, PutMessageResult
from rmqctl.engine.record.record import offset_msg_id
from rmqctl.engine.record.status import AppendMessageStatus, PutMessageStatus


class Appended(NamedTuple):
    """One stored message. Topic and queue are the stored ones, which a delay changes."""

    topic: str
    queue_id: int
    store_host: Host
    wrote_offset: int
    wrote_bytes: int
    queue_offset: int
    store_timestamp: int

    def result(self) -> PutMessageResult:
        """The answer that a single put would give."""
        append = AppendMessageResult(
            AppendMessageStatus.PUT_OK,
            self.wrote_offset,
            self.wrote_bytes,
            offset_msg_id(*self.store_host, self.wrote_offset),
            self.store_timestamp,
            self.queue_offset,
        )
        return PutMessageResult(PutMessageStatus.PUT_OK, append, self.topic, self.queue_id)


#: ``Appended._make`` without its check of the length.
new_appended = partial(tuple.__new__, Appended)


#: Columns of a run, each with eight bytes per row.
_COLUMNS = 5


class OfQueue(NamedTuple):
    """The messages of a run that went to one queue.

    ``size`` is the bytes of their records, ``physical_offset`` the place of the first record, and
    ``units`` are their units as stored.
    """

    topic: str
    queue_id: int
    messages: int
    size: int
    next_queue_offset: int
    physical_offset: int
    units: bytes


class Run(NamedTuple):
    """Messages that the compiled kernel has stored one behind the other in one log file, from
    physical offset ``start`` on.

    ``columns`` are native 64-bit numbers, column by column. For each message they have the index of
    its queue in ``queues``, its position in the file, its size in bytes, its queue offset and its
    store time (ms).
    """

    queues: list[tuple[str, int]]
    store_host: Host
    file_from_offset: int
    start: int
    columns: bytearray
    of_queues: list[OfQueue]
    keys: KeyRun

    @property
    def _columns(self) -> list[memoryview]:
        numbers, count = memoryview(self.columns).cast("q"), self.messages
        return [numbers[column * count : (column + 1) * count] for column in range(_COLUMNS)]

    @property
    def messages(self) -> int:
        """How many messages there are."""
        return len(self.columns) // (8 * _COLUMNS)

    @property
    def end(self) -> int:
        """The physical offset behind the last record."""
        _, position, size, *_ = self._columns
        return self.file_from_offset + position[-1] + size[-1]

    @property
    def store_timestamp(self) -> int:
        """Store time (ms) of the last message."""
        return int(memoryview(self.columns).cast("q")[-1])

    def row(self, number: int) -> Appended:
        return self._row(tuple(column[number] for column in self._columns))

    def rows(self) -> Iterator[Appended]:
        return map(self._row, zip(*(column.tolist() for column in self._columns), strict=True))

    def _row(self, numbers: tuple[int, ...]) -> Appended:
        place, position, size, queue_offset, timestamp = numbers
        topic, queue_id = self.queues[place]
        offset = self.file_from_offset + position
        row = (topic, queue_id, self.store_host, offset, size, queue_offset, timestamp)
        return new_appended(row)

    def derived(self) -> PlainRun:
        """What dispatch writes for the messages."""
        last = int(self._columns[1][-1]) + self.file_from_offset
        units = [
            UnitRun(
                queue.topic,
                queue.queue_id,
                queue.next_queue_offset - queue.messages,
                queue.physical_offset,
                queue.units,
            )
            for queue in self.of_queues
        ]
        return PlainRun(self.start, self.end, last, self.store_timestamp, units, self.keys)


class Stored(Sequence[Appended]):
    """The messages of a bulk, in order. The rows of a run are made when they are read.

    Messages that are stored one by one are added to ``newest``.
    """

    def __init__(self) -> None:
        self.newest: list[Appended] = []
        self._parts: list[list[Appended] | Run] = [self.newest]
        self._before = 0

    def add(self, run: Run) -> None:
        self._before += len(self.newest) + run.messages
        self.newest = []
        self._parts += [run, self.newest]

    def totals(self) -> Iterator[tuple[str, int, int]]:
        """Topics, and how many messages and bytes went to each; a topic may come several times."""
        for part in self._parts:
            if isinstance(part, Run):
                for queue in part.of_queues:
                    yield queue.topic, queue.messages, queue.size
            else:
                for row in part:
                    yield row.topic, 1, row.wrote_bytes

    def derived(self) -> list[PlainRun]:
        """What dispatch writes for the runs."""
        return [part.derived() for part in self._parts if isinstance(part, Run)]

    def __len__(self) -> int:
        return self._before + len(self.newest)

    def __iter__(self) -> Iterator[Appended]:
        return chain.from_iterable(
            part.rows() if isinstance(part, Run) else part for part in self._parts
        )

    @overload
    def __getitem__(self, at: int) -> Appended: ...

    @overload
    def __getitem__(self, at: slice) -> list[Appended]: ...

    def __getitem__(self, at: int | slice) -> Appended | list[Appended]:
        if isinstance(at, slice):
            return list(self)[at]
        number = range(len(self))[at]
        # Callers that read single messages want the first or the last.
        if number >= self._before:
            return self.newest[number - self._before]
        for part in self._parts:
            count = part.messages if isinstance(part, Run) else len(part)
            if number < count:
                return part.row(number) if isinstance(part, Run) else part[number]
            number -= count
        raise IndexError(at)


class Results(Sequence[PutMessageResult]):
    """The answers to the messages of a bulk, as single puts would give them. Each is made when it
    is read."""

    def __init__(self, bulk: Bulk) -> None:
        self._bulk = bulk

    def __len__(self) -> int:
        return len(self._bulk.stored) + (self._bulk.refused is not None)

    def __iter__(self) -> Iterator[PutMessageResult]:
        for appended in self._bulk.stored:
            yield appended.result()
        if self._bulk.refused is not None:
            yield self._bulk.refused

    @overload
    def __getitem__(self, at: int) -> PutMessageResult: ...

    @overload
    def __getitem__(self, at: slice) -> list[PutMessageResult]: ...

    def __getitem__(self, at: int | slice) -> PutMessageResult | list[PutMessageResult]:
        if isinstance(at, slice):
            return list(self)[at]
        number, stored = range(len(self))[at], self._bulk.stored
        if number < len(stored):
            return stored[number].result()
        assert self._bulk.refused is not None
        return self._bulk.refused


class Bulk(NamedTuple):
    """The outcome of one bulk: the stored messages, in order, and the answer to a refused message
    that ended it.

    ``logged`` is how many messages the log has although ``refused`` is the answer to all of them.
    """

    stored: Stored
    refused: PutMessageResult | None
    logged: int = 0
