"""Where the items of the index stand that belong to the records before a physical offset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.files import paths
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.errors import CannotRead, FileLengthContradiction
from rmqctl.operations.verify.resumed import MOST_LOOKED_UP, WINDOW, Beginning
from rmqctl.operations.verify.snapshot import Snapshot

#: How many items are read in search of those of one record.
_NEAR = 64


class ItemPlace(NamedTuple):
    """The place behind the last item that is known to be a record's before the stretch.

    The next item is that with ``index_no`` of the file with the number ``file``. The record has
    ``physical_offset``, and items with ``hashes`` there.
    """

    file: int
    index_no: int
    physical_offset: int
    hashes: frozenset[int]


class EarlierItems:
    """The items of the records before ``begin``, a physical offset."""

    def __init__(self, snapshot: Snapshot, log: CommitLog) -> None:
        geometry = snapshot.config.index_geometry
        self._service = IndexService(snapshot.path / paths.INDEX, geometry)
        self._log = log
        self._dispatcher = snapshot.dispatcher()
        self._log_min = snapshot.log_min

    def beginning(self, begin: int) -> Beginning:
        """What the index says about where to begin."""
        place, is_clear = self._find(begin)
        if is_clear:
            return Beginning(None)
        return Beginning(self._log_min if place is None else place.physical_offset)

    def last_place(self, begin: int) -> ItemPlace | None:
        """The place behind the last item of a record before ``begin``; None if there is none."""
        return self._find(begin)[0]

    def _find(self, begin: int) -> tuple[ItemPlace | None, bool]:
        """The place, and whether no record need be taken again: the items before and behind it are
        sound."""
        goes_on = True
        for number in reversed(range(len(self._service.paths))):
            try:
                file = self._service.open(self._service.paths[number])
            except (CannotRead, FileLengthContradiction):
                goes_on = False
                continue
            with closing(file):
                if not file.item_count:
                    continue
                behind = _first_behind(file, begin)
                if behind <= file.item_count:
                    goes_on = self._is_sound(file, behind)
                if behind == 1 and goes_on:
                    continue
                last = behind - 1
                is_expired = last > 0 and 0 <= file.item(last).physical_offset < self._log_min
                if is_expired and goes_on:
                    return None, True
                is_clear = goes_on and self._is_sound(file, last)
                found = last if is_clear else self._last_sound(file, begin)
                if found:
                    place = self._place(number, file, found)
                    is_it = self._are_before(number, place.physical_offset)
                    return (place if is_it else None), is_clear and is_it
                goes_on = False
        return None, goes_on

    def _are_before(self, number: int, physical_offset: int) -> bool:
        """Whether the files before that with a number end before an item's record: they may have
        been swapped."""
        for path in self._service.paths[:number]:
            try:
                with closing(self._service.open(path)) as file:
                    last = file.item_count
                    if last and file.item(last).physical_offset > physical_offset:
                        return False
            except (CannotRead, FileLengthContradiction):
                continue
        return True

    def _is_sound(self, file: IndexFile, index_no: int) -> bool:
        """Whether an item leads to a record that has its key."""
        if not index_no:
            return False
        item = file.item(index_no)
        record = self._log.find_record(item.physical_offset)
        return record is not None and item.key_hash in self._dispatcher.keys(record)

    def _last_sound(self, file: IndexFile, begin: int) -> int:
        """The number of the last sound item of a record before ``begin``; 0 without one."""
        nearest = islice(self._earlier_items(file, begin), MOST_LOOKED_UP)
        return next((one for one in nearest if self._is_sound(file, one)), 0)

    def _earlier_items(self, file: IndexFile, begin: int) -> Iterator[int]:
        """The numbers of the items that lead into the log before ``begin``, the last one first."""
        end = file.item_count + 1
        while end > 1:
            start = max(end - WINDOW, 1)
            offsets = file.items(start, end - start)["physical_offset"]
            within = (offsets >= self._log_min) & (offsets < begin)
            yield from (start + np.flatnonzero(within)[::-1]).tolist()
            end = start

    @staticmethod
    def _place(number: int, file: IndexFile, index_no: int) -> ItemPlace:
        start = max(index_no + 1 - _NEAR, 1)
        items: NDArray[np.void] = file.items(start, index_no + 1 - start)
        offset = int(items["physical_offset"][-1])
        own = items["key_hash"][items["physical_offset"] == offset]
        is_last = index_no == file.item_count
        place = (number + 1, 1) if is_last else (number, index_no + 1)
        return ItemPlace(*place, offset, frozenset(own.tolist()))


def _first_behind(file: IndexFile, begin: int) -> int:
    """The number of the first item that leads to ``begin`` or behind it, if the items are in
    order."""
    low, high = 1, file.item_count + 1
    while low < high:
        middle = (low + high) // 2
        if file.item(middle).physical_offset < begin:
            low = middle + 1
        else:
            high = middle
    return low
