"""What the append of a stream has stored: one message, and all of a bulk in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, overload

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


#: Bytes of a row of a run: four numbers.
_ROW_BYTES = 4 * 8


class Run(NamedTuple):
    """Messages that the compiled kernel has stored one after the other in a log file.

    ``columns`` are 64-bit numbers of this machine: for each message the place of its queue in
    ``queues``, its position in the file, its size and its queue offset, column by column.
    ``totals`` are the place of a queue, and how many messages and bytes went to it.
    """

    queues: list[tuple[str, int]]
    store_host: Host
    file_from_offset: int
    store_timestamp: int
    columns: bytearray
    totals: list[tuple[int, int, int]]

    def __len__(self) -> int:
        return len(self.columns) // _ROW_BYTES

    def rows(self) -> Iterator[Appended]:
        numbers, count = memoryview(self.columns).cast("q"), len(self)
        columns = [numbers[start : start + count].tolist() for start in range(0, 4 * count, count)]
        host, base, timestamp = self.store_host, self.file_from_offset, self.store_timestamp
        for place, position, size, queue_offset in zip(*columns, strict=True):
            topic, queue_id = self.queues[place]
            yield new_appended(
                (topic, queue_id, host, base + position, size, queue_offset, timestamp)
            )


class Stored(Sequence[Appended]):
    """The messages of a bulk in their order; those of a run are made as they are looked at.

    ``newest`` takes messages that are stored one by one.
    """

    def __init__(self) -> None:
        self.newest: list[Appended] = []
        self._parts: list[list[Appended] | Run] = [self.newest]
        self._before = 0

    def add(self, run: Run) -> None:
        self._before += len(self.newest) + len(run)
        self.newest = []
        self._parts += [run, self.newest]

    def totals(self) -> Iterator[tuple[str, int, int]]:
        """Topics, and how many messages and bytes went to each; a topic may come several times."""
        for part in self._parts:
            if isinstance(part, Run):
                for place, messages, size in part.totals:
                    yield part.queues[place][0], messages, size
            else:
                for row in part:
                    yield row.topic, 1, row.wrote_bytes

    def __len__(self) -> int:
        return self._before + len(self.newest)

    def __iter__(self) -> Iterator[Appended]:
        return chain.from_iterable(
            part.rows() if isinstance(part, Run) else part for part in self._parts
        )

    def __reversed__(self) -> Iterator[Appended]:
        for part in reversed(self._parts):
            yield from reversed([*part.rows()] if isinstance(part, Run) else part)

    @overload
    def __getitem__(self, at: int) -> Appended: ...

    @overload
    def __getitem__(self, at: slice) -> list[Appended]: ...

    def __getitem__(self, at: int | slice) -> Appended | list[Appended]:
        if isinstance(at, slice):
            return list(self)[at]
        number = range(len(self))[at]
        from_end = len(self) - 1 - number
        if from_end < number:
            return next(islice(reversed(self), from_end, None))
        return next(islice(self, number, None))


class Bulk(NamedTuple):
    """What one bulk became: the messages stored, in order, and the answer to the one that was
    refused and ended it."""

    stored: Stored
    refused: PutMessageResult | None
