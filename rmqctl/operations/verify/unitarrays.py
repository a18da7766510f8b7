"""Units of one queue as arrays: those that its records ask for, and those that are stored."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue, unit_dtype

#: How many units before its own offset a misplaced unit is searched.
_MOST_SHIFT = 64


class ExpectedUnits(NamedTuple):
    """The units for which the records of one queue ask: parallel arrays in log order, of shape
    ``(units,)``."""

    queue_offset: NDArray[np.int64]
    physical_offset: NDArray[np.int64]
    size: NDArray[np.int64]
    tags_code: NDArray[np.int64]


def leading(which: NDArray[np.bool_]) -> int:
    """How many rows are true before the first that is not."""
    return len(which) if which.all() else int(np.argmin(which))


def packed(stretch: ExpectedUnits, row: int, count: int) -> NDArray[np.void]:
    """The units of ``count`` records, from ``row`` on, as an array of ``unit_dtype``."""
    units = np.empty(count, unit_dtype())
    for name in ("physical_offset", "size", "tags_code"):
        units[name] = getattr(stretch, name)[row : row + count]
    return units


def are_cut_short(stored: NDArray[np.void], wanted: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which stored units (bool, by row) are torn: each byte is that of the wanted unit, or 0."""
    found, whole = (
        np.frombuffer(units.tobytes(), np.uint8).reshape(-1, UNIT_SIZE)
        for units in (stored, wanted)
    )
    cut_short: NDArray[np.bool_] = ((found == 0) | (found == whole)).all(axis=1)
    return cut_short


def shifts_of(queue: ConsumeQueue, wanted: NDArray[np.void], unit_offset: int) -> NDArray[np.int64]:
    """How far from its own offset each wanted unit is stored, if units before it were left out:
    int64, in units, negative. The first one's own offset is ``unit_offset``. 0 if a unit is not
    among the ``_MOST_SHIFT`` units before its own offset."""
    before = stored_units(queue, unit_offset - _MOST_SHIFT, unit_offset + len(wanted) - 1)
    offsets = before["physical_offset"].astype(np.int64)
    near = np.lib.stride_tricks.sliding_window_view(offsets, _MOST_SHIFT)
    rows, back = np.nonzero(near == wanted["physical_offset"].astype(np.int64)[:, np.newaxis])
    same = before[rows + back] == wanted[rows]
    shifts = np.zeros(len(wanted), np.int64)
    # A unit that is stored several times counts at the first place: of several assignments to one
    # row the last one stays, so they are made in reverse order.
    shifts[rows[same][::-1]] = back[same][::-1] - _MOST_SHIFT
    return shifts


def stored_units(queue: ConsumeQueue, start: int, end: int) -> NDArray[np.void]:
    """The units at queue offsets ``[start, end)`` as an array of ``unit_dtype``; zeros for offsets
    that are in no file."""
    found = np.zeros(end - start, unit_dtype())
    at = max(start, 0)
    while at < end:
        window = queue.window(at, end - at)
        found[at - start : at - start + len(window)] = window
        at += len(window)
        if not len(window):
            starts = (entry.file_from_offset // UNIT_SIZE for entry in queue.files.entries)
            at = next((first for first in starts if first > at), end)
    return found


def in_no_file(queue: ConsumeQueue, unit_offset: int, count: int) -> int:
    """How many of ``count`` consecutive offsets are in no file. The first one is in none."""
    starts = (entry.file_from_offset // UNIT_SIZE for entry in queue.files.entries)
    following = next((start for start in starts if start > unit_offset), None)
    return count if following is None else min(count, following - unit_offset)
