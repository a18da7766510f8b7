"""A file of an index that is made anew: nobody looks at it before it is whole.

Its items go to the file as they come; its slots and header when it is full or flushed. After a kill
before that, the file is thrown away with its directory. Slots are touched in no order, and storing
them through the map costs a page fault each. So here they are kept in memory (20 MB by the default
geometry) and written once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from formats.geometry import Geometry
from rmqctl.engine.dispatch.batches import KeyBatch
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.writeback import begin_writing
from rmqctl.engine.index.header import IndexHeader, time_diff_seconds
from rmqctl.engine.index.indexfilewriter import IndexFileWriter
from rmqctl.engine.index.newslots import new_slots

#: Slots in a piece. A piece of which all slots are empty is not written.
_PIECE = 1 << 14
#: Slots in a piece when so many are filled that no piece is empty: fewer, larger writes are twice
#: as fast.
_LARGE_PIECE = 1 << 18
#: Filled slots per piece, on average, from which on hardly any piece is empty.
_MANY_ITEMS = 8
#: Fewest bytes of items that are written together (a page costs half as much in a write of many
#: pages as in one of ten), and fewest that the disk is told to begin writing together.
_WRITTEN_AT_ONCE = 1 << 19
_BEGUN_AT_ONCE = 1 << 21


class NewIndexFile(IndexFileWriter):
    """An index file in the making, as the module says. :meth:`flush` makes it whole."""

    def __init__(self, mapped: MappedFile, geometry: Geometry) -> None:
        super().__init__(mapped, geometry)
        self._slots = new_slots(geometry.hash_slot_num)
        #: Items that are not written yet, and their bytes; then the position up to which items are
        #: written, and up to which the disk has begun to write them.
        self._waiting: list[bytes | memoryview] = []
        self._waiting_bytes = 0
        self._written = self._on_its_way = geometry.item_position(self.header.index_count)

    def put_keys(
        self, key_hashes: Sequence[int], physical_offset: int, store_timestamp: int
    ) -> int:
        """:meth:`IndexFileWriter.put_keys`. Raises what :meth:`put_key_batch` raises."""
        offsets = np.full(len(key_hashes), physical_offset, np.int64)
        stamps = np.full(len(key_hashes), store_timestamp, np.int64)
        return self.put_key_batch(KeyBatch(np.array(key_hashes, np.int32), offsets, stamps), 0)

    def put_key_batch(self, keys: KeyBatch, start: int) -> int:
        """:meth:`IndexFileWriter.put_key_batch`. :raises OSError: the disk is full; the file is of
        no use."""
        header = self.header
        end = min(len(keys.key_hash), start + self.geometry.index_num - header.index_count)
        if end <= start:
            return start
        fitting = keys.part(start, end)
        stamps, offsets = fitting.store_timestamp, fitting.physical_offset
        begin_time, begin_offset = header.begin_timestamp, header.begin_phy_offset
        first_diff, count = None, header.index_count
        if count <= 1:
            first_diff = time_diff_seconds(int(stamps[0]), begin_time)
            begin_time, begin_offset = int(stamps[0]), int(offsets[0])
        items = self._slots.pack(fitting, count, begin_time, first_diff)
        self._store_items(items)
        self.header = IndexHeader(
            begin_time,
            int(stamps[-1]),
            begin_offset,
            int(offsets[-1]),
            self._slots.used,
            count + end - start,
        )
        return end

    def _store_items(self, items: bytes | memoryview) -> None:
        """Adds items behind the last ones. The disk gets them while the next are made."""
        self._waiting.append(items)
        self._waiting_bytes += len(items)
        if self._waiting_bytes >= _WRITTEN_AT_ONCE:
            self._write_items()

    def _write_items(self) -> None:
        items, self._waiting, self._waiting_bytes = b"".join(self._waiting), [], 0
        self.mapped.write_aside(self._written, items)
        self._written += len(items)
        if self._written - self._on_its_way >= _BEGUN_AT_ONCE:
            begin_writing(self.mapped.descriptor, self._on_its_way, self._written)
            self._on_its_way = self._written

    def flush(self) -> None:
        """Stores slots and header, and forces the file to disk. :raises OSError: the disk failed,
        or is full."""
        self._write_items()
        slots = self.geometry.hash_slot_num
        is_filled = self._slots.used * _PIECE >= _MANY_ITEMS * slots
        size = _LARGE_PIECE if is_filled else _PIECE
        for slot in range(0, slots, size):
            piece = self._slots.stored(slot, min(size, slots - slot))
            if piece is not None:
                position = self.geometry.slot_position(slot)
                self.mapped.write_aside(position, piece)
                begin_writing(self.mapped.descriptor, position, position + len(piece))
        self.mapped.write_aside(0, self.header.pack())
        self.mapped.flush()

    def flush_full(self) -> None:
        """:meth:`IndexFileWriter.flush_full`; frees the memory of the slots. Raises what
        :meth:`flush` raises."""
        self.flush()
        self._slots = new_slots(0)
