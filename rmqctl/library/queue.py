"""``Queue``: a consume queue, and parts of it."""

from __future__ import annotations

from collections.abc import Iterator
from operator import index
from typing import TYPE_CHECKING, overload

from rmqctl.engine.read.batchunits import BatchUnits
from rmqctl.engine.read.bytime import Boundary, Times, bisect, store_times
from rmqctl.engine.record.record import Record
from rmqctl.errors import MessageUnreadable
from rmqctl.library.damage import DamageTeller
from rmqctl.library.message import Message
from rmqctl.library.messages import Messages

if TYPE_CHECKING:
    from rmqctl.engine.queue.batchqueue import BatchUnit
    from rmqctl.engine.queue.consumequeue import ConsumeQueue, Unit
    from rmqctl.library.store import Store

#: How many units are read at once: the first time, and at most.
_LEAST_AT_ONCE, _MOST_AT_ONCE = 8, 1024


def _units(
    queue: ConsumeQueue | BatchUnits, offsets: range
) -> Iterator[tuple[int, Unit | BatchUnit | None]]:
    """The units at queue offsets, in their order; None where there is none. Neighbours are read
    together, twice as many each time, so that the first unit comes at once."""
    if offsets.step not in (1, -1):
        yield from ((queue_offset, queue.unit(queue_offset)) for queue_offset in offsets)
        return
    count = _LEAST_AT_ONCE
    while offsets:
        part, offsets = offsets[:count], offsets[count:]
        low, high = min(part[0], part[-1]), max(part[0], part[-1])
        units: dict[int, Unit | BatchUnit] = dict(queue.units(low, high + 1))
        for queue_offset in part:
            yield queue_offset, units.get(queue_offset)
        count = min(2 * count, _MOST_AT_ONCE)


def _each_once(
    units: Iterator[tuple[int, Unit | BatchUnit | None]],
) -> Iterator[tuple[int, Unit | BatchUnit | None]]:
    """Leaves out each unit that is the same as the one before it."""
    last = None
    for queue_offset, unit in units:
        if unit is None or unit != last:
            yield queue_offset, unit
        last = unit


class QueueMessages(Messages):
    """Messages of a queue by their queue offsets. In a batch queue (5.x) a record may hold several
    messages. It is given once, as one message with the queue offset of its first."""

    def __init__(
        self,
        store: Store,
        topic: str,
        queue_id: int,
        offsets: range | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> None:
        """:param offsets: queue offsets; None: all that the queue has. The other parameters are
        those of :class:`Messages`."""
        super().__init__(store, since, until)
        self._topic = topic
        self._queue_id = queue_id
        self._chosen = offsets

    def _queue(self) -> ConsumeQueue | BatchUnits | None:
        """The engine's queue; None where its directory is gone. :raises ValueError: the store is
        closed."""
        engine = self._store.engine
        batches = engine.batch_queue(self._topic, self._queue_id)
        if batches is not None:
            return BatchUnits(batches)
        return engine.consume_queue(self._topic, self._queue_id)

    def _offsets(self) -> range:
        if self._chosen is not None:
            return self._chosen
        queue = self._queue()
        return range(0) if queue is None else range(queue.min_offset, queue.max_offset)

    def _between(self, since: int | None, until: int | None) -> Messages:
        return QueueMessages(self._store, self._topic, self._queue_id, self._chosen, since, until)

    def _within_times(self, queue: ConsumeQueue | BatchUnits) -> range:
        """The queue offsets without those before ``since`` and behind ``until``."""
        offsets = self._offsets()
        if offsets.step != 1 or (self._since is None and self._until is None):
            return offsets
        log = self._store.engine.commit_log
        times: Times = queue.stored_at if isinstance(queue, BatchUnits) else store_times(log, queue)
        low, high = offsets.start, offsets.stop
        if self._since is not None:
            first = bisect(times, low, high, self._since, Boundary.CEIL)
            low = high if first is None else first
        if self._until is not None:
            last = bisect(times, low, high, self._until, Boundary.FLOOR)
            high = low if last is None else last + 1
        return range(low, high)

    def _records(self) -> Iterator[Record]:
        queue = self._queue()
        if queue is None:
            return
        damage = DamageTeller()
        unread: list[int] = []
        units = _units(queue, self._within_times(queue))
        for queue_offset, unit in _each_once(units) if isinstance(queue, BatchUnits) else units:
            record = self._record_of(unit)
            if record is None:
                unread = [*unread[:1], queue_offset]
                continue
            if unread:
                damage.of_queue(self._topic, self._queue_id, unread)
                unread = []
            if self._shows(record):
                yield record
        if unread:
            damage.of_queue(self._topic, self._queue_id, unread)

    def _record(self, queue: ConsumeQueue | BatchUnits, queue_offset: int) -> Record | None:
        """The record of a queue offset; None where its unit leads to no record of its size."""
        return self._record_of(queue.unit(queue_offset))

    def _record_of(self, unit: Unit | BatchUnit | None) -> Record | None:
        if unit is None:
            return None
        record = self._store.engine.commit_log.find_record(unit.physical_offset)
        return None if record is None or record.total_size != unit.size else record

    def __repr__(self) -> str:
        told = f"<Messages of {self._topic!r} queue {self._queue_id}"
        if self._chosen:
            told += f", offsets {self._chosen[0]} to {self._chosen[-1]}"
        elif self._chosen is not None:
            told += ", none"
        return f"{told}{self._times_told()}>"


class NumberedMessages(QueueMessages):
    """Messages that can be counted, and asked for by a number."""

    def __len__(self) -> int:
        return len(self._offsets())

    def __reversed__(self) -> Iterator[Message]:
        return iter(QueueSlice(self._store, self._topic, self._queue_id, self._offsets()[::-1]))

    def _at(self, queue_offset: int) -> Message:
        """:raises MessageUnreadable: there is no readable message at the queue offset."""
        queue = self._queue()
        record = None if queue is None else self._record(queue, queue_offset)
        if record is None:
            raise MessageUnreadable(
                topic=self._topic, queue_id=self._queue_id, queue_offset=queue_offset
            )
        return Message(self._store, record)


class QueueSlice(NumberedMessages):
    """A part of a queue: a sequence whose numbers begin with 0, as those of every slice do."""

    @overload
    def __getitem__(self, key: int) -> Message: ...

    @overload
    def __getitem__(self, key: slice) -> QueueSlice: ...

    def __getitem__(self, key: int | slice) -> Message | QueueSlice:
        if isinstance(key, slice):
            return QueueSlice(self._store, self._topic, self._queue_id, self._offsets()[key])
        return self._at(self._offsets()[key])


class Queue(NumberedMessages):
    """A consume queue: its messages by their queue offsets.

    ``queue[10]`` is the message with queue offset 10, whatever the first queue offset is, and
    ``queue[-1]`` is the last message; ``queue[10:20]`` and ``queue[-100:]`` are parts.
    ``len(queue)`` counts from ``min_offset``, the oldest message that the log still has. In a batch
    queue (5.x) a record may hold several messages: it is the message at each of their queue
    offsets, and a loop gives it once.
    """

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def queue_id(self) -> int:
        return self._queue_id

    @property
    def min_offset(self) -> int:
        """Queue offset of the oldest message that the log still has."""
        return self._offsets().start

    @property
    def max_offset(self) -> int:
        """Queue offset of the next message that will be put."""
        return self._offsets().stop

    @overload
    def __getitem__(self, key: int) -> Message: ...

    @overload
    def __getitem__(self, key: slice) -> QueueSlice: ...

    def __getitem__(self, key: int | slice) -> Message | QueueSlice:
        """:raises IndexError: the queue has no such queue offset.
        :raises MessageUnreadable: its message cannot be read.
        :raises ValueError: the store is closed.
        """
        offsets = self._offsets()
        if isinstance(key, slice):
            chosen = _sliced(offsets, key)
            return QueueSlice(self._store, self._topic, self._queue_id, chosen)
        number = index(key)
        queue_offset = offsets.stop + number if number < 0 else number
        if queue_offset not in offsets:
            raise IndexError(
                f"queue offset {number}: the queue has {offsets.start} to {offsets.stop - 1}"
                if offsets
                else f"queue offset {number}: the queue is empty"
            )
        return self._at(queue_offset)

    def __repr__(self) -> str:
        name = f"Queue {self._topic!r} {self._queue_id}"
        if self._store.closed:
            return f"<{name}, closed>"
        offsets = self._offsets()
        told = f"offsets {offsets[0]} to {offsets[-1]}" if offsets else "empty"
        return f"<{name}, {told}>"


def _sliced(offsets: range, key: slice) -> range:
    """The part of ``offsets`` that a slice by queue offsets names; negative ones count from the
    end."""
    # For ``range`` too a negative place counts from the end, and so cannot mean one in front.
    in_front = -len(offsets) - 1 if key.step is not None and index(key.step) < 0 else 0

    def moved(place: int | None) -> int | None:
        if place is None:
            return None
        queue_offset = index(place) + (offsets.stop if index(place) < 0 else 0)
        number = queue_offset - offsets.start
        return number if number >= 0 else in_front

    return offsets[moved(key.start) : moved(key.stop) : key.step]
