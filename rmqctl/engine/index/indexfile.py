"""``IndexFile``: a hash table from keys to messages, for reading.

A file has a header, hash slots and items; each item points to the one before it in its slot.
:mod:`rmqctl.engine.index.indexfilewriter` adds items.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any

from formats.constants import INT_MAX
from formats.geometry import Geometry
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.index.header import HEADER, ITEM, SLOT, IndexHeader, IndexItem
from rmqctl.errors import CannotRead, FileLengthContradiction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Zeros in a row that end the search for items, in bytes.
_ZERO_RUN = 1 << 16
#: The reason of an error when a file has been cut since it was opened.
SHORTER = "it has become shorter while it was read"
#: Items that are read at once.
ITEMS_AT_ONCE = 1 << 20


class IndexFile:
    """One index file of a known geometry. ``header``: with a count of at least 1
    (``IndexHeader#load``)."""

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
        return IndexHeader._make(self._unpacked(HEADER, 0))

    def _unpacked(self, layout: Struct, position: int) -> tuple[Any, ...]:
        """The fields of a layout at a position. :raises CannotRead: the file has been cut."""
        data = self.mapped.read(position, layout.size)
        if len(data) < layout.size:
            raise CannotRead(path=str(self.path), reason=SHORTER)
        return layout.unpack(data)

    @property
    def path(self) -> Path:
        return self.mapped.path

    @property
    def has_grown(self) -> bool:
        """Whether another process has stored items since the file was opened."""
        return self._stored_header().index_count > self.header.index_count

    @property
    def item_count(self) -> int:
        """How many items the header counts; at most as many as fit."""
        return min(self.header.index_count, self.geometry.index_num) - 1

    @property
    def is_full(self) -> bool:
        return self.header.index_count >= self.geometry.index_num

    def item(self, index_no: int) -> IndexItem:
        return IndexItem._make(self._unpacked(ITEM, self.geometry.item_position(index_no)))

    def slot(self, slot: int) -> int:
        """Number of the newest item of a slot; 0 when the slot is empty."""
        value: int = self._unpacked(SLOT, self.geometry.slot_position(slot))[0]
        return value

    def is_time_matched(self, begin: int, end: int) -> bool:
        """Whether the file's times overlap ``[begin, end]`` (ms; ``IndexFile#isTimeMatched``)."""
        first, last = self.header.begin_timestamp, self.header.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def chain(self, key_hash: int, *, is_growing: bool = False) -> Iterator[tuple[int, IndexItem]]:
        """``(number, item)`` of all items in the slot of a key hash, newest first.

        Ends where a broker's walk ends, and also at the first link that does not lead back: so a
        cycle in a damaged file is no endless loop.

        :param is_growing: items may be stored meanwhile; uncounted ones are skipped.
        """
        index_no = self.slot(key_hash % self.geometry.hash_slot_num)
        is_beyond = index_no > self.header.index_count and not is_growing
        if is_beyond or self.header.index_count <= 1:
            return
        while 0 < index_no < self.geometry.index_num:
            item = self.item(index_no)
            if not is_growing or index_no < self.header.index_count:
                yield index_no, item
            if item.prev_index_no >= index_no:
                return
            index_no = item.prev_index_no

    def select(
        self, key_hash: int, begin: int, end: int, *, is_growing: bool = False
    ) -> Iterator[tuple[int, IndexItem]]:
        """Items of a key hash with times in ``[begin, end]`` (ms), newest first
        (``selectPhyOffset``)."""
        for index_no, item in self.chain(key_hash, is_growing=is_growing):
            if item.time_diff_seconds < 0:
                return
            time = self.header.begin_timestamp + item.time_diff_seconds * 1000
            if item.key_hash == key_hash and begin <= time <= end:
                yield index_no, item
            if time < begin:
                return

    def slots(self, start: int = 0, count: int = INT_MAX) -> NDArray[np.int32]:
        """A copy of up to ``count`` slots from number ``start``, by default of all: big-endian
        int32, by slot number."""
        import numpy as np

        count = min(count, self.geometry.hash_slot_num - start)
        data = self.mapped.read(self.geometry.slot_position(start), count * SLOT.size)
        return np.frombuffer(data, ">i4")

    def items(self, start: int, count: int, *, counted: bool = True) -> NDArray[np.void]:
        """A copy of up to ``count`` items from number ``start`` on, of dtype :func:`item_dtype`.

        :param counted: only items that the header counts; else all that fit into the file.
        """
        import numpy as np

        from rmqctl.engine.index.links import item_dtype

        most = self.item_count if counted else self.geometry.index_num - 1
        count = max(0, min(count, most + 1 - start))
        data = self.mapped.read(self.geometry.item_position(start), count * ITEM.size)
        return np.frombuffer(data, item_dtype())

    def uncounted_items(self) -> int:
        """How many items stand behind the counted ones, up to a long run of zeros; a torn store
        may have left some of them zero."""
        position = start = self.geometry.item_position(max(self.header.index_count, 1))
        end = start
        while data := self.mapped.read_aside(position, _ZERO_RUN):
            kept = data.rstrip(b"\0")
            if not kept:
                break
            end = position + len(kept)
            position += len(data)
        return -(-(end - start) // ITEM.size)

    def items_of_last_message(self) -> int:
        """How many of the last counted items belong to the message at ``end_phy_offset``."""
        index_no = self.item_count
        while index_no > 0 and self.item(index_no).physical_offset == self.header.end_phy_offset:
            index_no -= 1
        return self.item_count - index_no

    def close(self) -> None:
        self.mapped.close()
