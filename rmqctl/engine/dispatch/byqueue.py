"""Groups units by queue, as stored bytes: for writing queues, and for comparing them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats import layouts
from formats.derive import dtype_of, struct_of
from rmqctl.engine.dispatch.batches import UnitBatch
from rmqctl.engine.scan.plain import Plain
from rmqctl.engine.scan.sorting import stable_order
from rmqctl.kernel import module as compiled

_SIZE, _UNIT = layouts.QUEUE_UNIT.size, struct_of(layouts.QUEUE_UNIT)


class UnitsOfQueue:
    """The units of one queue in a bulk, in log order; at least one.

    ``rows`` (int64) are their numbers in the bulk. ``stored`` are their bytes in the queue's file,
    if it has no extension. ``is_run``: queue offsets are consecutive and records ascend.
    """

    __slots__ = ("_bulk", "is_run", "queue_id", "rows", "stored", "topic_id")

    def __init__(
        self,
        bulk: _Bulk,
        topic_id: int,
        queue_id: int,
        rows: NDArray[np.int64],
        stored: memoryview,
        is_run: bool,
    ) -> None:
        self._bulk = bulk
        self.topic_id, self.queue_id = topic_id, queue_id
        self.rows, self.stored, self.is_run = rows, stored, is_run

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def first(self) -> tuple[int, int]:
        """Queue offset and physical offset of the first unit."""
        return self._bulk.unit(int(self.rows[0]))

    def columns(self) -> UnitBatch:
        """The units as columns, of shape ``(len(self),)``."""
        return UnitBatch(*(column[self.rows] for column in self._bulk.columns))


class UnitRun:
    """:class:`UnitsOfQueue` of plain records: always a run."""

    __slots__ = ("queue_id", "queue_offset", "stored", "topic_id")
    is_run = True

    def __init__(self, topic_id: int, queue_id: int, queue_offset: int, stored: memoryview) -> None:
        self.topic_id, self.queue_id = topic_id, queue_id
        self.queue_offset, self.stored = queue_offset, stored

    def __len__(self) -> int:
        return len(self.stored) // _SIZE

    @property
    def first(self) -> tuple[int, int]:
        """Queue offset and physical offset of the first unit."""
        return self.queue_offset, _UNIT.unpack_from(self.stored)[0]

    def columns(self) -> UnitBatch:
        """The units as columns, of shape ``(len(self),)``."""
        return _columns([(self.topic_id, self.queue_id, self.queue_offset, 0)], self.stored)


class _Bulk:
    """Batches of units in order. Their columns are concatenated at the first use."""

    def __init__(self, batches: Sequence[UnitBatch]) -> None:
        self._batches = batches
        self._ends = np.cumsum([len(batch.size) for batch in batches])

    @cached_property
    def columns(self) -> UnitBatch:
        return UnitBatch(*(np.concatenate(column) for column in zip(*self._batches, strict=True)))

    def unit(self, row: int) -> tuple[int, int]:
        number = int(np.searchsorted(self._ends, row, "right"))
        batch = self._batches[number]
        at = row - int(self._ends[number])  # Negative: counted from the end of the batch.
        return int(batch.queue_offset[at]), int(batch.physical_offset[at])


class _Sorted(NamedTuple):
    """A bulk sorted by queue. ``queues`` has topic number, queue id, number of the first unit and
    ``is_run`` of each; ``rows`` (int64) are the units' numbers in the bulk, ``stored`` their
    bytes."""

    queues: list[tuple[int, int, int, bool]]
    rows: NDArray[np.int64]
    stored: memoryview


def units_by_queue(batches: Sequence[UnitBatch | Plain]) -> Iterator[UnitsOfQueue | UnitRun]:
    """Yields the units of batches, and of plain records, sorted by topic number and queue id;
    within a queue in log order. A queue may come several times in a row, with a run each. Topic
    numbers and queue ids are not negative."""
    if not batches:
        return
    plain = [one for one in batches if isinstance(one, Plain)]
    if len(plain) == len(batches):
        queues, joined = _joined(plain)
        bounds = [*(_SIZE * queue[3] for queue in queues), len(joined)]
        for queue, (low, high) in zip(queues, pairwise(bounds), strict=True):
            yield UnitRun(*queue[:3], joined[low:high])
        return
    every = [_columns(*_joined([one])) if isinstance(one, Plain) else one for one in batches]
    filled = [batch for batch in every if len(batch.size)]
    if not filled:
        return
    bulk, kernel = _Bulk(filled), compiled()
    found = _sorted_by_kernel(filled) if kernel is not None else _sorted(bulk.columns)
    ends = [queue[2] for queue in found.queues[1:]] + [len(found.rows)]
    for (topic_id, queue_id, start, is_run), end in zip(found.queues, ends, strict=True):
        stored = found.stored[_SIZE * start : _SIZE * end]
        yield UnitsOfQueue(bulk, topic_id, queue_id, found.rows[start:end], stored, is_run)


#: Topic number, queue id, queue offset of the first unit, and the number of that unit in all.
_Queue = tuple[int, int, int, int]


def _joined(plain: Sequence[Plain]) -> tuple[list[_Queue], memoryview]:
    """The units of plain records, sorted by queue: the runs, and all units as stored bytes."""
    kernel = compiled()
    assert kernel is not None
    queues, stored = kernel.join_runs([(one.runs, one.numbers.view(np.uint8)) for one in plain])
    return queues, memoryview(stored)


def _columns(queues: Sequence[_Queue], stored: memoryview) -> UnitBatch:
    """Stored units of runs as columns."""
    units = np.frombuffer(stored, dtype_of(layouts.QUEUE_UNIT))
    numbers = np.array(queues, np.int64).reshape(-1, 4)
    start = numbers[:, 3]
    counts = np.diff(start, append=len(units))
    topic_id, queue_id, begin = (
        np.repeat(column, counts) for column in (*numbers[:, :2].T, numbers[:, 2] - start)
    )
    offset = begin + np.arange(len(units))
    values = (units[name].astype(np.int64) for name in ("physical_offset", "size", "tags_code"))
    return UnitBatch(topic_id, queue_id, offset, *values)


def _sorted_by_kernel(batches: Sequence[UnitBatch]) -> _Sorted:
    kernel = compiled()
    assert kernel is not None
    columns = [
        [np.ascontiguousarray(column).view(np.uint8) for column in batch] for batch in batches
    ]
    queues, rows, stored = kernel.units_by_queue(columns)
    return _Sorted(queues, np.frombuffer(rows, np.int64), memoryview(stored))


def _sorted(units: UnitBatch) -> _Sorted:
    """:func:`_sorted_by_kernel` in numpy."""
    code = units.topic_id * (int(units.queue_id.max()) + 1) + units.queue_id
    order = stable_order(code)
    is_first = np.diff(code[order], prepend=-1) != 0
    starts = np.flatnonzero(is_first)
    goes_on = np.diff(units.queue_offset[order], prepend=0) == 1
    goes_on &= np.diff(units.physical_offset[order], prepend=0) > 0
    is_run = np.logical_and.reduceat(goes_on | is_first, starts)
    stored = np.empty(len(order), dtype_of(layouts.QUEUE_UNIT))
    for name in ("physical_offset", "size", "tags_code"):
        stored[name] = getattr(units, name)[order]
    firsts = order[starts]
    numbers = units.topic_id[firsts], units.queue_id[firsts], starts, is_run
    queues = list(zip(*(column.tolist() for column in numbers), strict=True))
    return _Sorted(queues, order, memoryview(stored.tobytes()))
