"""diff: how two stores differ, such as master and slave, or backup and original.

Both are read as they are. It compares damaged places too, but only ``verify`` says what is wrong
with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from rmqctl.engine.queue.batchqueue import BatchConsumeQueue, BatchUnit
from rmqctl.engine.state.brokerjson import consumer_offsets, delay_offsets
from rmqctl.engine.state.topicconfig import subscription_groups, topic_configs
from rmqctl.operations.look.difflog import log_differences
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.consumequeue import ConsumeQueue
    from rmqctl.rows.compared import DifferenceRow, DiffSummary

    _Queue = ConsumeQueue | BatchConsumeQueue

_WINDOW = 1 << 16
STRUCTURES = ("commitlog", "queue", "consumer_offset", "delay_offset", "topic", "group")


class Diff:
    """Compares the stores ``a`` and ``b``, structure by structure: :meth:`log_rows`, then
    :meth:`queue_rows`, then :meth:`config_rows`. ``compared_bytes`` is how much log both have."""

    def __init__(self, a: MessageStore, b: MessageStore) -> None:
        self._a, self._b = a, b
        self._counts: Counter[str] = Counter()
        self._first: int | None = None
        self._start = max(a.min_offset, b.min_offset)
        self._end = min(a.max_offset, b.max_offset)
        self.compared_bytes = max(self._end - self._start, 0)

    @property
    def is_same(self) -> bool:
        """Whether no difference was found so far."""
        return not self._counts

    @cached_property
    def queue_places(self) -> list[tuple[str, int]]:
        """Topic and number of each queue that one of the stores has, sorted."""
        stores = self._a, self._b
        return sorted(
            {(where.topic, where.queue_id) for one in stores for where in one.queues.directories()}
        )

    def log_rows(self, progress: Progress) -> Iterator[DifferenceRow]:
        """Rows ``difference`` of the logs. ``progress`` is called with the bytes compared so far,
        up to :attr:`compared_bytes`."""
        return self._counted(self._log(progress))

    def queue_rows(self, progress: Progress) -> Iterator[DifferenceRow]:
        """Rows ``difference`` of the queues. ``progress`` is called with the number of
        :attr:`queue_places` done so far."""
        return self._counted(self._queues(progress))

    def config_rows(self) -> Iterator[DifferenceRow]:
        """Rows ``difference`` of what ``config/`` holds.

        :raises ConfigFileUnreadable: a file of ``config/`` is broken, and so is its ``.bak``.
        """
        return self._counted(chain(self._offsets(), self._topics(), self._groups()))

    def _counted(self, rows: Iterator[DifferenceRow]) -> Iterator[DifferenceRow]:
        for row in rows:
            self._counts[row["structure"]] += 1
            yield row

    def summary(self) -> DiffSummary:
        """The row ``summary`` of all rows that were told so far."""
        return {
            "type": "summary",
            "same": self.is_same,
            "compared_bytes": self.compared_bytes,
            "first_divergence": self._first,
            "commitlog": self._counts["commitlog"],
            "queues": self._counts["queue"],
            "consumer_offsets": self._counts["consumer_offset"],
            "delay_offsets": self._counts["delay_offset"],
            "topics": self._counts["topic"],
            "groups": self._counts["group"],
        }

    def _log(self, progress: Progress) -> Iterator[DifferenceRow]:
        a, b = self._a.commit_log, self._b.commit_log
        if a.file_size != b.file_size:
            sizes = f"files of {a.file_size} bytes", f"files of {b.file_size} bytes"
            yield _row("commitlog", "file-sizes-differ", *sizes)
            return
        if self.compared_bytes:
            for one in log_differences(a, b, self._start, self._end, progress):
                self._first = one.physical_offset if self._first is None else self._first
                row = _row("commitlog", "parted" if one.has_parted else "differs", one.a, one.b)
                first = one.record
                yield row | {
                    "topic": None if first is None else first.topic,
                    "queue_id": None if first is None else first.queue_id,
                    "queue_offset": None if first is None else first.queue_offset,
                    "physical_offset": one.physical_offset,
                    "length": one.length,
                    "messages": None if one.has_parted else one.records,
                }
        ranges = [(store.min_offset, store.max_offset) for store in (self._a, self._b)]
        for number, store in enumerate((self._a, self._b)):
            (low, high), (other_low, other_high) = ranges[number], ranges[1 - number]
            for start, end in ((low, min(high, other_low)), (max(low, other_high), high)):
                if start < end and (other_low < other_high or start == low):
                    yield _only(store, number, start, end)
            if other_low >= other_high:
                return

    def _queues(self, progress: Progress) -> Iterator[DifferenceRow]:
        """The differences of queues of both kinds, each queue cut to the log of its store."""
        stores = self._a, self._b
        for done, (topic, queue_id) in enumerate(self.queue_places):
            progress(done)
            yield from self._pair(*(one.consume_queue(topic, queue_id) for one in stores))
        batch_places = {
            (where.topic, where.queue_id) for one in stores for where in one.batch_queues()
        }
        for topic, queue_id in sorted(batch_places):
            with ExitStack() as opened:
                pair = [one.batch_queue(topic, queue_id) for one in stores]
                for queue in pair:
                    if queue is not None:
                        opened.callback(queue.close)
                yield from self._pair(*pair)

    def _pair(self, a: _Queue | None, b: _Queue | None) -> Iterator[DifferenceRow]:
        if a is None or b is None:
            queue = a or b
            if queue is None:
                return  # A file in a directory's place is no queue: `verify` names it.
            kind = "only-in-a" if b is None else "only-in-b"
            told = [None if one is None else _range(one) for one in (a, b)]
            row = _row("queue", kind, *told)
            yield _of_queue(row, queue, queue.min_offset, queue.max_offset - queue.min_offset)
            return
        yield from self._queue(a, b)

    def _queue(self, a: _Queue, b: _Queue) -> Iterator[DifferenceRow]:
        begins_alike = self._a.min_offset == self._b.min_offset
        if a.max_offset != b.max_offset or (begins_alike and a.min_offset != b.min_offset):
            row = _row("queue", "ranges-differ", _range(a), _range(b))
            yield _of_queue(
                row, a, min(a.max_offset, b.max_offset), abs(a.max_offset - b.max_offset)
            )
        low, high = max(a.min_offset, b.min_offset), min(a.max_offset, b.max_offset)
        starts, length = (low, low), high - low
        if isinstance(a, BatchConsumeQueue) and isinstance(b, BatchConsumeQueue):
            # The units of a batch queue are numbered from the first file that each store has.
            starts = a.find(low), b.find(low)
            length = min(a.end - starts[0], b.end - starts[1]) if low < high else 0
        first, count = _unlike((a, b), starts, length)
        if first is not None:
            units = [q.unit(at + first) for q, at in zip((a, b), starts, strict=True)]
            told = (str(tuple(unit or ())) for unit in units)
            queue_offset = units[0].base_offset if isinstance(units[0], BatchUnit) else low + first
            yield _of_queue(_row("queue", "units-differ", *told), a, queue_offset, count)

    def _offsets(self) -> Iterator[DifferenceRow]:
        """The differences in the offsets of consumers, and of the delivery of delayed messages."""
        stores = self._a, self._b
        a, b = (consumer_offsets(store.root, store.config.told_lmq) for store in stores)
        # Only owners that differ are looked at queue by queue: there may be a million offsets.
        for topic, group in sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key)):
            of_a, of_b = (offsets.get((topic, group), {}) for offsets in (a, b))
            for queue_id in sorted(of_a.keys() | of_b.keys()):
                pair = of_a.get(queue_id), of_b.get(queue_id)
                if pair[0] != pair[1]:
                    row = _row("consumer_offset", "differs", *_numbers(*pair))
                    yield row | {"topic": topic, "group": group, "queue_id": queue_id}
        levels_a, levels_b = (delay_offsets(store.root) for store in stores)
        for level in sorted(levels_a.keys() | levels_b.keys()):
            pair = levels_a.get(level), levels_b.get(level)
            if pair[0] != pair[1]:
                # The number of a level's queue is the level less one.
                row = _row("delay_offset", "differs", *_numbers(*pair))
                yield row | {"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": level - 1}

    def _topics(self) -> Iterator[DifferenceRow]:
        a, b = (topic_configs(store.root) or {} for store in (self._a, self._b))
        for topic in sorted(a.keys() | b.keys()):
            if a.get(topic) != b.get(topic):
                told = [None if topic not in one else _config(one[topic]) for one in (a, b)]
                yield _row("topic", _presence(*told), *told) | {"topic": topic}

    def _groups(self) -> Iterator[DifferenceRow]:
        a, b = (subscription_groups(store.root) or set() for store in (self._a, self._b))
        for group in sorted(a ^ b):
            told = ["configured" if group in one else None for one in (a, b)]
            yield _row("group", _presence(*told), *told) | {"group": group}


def _row(structure: str, kind: str, a: str | None, b: str | None) -> DifferenceRow:
    return {
        "type": "difference",
        "structure": structure,
        "kind": kind,
        "physical_offset": None,
        "length": None,
        "topic": None,
        "queue_id": None,
        "queue_offset": None,
        "messages": None,
        "group": None,
        "a": a,
        "b": b,
    }


def _of_queue(row: DifferenceRow, queue: _Queue, queue_offset: int, messages: int) -> DifferenceRow:
    return row | {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "queue_offset": queue_offset,
        "messages": messages,
    }


def _only(store: MessageStore, number: int, start: int, end: int) -> DifferenceRow:
    """The row of a range of the log that only one of the stores has, with its number of records."""
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import Scanner

    scanner = Scanner(store.commit_log, properties=False)
    count = sum(len(one) for one in scanner.scan(start, end) if isinstance(one, Batch))
    told = [None, None]
    told[number] = f"{start} to {end}"  # type: ignore[call-overload]
    row = _row("commitlog", "only-in-b" if number else "only-in-a", *told)
    return row | {"physical_offset": start, "length": end - start, "messages": count}


def _unlike(
    queues: tuple[_Queue, _Queue], starts: tuple[int, int], length: int
) -> tuple[int | None, int]:
    """Compares ``length`` units of two queues, from each queue's start on. Returns the position of
    the first that differs (None: none does), and how many differ."""
    first, count, done = None, 0, 0
    while done < length:
        a, b = (
            queue.window(start + done, min(length - done, _WINDOW))
            for queue, start in zip(queues, starts, strict=True)
        )
        size = min(len(a), len(b))
        if not size:
            break
        unlike = a[:size] != b[:size]
        if unlike.any():
            first = done + int(unlike.argmax()) if first is None else first
            count += int(unlike.sum())
        done += size
    return first, count


def _range(queue: _Queue) -> str:
    return f"{queue.min_offset} to {queue.max_offset}"


def _numbers(*numbers: int | None) -> list[str | None]:
    return [None if number is None else str(number) for number in numbers]


def _presence(a: str | None, b: str | None) -> str:
    return "only-in-a" if b is None else "only-in-b" if a is None else "differs"


def _config(config: object) -> str:
    names = config._fields  # type: ignore[attr-defined]
    values = [(name, getattr(config, name)) for name in names]
    return ", ".join(f"{name}={value}" for name, value in values if value is not None)
