"""What the append of a stream has stored: one message, and all of a bulk in their order."""

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
    """One message that was stored; topic and queue are as stored, which a delay changes."""

    topic: str
    queue_id: int
    store_host: Host
    wrote_offset: int
    wrote_bytes: int
    queue_offset: int
    store_timestamp: int

    def result(self) -> PutMessageResult:
        """As a single put answers."""
        append = AppendMessageResult(
            AppendMessageStatus.PUT_OK,
            self.wrote_offset,
            self.wrote_bytes,
            offset_msg_id(*self.store_host, self.wrote_offset),
            self.store_timestamp,
            self.queue_offset,
        )
        return PutMessageResult(PutMessageStatus.PUT_OK, append, self.topic, self.queue_id)


#: ``Appended._make`` without its look at the length.
new_appended = partial(tuple.__new__, Appended)


#: Columns of a run, of eight bytes a row.
_COLUMNS = 5


class OfQueue(NamedTuple):
    """What of a run went to one queue: how many messages, the bytes of their records, the queue's
    next offset, the physical offset of the first record, and the units as they are stored."""

    topic: str
    queue_id: int
    messages: int
    size: int
    next_queue_offset: int
    physical_offset: int
    units: bytes


class Run(NamedTuple):
    """Messages that the compiled kernel has stored one after the other in a log file, from the
    physical offset ``start`` on.

    ``columns`` are 64-bit numbers of this machine: for each message the place of its queue in
    ``queues``, its position in the file, its size, its queue offset and its store time (ms), column
    by column.
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
        """That of the last message."""
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
        """What dispatch makes of the messages."""
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
    """The messages of a bulk in their order; those of a run are made as they are looked at.

    ``newest`` takes messages that are stored one by one.
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
        """What dispatch makes of the runs."""
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
        # One of those who ask for single ones wants the first, the other the last.
        if number >= self._before:
            return self.newest[number - self._before]
        for part in self._parts:
            count = part.messages if isinstance(part, Run) else len(part)
            if number < count:
                return part.row(number) if isinstance(part, Run) else part[number]
            number -= count
        raise IndexError(at)


class Results(Sequence[PutMessageResult]):
    """The answers to the messages of a bulk, as a single put gives them; made as they are looked
    at."""

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
    """What one bulk became: the messages stored, in order, and the answer to the one that was
    refused and ended it; ``logged`` are those that the log has, though the answer is theirs."""

    stored: Stored
    refused: PutMessageResult | None
    logged: int = 0
