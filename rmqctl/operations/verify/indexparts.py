"""Splits the check of the index into parts, which several processes can check.

A part is a range of index files. It begins with a premise: all keys before its first one have their
items, and no item before its first file is without a key. The check of the part before it ends with
the premise that it really leaves. Only where both are equal do the two parts find exactly what one
check of all files finds. Parts whose premises differ (:func:`unmet`) are joined and checked again.
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

#: How many keys the check merges at once, counted from the first key of the log: 1.3 MB.
KEYS_AT_ONCE = 1 << 16
#: The fewest items of a part. Only the last one may have fewer.
LEAST_ITEMS = 1 << 21
#: How many items are read first in search of all items of one record.
_NEAR = 64
#: More keys than the properties of a record can name.
_MOST_KEYS = 1 << 15


class IndexStart(NamedTuple):
    """The premise of a part: all keys before ``key_no`` have their items. ``key_no`` is the number
    of the part's first key, counted from the first key of the log. ``last_offset`` is the physical
    offset of the record of the last item before the part, ``last_hashes`` the hashes of that
    record's items. ``has_tags``: the messages before it have items of their tags."""

    key_no: int
    last_offset: int
    last_hashes: frozenset[int]
    has_tags: bool


class IndexBorder(NamedTuple):
    """The border between the files number ``file - 1`` and ``file``.

    ``physical_offset`` is that of the first item's record behind the border. ``last_offset`` and
    ``last_hashes`` are those of the last record before it. If both are one record, ``repeated``
    counts its items before the border; else it is 0. ``names`` are the names of all files: they
    keep the file numbers valid when a file is deleted meanwhile. ``has_tags`` as in
    :class:`IndexStart`, as far as the store tells it.
    """

    file: int
    physical_offset: int
    repeated: int
    last_offset: int
    last_hashes: frozenset[int]
    names: tuple[str, ...]
    has_tags: bool

    def start(self, key_no: int) -> IndexStart:
        """The premise of a part that begins behind the border. ``key_no`` is the number of the
        first key of the record at ``physical_offset``."""
        key_no += self.repeated
        return IndexStart(key_no, self.last_offset, self.last_hashes, self.has_tags)


class IndexPart(NamedTuple):
    """A part of the index: files ``[first, end)`` by their numbers, and keys
    ``[first_key, end_key)`` by theirs. ``end`` is None for the last part, ``start`` (the premise)
    None for the first. ``names`` are the names of all files, by which they are numbered; if empty,
    the files are numbered as they are when the part is checked."""

    first: int
    end: int | None
    start: IndexStart | None
    first_key: int
    end_key: int
    names: tuple[str, ...]


def index_borders(snapshot: Snapshot, least: int = LEAST_ITEMS) -> list[IndexBorder]:
    """The borders at which the index can be split, in order, with at least ``least`` items between
    two. Empty if a file cannot be read: then only one check of all files tells what is missing."""
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
                has_tags = snapshot.indexes_tags
                border = _border(number, before, behind, names, has_tags=has_tags)
                if items >= least and border is not None:
                    borders.append(border)
                    items = 0
    except (CannotRead, FileLengthContradiction):
        return []  # The check of the directories says why.
    return borders


def _border(
    number: int, before: IndexFile, behind: IndexFile, names: tuple[str, ...], *, has_tags: bool
) -> IndexBorder | None:
    first = behind.items(1, 1)
    last = _items_of_last_record(before) if before.item_count else first[:0]
    if not len(first) or not len(last):
        return None
    offset = int(first["physical_offset"][0])
    last_offset = int(last["physical_offset"][0])
    repeated = len(last) if offset == last_offset else 0
    hashes = frozenset(last["key_hash"].tolist())
    return IndexBorder(number, offset, repeated, last_offset, hashes, names, has_tags)


def _items_of_last_record(file: IndexFile) -> NDArray[np.void]:
    """The last items of a file, all of the same record; none if they are more than the keys that a
    record can have."""
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
    """Counts the keys of a part of the log. ``first_keys`` maps the file number of a border to the
    number of the first key of the record at that border, counted from the start of the part."""

    def __init__(self, borders: Sequence[IndexBorder]) -> None:
        self.count = 0
        self.first_keys: dict[int, int] = {}
        self._files = [border.file for border in borders]
        self._offsets = np.array([border.physical_offset for border in borders], np.int64)

    def add(self, keys: KeyBatch) -> None:
        """Counts the next keys, in log order."""
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
    """Plans the parts of the index. ``counted`` are the parts of the log in order.

    Returns the parts, split at the borders whose record has keys in the log, and a list with the
    number of keys before each part of the log, and last the number of all keys.
    """
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
    """Whether any part did not end with the premise from which the next one began."""
    return any(ends[one] != following.start for one, following in pairwise(parts))


def joined(
    parts: Sequence[IndexPart], ends: Mapping[IndexPart, IndexStart | None], keys: int
) -> list[IndexPart]:
    """The parts for the next try: where a part did not end with the premise of the next one, the
    two are joined."""
    starts = [(parts[0].first, parts[0].start)]
    for one, following in pairwise(parts):
        if ends[one] == following.start:
            starts.append((following.first, following.start))
    return _between(starts, keys, parts[0].names)


def _between(
    starts: Sequence[tuple[int, IndexStart | None]], keys: int, names: tuple[str, ...]
) -> list[IndexPart]:
    """The parts that begin at ``starts``. The keys of a part end where a merge of the check ends
    (``KEYS_AT_ONCE``), at the first key of the next part or behind it. So at the end of its files
    the check of a part has the same keys before it as a check of all files has."""
    found = []
    for (file, start), following in zip(starts, [*starts[1:], None], strict=True):
        first = start.key_no if start is not None else 0
        if following is None or following[1] is None:
            found.append(IndexPart(file, None, start, first, keys, names))
        else:
            end = -(-following[1].key_no // KEYS_AT_ONCE) * KEYS_AT_ONCE
            found.append(IndexPart(file, following[0], start, first, min(end, keys), names))
    return found
