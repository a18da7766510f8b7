"""The check of the index in parts: ranges of its files, each checked from a premise.

A part begins with a file, and takes it that the parts before left nothing open: all keys before its
own have their items, and no item was without a key. Whether that was so, the end of the part before
tells: only where it is the very premise of the next part do both say what one check of all files
says. Parts that do not meet so are joined and checked again (:func:`unmet`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.dispatch.batches import KeyBatch
from rmqctl.engine.files import paths
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.errors import CannotRead, FileLengthContradiction
from rmqctl.operations.verify.snapshot import Snapshot

#: Keys that the check takes at once, from the first one of the log on: 1.3 MB.
KEYS_AT_ONCE = 1 << 16
#: Items a part has at least, but for the last one.
LEAST_ITEMS = 1 << 21
#: Items that are read at once in search of those of one record.
_NEAR = 64
#: More keys than the properties of a record can name.
_MOST_KEYS = 1 << 15


class IndexStart(NamedTuple):
    """Where the check of a file begins when nothing was left open: the number of its first key,
    from the first one of the log on, and of the record of the last item before the physical offset
    and the hashes that had their items."""

    key_no: int
    last_offset: int
    last_hashes: frozenset[int]


class IndexBorder(NamedTuple):
    """Between the files number ``file - 1`` and ``file``: the physical offset of the first item
    behind it, and the last record before it. The first of the two has ``repeated`` items before.
    ``names`` are those of all files, by whose numbers they go on when one is deleted."""

    file: int
    physical_offset: int
    repeated: int
    last_offset: int
    last_hashes: frozenset[int]
    names: tuple[str, ...]

    def start(self, key_no: int) -> IndexStart:
        """The premise behind it; ``key_no`` is the number of the first key of its record."""
        return IndexStart(key_no + self.repeated, self.last_offset, self.last_hashes)


class IndexPart(NamedTuple):
    """Files ``[first, end)`` by their numbers; ``end`` is None for the last part. ``start`` is None
    for the first one. The check takes the keys ``[first_key, end_key)``. ``names`` are those of all
    files; none: as they are when the part is checked."""

    first: int
    end: int | None
    start: IndexStart | None
    first_key: int
    end_key: int
    names: tuple[str, ...]


def index_borders(snapshot: Snapshot, least: int = LEAST_ITEMS) -> list[IndexBorder]:
    """Borders in order, with ``least`` items or more between two; none where a file cannot be
    read: what is missing then, only one check of all can tell."""
    service = IndexService(snapshot.path / paths.INDEX, snapshot.config.index_geometry)
    names = tuple(path.name for path in service.paths)
    borders: list[IndexBorder] = []
    items = 0
    try:
        for number, (path, following) in enumerate(pairwise(service.paths), 1):
            with ExitStack() as stack:
                before, behind = (
                    stack.enter_context(closing(service.open(one))) for one in (path, following)
                )
                items += before.item_count
                border = _border(number, before, behind, names)
                if items >= least and border is not None:
                    borders.append(border)
                    items = 0
    except (CannotRead, FileLengthContradiction):
        return []  # Its own finding says why.
    return borders


def _border(
    number: int, before: IndexFile, behind: IndexFile, names: tuple[str, ...]
) -> IndexBorder | None:
    first = behind.items(1, 1)
    last = _items_of_last_record(before) if before.item_count else first[:0]
    if not len(first) or not len(last):
        return None
    offset = int(first["physical_offset"][0])
    last_offset = int(last["physical_offset"][0])
    repeated = len(last) if offset == last_offset else 0
    hashes = frozenset(last["key_hash"].tolist())
    return IndexBorder(number, offset, repeated, last_offset, hashes, names)


def _items_of_last_record(file: IndexFile) -> NDArray[np.void]:
    """The last items of a file that are of one record; none where they are more than one has."""
    end, length = file.item_count + 1, _NEAR
    while length < 2 * _MOST_KEYS:
        low = max(end - length, 1)
        items = file.items(low, end - low)
        others = np.flatnonzero(items["physical_offset"] != items["physical_offset"][-1])
        if len(others):
            return items[int(others[-1]) + 1 :]
        if low == 1:
            return items
        length *= 4
    return file.items(end, 0)


class PartKeys:
    """The keys of a part of the log, in log order: how many there are, and by the borders' files
    the number of the first one of the record that is named."""

    def __init__(self, borders: Sequence[IndexBorder]) -> None:
        self.count = 0
        self.first_keys: dict[int, int] = {}
        self._files = [border.file for border in borders]
        self._offsets = np.array([border.physical_offset for border in borders], np.int64)

    def add(self, keys: KeyBatch) -> None:
        """Takes the next keys."""
        offsets = keys.physical_offset
        rows = np.searchsorted(offsets, self._offsets)
        for number in np.flatnonzero(rows < len(offsets)).tolist():
            row, file = int(rows[number]), self._files[number]
            if offsets[row] == self._offsets[number] and file not in self.first_keys:
                self.first_keys[file] = self.count + row
        self.count += len(offsets)


def plan_parts(
    borders: Sequence[IndexBorder], counted: Sequence[PartKeys]
) -> tuple[list[IndexPart], list[int]]:
    """Parts between the borders at whose record the log has keys, and how many keys there are
    before each part of the log, and in all of it. ``counted`` are those parts in order."""
    before = [0]
    first_keys: dict[int, int] = {}
    for part in counted:
        for file, number in part.first_keys.items():
            first_keys.setdefault(file, before[-1] + number)
        before.append(before[-1] + part.count)
    starts: list[tuple[int, IndexStart | None]] = [(0, None)]
    for border in borders:
        if border.file in first_keys:
            start = border.start(first_keys[border.file])
            last = starts[-1][1]
            if start.key_no > (last.key_no if last is not None else 0):
                starts.append((border.file, start))
    return _between(starts, before[-1], borders[0].names if borders else ()), before


def unmet(parts: Sequence[IndexPart], ends: Mapping[IndexPart, IndexStart | None]) -> bool:
    """Whether a part did not end with the premise of the next one."""
    return any(ends[one] != following.start for one, following in pairwise(parts))


def joined(
    parts: Sequence[IndexPart], ends: Mapping[IndexPart, IndexStart | None], keys: int
) -> list[IndexPart]:
    """The parts that meet, and those that do not joined with the one before."""
    starts = [(parts[0].first, parts[0].start)]
    for one, following in pairwise(parts):
        if ends[one] == following.start:
            starts.append((following.first, following.start))
    return _between(starts, keys, parts[0].names)


def _between(
    starts: Sequence[tuple[int, IndexStart | None]], keys: int, names: tuple[str, ...]
) -> list[IndexPart]:
    """Each part gets keys up to where the check would take the next ones: at the end of its files
    it looks at no other keys then than a check of all files does."""
    found = []
    for (file, start), following in zip(starts, [*starts[1:], None], strict=True):
        first = start.key_no if start is not None else 0
        if following is None or following[1] is None:
            found.append(IndexPart(file, None, start, first, keys, names))
        else:
            end = -(-following[1].key_no // KEYS_AT_ONCE) * KEYS_AT_ONCE
            found.append(IndexPart(file, following[0], start, first, min(end, keys), names))
    return found
