"""Lookups in one index file, which stays open from one to the next.

Nothing is read through the map: reading it after another process has cut the file would end this
process. A broker may be writing the file, so every lookup reads the header. When the kernel gives
a key's rows or lines, it keeps the header and reads it again only when the slot's newest item is
not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from formats.constants import INT_MAX, LONG_MAX, LONG_MIN
from formats.geometry import Geometry
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.index.header import IndexItem
from rmqctl.engine.index.indexfile import SHORTER, IndexFile
from rmqctl.errors import CannotRead

if TYPE_CHECKING:
    from types import ModuleType

#: Items that the kernel gives at once. Most keys have few.
_AT_ONCE = 64


#: A key hash, the first and the last store time, and whether the file is growing.
WantedItems = tuple[int, int, int, bool]
#: The header's begin time (ms) and count, and the number of the next item; 0: there is none.
ReachedItem = tuple[int, int, int]
#: Number, physical offset, time difference (s), and number of the item before in its slot.
Hit = tuple[int, int, int, int]


class IndexReader(Protocol):
    """The kernel's ``IndexReader``."""

    def select(
        self, wanted: WantedItems, reached: ReachedItem | None, most: int
    ) -> tuple[ReachedItem, list[Hit]]: ...


class RowMaker(Protocol):
    """The kernel's ``Rows``; :meth:`IndexService.rows_of_key` only hands it to the kernel."""


#: Rows of a key, in log order, and how many items with its hash belong to other keys.
KeyRows = tuple[list[Any], int]


class Found(NamedTuple):
    """What a lookup finds: the file's begin time (ms), and items with their numbers, newest
    first."""

    begin_timestamp: int
    items: Iterator[tuple[int, IndexItem]]


class Lookup(Protocol):
    """Gives the items of a key hash, as :meth:`IndexFile.select` does; none if the file's times
    do not overlap the asked ones. Any thread may ask."""

    def __call__(self, key_hash: int, begin: int, end: int, *, is_growing: bool) -> Found: ...

    @property
    def reader(self) -> IndexReader | None:
        """The kernel's reader, if the kernel does the lookup."""


class FileLookup:
    """:class:`Lookup` by reading item by item."""

    def __init__(self, path: Path, geometry: Geometry) -> None:
        """:raises CannotRead: the file cannot be opened. :raises FileLengthContradiction: it has
        another length than its geometry."""
        self.geometry = geometry
        self.mapped = IndexFile(MappedFile.open(path), geometry).mapped

    def __call__(self, key_hash: int, begin: int, end: int, *, is_growing: bool) -> Found:
        file = IndexFile(self.mapped, self.geometry)
        items: Iterator[tuple[int, IndexItem]] = iter(())
        if file.is_time_matched(begin, end):
            items = file.select(key_hash, begin, end, is_growing=is_growing)
        return Found(file.header.begin_timestamp, items)

    @property
    def reader(self) -> None:
        return None


class CompiledLookup:
    """:class:`Lookup` by the compiled kernel, which opens the file again for itself."""

    def __init__(self, kernel: ModuleType, by_reading: FileLookup) -> None:
        """:raises OSError: the system cannot open a descriptor a second time."""
        geometry = by_reading.geometry
        descriptor = by_reading.mapped.descriptor
        self._path = by_reading.mapped.path
        self.reader: IndexReader = kernel.IndexReader(
            descriptor, geometry.hash_slot_num, geometry.index_num
        )

    def __call__(self, key_hash: int, begin: int, end: int, *, is_growing: bool) -> Found:
        wanted = (key_hash, max(begin, LONG_MIN), min(end, LONG_MAX), is_growing)
        reached, hits = self._select(wanted, None)
        return Found(reached[0], self._items(wanted, reached, hits))

    def _items(
        self, wanted: WantedItems, reached: ReachedItem, hits: list[Hit]
    ) -> Iterator[tuple[int, IndexItem]]:
        key_hash = wanted[0]
        while True:
            for index_no, offset, seconds, previous in hits:
                yield index_no, IndexItem(key_hash, offset, seconds, previous)
            if not reached[2]:
                return
            reached, hits = self._select(wanted, reached)

    def _select(
        self, wanted: WantedItems, reached: ReachedItem | None
    ) -> tuple[ReachedItem, list[Hit]]:
        try:
            return self.reader.select(wanted, reached, _AT_ONCE)
        except (OSError, EOFError) as error:
            reason = getattr(error, "strerror", None) or SHORTER
            raise CannotRead(path=str(self._path), reason=reason) from error


def lookup_of(path: Path, geometry: Geometry, kernel: ModuleType | None) -> Lookup:
    """The lookup of a file: by the kernel if there is one and it can open the file, else by
    reading.

    :raises CannotRead, FileLengthContradiction: as :class:`FileLookup` does.
    """
    by_reading = FileLookup(path, geometry)
    # Larger numbers are no Java ints: no engine writes them.
    if kernel is None or not 0 < geometry.hash_slot_num <= INT_MAX >= geometry.index_num:
        return by_reading
    try:
        return CompiledLookup(kernel, by_reading)
    except OSError:  # No /proc here.
        return by_reading
