"""Classifies orphan units: those that no record of the log asks for in this queue."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from formats import constants
from rmqctl.engine.dispatch.rules import is_without_place
from rmqctl.engine.files import paths
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue, Unit
from rmqctl.engine.queue.queuetable import ConsumeQueueTableReader
from rmqctl.engine.record.record import Record
from rmqctl.operations.verify.damageranges import GrowingEnd, Ranges
from rmqctl.operations.verify.findings import MULTI_DOUBTED, RECORD_DOUBTED, Finding
from rmqctl.operations.verify.queuestate import FindingSpan, QueueState, describe
from rmqctl.operations.verify.snapshot import Snapshot
from rmqctl.operations.verify.unitarrays import leading

#: How many units are read at once: 1.3 MB.
_WINDOW = 1 << 16
_LOOK, _HOLE, _PAST_END = 0, 1, 2
_CODES = {_HOLE: "unit-hole", _PAST_END: "unit-points-past-log-end"}


class OrphanUnits:
    """Classifies orphan units. ``units`` counts those that are findings."""

    def __init__(self, snapshot: Snapshot, log: CommitLog, damaged: Ranges) -> None:
        self.units = 0
        self.end = GrowingEnd(snapshot.open_log)
        self._damaged = damaged
        self._log_min = snapshot.log_min
        self._dispatcher = snapshot.dispatcher()
        self._queues = ConsumeQueueTableReader(
            snapshot.path / paths.CONSUME_QUEUE, snapshot.queue_file_size, ext_directory=None
        )
        self.log = log

    def log_begins(self, log: CommitLog, begin: int) -> None:
        """Call this when the log now begins at ``begin``: units that point before it are no
        findings any more."""
        self.log, self._log_min = log, begin

    def is_in_log(self, physical_offset: int) -> bool:
        """Whether the file of a record is still there. Retention removes it before the files of
        queues, which may have been opened without them then."""
        files = self.log.files
        number = files.index_of(physical_offset)
        return number >= 0 and files.entries[number].path.exists()

    def expired(self, physical_offsets: NDArray[np.int64]) -> int:
        """How many of some records, in log order, lie before the first file of the log that is
        still there. Their units may have been removed after them."""
        kept = (entry for entry in self.log.files.entries if entry.path.exists())
        first = next(kept, None)
        return 0 if first is None else leading(physical_offsets < first.file_from_offset)

    def close(self) -> None:
        self.end.close()

    def check_rest(self, state: QueueState) -> Iterator[Finding]:
        """The findings of the units behind the last one that a record has asked for. Zeros up to
        the end of the last file are no findings: they are preallocated."""
        return self.check(state, state.proven_end, self.end_of(state))

    def check(self, state: QueueState, start: int, end: int) -> Iterator[Finding]:
        """The findings of the orphan units at queue offsets ``[start, end)``. Neighbours with the
        same damage are one finding."""
        last: FindingSpan | None = None
        for span in self._spans(state, start, end):
            if last is not None and last.goes_on(span):
                last.count += span.count
                continue
            if last is not None:
                yield state.finding_of(last)
            last = span
        if last is not None:
            yield state.finding_of(last)

    def _spans(self, state: QueueState, start: int, end: int) -> Iterator[FindingSpan]:
        for queue_offset, window in self._windows(state, start, end):
            offset, size = window["physical_offset"], window["size"]
            written = (offset >= 0) & (size > 0)
            quiet = (offset == 0) & (size == constants.PRE_BLANK_UNIT[1])
            quiet |= written & (offset < self._log_min)
            # A writer stores the size last, and a start that cuts units off clears it first.
            begun = written | ((size == 0) & (offset > 0))
            quiet |= begun & self._came_later(offset)
            kind = np.where(written, _LOOK, _HOLE)
            if self.end.read_to is not None:
                kind[begun & (offset >= self.end.read_to)] = _PAST_END
            for first, count in _stretches(np.flatnonzero(~quiet), kind):
                if kind[first] == _LOOK:
                    yield from self._looked_up(state, queue_offset, window, first, count)
                elif kind[first] == _PAST_END or queue_offset + first < self.end_of(state):
                    code = _CODES[int(kind[first])]
                    self.units += count * (code != "unit-hole")
                    unit = Unit._make(window[first].tolist())
                    yield self._span(state, queue_offset + first, unit, code, count)

    def end_of(self, state: QueueState) -> int:
        """The queue offset behind the last unit that has any byte other than 0. Cached."""
        if state.written_end is None:
            state.written_end = _written_end(state)
        return state.written_end

    def _windows(
        self, state: QueueState, start: int, end: int
    ) -> Iterator[tuple[int, NDArray[np.void]]]:
        """The units of a range, window by window: the queue offset of the first, and an array of
        ``unit_dtype``. Offsets that are in no file are left out."""
        assert state.queue is not None
        while start < end:
            window = state.queue.window(start, min(end - start, _WINDOW))
            if len(window):
                yield start, window
                start += len(window)
                continue
            starts = (entry.file_from_offset for entry in state.queue.files.entries)
            following = next((at for at in starts if at // UNIT_SIZE > start), None)
            if following is None:
                return
            start = following // UNIT_SIZE

    def _looked_up(
        self, state: QueueState, queue_offset: int, window: NDArray[np.void], first: int, count: int
    ) -> Iterator[FindingSpan]:
        """Classifies units that point into the log, by the record there."""
        for row in range(first, first + count):
            unit = Unit._make(window[row].tolist())
            code = self._classify(unit, queue_offset + row, state)
            if code is not None:
                self.units += 1
                span = self._span(state, queue_offset + row, unit, code)
                span.advice = self._doubt(state, span.queue_offset, unit, code)
                yield span

    def _span(
        self, state: QueueState, queue_offset: int, unit: Unit, code: str, count: int = 1
    ) -> FindingSpan:
        position = state.position(queue_offset)
        return FindingSpan(
            code, queue_offset, unit.physical_offset, position, count, found=describe(unit)
        )

    def _classify(self, unit: Unit, queue_offset: int, state: QueueState) -> str | None:
        record = self.log.find_record(unit.physical_offset)
        if record is None:
            damaged = unit.physical_offset in self._damaged
            return "unit-points-into-damage" if damaged else "unit-points-to-no-record"
        queue = state.topic, state.queue_id
        own = self._dispatcher.units(record)
        if any(one[:5] == (*queue, queue_offset, *unit[:2]) for one in own):
            # Its record comes later in the log: the queue has begun again.
            return None
        if is_without_place(record) and record.topic == state.topic:
            return "queue-place-impossible"  # The record is wrong; a rebuilt unit would be, too.
        is_its = (record.topic, record.queue_id) == queue or any(one[:2] == queue for one in own)
        return "unit-misplaced" if is_its else "unit-of-other-queue"

    def _doubt(self, state: QueueState, queue_offset: int, unit: Unit, code: str) -> str | None:
        """The advice if the unit seems right, and its record wrong; None: that of the code."""
        if code == "unit-of-other-queue" and self._is_proof(state, queue_offset, unit):
            return RECORD_DOUBTED
        is_any = code in ("unit-of-other-queue", "unit-misplaced")
        return self.doubt_between(state, queue_offset) if is_any else None

    def doubt_between(self, state: QueueState, queue_offset: int) -> str | None:
        """The advice on a unit that its record does not ask for, if the units before and behind it
        are right: then something in the record has changed. None: they are not, or the record has
        a unit at the place that it names in this queue."""
        assert state.queue is not None
        before = self._right_record(state, queue_offset - 1)
        if before is None and queue_offset != state.first_queue_offset:
            return None
        unit, behind = state.queue.unit(queue_offset), self._right_record(state, queue_offset + 1)
        record = None if unit is None else self.log.find_record(unit.physical_offset)
        if record is None:
            return None
        is_own = (record.topic, record.queue_id) == (state.topic, state.queue_id)
        if behind is None and queue_offset + 1 >= self.end_of(state):
            behind = before  # It is the last unit.
        if behind is None:
            return None
        queue, its = (state.topic, state.queue_id), record.physical_offset
        named = [one.queue_offset for one in self._dispatcher.units(record) if one[:2] == queue]
        if any(self._points_to(state.queue, one, its) for one in named):
            return None
        if is_own:
            return RECORD_DOUBTED
        return None if (behind.topic, behind.queue_id) == queue else MULTI_DOUBTED

    def _right_record(self, state: QueueState, queue_offset: int) -> Record | None:
        """The record of a unit that it asks for; None if there is none."""
        unit = None if state.queue is None else state.queue.unit(queue_offset)
        record = None if unit is None else self.log.find_record(unit.physical_offset)
        if unit is None or record is None:
            return None
        its = (state.topic, state.queue_id, queue_offset, unit.physical_offset)
        return record if any(one[:4] == its for one in self._dispatcher.units(record)) else None

    def _is_proof(self, state: QueueState, queue_offset: int, unit: Unit) -> bool:
        """Whether the unit is evidence that its record was damaged, and is not wrong itself. It is
        if the record has no unit in the queue that it names, and the unit before this one is
        right, or this one is the queue's first."""
        record = self.log.find_record(unit.physical_offset)
        assert record is not None
        if paths.topic_directory_problem(record.topic) is None:
            own = self._queues.find(record.topic, record.queue_id)
            if self._points_to(own, record.queue_offset, unit.physical_offset):
                return False
        if queue_offset == state.first_queue_offset:
            return True
        return self._right_record(state, queue_offset - 1) is not None

    @staticmethod
    def _points_to(queue: ConsumeQueue | None, queue_offset: int, physical_offset: int) -> bool:
        unit = None if queue is None else queue.unit(queue_offset)
        return unit is not None and unit.physical_offset == physical_offset

    def _came_later(self, offset: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which units (bool, by row) belong to records that were appended after the log was
        read."""
        read_to = self.end.read_to
        if read_to is None or not (offset >= read_to).any():
            return np.zeros(len(offset), bool)
        self.end.look_again()
        later: NDArray[np.bool_] = (offset >= read_to) & (offset < self.end.now)
        return later


def _stretches(rows: NDArray[np.intp], kind: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """``(first row, count)`` of each run of consecutive rows with the same kind."""
    if not len(rows):
        return
    breaks = (np.diff(rows) != 1) | (np.diff(kind[rows]) != 0)
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    for first, count in zip(starts, np.diff(np.append(starts, len(rows))), strict=True):
        yield int(rows[first]), int(count)


def _written_end(state: QueueState) -> int:
    """The queue offset behind the last unit that has any byte other than 0; 0 without one."""
    assert state.queue is not None
    files = state.queue.files
    for number in reversed(range(len(files.entries))):
        if end := files.file(number).end_of_data(0):
            return -(-(files.entries[number].file_from_offset + end) // UNIT_SIZE)
    return 0
