"""Index files that a killed writer left, or that a start cuts: links and headers made anew.

A slot holds the number of its newest item, and each item the number of the one before it in the
slot (``IndexFile#putKey``). So slots and links follow from the items' key hashes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rmqctl.errors import DamagedStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


from rmqctl.engine.index.header import HEADER, ITEM, SLOT, IndexHeader, IndexItem, first_header
from rmqctl.engine.index.indexfile import ITEMS_AT_ONCE, IndexFile
from rmqctl.engine.index.indexfilewriter import IndexFileWriter

#: More uncounted items than one bulk of a killed writer can leave.
_MOST_UNCOUNTED = 1 << 20


def repair(
    index: IndexFileWriter,
    store_timestamp_at: Callable[[int], int | None],
    previous: IndexHeader | None = None,
) -> int:
    """Undoes items that a killed writer stored but did not count. Returns how many.

    An item keeps its slot's former value, so the slot's oldest uncounted item restores it. A repair
    that is killed can be done again.

    :param store_timestamp_at: gives the store time (ms) of the record at a physical offset.
    :param previous: the header of the file before.
    """
    first = index.header.index_count
    if first > index.geometry.index_num:
        raise DamagedStore(
            reason=f"the header of {index.path} counts {first - 1} items, more than fit",
            physical_offset=index.header.end_phy_offset,
        )
    if first > 1 and index.item(first - 1) == IndexItem(0, 0, 0, 0):
        raise DamagedStore(
            reason=f"the header of {index.path} counts items that were never written",
            physical_offset=index.header.end_phy_offset,
        )
    uncounted = index.uncounted_items()
    if uncounted > _MOST_UNCOUNTED:
        raise DamagedStore(
            reason=f"the header of {index.path} counts far fewer items than stand there; "
            "`rmqctl rebuild index` writes it anew",
            physical_offset=index.header.end_phy_offset,
        )
    last = first + uncounted
    values: dict[int, list[int]] = {}
    for index_no in range(first, last):
        item = index.item(index_no)
        slot = max(item.key_hash, 0) % index.geometry.hash_slot_num
        values.setdefault(slot, [item.prev_index_no]).append(index_no)
    for slot, (former, *later) in values.items():
        value, position = index.slot(slot), index.geometry.slot_position(slot)
        if value != former and _is_cut_between(value, former, later):
            index.mapped.reserve(position, SLOT.size)
            index.mapped.write(position, SLOT.pack(former))
    header = _header_of_counted(index, store_timestamp_at, previous, uncounted > 0)
    if header != index.header or index.stored_index_count < 0:
        index.mapped.reserve(0, HEADER.size)
        index.store_header(header)
    for index_no in range(last - 1, first - 1, -1):
        index.mapped.reserve(index.geometry.item_position(index_no), ITEM.size)
        index.mapped.write(index.geometry.item_position(index_no), bytes(ITEM.size))
    return uncounted


def _header_of_counted(
    index: IndexFile,
    store_timestamp_at: Callable[[int], int | None],
    previous: IndexHeader | None,
    was_cut: bool,
) -> IndexHeader:
    """The header as it was when the last counted item was stored.

    :param was_cut: there were uncounted items; without them only the header's end can be wrong.
    """
    header, count = index.header, index.header.index_count
    if count <= 1:
        return first_header(previous)
    newest, oldest = index.item(count - 1).physical_offset, index.item(1).physical_offset
    timestamp = store_timestamp_at(newest)
    if timestamp is not None:
        header = header._replace(end_phy_offset=newest, end_timestamp=timestamp)
    begin = store_timestamp_at(oldest) if was_cut else None
    if begin is not None:
        header = header._replace(begin_phy_offset=oldest, begin_timestamp=begin)
    if was_cut:
        header = header._replace(hash_slot_count=int((index.slots() > 0).sum()))
    return header


def _linked(
    index: IndexFile, kept: int, slots: NDArray[np.int32]
) -> Iterator[tuple[NDArray[np.void], NDArray[np.int32]]]:
    """Pieces of the first ``kept`` items (``item_dtype``) with their right links (int32, parallel).

    ``slots`` (int32) begins as zeros; behind the last piece it has the right slots of all.
    """
    import numpy as np

    from rmqctl.engine.index.links import link_items

    for first in range(1, kept + 1, ITEMS_AT_ONCE):
        items = index.items(first, min(ITEMS_AT_ONCE, kept + 1 - first), counted=False)
        number = np.arange(first, first + len(items), dtype=np.int32)
        slot = items["key_hash"].astype(np.int64) % len(slots)
        links = link_items(slot, number, slots, kept + 1)
        slots[links.slot] = links.newest
        yield items, links.previous


def is_linked(index: IndexFile) -> bool:
    """Whether slots, links and the header's end are right for the items."""
    import numpy as np

    kept = index.item_count
    slots = np.zeros(index.geometry.hash_slot_num, np.int32)
    for items, previous in _linked(index, kept, slots):
        if not np.array_equal(items["prev_index_no"], previous):
            return False
    same = bool((index.slots() == slots).all())
    header = index.header
    return (
        same
        and header.end_phy_offset == index.item(kept).physical_offset
        and header.index_count == index.stored_index_count
        and header.hash_slot_count == int((slots > 0).sum())
    )


def keep(
    index: IndexFileWriter, kept: int, store_timestamp_at: Callable[[int], int | None]
) -> None:
    """Keeps the first ``kept`` items, at least one, and makes links, slots and header right for
    them. Everything behind them becomes zeros.

    The slots are stored before items are cleared, so no slot ever names a cleared item.

    :raises OSError: the disk failed.
    """
    import numpy as np

    slots, first = np.zeros(index.geometry.hash_slot_num, np.int32), 1
    for items, previous in _linked(index, kept, slots):
        rows = np.flatnonzero(items["prev_index_no"] != previous)
        for row, link in zip(rows.tolist(), previous[rows].tolist(), strict=True):
            _store(index, index.geometry.item_position(first + row) + ITEM.size - 4, link)
        first += len(items)
    stored = index.slots().astype(np.int32)
    for slot in np.flatnonzero(stored != slots).tolist():
        _store(index, index.geometry.slot_position(slot), int(slots[slot]))
    header = index.header._replace(index_count=kept + 1, hash_slot_count=int((slots > 0).sum()))
    oldest, newest = index.item(1).physical_offset, index.item(kept).physical_offset
    begin, end = store_timestamp_at(oldest), store_timestamp_at(newest)
    if end is None:
        # The log has lost the record. The item has its second, but the first item has none.
        seconds = index.item(kept).time_diff_seconds if kept > 1 else 0
        end = header.begin_timestamp + seconds * 1000 + 999
    if begin is not None:
        header = header._replace(begin_phy_offset=oldest, begin_timestamp=begin)
    header = header._replace(end_phy_offset=newest, end_timestamp=end)
    index.mapped.reserve(0, HEADER.size)
    index.store_header(header)
    index.mapped.clear(index.geometry.item_position(kept + 1))


def _store(index: IndexFileWriter, position: int, value: int) -> None:
    """Stores a slot, or the link of an item."""
    index.mapped.reserve(position, SLOT.size)
    index.mapped.write(position, SLOT.pack(value))


def _is_cut_between(value: int, former: int, later: list[int]) -> bool:
    """Whether a slot holds one of the ``later`` values, or a mix of bytes of one and of the
    ``former`` value, as a store that was cut leaves it."""
    stored, before = SLOT.pack(value), SLOT.pack(former)
    return any(
        all(byte in both for byte, *both in zip(stored, before, after, strict=True))
        for after in map(SLOT.pack, later)
    )
