"""Checks the batch queues of 5.x against the log, in both directions.

The position of a unit in its file does not tell its queue offset. But units have the order of their
records: the units that the records ask for, in log order, must be the units of the queue, one after
the other. So the state of a queue is the number of the next unit. Units for which no record asks
are classified like those of other queues.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.files import paths
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.batchqueue import BatchConsumeQueue, batch_unit_dtype
from rmqctl.engine.queue.consumequeue import is_part_of
from rmqctl.errors import CannotRead
from rmqctl.operations.verify.batchstate import BatchQueueState, Span
from rmqctl.operations.verify.batchunits import (
    Units,
    are_written,
    describe,
    is_nearly,
    leading,
    matching,
    rows,
)
from rmqctl.operations.verify.damageranges import GrowingEnd, Ranges
from rmqctl.operations.verify.findings import Finding, refused, until_removed
from rmqctl.operations.verify.queuestate import Waits
from rmqctl.operations.verify.snapshot import Snapshot

#: How many units are compared, or searched, at once.
_WINDOW = 1 << 14
#: How many units are searched first for that of a record.
_NEAR = 64


class BatchQueueChecker:
    """Checks all batch queues; feed :meth:`add` in log order, then :meth:`finish`. ``units`` counts
    the units that were looked at, ``waits`` gets queues without files, and records that only wait
    for their dispatch."""

    def __init__(self, snapshot: Snapshot, log: CommitLog, damaged: Ranges) -> None:
        self.units = 0
        self.waits = Waits()
        #: Called before each queue; may raise, to end the check.
        self.step: Callable[[], None] = lambda: None
        self._snapshot = snapshot
        self._root = snapshot.path
        self._base = self._root / paths.BATCH_CONSUME_QUEUE
        self._log = log
        self._log_min = snapshot.log_min
        self._damaged = damaged
        self._dispatcher = snapshot.dispatcher()
        self._end = GrowingEnd(snapshot.open_log)
        self._states: dict[tuple[str, int], BatchQueueState] = {}
        #: Findings of queues that could not be opened, which are still to be told.
        self._refused: list[Finding] = []

    def add(self, units: Mapping[tuple[str, int], bytes | bytearray]) -> Iterator[Finding]:
        """Takes the units that records ask for, by queue and in log order, as they are stored."""
        for (topic, queue_id), stored in units.items():
            state = self._state(topic, queue_id)
            wanted = np.frombuffer(bytes(stored), batch_unit_dtype())
            yield from self._unless_removed(state, self._check(state, wanted))

    def log_begins(self, log: CommitLog, begin: int) -> None:
        """Goes on with ``log`` as it is now: what lies before ``begin`` is gone, as after a
        retention, or not looked at."""
        self._log, self._log_min = log, begin

    def pause(self, log_end: int) -> Iterator[Finding]:
        """Call this after the last record of a part, when the log goes on at ``log_end``. Yields
        the findings of the units that point before it."""
        for state in self._states.values():
            if state.queue is not None:
                yield from state.release()
                yield from self._unless_removed(state, self._orphans_to(state, log_end))
        self._note_missing()

    def finish(self, log_end: int) -> Iterator[Finding]:
        """Call this after the last record. Yields the findings of all units for which no record has
        asked."""
        self._end.reached(log_end)
        self._note_missing()
        for where in paths.queue_directories(self._base):
            state = self._state(where.topic, where.queue_id)
            yield from self._told()
            if state.queue is not None:
                yield from self._unless_removed(state, self._finish(state))

    def close(self) -> None:
        self._end.close()

    # --- queues --------------------------------------------------------------------------

    def _told(self) -> Iterator[Finding]:
        """The findings of queues that could not be opened since the last call."""
        found, self._refused = self._refused, []
        yield from found

    def _state(self, topic: str, queue_id: int) -> BatchQueueState:
        state = self._states.get((topic, queue_id))
        if state is None:
            path = f"{paths.BATCH_CONSUME_QUEUE}/{topic}/{queue_id}"
            queue, is_refused = None, False
            try:
                queue = self._open(topic, queue_id)
            except CannotRead as error:  # Its units are unknown.
                is_refused = True
                self._refused += refused(self._root, error)
            state = BatchQueueState(queue, topic, queue_id, path)
            state.was_removed = is_refused
            self._states[topic, queue_id] = state
        return state

    def _open(self, topic: str, queue_id: int) -> BatchConsumeQueue | None:
        """The queue as its files are; None without files. :raises CannotRead: the system refuses
        one."""
        where, size = self._base / topic / str(queue_id), self._snapshot.batch_queue_file_size
        if not where.is_dir():
            return None
        queue = BatchConsumeQueue(where, topic, queue_id, size)
        queue.close()
        return queue if queue.files.entries else None

    def _unless_removed(
        self, state: BatchQueueState, findings: Iterator[Finding]
    ) -> Iterator[Finding]:
        """The findings of a queue. They end where a broker's retention removes a file in use, or
        the disk does not read one."""
        self.step()
        yield from self._told()
        if (yield from until_removed(self._root, findings)):
            state.queue, state.was_removed = None, True
        elif state.queue is not None:
            state.queue.close()

    def _note_missing(self) -> None:
        self.waits.missing = [
            (one.topic, one.queue_id, one.path, one.missing, one.first_missing)
            for one in self._states.values()
            if one.missing
        ]

    def _finish(self, state: BatchQueueState) -> Iterator[Finding]:
        assert state.queue is not None
        yield from state.release()
        yield from self._orphans(state, state.queue.written_end())
        yield from state.release()

    # --- records and their units ---------------------------------------------------------

    def _check(self, state: BatchQueueState, wanted: Units) -> Iterator[Finding]:
        """Compares the units that records ask for with the next units of the queue."""
        if state.queue is None:
            if not state.was_removed:
                self._note_without(state, wanted)
            return
        done = 0
        while done < len(wanted):
            count = matching(state.queue, state.next, wanted[done : done + _WINDOW])
            if not count:
                done += yield from self._mismatch(state, wanted[done:])
                continue
            matched = wanted[done : done + count]
            yield from state.matches(matched)
            yield from self._gaps(state, matched)
            self.units += count
            state.next += count
            done += count

    def _gaps(self, state: BatchQueueState, matched: Units) -> Iterator[Finding]:
        """Checks the queue offsets of records that have their units: each follows that of the
        message before it, except where the log has lost messages."""
        base = matched["base_offset"].astype(np.int64)
        ends = base + matched["batch_size"]
        before = np.append([state.base_end if state.base_end >= 0 else base[0]], ends[:-1])
        offsets = matched["physical_offset"].astype(np.int64)
        last = np.append([state.last_record], offsets[:-1])
        for row in np.flatnonzero(base != before).tolist():
            is_again = bool(base[row] < before[row])
            if not is_again and self._damaged.any_between(int(last[row]), int(offsets[row])):
                continue
            yield state.finding(
                "queue-offset-repeated" if is_again else "queue-offsets-skipped",
                state.next + row,
                queue_offset=int(base[row]),
                physical_offset=int(offsets[row]),
                expected=int(before[row]),
                found=int(base[row]),
            )
        state.base_end, state.last_record = int(ends[-1]), int(offsets[-1])

    def _mismatch(self, state: BatchQueueState, wanted: Units) -> Generator[Finding, None, int]:
        """Deals with records of which the first does not have the next unit. Returns how many of
        them are done; 0 where only units are."""
        assert state.queue is not None
        stored = state.queue.window(state.next, _NEAR)
        if not len(stored):
            yield from self._lost(state, wanted)
            return len(wanted)
        if not is_nearly(stored[0], wanted[0]):
            if self._expired(stored)[0]:
                state.next += leading(self._expired(state.queue.window(state.next, _WINDOW)))
                return 0
            if ahead := self._ahead(state, stored, wanted[0]):
                yield from self._orphans(state, state.next + ahead)
                return 0
            if later := self._rows_before(state, stored[0], wanted):
                yield from self._lost(state, wanted[:later])
                return later
        if not any(stored[0].tobytes()):
            return (yield from self._unwritten(state, wanted))
        yield from self._wrong(state, stored[0], wanted[0])
        return 1

    def _expired(self, stored: Units) -> NDArray[np.bool_]:
        """Which units belong to records that retention has removed."""
        return are_written(stored) & (stored["physical_offset"] < self._log_min)

    def _ahead(self, state: BatchQueueState, stored: Units, asked: np.void) -> int:
        """How many units behind the next one the unit of a record is; 0: it is not there."""
        assert state.queue is not None
        found = np.flatnonzero(stored == asked)
        if not len(found) and state.searches:
            found = np.flatnonzero(state.queue.window(state.next, _WINDOW) == asked)
            state.searches = bool(len(found))
        return int(found[0]) if len(found) else 0

    def _rows_before(self, state: BatchQueueState, unit: np.void, wanted: Units) -> int:
        """How many of the records come before that of a unit, if the unit is the sound one of a
        later record."""
        offset = int(unit["physical_offset"])
        if offset <= int(wanted["physical_offset"][0]) or not are_written(unit):
            return 0
        if self._own_unit(state, offset) != unit.tobytes():
            return 0
        return int(np.searchsorted(wanted["physical_offset"].astype(np.int64), offset))

    def _own_unit(self, state: BatchQueueState, physical_offset: int) -> bytes | None:
        """The unit that a record of this queue asks for, as it is stored; None without such a
        record."""
        record = self._log.find_record(physical_offset)
        if record is None or (record.topic, record.queue_id) != (state.topic, state.queue_id):
            return None
        own = self._dispatcher.batch_unit(record)
        return None if own is None else own.packed()

    def _unwritten(self, state: BatchQueueState, wanted: Units) -> Generator[Finding, None, int]:
        """Deals with records whose units are zeros, or lie behind the end of the queue."""
        assert state.queue is not None
        if state.next >= state.queue.written_end():
            yield from self._lost(state, wanted)
            return len(wanted)
        stored = rows(state.queue.window(state.next, min(len(wanted), _WINDOW)))
        count = leading(stored == 0)
        yield from self._lost(state, wanted[:count])
        state.next += count
        return count

    def _wrong(self, state: BatchQueueState, stored: np.void, asked: np.void) -> Iterator[Finding]:
        """Deals with a unit that does not agree with its record."""
        assert state.queue is not None
        offset = int(asked["physical_offset"])
        is_last = state.next == state.queue.room - 1 or not any(
            state.queue.stored(state.next + 1, 1)
        )
        is_torn = is_last and is_part_of(stored.tobytes(), asked.tobytes())
        if self._waiting(np.array([offset])) and is_torn:
            # What a kill has torn at the end, and the next start does again.
            self.waits.note_behind(offset, 1)
        else:
            span = Span("unit-mismatch", state.next, int(asked["base_offset"]), offset)
            span.expected, span.found = describe(asked.tolist()), describe(stored.tolist())
            yield from state.hold_back(span)
        state.next += 1
        self.units += 1
        state.base_end = int(asked["base_offset"]) + int(asked["batch_size"])
        state.last_record = offset

    def _lost(self, state: BatchQueueState, wanted: Units) -> Iterator[Finding]:
        """Deals with records without a unit. Behind the newest unit they only wait for dispatch."""
        offsets = wanted["physical_offset"].astype(np.int64)
        waiting = self._waiting(offsets)
        if waiting:
            self.waits.note_behind(int(offsets[len(offsets) - waiting]), waiting)
        if count := len(offsets) - waiting:
            base = int(wanted["base_offset"][0])
            lost = Span("record-without-unit", state.next, base, int(offsets[0]), count)
            yield from state.hold_back(lost)
        state.base_end = int(wanted["base_offset"][-1]) + int(wanted["batch_size"][-1])
        state.last_record = int(offsets[-1])

    def _note_without(self, state: BatchQueueState, wanted: Units) -> None:
        """Notes records of a queue without files."""
        offsets = wanted["physical_offset"].astype(np.int64)
        waiting = self._waiting(offsets)
        if waiting:
            self.waits.note_behind(int(offsets[len(offsets) - waiting]), waiting)
        if count := len(offsets) - waiting:
            state.first_missing = state.first_missing if state.missing else int(offsets[0])
            state.missing += count

    def _waiting(self, offsets: NDArray[np.int64]) -> int:
        """How many of the records at ``offsets``, the last ones, may still wait for dispatch."""
        begin = self._snapshot.waiting_from
        return 0 if begin is None else int((offsets >= begin).sum())

    # --- units that no record has asked for ----------------------------------------------

    def _orphans_to(self, state: BatchQueueState, log_end: int) -> Iterator[Finding]:
        """Deals with units from the next one up to the first that points to ``log_end`` or behind
        it."""
        assert state.queue is not None
        end = state.next
        while len(stored := state.queue.window(end, _WINDOW)):
            count = leading(are_written(stored) & (stored["physical_offset"] < log_end))
            end += count
            if count < len(stored):
                break
        yield from self._orphans(state, end)

    def _orphans(self, state: BatchQueueState, end: int) -> Iterator[Finding]:
        """Deals with units from the next one up to a number, which then becomes the next one."""
        assert state.queue is not None
        while state.next < end:
            stored = state.queue.window(state.next, min(end - state.next, _WINDOW))
            if not len(stored):
                break
            expired = self._expired(stored)
            quiet = expired | self._came_later(stored)
            # A hole among units of records that are gone is nobody's loss.
            gone = np.flatnonzero(expired)[-1:].sum()
            quiet[:gone] |= ~are_written(stored[:gone])
            for row in np.flatnonzero(~quiet).tolist():
                code = self._classify(state, stored[row])
                if code is not None:
                    self.units += code != "unit-hole"
                    yield from state.hold_back(_orphan(code, state.next + row, stored[row]))
                    state.base_end = -1
            state.next += len(stored)

    def _came_later(self, stored: Units) -> NDArray[np.bool_]:
        """Takes units of records that were appended after the log was read."""
        offset, read_to = stored["physical_offset"].astype(np.int64), self._end.read_to
        if read_to is None or not (offset >= read_to).any():
            return np.zeros(len(stored), bool)
        self._end.look_again()
        later: NDArray[np.bool_] = (offset >= read_to) & (offset < self._end.now)
        return later

    def _classify(self, state: BatchQueueState, stored: np.void) -> str | None:
        """What is wrong with a unit; None if its record comes later in the log."""
        offset = int(stored["physical_offset"])
        if not are_written(stored):
            return "unit-hole"
        if self._end.read_to is not None and offset >= self._end.read_to:
            return "unit-points-past-log-end"
        record = self._log.find_record(offset)
        if record is None:
            damaged = offset in self._damaged
            return "unit-points-into-damage" if damaged else "unit-points-to-no-record"
        if (record.topic, record.queue_id) != (state.topic, state.queue_id):
            return "unit-of-other-queue"
        return "unit-misplaced"


def _orphan(code: str, number: int, stored: np.void) -> Span:
    base = None if code == "unit-hole" else int(stored["base_offset"])
    return Span(code, number, base, int(stored["physical_offset"]), found=describe(stored.tolist()))
