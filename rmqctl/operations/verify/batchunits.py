"""Units of batch queues as arrays: compares them, and tells them in findings."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.queue.batchqueue import BATCH_UNIT, LAST_FIELDS, BatchConsumeQueue

#: Units of some number, of the unit's dtype.
Units = NDArray[np.void]
#: The fields by which a unit is recognised: in a damaged unit, all but one of them are right.
_NAMING = ("physical_offset", "size", "store_timestamp", "base_offset", "batch_size")


def matching(queue: BatchConsumeQueue, number: int, wanted: Units) -> int:
    """How many rows, from the first on, equal the units from a number on."""
    stored = queue.window(number, len(wanted))
    return leading(rows(stored) == rows(wanted[: len(stored)]))


def rows(units: Units) -> NDArray[np.uint8]:
    """The bytes of units, one row for each unit."""
    return np.frombuffer(units.tobytes(), np.uint8).reshape(-1, BATCH_UNIT.size)


def leading(which: NDArray[np.bool_]) -> int:
    """How many rows, from the first on, are true in all of their columns."""
    if not len(which):
        return 0
    whole = np.asarray(which.reshape(len(which), -1).all(axis=1))
    return len(whole) if whole.all() else int(np.argmin(whole))


def are_written(units: Units | np.void) -> NDArray[np.bool_]:
    """Which units the engine takes for written ones (``BatchConsumeQueue#recover``)."""
    written: NDArray[np.bool_] = (units["physical_offset"] >= 0) & (units["size"] > 0)
    return written & (units["base_offset"] >= 0) & (units["batch_size"] > 0)


def is_nearly(stored: np.void, asked: np.void) -> bool:
    """Whether a unit with a wrong field is that of a record. A unit of another record would differ
    both in physical offset and in queue offset."""
    right = sum(bool(stored[name] == asked[name]) for name in _NAMING)
    return right >= len(_NAMING) - 1


def describe(unit: Iterable[int]) -> str:
    """The fields of a unit, in the order in which they are stored, for a finding."""
    offset, size, code, time, base, count, *last = unit
    text = f"offset {offset}, size {size}, tags code {code}, stored {time}, "
    text += f"queue offset {base}, {count} messages"
    if tuple(last) != LAST_FIELDS:
        text += f", compacted offset {last[0]}, reserved {last[1]}"
    return text
