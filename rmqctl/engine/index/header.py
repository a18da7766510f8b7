"""The header of an index file and its items, as values."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, Protocol

from formats import layouts
from formats.constants import INT_MAX, INT_MIN, LONG_MIN

HEADER = Struct(layouts.INDEX_HEADER.format)
ITEM = Struct(layouts.INDEX_ITEM.format)
SLOT = Struct(layouts.INDEX_SLOT.format)
#: No store time (ms) is as late: the year 9999.
_LATEST = 253_402_300_800_000


class IndexHeader(NamedTuple):
    """The header's six fields; ``index_count`` is the number of the next item, from 1."""

    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int

    def with_slots(self, added: int) -> IndexHeader:
        """With so many more slots that have items: a count that runs over is another one, as Java's
        is."""
        count = (self.hash_slot_count + added - INT_MIN) % (1 << 32) + INT_MIN
        return self._replace(hash_slot_count=count)

    def pack(self) -> bytes:
        """The header's bytes: a count of 1, which counts no item, is stored with the first item
        only (``IndexHeader#incIndexCount``)."""
        return HEADER.pack(*(self if self.index_count != 1 else self._replace(index_count=0)))

    @property
    def is_plausible(self) -> bool:
        """Whether the times can be those of a file with items."""
        return 0 < self.begin_timestamp <= self.end_timestamp < _LATEST


class LiveHeader(Protocol):
    """The header of a file that somebody else stores items into."""

    @property
    def fields(self) -> tuple[int, ...]:
        """Those of the :class:`IndexHeader` as it is now."""


class IndexItem(NamedTuple):
    """One item as stored."""

    key_hash: int
    physical_offset: int
    time_diff_seconds: int
    prev_index_no: int


class NewItems(NamedTuple):
    """Items that a file gets: how many, physical offset and store time (ms) of the first one's
    message and of the last one's; and what the file says: the number of the first, the time (ms)
    from which it counts, and what the first one has in place of that."""

    added: int
    first: tuple[int, int]
    last: tuple[int, int]
    number: int = 0
    begin_timestamp: int = 0
    first_diff: int = 0


def time_diff_seconds(store_timestamp: int, begin_timestamp: int) -> int:
    """Seconds since the file's begin, clamped to a Java int; 0 while the begin is not known."""
    if begin_timestamp <= 0:
        return 0
    difference = store_timestamp - begin_timestamp
    if difference < LONG_MIN:
        return INT_MAX  # It runs over, and is a large one.
    # Java divides towards zero; below zero the result is clamped anyway.
    return min(max(difference // 1000, 0), INT_MAX)


def first_header(previous: IndexHeader | None) -> IndexHeader:
    """A new file's header: the end of the file before it, when there is one."""
    offset = max(previous.end_phy_offset, 0) if previous else 0
    time = max(previous.end_timestamp, 0) if previous else 0
    return IndexHeader(time, time, offset, offset, 0, 1)
