"""``IndexHeader`` and ``IndexItem``, and how their fields are computed."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, Protocol

from formats import layouts
from formats.constants import INT_MAX, INT_MIN, LONG_MIN

HEADER = Struct(layouts.INDEX_HEADER.format)
ITEM = Struct(layouts.INDEX_ITEM.format)
SLOT = Struct(layouts.INDEX_SLOT.format)
#: A store time (ms) that no message has: the end of the year 9999.
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
        """With ``added`` more slots in use. The count wraps like a Java int."""
        count = (self.hash_slot_count + added - INT_MIN) % (1 << 32) + INT_MIN
        return self._replace(hash_slot_count=count)

    def pack(self) -> bytes:
        """The header's bytes. An ``index_count`` of 1 (no item) is stored as 0: a broker stores the
        count with the first item (``IndexHeader#incIndexCount``)."""
        return HEADER.pack(*(self if self.index_count != 1 else self._replace(index_count=0)))

    @property
    def is_plausible(self) -> bool:
        """Whether the times can be those of a file with items."""
        return 0 < self.begin_timestamp <= self.end_timestamp < _LATEST


class LiveHeader(Protocol):
    """The header of a file while the compiled kernel stores items into it."""

    @property
    def fields(self) -> tuple[int, ...]:
        """The fields of :class:`IndexHeader`, as they are now."""


class IndexItem(NamedTuple):
    """One item as stored."""

    key_hash: int
    physical_offset: int
    time_diff_seconds: int
    prev_index_no: int


class NewItems(NamedTuple):
    """Items that a file is to get.

    ``added`` is how many, ``first`` and ``last`` are physical offset and store time (ms) of their
    first and last message. The file adds: ``number`` of the first item, ``begin_timestamp`` (ms)
    from which time differences count, and ``first_diff``, the seconds stored in the first item.
    """

    added: int
    first: tuple[int, int]
    last: tuple[int, int]
    number: int = 0
    begin_timestamp: int = 0
    first_diff: int = 0


def time_diff_seconds(store_timestamp: int, begin_timestamp: int) -> int:
    """Seconds since the file's begin, clamped to 0 and Java's largest int; 0 while the file has no
    begin time. Both parameters are in ms."""
    if begin_timestamp <= 0:
        return 0
    difference = store_timestamp - begin_timestamp
    if difference < LONG_MIN:
        return INT_MAX  # Java's long wraps to a large positive one.
    # Java rounds towards zero. That differs below zero only, which is clamped.
    return min(max(difference // 1000, 0), INT_MAX)


def item_store_time(begin_timestamp: int, index_no: int, seconds: int) -> int:
    """The store time (ms) of an item's message, as far as its file tells: ``seconds`` are the
    item's, ``begin_timestamp`` (ms) is the header's.

    It is rounded down to whole seconds since the begin, except for item 1. The seconds of item 1
    count from the end of the file before. But the file begins with its message, so the begin is its
    store time.
    """
    return begin_timestamp + (seconds * 1000 if index_no > 1 else 0)


def first_header(previous: IndexHeader | None) -> IndexHeader:
    """The header of a new file: it begins where the file before it ends."""
    offset = max(previous.end_phy_offset, 0) if previous else 0
    time = max(previous.end_timestamp, 0) if previous else 0
    return IndexHeader(time, time, offset, offset, 0, 1)
