"""The writing half of :mod:`rmqctl.engine.index.indexfile`: adds items, one message's or many at a
time.

Items are stored first, then slots, then the header, whose count takes in all items of a message at
once. So after a kill the items that are not counted can be undone exactly
(:func:`rmqctl.engine.index.mending.repair`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from formats.geometry import Geometry
from rmqctl.engine.files.mappedfile import PAGE, MappedFile
from rmqctl.engine.index.header import (
    HEADER,
    ITEM,
    SLOT,
    IndexHeader,
    LiveHeader,
    NewItems,
    time_diff_seconds,
)
from rmqctl.engine.index.indexfile import IndexFile

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.dispatch.batches import KeyBatch
    from rmqctl.engine.index.indexwriter import KeyRun

_INDEX_COUNT_POSITION = HEADER.size - 4
_NO_ITEM = 0


class IndexFileWriter(IndexFile):
    """One index file, open for writing. ``live``: the header, while the kernel stores items."""

    live: LiveHeader | None = None

    def __init__(self, mapped: MappedFile, geometry: Geometry) -> None:
        """:raises FileLengthContradiction: the file has another length than its geometry."""
        super().__init__(mapped, geometry)
        self._has_slots = False

    @property
    def header(self) -> IndexHeader:
        """See :class:`IndexFile`. Setting it ends ``live``."""
        live = self.live
        return self._header if live is None else IndexHeader._make(live.fields)

    @header.setter
    def header(self, header: IndexHeader) -> None:
        self._header, self.live = header, None

    def put_keys(
        self, key_hashes: Sequence[int], physical_offset: int, store_timestamp: int
    ) -> int:
        """Adds one message's items (``IndexFile#putKey``); returns how many fitted.

        :raises OSError: the disk is full; the file is as it was.
        """
        header = self.header
        fitting = key_hashes[: self.geometry.index_num - header.index_count]
        if not fitting:
            return 0
        count, slot_count, added = header.index_count, header.hash_slot_count, 0
        begin_time, begin_offset = header.begin_timestamp, header.begin_phy_offset
        slots: dict[int, int] = {}
        items = []
        for key_hash in fitting:
            slot = key_hash % self.geometry.hash_slot_num
            previous = slots[slot] if slot in slots else self._linkable(self.slot(slot), count)
            added += previous == _NO_ITEM
            slots[slot] = count
            diff = time_diff_seconds(store_timestamp, begin_time)
            items.append(ITEM.pack(key_hash, physical_offset, diff, previous))
            if count <= 1:
                begin_time, begin_offset = store_timestamp, physical_offset
            count += 1
        position = self.geometry.item_position(header.index_count)
        self.mapped.reserve(0, HEADER.size)
        self.mapped.reserve(position, len(items) * ITEM.size)
        for slot in slots:
            self.mapped.reserve(self.geometry.slot_position(slot), SLOT.size)
        self.mapped.write(position, b"".join(items))
        for slot, value in slots.items():
            self.mapped.write(self.geometry.slot_position(slot), SLOT.pack(value))
        times, offsets = (begin_time, store_timestamp), (begin_offset, physical_offset)
        self.store_header(IndexHeader(*times, *offsets, slot_count, count).with_slots(added))
        return len(fitting)

    def put_keys_by(
        self, kernel: ModuleType, key_hashes: list[int], physical_offset: int, store_timestamp: int
    ) -> int:
        """:meth:`put_keys` by the compiled kernel, if all slots can have their disk blocks."""
        added, stamp = len(key_hashes), (physical_offset, store_timestamp)
        fits = added and self.header.index_count + added <= self.geometry.index_num
        if not fits or not self._reserve_slots():
            return self.put_keys(key_hashes, physical_offset, store_timestamp)

        def store(run: NewItems) -> int:
            diff = time_diff_seconds(store_timestamp, run.begin_timestamp)
            fresh: int = kernel.store_items(
                *self._places(run), key_hashes, physical_offset, run.first_diff, diff
            )
            return fresh

        self._put_items(NewItems(added, stamp, stamp), store)
        return added

    def put_key_run(self, kernel: ModuleType, keys: KeyRun, start: int) -> int:
        """:meth:`put_key_batch` by a thread of the compiled kernel, which goes on when this
        returns. Reading :attr:`header` waits for it. The same errors."""
        end = min(keys.keys, start + self.geometry.index_num - self.header.index_count)
        if end <= start:
            return start
        before, number = self.header, end - start
        run, behind = self._make_room(NewItems(number, keys.at(start), keys.at(end - 1)))
        self.live = kernel.ItemRun(
            *self._places(run), keys, start, number, run.first_diff, before, behind
        )
        return end

    def _places(self, run: NewItems) -> tuple[Any, int, int, int, int]:
        """Where the kernel stores items: the buffer, the position and number of the slots, the
        position of the items, and the number of the next item."""
        geometry = self.geometry
        slots, items = geometry.slot_position(0), geometry.item_position(0)
        return self.mapped.buffer, slots, geometry.hash_slot_num, items, run.number

    def _put_items(self, run: NewItems, store: Callable[[NewItems], int]) -> None:
        """Adds one or more items that fit, and stores the header. Errors as in :meth:`put_keys`.

        :param store: stores the items and then their slots; returns how many slots were empty.
        """
        run, header = self._make_room(run)
        self.store_header(header.with_slots(store(run)))

    def _make_room(self, run: NewItems) -> tuple[NewItems, IndexHeader]:
        """Allocates the blocks of one or more items that fit, and of all slots.

        Returns ``run`` with the file's part filled in, and the next header: only its count of used
        slots is still the old one. :raises OSError: the disk is full; the file is as it was.
        """
        header, mapped = self.header, self.mapped
        count, items = header.index_count, self.geometry.item_position(0)
        (begin_offset, begin_time), (last_offset, last_time) = run.first, run.last
        run = run._replace(
            number=count,
            begin_timestamp=header.begin_timestamp if count > 1 else begin_time,
            first_diff=time_diff_seconds(begin_time, header.begin_timestamp),
        )
        position, size = self.geometry.item_position(count), run.added * ITEM.size
        if not self._has_slots:
            mapped.reserve(0, items)
            self._has_slots = True
            if run.added * PAGE >= items:  # Most pages of slots will be stored into.
                mapped.touch(0, items)
        mapped.reserve(position, size)
        mapped.touch(position, position + size)
        # Noted first: after an interrupt a flush must know of everything.
        mapped.mark_dirty(0, position + size)
        mapped.forget_behind(position, items)
        return run, header._replace(
            begin_timestamp=run.begin_timestamp,
            end_timestamp=last_time,
            begin_phy_offset=header.begin_phy_offset if count > 1 else begin_offset,
            end_phy_offset=last_offset,
            index_count=count + run.added,
        )

    def _reserve_slots(self) -> bool:
        """Allocates the blocks of all slots. False: the disk is too full for all of them."""
        if not self._has_slots:
            try:
                self.mapped.reserve(0, self.geometry.item_position(0))
            except OSError:
                return False
            self._has_slots = True
        return True

    def room_for(self, items: int) -> int:
        """Allocates the blocks of all slots and of the next ``items`` items, or as many as fit.
        Returns the number of the first item without blocks."""
        count = self.header.index_count
        items = min(items, self.geometry.index_num - count)
        if items <= 0 or not self._reserve_slots():
            return count
        try:
            self.mapped.reserve(self.geometry.item_position(count), items * ITEM.size)
        except OSError:
            return count
        return count + items

    @staticmethod
    def _linkable(slot_value: int, index_count: int) -> int:
        """A slot's value as ``putKey`` reads it: one that is out of range counts as empty."""
        return slot_value if 0 < slot_value <= index_count else _NO_ITEM

    def put_key_batch(self, keys: KeyBatch, start: int) -> int:
        """Adds the keys of a batch, in log order, from number ``start`` on, as many as fit.
        Returns the number behind the last one. Errors as in :meth:`put_keys`.
        """
        from rmqctl.engine.index.links import store_batch

        room = self.geometry.index_num - self.header.index_count
        end = min(len(keys.key_hash), start + room)
        if end <= start:
            return start
        part = keys.part(start, end)
        first, last = (
            (int(part.physical_offset[at]), int(part.store_timestamp[at])) for at in (0, -1)
        )
        self._put_items(NewItems(end - start, first, last), partial(store_batch, self, part))
        return end

    def slot_view(self) -> NDArray[np.int32]:
        """All slots in the map: big-endian int32, by slot number. Drop it before the file is
        closed."""
        import numpy as np

        count, position = self.geometry.hash_slot_num, self.geometry.slot_position(0)
        return np.frombuffer(self.mapped.buffer, ">i4", count, position)

    def store_header(self, header: IndexHeader) -> None:
        """Stores the header, the count last: every item that is counted is complete."""
        data = header.pack()
        self.mapped.write(0, data[:_INDEX_COUNT_POSITION])
        self.mapped.write(_INDEX_COUNT_POSITION, data[_INDEX_COUNT_POSITION:])
        self.header = header

    def flush(self) -> None:
        self.settle()
        self.mapped.flush()

    def flush_full(self) -> None:
        """:meth:`flush` of a full file."""
        self.flush()

    def close(self) -> None:
        try:
            self.settle()
        finally:
            self.mapped.close()

    def settle(self) -> None:
        """Waits until the kernel has stored everything that was put. Any thread may call it."""
        if (live := self.live) is not None:
            _ = live.fields
