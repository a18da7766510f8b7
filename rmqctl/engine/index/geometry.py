"""Finds out how many slots and items an index file has, when its links prove it.

A file does not record its geometry, and many pairs of slots and items give the same length. But the
header has the number of the newest item and its physical offset. So each place that holds this
offset suggests a number of slots, and only with the right one do slots and links lead from item to
item as the key hashes say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from formats.geometry import Geometry
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.paths import scan_names
from rmqctl.engine.index.header import HEADER, ITEM, IndexHeader
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.index.indexservice import is_index_name
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotRead

#: Files that are examined, the newest ones, and items of each whose links are followed.
_ASKED_FILES = 3
_ASKED_ITEMS = 256
#: Places that are tried for the newest item; a file may be full of its offset.
_MOST_PLACES = 4096
#: Items that a broker may have stored since the header was read.
_MOST_NEWER = 64
_OFFSET_IN_ITEM = 4


def known_geometry(directory: Path, config: MessageStoreConfig) -> Geometry:
    """The geometry for reading the index files of a directory.

    A configured one counts: that of a ``broker.conf``, as for a broker, and any that is not the
    default. Otherwise it is the default when a file has its length, else the proven one, and the
    default again when none is proven.
    """
    stated = config.index_geometry
    if config.explicit or stated != Geometry():
        return stated
    sizes = dict(_sizes(directory))
    if not sizes or stated.file_size in sizes.values():
        return stated
    ((length, files),) = Counter(sizes.values()).most_common(1)
    newest = sorted(path for path, size in sizes.items() if size == length)[-_ASKED_FILES:]
    told = [found for path in newest if (found := proven_geometry(path)) is not None]
    agreed = set(told)
    if len(agreed) != 1:
        return stated
    (geometry,) = agreed
    return geometry if files > 1 or _is_round(geometry.index_num) else stated


def _sizes(directory: Path) -> Iterator[tuple[Path, int]]:
    """Index files that are longer than a header, with their lengths."""
    for name in scan_names(directory):
        path = directory / name
        try:
            size = path.stat().st_size if is_index_name(name) and path.is_file() else 0
        except OSError:
            continue  # Opening it will raise.
        if size > HEADER.size:
            yield path, size


def _is_round(number: int) -> bool:
    """Whether a number looks like one from a ``broker.conf``: two leading digits at most, or a
    power of two. A single file that was cut hardly has such a number of items."""
    return len(str(number).rstrip("0")) <= 2 or number.bit_count() == 1


def proven_geometry(path: Path) -> Geometry | None:
    """The only geometry with which the links of a file's newest items are right; None when there is
    none, or more than one."""
    try:
        mapped = MappedFile.open(path)
    except CannotRead:
        return None
    try:
        header = IndexHeader._make(HEADER.unpack(mapped.read(0, HEADER.size)))
        found = {one for one in _possible(mapped, header) if _is_linked(mapped, one, header)}
    finally:
        mapped.close()
    return found.pop() if len(found) == 1 else None


def _possible(mapped: MappedFile, header: IndexHeader) -> Iterator[Geometry]:
    """Geometries of the file's length, one for each place that may hold its newest item."""
    newest = header.index_count - 1
    if newest < 1 or header.end_phy_offset <= 0:
        return
    needle, empty = header.end_phy_offset.to_bytes(8, "big"), Geometry(0, 0)
    for place in islice(_occurrences(mapped, needle), _MOST_PLACES):
        slots_size = place - _OFFSET_IN_ITEM - empty.item_position(newest)
        slots, odd = divmod(slots_size, empty.slot_position(1) - empty.slot_position(0))
        items, rest = divmod(mapped.size - Geometry(slots, 0).file_size, ITEM.size)
        if slots > 0 and not odd and not rest and items >= header.index_count:
            yield Geometry(slots, items)


def _occurrences(mapped: MappedFile, needle: bytes) -> Iterator[int]:
    """Positions of ``needle`` in the data of a file; it may reach into the zeros of a hole."""
    around = len(needle)
    for low, high in mapped.extents(HEADER.size, mapped.size):
        start, end = max(low - around, HEADER.size), min(high + around, mapped.size)
        yield from mapped.occurrences(needle, start, end)


def _is_linked(mapped: MappedFile, geometry: Geometry, header: IndexHeader) -> bool:
    """Whether every one of the newest items is where its slot, or the item behind it, points."""
    newest = header.index_count - 1
    file = IndexFile(mapped, geometry)
    heads: dict[int, int] = {}
    for number in range(newest, max(newest - _ASKED_ITEMS, 0), -1):
        item = file.item(number)
        slot = item.key_hash % geometry.hash_slot_num
        if slot not in heads:
            heads[slot] = _counted(file, file.slot(slot), newest)
        if heads[slot] != number or not 0 <= item.prev_index_no < number or item.key_hash < 0:
            return False
        heads[slot] = item.prev_index_no
    return True


def _counted(file: IndexFile, number: int, newest: int) -> int:
    """The first item of a chain that the header counts; 0 when there is none."""
    for _ in range(_MOST_NEWER):
        if not newest < number < file.geometry.index_num:
            break
        number = file.item(number).prev_index_no
    return number
