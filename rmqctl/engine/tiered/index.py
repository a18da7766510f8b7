"""The index of tiered storage: files that still get items, and compacted ones that are uploaded.

Neither form stores the number of its slots. A compacted file ends with its last item, which tells
it; in other files possible numbers are tried. Only what is needed is read. No chain is followed
upwards: an item's number is always greater than that of the item before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from formats import layouts
from formats.constants import TIERED_INDEX_BEGIN_MAGIC_CODE, TIERED_INDEX_END_MAGIC_CODE
from rmqctl.engine.files.mappedfile import MappedFile

_HEADER = Struct(layouts.TIERED_INDEX_HEADER.format)
_SLOT = Struct(layouts.TIERED_INDEX_SLOT.format)
_ITEM = Struct(layouts.TIERED_INDEX_ITEM.format)
_COMPACTED_SLOT = Struct(layouts.TIERED_COMPACTED_INDEX_SLOT.format)
_COMPACTED_ITEM = Struct(layouts.TIERED_COMPACTED_INDEX_ITEM.format)
_ITEMS_AT_ONCE = 4096
_SLOTS_AT_ONCE = 1 << 17


class Header(NamedTuple):
    """The header. Times are epoch milliseconds; ``slots_used`` is how many slots have an item."""

    magic_code: int
    begin_timestamp: int
    end_timestamp: int
    slots_used: int
    item_count: int


class Item(NamedTuple):
    """An item. ``physical_offset`` is an offset in the log of its queue; ``position`` is the item's
    own place in the file."""

    key_hash: int
    topic_id: int
    queue_id: int
    physical_offset: int
    size: int
    time_diff_seconds: int
    prev_item_no: int
    position: int


class Problem(NamedTuple):
    """A contradiction at a position of the file."""

    position: int
    expected: str
    found: str


class TieredIndexFile:
    """A file of the index that is not uploaded yet (``IndexStoreFile``, not sealed)."""

    is_compacted = False
    _magic_codes: tuple[int, ...] = (TIERED_INDEX_BEGIN_MAGIC_CODE, TIERED_INDEX_END_MAGIC_CODE)

    def __init__(self, mapped: MappedFile, slots: Iterable[int]) -> None:
        """:param slots: possible numbers of slots; the first that fits counts."""
        self.mapped = mapped
        head = mapped.read(0, min(_HEADER.size, mapped.size)).ljust(_HEADER.size, b"\0")
        self.header = Header._make(_HEADER.unpack(head))
        #: The number of slots; 0 if none fits.
        self.slots = self._find_slots(slots)

    def _find_slots(self, slots: Iterable[int]) -> int:
        # By default a broker has room for four items per slot.
        usual = (self.mapped.size - _HEADER.size) // (_SLOT.size + 4 * _ITEM.size)
        fitting = [count for count in [*slots, usual] if self._fits(count)]
        sound = (count for count in fitting if self._chain_of_first(count))
        return next(sound, fitting[0] if fitting else 0)

    def _fits(self, slots: int) -> bool:
        """Whether the file's length is possible with so many slots, and its items fit."""
        room = self.mapped.size - _HEADER.size - slots * _SLOT.size
        if slots < 1 or room < 0 or room % _ITEM.size:
            return False
        return 0 <= self.header.item_count < room // _ITEM.size

    def _chain_of_first(self, slots: int) -> bool:
        """Whether item 1 is in the chain of its hash's slot."""
        if not self.header.item_count:
            return True
        first = self._item(1, slots)
        if first.key_hash < 0:
            return False
        return any(
            one.position == first.position for one in self._chain(first.key_hash % slots, slots)
        )

    @property
    def item_count(self) -> int:
        """How many items can be read; 0 if the number of slots is not known."""
        return self.header.item_count if self.slots else 0

    def problem(self) -> Problem | None:
        """Why the file cannot be read; None if it can."""
        if self.mapped.size < _HEADER.size:
            return Problem(0, f"a header of {_HEADER.size} bytes", f"{self.mapped.size} bytes")
        if self.header.magic_code not in self._magic_codes:
            expected = " or ".join(f"{code:#010x}" for code in self._magic_codes)
            return Problem(0, expected, f"{self.header.magic_code:#010x}")
        if not self.slots:
            found = f"{self.mapped.size} bytes, {self.header.item_count} items"
            return Problem(layouts.TIERED_INDEX_HEADER.fields[-1].offset, self._whole, found)
        return None

    _whole = "slots and items that fill the file"

    @property
    def lacks_its_slots(self) -> bool:
        """Whether the only known problem is that its number of slots is unknown."""
        return (
            self.mapped.size >= _HEADER.size
            and self.header.magic_code in self._magic_codes
            and not self.slots
            and 0 <= self.header.item_count * _ITEM.size <= self.mapped.size
        )

    def items(self) -> Iterator[Item]:
        """All items in the order of the file."""
        start = self._item_position(1, self.slots)
        yield from self._items_from(start, self.item_count, _ITEM)

    def find(self, key_hash: int) -> Iterator[Item]:
        """The items with a key hash, newest first."""
        if self.slots and key_hash >= 0:
            for one in self._chain(key_hash % self.slots, self.slots):
                if one.key_hash == key_hash:
                    yield one

    def unreachable(self) -> Iterator[Problem]:
        """The first slot or chain that leads nowhere, or the first item to which none leads."""
        reached = bytearray(self.item_count + 1)
        for number, (slot, _) in self._slots_in_use():
            place = _HEADER.size + number * _SLOT.size
            if not 0 < slot <= self.item_count:
                yield Problem(place, f"0 to {self.item_count}", str(slot))
                return
            for one in self._chain(number, self.slots):
                item_no = self._number_at(one.position)
                reached[item_no] = 1
                if one.key_hash < 0 or one.key_hash % self.slots != number:
                    yield Problem(one.position, f"an item of slot {number}", f"hash {one.key_hash}")
                    return
                if not 0 <= one.prev_item_no < item_no:
                    expected = f"an item before {item_no}"
                    yield Problem(one.position, expected, str(one.prev_item_no))
                    return
        missing = reached.find(0, 1)
        if missing > 0:
            position = self._item_position(missing, self.slots)
            yield Problem(position, "a slot that leads to this item", "none")

    def _slots_in_use(self) -> Iterator[tuple[int, tuple[int, int]]]:
        end = _HEADER.size + self.slots * _SLOT.size
        for low, high in self.mapped.extents(_HEADER.size, end):
            low -= (low - _HEADER.size) % _SLOT.size
            for at in range(low, min(high, end), _SLOTS_AT_ONCE * _SLOT.size):
                size = min(_SLOTS_AT_ONCE * _SLOT.size, -(-(min(high, end) - at) // 8) * 8)
                data = self.mapped.read(at, min(size, end - at))
                whole = memoryview(data)[: len(data) // _SLOT.size * _SLOT.size]
                first = (at - _HEADER.size) // _SLOT.size
                for number, values in enumerate(_SLOT.iter_unpack(whole), first):
                    if values[0]:
                        yield number, values

    def _chain(self, slot: int, slots: int) -> Iterator[Item]:
        data = self.mapped.read(_HEADER.size + slot * _SLOT.size, _SLOT.size)
        number, _ = _SLOT.unpack(data.ljust(_SLOT.size, b"\0"))
        most = self.header.item_count
        while 0 < number <= most:
            item = self._item(number, slots)
            yield item
            most, number = number - 1, item.prev_item_no

    def _item(self, number: int, slots: int) -> Item:
        position = self._item_position(number, slots)
        data = self.mapped.read(position, _ITEM.size).ljust(_ITEM.size, b"\0")
        return Item._make((*_ITEM.unpack(data), position))

    def _item_position(self, number: int, slots: int) -> int:
        return _HEADER.size + slots * _SLOT.size + number * _ITEM.size

    def _number_at(self, position: int) -> int:
        return (position - self._item_position(0, self.slots)) // _ITEM.size

    def _items_from(self, start: int, count: int, form: Struct) -> Iterator[Item]:
        """Consecutive items. Those in a hole of the file were never written, and are skipped."""
        end = start + count * form.size
        link = (0,) if form is _COMPACTED_ITEM else ()
        done = start
        for low, high in self.mapped.extents(start, end):
            at = max(low - (low - start) % form.size, done)
            done = min(high + (start - high) % form.size, end)
            for place in range(at, done, _ITEMS_AT_ONCE * form.size):
                data = self.mapped.read(place, min(done - place, _ITEMS_AT_ONCE * form.size))
                whole = memoryview(data)[: len(data) // form.size * form.size]
                for number, values in enumerate(form.iter_unpack(whole)):
                    yield Item._make((*values, *link, place + number * form.size))


class CompactedIndexFile(TieredIndexFile):
    """An uploaded file of the index: the items of each slot are consecutive."""

    is_compacted = True
    lacks_its_slots = False
    _magic_codes = (TIERED_INDEX_END_MAGIC_CODE,)
    _whole = "slots and items that end with the file"

    def __init__(self, mapped: MappedFile) -> None:
        super().__init__(mapped, ())

    def _find_slots(self, slots: Iterable[int]) -> int:
        count = self.header.item_count
        room = self.mapped.size - _HEADER.size - count * _COMPACTED_ITEM.size
        is_whole = count >= 0 and room > 0 and room % _COMPACTED_SLOT.size == 0
        return room // _COMPACTED_SLOT.size if is_whole else 0

    def problem(self) -> Problem | None:
        """As in the other form; but an index file without items is uploaded as an empty file."""
        return None if self.mapped.size == 0 else super().problem()

    def items(self) -> Iterator[Item]:
        yield from self._items_from(self._first_item, self.item_count, _COMPACTED_ITEM)

    @property
    def _first_item(self) -> int:
        return _HEADER.size + self.slots * _COMPACTED_SLOT.size

    def find(self, key_hash: int) -> Iterator[Item]:
        if not self.slots or key_hash < 0:
            return
        place = _HEADER.size + key_hash % self.slots * _COMPACTED_SLOT.size
        data = self.mapped.read(place, _COMPACTED_SLOT.size)
        position, length = _COMPACTED_SLOT.unpack(data.ljust(_COMPACTED_SLOT.size, b"\0"))
        if self._is_slot(position, length):
            for one in self._items_from(position, length // _COMPACTED_ITEM.size, _COMPACTED_ITEM):
                if one.key_hash == key_hash:
                    yield one

    def _is_slot(self, position: int, length: int) -> bool:
        size = _COMPACTED_ITEM.size
        return (
            position >= self._first_item
            and length >= 0
            and length % size == 0
            and (position - self._first_item) % size == 0
            and position + length <= self.mapped.size
        )

    def unreachable(self) -> Iterator[Problem]:
        expected = self._first_item
        for number, (position, length) in self._slots_in_use():
            if position != expected or not self._is_slot(position, length):
                place = _HEADER.size + number * _COMPACTED_SLOT.size
                yield Problem(place, f"items from {expected} on", f"{length} bytes at {position}")
                return
            for one in self._items_from(position, length // _COMPACTED_ITEM.size, _COMPACTED_ITEM):
                if one.key_hash < 0 or one.key_hash % self.slots != number:
                    yield Problem(one.position, f"an item of slot {number}", f"hash {one.key_hash}")
                    return
            expected = position + length
        if expected != self.mapped.size:
            yield Problem(expected, "a slot that leads to this item", "none")
