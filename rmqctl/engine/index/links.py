"""Whole arrays of index items: their links, and their times.

``IndexFile#putKey`` links one item after the other. Here a run of items is linked at once; put and
verify share this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats import layouts
from formats.constants import INT_MAX
from formats.derive import dtype_of
from rmqctl.engine.scan.sorting import stable_order
from rmqctl.kernel import module as compiled

if TYPE_CHECKING:
    from rmqctl.engine.dispatch.batches import KeyBatch
    from rmqctl.engine.index.header import NewItems
    from rmqctl.engine.index.indexfilewriter import IndexFileWriter

_NO_ITEM = 0


class Links(NamedTuple):
    """The links of a run of items.

    ``previous`` (int32, parallel to the items) are the numbers of the items before them in their
    slots. ``slot`` (int64, each once) are the numbers of the touched slots, and ``newest`` (int32,
    parallel to ``slot``) the numbers of their newest items. ``fresh_slots`` of them were empty.
    """

    previous: NDArray[np.int32]
    slot: NDArray[np.int64]
    newest: NDArray[np.int32]
    fresh_slots: int


def link_items(
    slot: NDArray[np.int64],
    number: NDArray[np.int32],
    newest_of_slot: NDArray[np.int32],
    count: int,
) -> Links:
    """Links consecutive items, as ``putKey`` would one after the other.

    ``slot`` (int64) and ``number`` (int32, ascending) are parallel: slot and number of each item,
    at least one. ``newest_of_slot`` (int32, by slot number) are the slots before these items, and
    ``count`` is the header's index count then. A slot's value out of range counts as empty.
    """
    kernel = compiled()
    if kernel is None:
        return links_by_sorting(slot, number, newest_of_slot, count)
    big_endian = newest_of_slot.dtype.byteorder == ">"
    columns = (column.view(np.uint8) for column in (slot, number, newest_of_slot))
    previous, touched, newest, fresh_slots = kernel.link_items(*columns, big_endian, count)
    return Links(
        np.frombuffer(previous, np.int32),
        np.frombuffer(touched, np.int64),
        np.frombuffer(newest, np.int32),
        fresh_slots,
    )


def links_by_sorting(
    slot: NDArray[np.int64],
    number: NDArray[np.int32],
    newest_of_slot: NDArray[np.int32],
    count: int,
) -> Links:
    """:func:`link_items` in numpy, with the same arguments (int64, int32 and int32)."""
    order = stable_order(slot)
    sorted_slot, sorted_number = slot[order], number[order]
    first = np.empty(len(order), bool)
    first[0] = True
    np.not_equal(sorted_slot[1:], sorted_slot[:-1], out=first[1:])
    head = sorted_slot[first]
    before = newest_of_slot[head].astype(np.int32)
    before[(before < 0) | (before > count)] = _NO_ITEM
    sorted_previous = np.empty(len(order), np.int32)
    sorted_previous[1:] = sorted_number[:-1]
    sorted_previous[first] = before
    previous = np.empty(len(order), np.int32)
    previous[order] = sorted_previous
    last = np.append(np.flatnonzero(first)[1:], len(order)) - 1
    return Links(previous, head, sorted_number[last], int((before == _NO_ITEM).sum()))


def time_diff_array(stamps: NDArray[np.int64], begin_timestamp: int) -> NDArray[np.int64]:
    """:func:`time_diff_seconds` for store timestamps in ms: int64, parallel to ``stamps``."""
    if begin_timestamp <= 0:
        return np.zeros(len(stamps), np.int64)
    return np.clip((stamps - begin_timestamp) // 1000, 0, INT_MAX)


def item_dtype() -> np.dtype[np.void]:
    return dtype_of(layouts.INDEX_ITEM)


def store_batch(file: IndexFileWriter, keys: KeyBatch, run: NewItems) -> int:
    """Stores a batch of items, then their slots. Both have their disk blocks already. Returns how
    many of the slots were empty."""
    number = np.arange(run.number, run.number + run.added, dtype=np.int32)
    slots = file.slot_view()
    slot = keys.key_hash.astype(np.int64) % file.geometry.hash_slot_num
    links = link_items(slot, number, slots, run.number)
    items = np.zeros(run.added, item_dtype())
    items["key_hash"], items["physical_offset"] = keys.key_hash, keys.physical_offset
    items["time_diff_seconds"] = time_diff_array(keys.store_timestamp, run.begin_timestamp)
    if run.number <= 1:
        items["time_diff_seconds"][0] = run.first_diff
    items["prev_index_no"] = links.previous
    file.mapped.write(file.geometry.item_position(run.number), items.tobytes())
    slots[links.slot] = links.newest
    return links.fresh_slots
