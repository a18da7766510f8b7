"""du: where the bytes of a store are, by topic, queue, tag, producer host and day.

The scanner passes over the log once, and numpy sums each batch of records. Only the groups and
their names are kept in memory. Both are bounded: records of further groups are counted without a
group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address
from itertools import chain
from typing import TYPE_CHECKING, cast

import numpy as np

from formats import layouts
from formats.constants import BORNHOST_V6_FLAG, IPV4_SIZE, IPV6_SIZE
from formats.text import decode_utf8
from rmqctl.engine.log.onward import onward
from rmqctl.engine.log.times import stretches
from rmqctl.engine.record.record import Blank, Damage
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.choice import Choice
from rmqctl.engine.scan.columns import Bytes, Ints
from rmqctl.engine.scan.properties import tags
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.errors import UsageError
from rmqctl.operations.look.disk import disk_usage
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows.reports import DiskRow, UsageRow
    from rmqctl.rows.summaries import DuSummary

#: The names to group by, and the row field of each.
FIELDS = {
    "topic": "topic",
    "queue": "queue_id",
    "tag": "tag",
    "producer-host": "producer_host",
    "day": "day",
}
#: The most groups, the most tags or hosts, and the most bytes of all tags together: some hundred
#: megabytes of memory, whatever producers send.
MAX_GROUPS = 200_000
MAX_NAME_BYTES = 64 << 20
#: Numbers that no field has. They stand for a missing property, and for a name beyond the bound.
_NONE, _REST = -1 << 40, -2 << 40
_BORN_ADDRESS = layouts.RECORD_BORN_ADDRESS.offset
#: Time zones differ from UTC by multiples of this (ms), so that it never lies in two days.
_QUARTER = 900_000

Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What to count: the names of :data:`FIELDS` to group by; the only topic and the store times
    (inclusive) that count; how many groups to show."""

    by: tuple[str, ...] = ("topic",)
    topic: str | None = None
    since: int | None = None
    until: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        """:raises UsageError: there is no such field, or one is named twice."""
        for name in self.by:
            if name not in FIELDS:
                raise UsageError(
                    reason=f"{name!r} is nothing to group by: give some of {', '.join(FIELDS)}."
                )
        if len(set(self.by)) < len(self.by):
            raise UsageError(reason="a group is named twice.")
        if self.since is not None and self.until is not None and self.since > self.until:
            raise UsageError(reason="since is behind until: swap them.")


class NameTable(TopicTable):
    """Numbers names from 1 up to a bound; 0 stands for all further names. The bytes of an address
    are a name, too."""

    joins_names = False

    def __init__(self, max_names: int, max_bytes: int) -> None:
        super().__init__()
        self._max_names = max_names
        self._room = max_bytes
        self.stored: list[bytes] = []
        self._add(b"")

    def _add(self, topic: bytes) -> int:
        if len(self.stored) > self._max_names or len(topic) > self._room:
            return 0
        self._room -= len(topic)
        self.stored.append(topic)
        return super()._add(topic)

    def numbers(self, data: Bytes, start: Ints, length: Ints) -> Ints:
        """The numbers of the names (none is empty) at some positions; ``_REST`` for names beyond
        the bound."""
        found = self.lookup(data, start, length) if len(start) else np.empty(0, np.int64)
        return np.where(found == 0, _REST, found)


def grouped(columns: list[Ints], total_size: Ints) -> Iterator[tuple[Key, int, int]]:
    """Each combination of values of parallel columns (int64), how many rows have it, and the sum
    of their ``total_size`` (int64, bytes)."""
    code = np.zeros(len(total_size), np.int64)
    for column in columns:
        # Each step renumbers the groups, so that a product never overflows.
        values, number = np.unique(column, return_inverse=True)
        _, code = np.unique(code * len(values) + number.reshape(-1), return_inverse=True)
        code = code.reshape(-1)
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    messages = np.bincount(group).tolist()
    # Exact: a batch has far less than 2^53 bytes.
    sizes = np.bincount(group, total_size).astype(np.int64).tolist()
    keys = zip(*(column[first].tolist() for column in columns), strict=True)
    yield from zip(keys, messages, sizes, strict=True)


@dataclass(slots=True)
class _Counts:
    """Messages and bytes of each group, and of all groups beyond the bound together."""

    groups: dict[Key, list[int]] = field(default_factory=dict)
    rest: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, columns: list[Ints], total_size: Ints) -> None:
        """Adds records: parallel arrays, one for each field that is grouped by."""
        for key, count, size in grouped(columns, total_size):
            counts = self.groups.get(key)
            if counts is None:
                if len(self.groups) >= MAX_GROUPS or _REST in key:
                    counts = self.rest
                else:
                    counts = self.groups[key] = [0, 0]
            counts[0] += count
            counts[1] += size


class _Columns:
    """Gives the fields of a batch as numbers, and the values that the numbers stand for."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics
        self._tags = NameTable(MAX_GROUPS, MAX_NAME_BYTES)
        self._hosts = NameTable(MAX_GROUPS, MAX_NAME_BYTES)

    def of(self, name: str, batch: Batch, rows: Ints) -> Ints:
        data = np.frombuffer(batch.mapped.buffer, np.uint8)
        if name == "topic":
            return batch.topic_id[rows]
        if name == "queue":
            return batch.queue_id[rows]
        if name == "tag":
            position, length = batch.properties_position[rows], batch.properties_length[rows]
            tagged, start, size = tags(data, position, length)
            numbers = np.full(len(rows), _NONE, np.int64)
            numbers[tagged] = self._tags.numbers(data, start, size)
            return numbers
        if name == "producer-host":
            is_v6 = (batch.sys_flag[rows] & BORNHOST_V6_FLAG) != 0
            length = np.where(is_v6, IPV6_SIZE, IPV4_SIZE)
            return self._hosts.numbers(data, batch.position[rows] + _BORN_ADDRESS, length)
        return _days(batch.store_timestamp[rows])

    def text(self, name: str, number: int) -> str | int | None:
        """The value that a number stands for; None where a message lacks the field."""
        if name == "queue":
            return number
        if number == _NONE:
            return None
        if name == "topic":
            return self._topics.names[number]
        if name == "tag":
            return decode_utf8(self._tags.stored[number])
        if name == "producer-host":
            return str(ip_address(self._hosts.stored[number]))
        return f"{number // 10000:04d}-{number // 100 % 100:02d}-{number % 100:02d}"


def _days(timestamps: Ints) -> Ints:
    """Local days as numbers of the form 20240501; ``_NONE`` for times that no calendar has."""
    quarters, number = np.unique(timestamps // _QUARTER, return_inverse=True)
    days = np.array([_day(quarter * _QUARTER) for quarter in quarters.tolist()], np.int64)
    found: Ints = days[number.reshape(-1)]
    return found


def _day(timestamp: int) -> int:
    try:
        day = datetime.fromtimestamp(timestamp / 1000)
    except (ValueError, OverflowError, OSError):
        return _NONE
    return day.year * 10000 + day.month * 100 + day.day


def usage(
    store: MessageStore, what: Usage, progress: Progress | None = None
) -> Iterator[UsageRow | DiskRow | DuSummary]:
    """Rows ``usage``, most bytes first, rows ``disk``, then ``summary``. Bytes are those of the
    records; damaged stretches and blanks are counted apart, and groups beyond the bound as
    ungrouped. Files that clearly hold no record of the chosen times are not read.
    """
    log = store.commit_log
    scanner = Scanner(log, properties=False)
    choice = Choice(what.topic, what.since, what.until)
    parts = stretches(log, what.since, what.until)
    columns, counts = _Columns(scanner.topics), _Counts()
    messages = size = blank = damages = damaged = 0
    for entry in chain.from_iterable(onward(log, scanner.scan, *part) for part in parts):
        if isinstance(entry, Batch):
            rows = np.flatnonzero(choice.mask(entry))
            if len(rows):
                sizes = entry.total_size[rows]
                messages, size = messages + len(rows), size + int(sizes.sum())
                counts.add([columns.of(name, entry, rows) for name in what.by], sizes)
        elif isinstance(entry, Blank):
            blank += entry.total_size
        elif isinstance(entry, Damage):
            damages, damaged = damages + 1, damaged + entry.length
        if progress is not None:
            reached = entry.end_offset if isinstance(entry, Batch) else entry.physical_offset
            progress(reached - store.min_offset)
    for key, (count, total) in _largest(counts, what.limit):
        named = {FIELDS[n]: columns.text(n, v) for n, v in zip(what.by, key, strict=True)}
        # The caller decides which fields a row has, and in which order.
        row = {"type": "usage", **named, "messages": count, "bytes": total}
        yield cast("UsageRow", row)
    disks = disk_usage(store.root, store.config)
    yield from disks
    yield {
        "type": "summary",
        "groups": len(counts.groups),
        "messages": messages,
        "bytes": size,
        "ungrouped_messages": counts.rest[0],
        "ungrouped_bytes": counts.rest[1],
        "blank_bytes": blank,
        "damages": damages,
        "damaged_bytes": damaged,
        "allocated_bytes": sum(row["allocated_bytes"] for row in disks),
    }


def _largest(counts: _Counts, limit: int | None) -> list[tuple[Key, list[int]]]:
    ordered = sorted(counts.groups.items(), key=lambda group: (-group[1][1], group[0]))
    return ordered[:limit]
