"""``IndexFile``: messages by key.

A file is a header, hash slots and items; an item points to the previous one of its slot. Items
are written first, then slots, then the header, and the header counts a message's items at once:
after a kill the items that it does not count can be undone exactly (:meth:`IndexFile.repair`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from formats import layouts
from formats.geometry import Geometry
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.errors import DamagedStore, FileLengthContradiction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.dispatch.batches import KeyBatch

_HEADER = Struct(layouts.INDEX_HEADER.format)
_ITEM = Struct(layouts.INDEX_ITEM.format)
_SLOT = Struct(layouts.INDEX_SLOT.format)
_INDEX_COUNT_POSITION = _HEADER.size - 4
_INT_MAX = 0x7FFFFFFF
#: No store time (ms) is as late: the year 9999.
_LATEST = 253_402_300_800_000
_NO_ITEM = 0
#: More than one bulk of a killed writer can leave.
_MOST_UNCOUNTED = 1 << 20
#: So many zeros in a row end a search for items.
_ZERO_RUN = 1 << 16
#: Items that are looked at together.
ITEMS_AT_ONCE = 1 << 20


class IndexHeader(NamedTuple):
    """The header's six fields; ``index_count`` is the number of the next item, from 1."""

    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int

    def pack(self) -> bytes:
        """The header's bytes."""
        return _HEADER.pack(*self)

    @property
    def is_plausible(self) -> bool:
        """Whether the times can be those of a file with items."""
        return 0 < self.begin_timestamp <= self.end_timestamp < _LATEST


class IndexItem(NamedTuple):
    """One item as stored."""

    key_hash: int
    physical_offset: int
    time_diff_seconds: int
    prev_index_no: int


def time_diff_seconds(store_timestamp: int, begin_timestamp: int) -> int:
    """Seconds since the file's begin, clamped to a Java int; 0 while the begin is not known."""
    if begin_timestamp <= 0:
        return 0
    # Java divides towards zero; below zero the result is clamped anyway.
    return min(max((store_timestamp - begin_timestamp) // 1000, 0), _INT_MAX)


class IndexFile:
    """One index file of a known geometry. ``header`` is what the file's header says, with
    ``index_count`` of at least 1 (``IndexHeader#load``)."""

    def __init__(self, mapped: MappedFile, geometry: Geometry) -> None:
        """:raises FileLengthContradiction: the file has another length than its geometry."""
        if mapped.size != geometry.file_size:
            mapped.close()
            raise FileLengthContradiction(
                path=str(mapped.path),
                found=mapped.size,
                expected=geometry.file_size,
                why=f"an index file of {geometry.hash_slot_num} slots (maxHashSlotNum) and "
                f"{geometry.index_num} items (maxIndexNum)",
            )
        self.mapped = mapped
        self.geometry = geometry
        self.header = self._stored_header()
        self.stored_index_count = self.header.index_count
        if self.header.index_count <= 0:
            self.header = self.header._replace(index_count=1)

    def _stored_header(self) -> IndexHeader:
        return IndexHeader._make(_HEADER.unpack(self.mapped.read(0, _HEADER.size)))

    @property
    def path(self) -> Path:
        return self.mapped.path

    @property
    def has_grown(self) -> bool:
        """Whether somebody else has stored items since the file was opened."""
        return self._stored_header().index_count > self.header.index_count

    @property
    def item_count(self) -> int:
        """Items that the header counts, never more than fit."""
        return min(self.header.index_count, self.geometry.index_num) - 1

    @property
    def is_full(self) -> bool:
        return self.header.index_count >= self.geometry.index_num

    def item(self, index_no: int) -> IndexItem:
        data = self.mapped.read(self.geometry.item_position(index_no), _ITEM.size)
        return IndexItem._make(_ITEM.unpack(data))

    def slot(self, slot: int) -> int:
        """Number of the slot's newest item, 0 when it is empty."""
        data = self.mapped.read(self.geometry.slot_position(slot), _SLOT.size)
        value: int = _SLOT.unpack(data)[0]
        return value

    def is_time_matched(self, begin: int, end: int) -> bool:
        """Whether the file's time range meets the asked one (``IndexFile#isTimeMatched``)."""
        first, last = self.header.begin_timestamp, self.header.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def chain(self, key_hash: int) -> Iterator[tuple[int, IndexItem]]:
        """``(number, item)`` of the slot of a key hash, newest first.

        Ends as the engine's walk does, and at the first link that does not go back: a cycle in a
        damaged file cannot hold it.
        """
        index_no = self.slot(key_hash % self.geometry.hash_slot_num)
        if index_no > self.header.index_count or self.header.index_count <= 1:
            return
        while 0 < index_no < self.geometry.index_num:
            item = self.item(index_no)
            yield index_no, item
            if item.prev_index_no >= index_no:
                return
            index_no = item.prev_index_no

    def select(self, key_hash: int, begin: int, end: int) -> Iterator[tuple[int, IndexItem]]:
        """Items of a key hash within a time range, newest first (``selectPhyOffset``)."""
        for index_no, item in self.chain(key_hash):
            if item.time_diff_seconds < 0:
                return
            time = self.header.begin_timestamp + item.time_diff_seconds * 1000
            if item.key_hash == key_hash and begin <= time <= end:
                yield index_no, item
            if time < begin:
                return

    # --- writing -------------------------------------------------------------------------

    def put_keys(
        self, key_hashes: Sequence[int], physical_offset: int, store_timestamp: int
    ) -> int:
        """Adds one message's items (``IndexFile#putKey``); how many fitted.

        :raises OSError: the disk is full; the file is as it was.
        """
        header = self.header
        fitting = key_hashes[: self.geometry.index_num - header.index_count]
        if not fitting:
            return 0
        count, slot_count = header.index_count, header.hash_slot_count
        begin_time, begin_offset = header.begin_timestamp, header.begin_phy_offset
        slots: dict[int, int] = {}
        items = []
        for key_hash in fitting:
            slot = key_hash % self.geometry.hash_slot_num
            previous = slots[slot] if slot in slots else self._linkable(self.slot(slot), count)
            slot_count += previous == _NO_ITEM
            slots[slot] = count
            diff = time_diff_seconds(store_timestamp, begin_time)
            items.append(_ITEM.pack(key_hash, physical_offset, diff, previous))
            if count <= 1:
                begin_time, begin_offset = store_timestamp, physical_offset
            count += 1
        position = self.geometry.item_position(header.index_count)
        self.mapped.reserve(0, _HEADER.size)
        self.mapped.reserve(position, len(items) * _ITEM.size)
        for slot in slots:
            self.mapped.reserve(self.geometry.slot_position(slot), _SLOT.size)
        self.mapped.write(position, b"".join(items))
        for slot, value in slots.items():
            self.mapped.write(self.geometry.slot_position(slot), _SLOT.pack(value))
        self._store_header(
            IndexHeader(
                begin_time, store_timestamp, begin_offset, physical_offset, slot_count, count
            )
        )
        return len(fitting)

    @staticmethod
    def _linkable(slot_value: int, index_count: int) -> int:
        """A slot value as ``putKey`` takes it: out of range counts as empty."""
        return slot_value if 0 < slot_value <= index_count else _NO_ITEM

    def put_key_batch(self, keys: KeyBatch, start: int) -> int:
        """Adds items ``start`` … of a batch, as many as fit; the number after the last one.

        The batch's arrays are parallel and in log order.

        :raises OSError: the disk is full; the file is as it was.
        """
        import numpy as np

        from rmqctl.engine.index.links import item_dtype, link_items, time_diff_array

        header = self.header
        end = min(len(keys.key_hash), start + self.geometry.index_num - header.index_count)
        if end <= start:
            return start
        key_hash = keys.key_hash[start:end]
        stamps, offsets = keys.store_timestamp[start:end], keys.physical_offset[start:end]
        count = header.index_count
        number = np.arange(count, count + end - start, dtype=np.int32)
        slots = self.slot_array(writable=True)
        slot = key_hash.astype(np.int64) % self.geometry.hash_slot_num
        links = link_items(slot, number, slots, count)
        items = np.zeros(end - start, item_dtype())
        items["key_hash"] = key_hash
        items["physical_offset"] = offsets
        begin_time, begin_offset = header.begin_timestamp, header.begin_phy_offset
        first_diff = time_diff_seconds(int(stamps[0]), begin_time)
        if count <= 1:
            begin_time, begin_offset = int(stamps[0]), int(offsets[0])
        items["time_diff_seconds"] = time_diff_array(stamps, begin_time)
        if count <= 1:
            items["time_diff_seconds"][0] = first_diff
        items["prev_index_no"] = links.previous
        position = self.geometry.item_position(count)
        self.mapped.reserve(0, self.geometry.slot_position(self.geometry.hash_slot_num))
        self.mapped.reserve(position, items.nbytes)
        self.mapped.write(position, items.tobytes())
        slots[links.slot] = links.newest
        self.mapped.mark_dirty(0, position)
        del slots
        self._store_header(
            IndexHeader(
                begin_time,
                int(stamps[-1]),
                begin_offset,
                int(offsets[-1]),
                header.hash_slot_count + links.fresh_slots,
                count + end - start,
            )
        )
        return end

    def slot_array(self, *, writable: bool = False) -> NDArray[np.int32]:
        """The slots as one array: a copy, or, for storing into them where they are reserved, over
        the map; that one is to be dropped before the file is closed."""
        import numpy as np

        count, position = self.geometry.hash_slot_num, self.geometry.slot_position(0)
        if writable:
            return np.frombuffer(self.mapped.buffer, ">i4", count, position)
        return np.frombuffer(self.mapped.read(position, count * _SLOT.size), ">i4")

    def items(self, start: int, count: int, *, counted: bool = True) -> NDArray[np.void]:
        """A copy of up to ``count`` items from number ``start``, as an array: of those that are
        ``counted``, else of all that fit."""
        import numpy as np

        from rmqctl.engine.index.links import item_dtype

        most = self.item_count if counted else self.geometry.index_num - 1
        count = max(0, min(count, most + 1 - start))
        data = self.mapped.read(self.geometry.item_position(start), count * _ITEM.size)
        return np.frombuffer(data, item_dtype())

    def _store_header(self, header: IndexHeader) -> None:
        """Stores the header; the count last, so that what is counted is whole."""
        data = header.pack()
        self.mapped.write(0, data[:_INDEX_COUNT_POSITION])
        self.mapped.write(_INDEX_COUNT_POSITION, data[_INDEX_COUNT_POSITION:])
        self.header = header

    def uncounted_items(self) -> int:
        """How many items stand behind the counted ones; a cut store may have left some of zeros."""
        position = start = self.geometry.item_position(max(self.header.index_count, 1))
        end = start
        while data := self.mapped.read_aside(position, _ZERO_RUN):
            kept = data.rstrip(b"\0")
            if not kept:
                break
            end = position + len(kept)
            position += len(data)
        return -(-(end - start) // _ITEM.size)

    def repair(
        self,
        store_timestamp_at: Callable[[int], int | None],
        previous: IndexHeader | None = None,
    ) -> int:
        """Undoes items that a killed writer stored but did not count; how many.

        An item keeps the slot's former value, so the oldest of a slot restores it. A repair that is
        killed can be done again. ``store_timestamp_at`` tells a record's store
        time and ``previous`` is the header of the file before, for the header's begin and end.
        """
        first = self.header.index_count
        if first > self.geometry.index_num:
            raise DamagedStore(
                reason=f"the header of {self.path} counts {first - 1} items, more than fit",
                physical_offset=self.header.end_phy_offset,
            )
        if first > 1 and self.item(first - 1) == IndexItem(0, 0, 0, 0):
            raise DamagedStore(
                reason=f"the header of {self.path} counts items that were never written",
                physical_offset=self.header.end_phy_offset,
            )
        uncounted = self.uncounted_items()
        if uncounted > _MOST_UNCOUNTED:
            raise DamagedStore(
                reason=f"the header of {self.path} counts far fewer items than stand there; "
                "`rmqctl rebuild index` writes it anew",
                physical_offset=self.header.end_phy_offset,
            )
        last = first + uncounted
        values: dict[int, list[int]] = {}
        for index_no in range(first, last):
            item = self.item(index_no)
            slot = max(item.key_hash, 0) % self.geometry.hash_slot_num
            values.setdefault(slot, [item.prev_index_no]).append(index_no)
        for slot, (former, *later) in values.items():
            value, position = self.slot(slot), self.geometry.slot_position(slot)
            if value != former and _is_cut_between(value, former, later):
                self.mapped.reserve(position, _SLOT.size)
                self.mapped.write(position, _SLOT.pack(former))
        header = self._header_of_counted(store_timestamp_at, previous, uncounted > 0)
        if header != self.header or self.stored_index_count <= 0:
            self.mapped.reserve(0, _HEADER.size)
            self._store_header(header)
        for index_no in range(last - 1, first - 1, -1):
            self.mapped.reserve(self.geometry.item_position(index_no), _ITEM.size)
            self.mapped.write(self.geometry.item_position(index_no), bytes(_ITEM.size))
        return uncounted

    def _header_of_counted(
        self,
        store_timestamp_at: Callable[[int], int | None],
        previous: IndexHeader | None,
        was_cut: bool,
    ) -> IndexHeader:
        """The header as it was when the last counted item was stored. Where ``was_cut`` is false
        only its end can be wrong."""
        header, count = self.header, self.header.index_count
        if count <= 1:
            return first_header(previous)
        newest, oldest = self.item(count - 1).physical_offset, self.item(1).physical_offset
        timestamp = store_timestamp_at(newest)
        if timestamp is not None and (was_cut or newest != header.end_phy_offset):
            header = header._replace(end_phy_offset=newest, end_timestamp=timestamp)
        begin = store_timestamp_at(oldest) if was_cut else None
        if begin is not None:
            header = header._replace(begin_phy_offset=oldest, begin_timestamp=begin)
        if was_cut:
            header = header._replace(hash_slot_count=int((self.slot_array() > 0).sum()))
        return header

    def _linked(
        self, kept: int, slots: NDArray[np.int32]
    ) -> Iterator[tuple[NDArray[np.void], NDArray[np.int32]]]:
        """Some of the first ``kept`` items, and the links that follow from those before them;
        ``slots``, zeros in the beginning, are in the end as they follow from all."""
        import numpy as np

        from rmqctl.engine.index.links import link_items

        for first in range(1, kept + 1, ITEMS_AT_ONCE):
            items = self.items(first, min(ITEMS_AT_ONCE, kept + 1 - first), counted=False)
            number = np.arange(first, first + len(items), dtype=np.int32)
            slot = items["key_hash"].astype(np.int64) % len(slots)
            links = link_items(slot, number, slots, kept + 1)
            slots[links.slot] = links.newest
            yield items, links.previous

    def is_linked(self) -> bool:
        """Whether slots and links, and the end that the header has, are those of the items."""
        import numpy as np

        kept = self.item_count
        slots = np.zeros(self.geometry.hash_slot_num, np.int32)
        for items, previous in self._linked(kept, slots):
            if not np.array_equal(items["prev_index_no"], previous):
                return False
        same = bool((self.slot_array() == slots).all())
        header = self.header
        return (
            same
            and header.end_phy_offset == self.item(kept).physical_offset
            and header.index_count == self.stored_index_count
            and header.hash_slot_count == int((slots > 0).sum())
        )

    def keep(self, kept: int, store_timestamp_at: Callable[[int], int | None]) -> None:
        """Keeps the first ``kept`` items, at least one, with links and header that follow from
        them; what stands behind them becomes zeros.

        Slots first, so that no moment of it leads to an item that is gone.
        :raises OSError: the disk failed.
        """
        import numpy as np

        slots, first = np.zeros(self.geometry.hash_slot_num, np.int32), 1
        for items, previous in self._linked(kept, slots):
            rows = np.flatnonzero(items["prev_index_no"] != previous)
            for row, link in zip(rows.tolist(), previous[rows].tolist(), strict=True):
                self._store(self.geometry.item_position(first + row) + _ITEM.size - 4, link)
            first += len(items)
        stored = self.slot_array().astype(np.int32)
        for slot in np.flatnonzero(stored != slots).tolist():
            self._store(self.geometry.slot_position(slot), int(slots[slot]))
        header = self.header._replace(index_count=kept + 1, hash_slot_count=int((slots > 0).sum()))
        oldest, newest = self.item(1).physical_offset, self.item(kept).physical_offset
        begin, end = store_timestamp_at(oldest), store_timestamp_at(newest)
        if begin is not None:
            header = header._replace(begin_phy_offset=oldest, begin_timestamp=begin)
        if end is not None:
            header = header._replace(end_phy_offset=newest, end_timestamp=end)
        self.mapped.reserve(0, _HEADER.size)
        self._store_header(header)
        self.mapped.clear(self.geometry.item_position(kept + 1))

    def _store(self, position: int, value: int) -> None:
        """Stores a slot, or the link of an item."""
        self.mapped.reserve(position, _SLOT.size)
        self.mapped.write(position, _SLOT.pack(value))

    def items_of_last_message(self) -> int:
        """How many counted items at the end belong to the message at ``end_phy_offset``."""
        index_no = self.item_count
        while index_no > 0 and self.item(index_no).physical_offset == self.header.end_phy_offset:
            index_no -= 1
        return self.item_count - index_no

    def flush(self) -> None:
        self.mapped.flush()

    def close(self) -> None:
        self.mapped.close()


def _is_cut_between(value: int, former: int, later: list[int]) -> bool:
    """Whether a slot has one of the ``later`` values, or what a cut store of one leaves of it and
    the ``former`` one."""
    stored, before = _SLOT.pack(value), _SLOT.pack(former)
    return any(
        all(byte in both for byte, *both in zip(stored, before, after, strict=True))
        for after in map(_SLOT.pack, later)
    )


def first_header(previous: IndexHeader | None) -> IndexHeader:
    """A new file's header: the end of the file before it, when there is one."""
    offset = max(previous.end_phy_offset, 0) if previous else 0
    time = max(previous.end_timestamp, 0) if previous else 0
    return IndexHeader(time, time, offset, offset, 0, 1)
