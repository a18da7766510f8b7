"""Lookups in one index file, which stays open from one to the next.

Nothing is looked at through the map, which a file that shrinks would end the process with. A
broker may be writing the file: the header is read by every lookup. Where the kernel gives a key's
rows or lines it keeps the header, and reads it again when the slot's newest item is not one of
those that it counts.
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

#: Items that the kernel gives at once: few are wanted of most keys.
_AT_ONCE = 64


#: A key hash, the first and the last store time, and whether the file is growing.
WantedItems = tuple[int, int, int, bool]
#: The header's begin and count, and the number of the next item; 0: there is none.
ReachedItem = tuple[int, int, int]
#: Number, physical offset, seconds, number of the item before.
Hit = tuple[int, int, int, int]


class IndexReader(Protocol):
    """The kernel's ``IndexReader``."""

    def select(
        self, wanted: WantedItems, reached: ReachedItem | None, most: int
    ) -> tuple[ReachedItem, list[Hit]]: ...


class RowMaker(Protocol):
    """The kernel's ``Rows``, which :meth:`IndexService.rows_of_key` hands to the kernel again."""


#: Rows of a key, in log order, and how many items of its hash have records of other keys.
KeyRows = tuple[list[Any], int]


class Found(NamedTuple):
    """What a lookup tells: where the file's times begin (ms), and numbers and items, newest
    first."""

    begin_timestamp: int
    items: Iterator[tuple[int, IndexItem]]


class Lookup(Protocol):
    """Gives the items of a key hash, as :meth:`IndexFile.select` does; none where the file's times
    do not meet the asked ones. Any thread may ask."""

    def __call__(self, key_hash: int, begin: int, end: int, *, is_growing: bool) -> Found: ...

    @property
    def reader(self) -> IndexReader | None:
        """The kernel's, where it looks."""


class FileLookup:
    """:class:`Lookup` by reading item by item."""

    def __init__(self, path: Path, geometry: Geometry) -> None:
        """:raises CannotRead: as of a file that is opened. :raises FileLengthContradiction: it has
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
    """:class:`Lookup` by the compiled kernel, which has the file open for itself."""

    def __init__(self, kernel: ModuleType, by_reading: FileLookup) -> None:
        """:raises OSError: the system has no way to open what is open."""
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
    """What looks into a file: the kernel where there is one, and a way to hand it the file.

    :raises CannotRead, FileLengthContradiction: as of :class:`FileLookup`.
    """
    by_reading = FileLookup(path, geometry)
    # No engine has more: they are Java's ints.
    if kernel is None or not 0 < geometry.hash_slot_num <= INT_MAX >= geometry.index_num:
        return by_reading
    try:
        return CompiledLookup(kernel, by_reading)
    except OSError:  # No /proc here.
        return by_reading
