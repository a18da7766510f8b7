"""The slots of an index file whose items are gone through in order from the first: a file that is
made anew, or one that is checked.

Both engines give the same; the compiled one links items one after the other, the pure one sorts
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from formats import layouts
from formats.derive import dtype_of
from rmqctl.engine.dispatch.batches import KeyBatch
from rmqctl.engine.index.links import links_by_sorting, time_diff_array
from rmqctl.kernel import module as compiled

if TYPE_CHECKING:
    from rmqctl.kernel import _kernel

_SLOT = np.dtype(f">{layouts.INDEX_SLOT.fields[0].code}")


class NewSlots(Protocol):
    """Slots, all empty at first. ``used`` is how many have an item."""

    @property
    def used(self) -> int: ...

    def pack(
        self, keys: KeyBatch, first: int, begin_timestamp: int, first_diff: int | None
    ) -> bytes | memoryview:
        """The items of keys as they are stored, numbered from ``first`` on.

        Their times count from ``begin_timestamp`` (ms). ``first_diff`` (s), if given, is the first
        item's time.
        """

    def wrong_links(
        self, items: NDArray[np.void], first: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Adds stored items, numbered from ``first`` on, and returns those whose link is wrong:
        their rows (int64, ascending) and, parallel, the right numbers of the items before them
        (int32, 0: none)."""

    def prove(
        self, items: NDArray[np.void], keys: KeyBatch, first: int, begin_timestamp: int
    ) -> int:
        """Adds stored items (of the item's dtype), numbered from ``first`` on, up to the first that
        is not exactly what its key gives. Returns how many it added. The pure engine would not be
        faster this way, and adds none."""

    def stored(self, start: int, count: int) -> memoryview | None:
        """``count`` slots from number ``start`` on, as they are stored; None when all are empty. No
        item can be added while somebody holds them."""


def new_slots(count: int) -> NewSlots:
    """``count`` empty slots, of the engine that :mod:`rmqctl.kernel` chooses."""
    kernel = compiled()
    return PureSlots(count) if kernel is None else CompiledSlots(kernel.Slots(count))


def wrong_slots(
    own: NewSlots, first: int, slots: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Compares an index file's slots, from number ``first`` on, with the right ones in ``own``.
    Returns the numbers of the wrong slots (int64, ascending) and, parallel, the right numbers of
    their newest items (int32, 0: none)."""
    stored = own.stored(first, len(slots))
    newest = np.zeros(len(slots), _SLOT) if stored is None else np.frombuffer(stored, _SLOT)
    # Equal numbers are equal in either byte order, and the native one takes a tenth of the time.
    same = slots.astype(_SLOT, copy=False).view(np.int32) == newest.view(np.int32)
    rows = np.flatnonzero(~same)
    return first + rows, newest[rows].astype(np.int32)


class PureSlots:
    """:class:`NewSlots` in numpy."""

    def __init__(self, count: int) -> None:
        self.used = 0
        self._newest = np.zeros(count, np.int32)

    def _previous(self, key_hash: NDArray[np.int32], first: int) -> NDArray[np.int32]:
        number = np.arange(first, first + len(key_hash), dtype=np.int32)
        slot = np.maximum(key_hash.astype(np.int64), 0) % len(self._newest)
        links = links_by_sorting(slot, number, self._newest, first)
        self._newest[links.slot] = links.newest
        self.used += links.fresh_slots
        return links.previous

    def pack(
        self, keys: KeyBatch, first: int, begin_timestamp: int, first_diff: int | None
    ) -> bytes:
        """See :class:`NewSlots`."""
        items = np.zeros(len(keys.key_hash), dtype_of(layouts.INDEX_ITEM))
        items["key_hash"], items["physical_offset"] = keys.key_hash, keys.physical_offset
        items["time_diff_seconds"] = time_diff_array(keys.store_timestamp, begin_timestamp)
        if first_diff is not None and len(items):
            items["time_diff_seconds"][0] = first_diff
        if len(items):
            items["prev_index_no"] = self._previous(keys.key_hash, first)
        return items.tobytes()

    def wrong_links(
        self, items: NDArray[np.void], first: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """See :class:`NewSlots`: int64 rows, int32 numbers."""
        if not len(items):
            return np.empty(0, np.int64), np.empty(0, np.int32)
        previous = self._previous(items["key_hash"].astype(np.int32), first)
        rows = np.flatnonzero(items["prev_index_no"].astype(np.int32) != previous)
        return rows, previous[rows]

    def prove(
        self, items: NDArray[np.void], keys: KeyBatch, first: int, begin_timestamp: int
    ) -> int:
        """See :class:`NewSlots`; items of the item's dtype."""
        return 0

    def stored(self, start: int, count: int) -> memoryview | None:
        """See :class:`NewSlots`."""
        piece = self._newest[start : start + count]
        return piece.astype(_SLOT).view(np.uint8).data if piece.any() else None


class CompiledSlots:
    """:class:`NewSlots` of the kernel."""

    def __init__(self, slots: _kernel.Slots) -> None:
        self._slots = slots

    @property
    def used(self) -> int:
        """See :class:`NewSlots`."""
        return self._slots.used

    def pack(
        self, keys: KeyBatch, first: int, begin_timestamp: int, first_diff: int | None
    ) -> memoryview:
        """See :class:`NewSlots`."""
        columns = (np.ascontiguousarray(column).view(np.uint8) for column in keys)
        items = self._slots.pack(
            *columns, first=first, begin_timestamp=begin_timestamp, first_diff=first_diff
        )
        return memoryview(items)

    def wrong_links(
        self, items: NDArray[np.void], first: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """See :class:`NewSlots`: int64 rows, int32 numbers."""
        stored = np.ascontiguousarray(items).view(np.uint8)
        rows, previous = self._slots.wrong_links(stored, first)
        return np.frombuffer(rows, np.int64), np.frombuffer(previous, np.int32)

    def prove(
        self, items: NDArray[np.void], keys: KeyBatch, first: int, begin_timestamp: int
    ) -> int:
        """See :class:`NewSlots`; items of the item's dtype."""
        columns = (np.ascontiguousarray(column).view(np.uint8) for column in (items, *keys))
        return self._slots.prove(*columns, first=first, begin_timestamp=begin_timestamp)

    def stored(self, start: int, count: int) -> memoryview | None:
        """See :class:`NewSlots`."""
        slots = self._slots.stored(start, count)
        return None if slots is None else memoryview(slots)
