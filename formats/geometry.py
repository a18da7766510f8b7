"""The positions in an index file with given numbers of slots and items.

An index file does not record its own geometry: `maxHashSlotNum` and `maxIndexNum` come from the
broker's configuration, and reading a file with the wrong ones yields nonsense. This module needs no
construct, so that a lookup starts fast; `formats.indexfile` re-exports it beside the schemas.
"""

from typing import NamedTuple

from formats.constants import (
    DEFAULT_MAX_HASH_SLOT_NUM,
    DEFAULT_MAX_INDEX_NUM,
    HASH_SLOT_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_SIZE,
)


class Geometry(NamedTuple):
    """The two numbers that fix every position in an index file."""

    hash_slot_num: int = DEFAULT_MAX_HASH_SLOT_NUM
    index_num: int = DEFAULT_MAX_INDEX_NUM

    @property
    def file_size(self) -> int:
        """Return the size in bytes that every index file of this geometry has."""
        return self.item_position(self.index_num)

    def slot_position(self, slot: int) -> int:
        """Return the position of a slot; slots count from 0."""
        return INDEX_HEADER_SIZE + HASH_SLOT_SIZE * slot

    def item_position(self, index_no: int) -> int:
        """Return the position of an item; items are used from 1, the place of item 0 lies idle."""
        return self.slot_position(self.hash_slot_num) + INDEX_SIZE * index_no
