"""Compares the units that records ask for with those in a queue's files.

A unit is expected at ``unit_offset``: the queue offset of its record, plus the shift of the queue
(:class:`~rmqctl.operations.verify.queuestate.QueueState`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from formats import constants
from rmqctl.engine.dispatch.byqueue import UnitRun, UnitsOfQueue
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, Unit
from rmqctl.engine.queue.recovery import passed_over
from rmqctl.operations.verify.findings import Finding, finding
from rmqctl.operations.verify.orphanunits import OrphanUnits
from rmqctl.operations.verify.queueext import describe_ext, resolve_ext
from rmqctl.operations.verify.queuestate import FindingSpan, QueueState, Waits, describe
from rmqctl.operations.verify.resumed import EarlierRecords
from rmqctl.operations.verify.storedunits import StoredUnits
from rmqctl.operations.verify.unitarrays import (
    ExpectedUnits,
    are_cut_short,
    in_no_file,
    leading,
    packed,
    shifts_of,
    stored_units,
)

#: How many units are compared at once, at least and at most. Behind a wrong unit the check begins
#: with few, and takes four times as many each time.
_WINDOW = (1 << 8, 1 << 16)
#: How many wrong units are classified at once: first few, and many if these are all of one kind.
_WRONG = (1 << 4, 1 << 10)
_SAME, _UNWRITTEN, _LATE, _OTHER = range(4)


class UnitChecker:
    """Checks the units of one queue after the other. ``units`` counts those that it has compared.

    ``orphans`` classifies units between those of two records, for which no record asks. ``waits``
    counts queues without files, and records that are not dispatched yet. These have physical
    offsets from ``waiting_from`` on; None: all records must have units.
    """

    def __init__(self, orphans: OrphanUnits, waits: Waits, waiting_from: int | None) -> None:
        self.units = 0
        self._orphans = orphans
        self._waits = waits
        self._waiting_from = waiting_from
        #: The records before the first one that is checked; None: the log begins with that.
        self.earlier: EarlierRecords | None = None

    def check(self, state: QueueState, wanted: UnitsOfQueue | UnitRun) -> Iterator[Finding]:
        """Compares the units that records ask for in one queue, in log order, with those in its
        files."""
        if state.queue is not None and not state.started:
            yield from self.begin(state, wanted.first[0])
        if state.queue is not None and self._are_stored(state, wanted):
            state.goes_on(len(wanted))
            self.units += len(wanted)
            yield from state.release()
            state.queue.close()
            return
        columns = wanted.columns()
        expected = ExpectedUnits(
            columns.queue_offset, columns.physical_offset, columns.size, columns.tags_code
        )
        if state.queue is None:
            if not state.was_removed:
                self._note_missing(state, expected)
            return
        breaks = np.flatnonzero(np.diff(expected.queue_offset) != 1) + 1
        bounds = [0, *breaks.tolist(), len(expected.size)]
        for start, end in pairwise(bounds):
            stretch = ExpectedUnits(*(column[start:end] for column in expected))
            yield from self._check_stretch(state, stretch)
        state.queue.close()

    def check_stored(
        self, state: QueueState, topic_number: int, units: StoredUnits
    ) -> Iterator[Finding]:
        """Does the same for units that are known to be in the queue's files."""
        if state.queue is None:
            if not state.was_removed:
                state.was_removed = True
                yield finding("file-removed-meanwhile", path=state.path)
            return
        first, count = units
        if not state.started:
            yield from self.begin(state, first)
        if not state.shift and first == state.proven_end:
            state.goes_on(count)
            self.units += count
            yield from state.release()
            state.queue.close()
            return
        # They do not follow the units before them: the queue may have begun again.
        stored = memoryview(stored_units(state.queue, first, first + count).tobytes())
        yield from self.check(state, UnitRun(topic_number, state.queue_id, first, stored))

    @staticmethod
    def _are_stored(state: QueueState, wanted: UnitsOfQueue | UnitRun) -> bool:
        """Whether ``wanted`` follows the units before it, and is in the files byte for byte. In a
        sound queue this is always so."""
        assert state.queue is not None
        unit_offset, _ = wanted.first
        goes_on = not state.shift and unit_offset == state.proven_end
        if not (goes_on and wanted.is_run) or state.queue.ext is not None:
            return False
        done, count = 0, len(wanted)
        while done < count:
            window = state.queue.window(unit_offset + done, min(count - done, _WINDOW[1]))
            end = done + len(window)
            stored = wanted.stored[done * UNIT_SIZE : end * UNIT_SIZE].tobytes()
            if not len(window) or window.tobytes() != stored:
                return False
            done = end
        return True

    def begin(self, state: QueueState, first: int) -> Iterator[Finding]:
        """Checks the units before that of the queue's first record. They should all be of messages
        that retention has removed. Where the check goes on, the queue may have earlier records."""
        assert state.queue is not None
        state.started, state.proven_end = True, first
        start, place = state.first_queue_offset, None
        if self.earlier is not None:
            end = self._orphans.end_of(state)
            place = self.earlier.last_place(state.queue, start, end)
        if place is None:
            yield from self._orphans.check(state, start, first)
        else:
            state.proven_end, state.shift = place.queue_offset + 1, place.shift

    def pause(self, state: QueueState, earlier: EarlierRecords) -> Iterator[Finding]:
        """Call this when the stretch has no more records; ``earlier`` are those up to its end.
        Yields the findings that were held back: if the queue begins again behind the stretch, and
        in front of them, they are no damage."""
        assert state.queue is not None
        if state.spans:
            end = self._orphans.end_of(state)
            again = earlier.begins_again(state.queue, state.first_queue_offset, end)
            if again is not None and again[0] <= state.spans[0].queue_offset:
                yield state.begun_again(again[1])
        yield from state.release()

    def _check_stretch(self, state: QueueState, stretch: ExpectedUnits) -> Iterator[Finding]:
        """Checks a stretch of records with consecutive queue offsets."""
        if state.shift and self._is_in_place(state, stretch, 0):
            state.shift, state.next_offset = 0, -1
        first = int(stretch.queue_offset[0]) + state.shift
        repeated, count = 0, len(stretch.size)
        if int(stretch.queue_offset[0]) == state.next_offset:
            pass  # The last stretch goes on: its records came in two bulks.
        elif first > state.proven_end:
            yield from self._orphans.check(state, state.proven_end, first)
        elif first < state.proven_end:
            repeated = yield from self._again(state, stretch)
        done = repeated
        while done < count:
            matching = self._matching(state, stretch, done)
            self.units += matching
            if matching:
                yield from state.release()
            done += matching
            if done < count:
                done += yield from self._mismatch(state, stretch, done)
        end = int(stretch.queue_offset[-1]) + 1
        state.proven_end = max(state.proven_end, end + state.shift)
        # If all offsets were repeated, those of the next bulk may be, too.
        state.next_offset = -1 if repeated == count else end

    def _again(self, state: QueueState, stretch: ExpectedUnits) -> Generator[Finding, None, int]:
        """Deals with records that have queue offsets of earlier records. Returns how many are done.

        From the first of them on whose own unit is there, the queue has begun again: the topic was
        deleted, with its queues, and made anew. The others' offsets were given twice.
        """
        first = int(stretch.queue_offset[0])
        count = min(len(stretch.size), state.proven_end - state.shift - first)
        repeated = self._without_unit(state, stretch, count)
        if repeated:
            yield from state.repeats(
                FindingSpan(
                    "queue-offset-repeated",
                    first,
                    int(stretch.physical_offset[0]),
                    state.position(first + state.shift),
                    repeated,
                    str(state.proven_end - state.shift),
                    str(first),
                )
            )
        if repeated == count:
            return count
        state.proven_end = first + repeated + state.shift
        if state.spans:
            yield state.begun_again(int(stretch.physical_offset[repeated]))
        return repeated

    def _without_unit(self, state: QueueState, stretch: ExpectedUnits, count: int) -> int:
        """How many of the first ``count`` records come before the first one that has its unit."""
        assert state.queue is not None
        done = 0
        while done < count:
            unit_offset = int(stretch.queue_offset[done]) + state.shift
            window = state.queue.window(unit_offset, min(count - done, _WINDOW[1]))
            if not len(window):
                done += in_no_file(state.queue, unit_offset, count - done)
                continue
            same_record, same_code = self._same(state, stretch, done, window)
            others = leading(~(same_record & same_code))
            done += others
            if others < len(window):
                break
        return done

    def _matching(self, state: QueueState, stretch: ExpectedUnits, done: int) -> int:
        """How many records, from row ``done`` on, have their unit."""
        assert state.queue is not None
        matched, length = 0, _WINDOW[0]
        while done + matched < len(stretch.size):
            at = done + matched
            unit_offset = int(stretch.queue_offset[at]) + state.shift
            window = state.queue.window(unit_offset, min(len(stretch.size) - at, length))
            if not len(window):
                break
            same_record, same_code = self._same(state, stretch, at, window)
            same = same_record & same_code
            count = leading(same)
            matched += count
            if count < len(same):
                break
            length = min(4 * length, _WINDOW[1])
        return matched

    def _same(
        self, state: QueueState, stretch: ExpectedUnits, at: int, window: NDArray[np.void]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Compares the units of a window with the records from row ``at`` on. Returns two arrays of
        bool, by row: whether physical offset and size are right, and whether the tags code is."""
        assert state.queue is not None
        end = at + len(window)
        codes = window["tags_code"].astype(np.int64)
        if state.queue.ext is not None:
            codes = resolve_ext(state.queue, self._orphans.log, window, codes)
        same_record = (window["physical_offset"] == stretch.physical_offset[at:end]) & (
            window["size"] == stretch.size[at:end]
        )
        return same_record, codes == stretch.tags_code[at:end]

    # --- what is not as it should be -----------------------------------------------------

    def _mismatch(
        self, state: QueueState, stretch: ExpectedUnits, row: int
    ) -> Generator[Finding, None, int]:
        """Deals with records from ``row`` on that have the same kind of wrong unit, or none.
        Returns how many are done. Records that retention has removed meanwhile need no unit."""
        assert state.queue is not None
        if expired := self._orphans.expired(stretch.physical_offset[row:]):
            return expired
        unit_offset = int(stretch.queue_offset[row]) + state.shift
        if state.shift and self._is_in_place(state, stretch, row):
            # Only the units before this one were in front of their offsets.
            yield from self._orphans.check(state, unit_offset, unit_offset - state.shift)
            state.shift = 0
            return 0
        stored, kind = self._wrong_units(state, stretch, row)
        count = len(stored)
        if not count:
            count = in_no_file(state.queue, unit_offset, len(stretch.size) - row)
        if not len(stored) or kind == _UNWRITTEN:
            yield from self._note_lost(state, stretch, row, count)
            return count
        wanted = packed(stretch, row, count)
        waiting = self._waiting(stretch.physical_offset[row : row + count])
        if waiting == count:
            # The next start dispatches these records again. Then unwritten units are no damage, nor
            # is a torn one at the end of the queue.
            is_last = unit_offset + np.arange(count) >= state.queue.max_offset - 1
            is_written = (stored["physical_offset"] >= 0) & (stored["size"] > 0)
            mended = ~is_written | (is_last & are_cut_short(stored, wanted))
            count, waiting = leading(mended == mended[0]), 0
            if mended[0]:
                self.units += count
                self._waits.note_behind(int(stretch.physical_offset[row]), count)
                return count
        count, moved = count - waiting, 0
        if kind == _OTHER:
            shifts = shifts_of(state.queue, wanted[:count], unit_offset)
            moved = int(shifts[0])
            count = 1 if moved else leading(shifts == 0)
        self.units += count
        if moved:
            # From here on units are expected elsewhere. What lies behind in the files counts as
            # open again, wherever the bulks of records end.
            state.shift += moved
            state.proven_end = unit_offset + moved
        unit, asked = (Unit._make(one[0].tolist()) for one in (stored, wanted))
        advice = self._orphans.doubt_between(state, unit_offset + moved) if moved else None
        code, expected = "unit-mismatch", describe(asked)
        found = describe(unit) + describe_ext(state.queue, unit)
        if moved:
            code = "unit-misplaced"
            expected = f"queue offset {stretch.queue_offset[row]}"
            found = f"queue offset {unit_offset + moved}"
        elif kind == _LATE:
            code = "unit-delivery-time-mismatch"
        at = int(stretch.queue_offset[row]), asked.physical_offset, state.position(unit_offset)
        yield from state.hold_back(FindingSpan(code, *at, count, expected, found, advice))
        return count

    def _is_in_place(self, state: QueueState, stretch: ExpectedUnits, row: int) -> bool:
        """Whether the unit of a record is at the record's own queue offset."""
        assert state.queue is not None
        window = state.queue.window(int(stretch.queue_offset[row]), 1)
        if not len(window):
            return False
        same_record, same_code = self._same(state, stretch, row, window)
        return bool(same_record[0] & same_code[0])

    def _wrong_units(
        self, state: QueueState, stretch: ExpectedUnits, row: int
    ) -> tuple[NDArray[np.void], int]:
        """The units from ``row`` on that are wrong in the same way, at most a thousand, and the
        way: ``_UNWRITTEN``, ``_LATE`` or ``_OTHER``. No units if the first one's offset is in no
        file."""
        assert state.queue is not None
        unit_offset = int(stretch.queue_offset[row]) + state.shift
        for length in _WRONG:
            window = state.queue.window(unit_offset, min(len(stretch.size) - row, length))
            if not len(window):
                return window, _OTHER
            kinds = self._kinds(state, stretch, row, window)
            count = leading(kinds == kinds[0])
            if count < length:
                break
        return window[:count], int(kinds[0])

    def _kinds(
        self, state: QueueState, stretch: ExpectedUnits, row: int, window: NDArray[np.void]
    ) -> NDArray[np.int64]:
        """What is wrong with each unit of a window, which begins with that of ``row``: int64."""
        same_record, same_code = self._same(state, stretch, row, window)
        is_late = same_record & (state.topic == constants.RMQ_SYS_SCHEDULE_TOPIC)
        # Only zeros count as unwritten. The engine takes other bytes for no unit, too, but they can
        # be one that was damaged.
        written = (window["physical_offset"] != 0) | (window["size"] != 0)
        written |= window["tags_code"] != 0
        kinds = np.where(is_late, _LATE, _OTHER)
        kinds[~written] = _UNWRITTEN
        kinds[same_record & same_code] = _SAME
        return kinds

    def _note_lost(
        self, state: QueueState, stretch: ExpectedUnits, row: int, count: int
    ) -> Iterator[Finding]:
        """Notes records without units. Those that the next start dispatches only wait. But it takes
        the places in front of the newest unit, or of the last files of a queue, which alone it
        reads, for written (``ConsumeQueue#recover``, ``#putMessagePositionInfo``)."""
        offsets, never = stretch.physical_offset[row : row + count], 0
        if state.queue is not None and self._orphans.is_in_log(int(offsets[0])):
            never = passed_over(state.queue, int(stretch.queue_offset[row]) + state.shift)
        waiting = min(self._waiting(offsets), max(count - never, 0))
        if waiting:
            self._waits.note_behind(int(offsets[count - waiting]), waiting)
        if waiting < count:
            queue_offset = int(stretch.queue_offset[row])
            position = state.position(queue_offset + state.shift)
            yield from state.hold_back(
                FindingSpan(
                    "record-without-unit", queue_offset, int(offsets[0]), position, count - waiting
                )
            )

    def _note_missing(self, state: QueueState, expected: ExpectedUnits) -> None:
        """Notes records of a queue without files."""
        offsets = expected.physical_offset
        waiting = self._waiting(offsets)
        if waiting:
            self._waits.note_behind(int(offsets[len(offsets) - waiting]), waiting)
        if waiting < len(offsets):
            if not state.missing:
                state.first_missing = int(offsets[0])
            state.missing += len(offsets) - waiting

    def _waiting(self, offsets: NDArray[np.int64]) -> int:
        """How many of the records at ``offsets`` may still wait for dispatch: always the last."""
        return 0 if self._waiting_from is None else int((offsets >= self._waiting_from).sum())
