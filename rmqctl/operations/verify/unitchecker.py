"""The units that records ask for against those in a queue's files."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats import constants
from rmqctl.engine.consumequeue import UNIT, UNIT_SIZE, ConsumeQueue, Unit, is_part_of
from rmqctl.operations.verify.findings import Finding
from rmqctl.operations.verify.queueext import resolve_ext, say_ext
from rmqctl.operations.verify.queuestate import QueueState, Run, Waits, say
from rmqctl.operations.verify.unclaimed import UnclaimedUnits

#: So many units are compared at once: few behind a wrong one, and soon many again.
_WINDOW = (1 << 10, 1 << 16)
#: How far units may stand before where their records say.
_MOST_SHIFT = 64
_SAME, _UNWRITTEN, _LATE, _OTHER, _MOVED = range(5)


class Wanted(NamedTuple):
    """Units of one queue as records ask for them, in log order: parallel arrays."""

    queue_offset: NDArray[np.int64]
    physical_offset: NDArray[np.int64]
    size: NDArray[np.int64]
    tags_code: NDArray[np.int64]


class UnitChecker:
    """Checks records of one queue after the other; ``units`` counts those that it has compared.

    Units between two records, which none claims, are ``unclaimed``'s; what only waits for its
    dispatch, and queues without files, go to ``waits``.
    """

    def __init__(self, unclaimed: UnclaimedUnits, waits: Waits, waiting_from: int | None) -> None:
        self.units = 0
        self._unclaimed = unclaimed
        self._waits = waits
        self._waiting_from = waiting_from

    def check(self, state: QueueState, wanted: Wanted) -> Iterator[Finding]:
        """Compares one queue's wanted units, in log order, with those in its files."""
        if state.queue is None:
            if not state.was_removed:
                self._note_missing(state, wanted)
            return
        breaks = np.flatnonzero(np.diff(wanted.queue_offset) != 1) + 1
        bounds = [0, *breaks.tolist(), len(wanted.size)]
        for start, end in pairwise(bounds):
            run = Wanted(*(column[start:end] for column in wanted))
            if not state.started:
                yield from self._begin(state, int(run.queue_offset[0]))
            yield from self._check_run(state, run)
        state.queue.close()

    def _begin(self, state: QueueState, first: int) -> Iterator[Finding]:
        """Before the queue's first record: units of messages that retention removed."""
        state.started, state.place = True, first
        yield from self._unclaimed.check(state, state.first_place, first)

    def _check_run(self, state: QueueState, run: Wanted) -> Iterator[Finding]:
        """A run of records with consecutive queue offsets."""
        first = int(run.queue_offset[0]) + state.shift
        done, count = 0, len(run.size)
        if first > state.place:
            yield from self._unclaimed.check(state, state.place, first)
        elif first < state.place:
            done = yield from self._again(state, run)
        while done < count:
            matching = self._matching(state, run, done)
            self.units += matching
            if matching:
                yield from state.told()
            done += matching
            if done < count:
                done += yield from self._mismatch(state, run, done)
        state.place = max(state.place, int(run.queue_offset[-1]) + state.shift + 1)

    def _again(self, state: QueueState, run: Wanted) -> Generator[Finding, None, int]:
        """Records whose places earlier records have had; how many were dealt with.

        Where the units are the later ones' a topic was deleted, with its queues, and made anew.
        Where they are the earlier ones' an offset was given twice.
        """
        first = int(run.queue_offset[0])
        if self._matching(state, run, 0):
            state.place = first + state.shift
            earlier, state.runs = state.runs, []
            if earlier:
                yield state.finding(
                    "queue-begun-again",
                    queue_offset=earlier[0].queue_offset,
                    physical_offset=earlier[0].physical_offset,
                    expected=f"units of {sum(one.count for one in earlier)} records",
                    found=f"those of later records, from {int(run.physical_offset[0])} on",
                )
            return 0
        count = min(len(run.size), state.place - state.shift - first)
        yield state.finding(
            "queue-offset-repeated",
            queue_offset=first,
            physical_offset=int(run.physical_offset[0]),
            expected=state.place - state.shift,
            found=first if count == 1 else f"{count} records from {first}",
        )
        return count

    def _matching(self, state: QueueState, run: Wanted, done: int) -> int:
        """How many rows from ``done`` on have their unit."""
        assert state.queue is not None
        matched, length = 0, _WINDOW[0]
        while done + matched < len(run.size):
            at = done + matched
            place = int(run.queue_offset[at]) + state.shift
            window = state.queue.window(place, min(len(run.size) - at, length))
            if not len(window):
                break
            same_place, same_code = self._same(state, run, at, window)
            same = same_place & same_code
            count = len(same) if same.all() else int(np.argmin(same))
            matched += count
            if count < len(same):
                break
            length = min(2 * length, _WINDOW[1])
        return matched

    def _same(
        self, state: QueueState, run: Wanted, at: int, window: NDArray[np.void]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether units have the place and size, and the tags code, of the rows from ``at`` on."""
        assert state.queue is not None
        end = at + len(window)
        codes = window["tags_code"].astype(np.int64)
        if state.queue.ext is not None:
            codes = resolve_ext(state.queue, self._unclaimed.log, window, codes)
        same_place = (window["physical_offset"] == run.physical_offset[at:end]) & (
            window["size"] == run.size[at:end]
        )
        return same_place, codes == run.tags_code[at:end]

    # --- what is not as it should be -----------------------------------------------------

    def _mismatch(self, state: QueueState, run: Wanted, row: int) -> Generator[Finding, None, int]:
        """Records whose unit is not as it should be, from ``row`` on; how many were dealt with."""
        assert state.queue is not None
        queue_offset = int(run.queue_offset[row])
        place = queue_offset + state.shift
        window = state.queue.window(place, min(len(run.size) - row, _WINDOW[0]))
        if not len(window):
            count = self._in_no_file(state.queue, place, len(run.size) - row)
            yield from self._note_lost(state, run, row, count)
            return count
        kinds = self._kinds(state, run, row, window)
        count = len(kinds) if (kinds == kinds[0]).all() else int(np.argmax(kinds != kinds[0]))
        if kinds[0] == _UNWRITTEN:
            yield from self._note_lost(state, run, row, count)
            return count
        unit = Unit._make(window[0].tolist())
        wanted = Unit(int(run.physical_offset[row]), int(run.size[row]), int(run.tags_code[row]))
        waiting = self._waiting(run.physical_offset[row : row + count])
        if waiting == count:
            is_last = place >= state.queue.max_offset - 1
            is_torn = is_last and is_part_of(UNIT.pack(*unit), UNIT.pack(*wanted))
            if is_torn or not unit.is_written:
                # Where a start cuts the queue and dispatches again, or what a kill has torn and the
                # next writer completes.
                self.units += 1
                self._waits.note_behind(wanted.physical_offset, 1)
                return 1
            waiting = count - 1
        moved = self._shift_to(state, wanted, place) if kinds[0] == _MOVED else 0
        count = 1 if kinds[0] == _MOVED else count - waiting
        self.units += count
        state.shift += moved
        code, expected, found = "unit-mismatch", say(wanted), say(unit) + say_ext(state.queue, unit)
        if moved:
            code = "unit-misplaced"
            expected, found = f"queue offset {queue_offset}", f"queue offset {place + moved}"
        elif kinds[0] == _LATE:
            code = "unit-delivery-time-mismatch"
        position = state.position(place)
        yield from state.note(
            Run(code, queue_offset, wanted.physical_offset, position, count, expected, found)
        )
        return count

    def _kinds(
        self, state: QueueState, run: Wanted, row: int, window: NDArray[np.void]
    ) -> NDArray[np.int64]:
        """What is wrong with the units of a window, the rows from ``row`` on."""
        assert state.queue is not None
        same_place, same_code = self._same(state, run, row, window)
        is_late = same_place & (state.topic == constants.RMQ_SYS_SCHEDULE_TOPIC)
        # What the engine would not take for a unit may still be one that was damaged.
        written = (window["physical_offset"] != 0) | (window["size"] != 0)
        written |= window["tags_code"] != 0
        place = int(run.queue_offset[row]) + state.shift
        before = state.queue.window(max(place - _MOST_SHIFT, 0), min(place, _MOST_SHIFT))
        near = np.concatenate((before["physical_offset"], window["physical_offset"]))
        elsewhere = np.isin(run.physical_offset[row : row + len(window)], near) & ~same_place
        kinds = np.where(is_late, _LATE, np.where(elsewhere, _MOVED, _OTHER))
        kinds[~written] = _UNWRITTEN
        kinds[same_place & same_code] = _SAME
        return kinds

    @staticmethod
    def _in_no_file(queue: ConsumeQueue, place: int, count: int) -> int:
        """How many of ``count`` places, the first one in no file, are in none."""
        starts = (entry.file_from_offset // UNIT_SIZE for entry in queue.files.entries)
        following = next((start for start in starts if start > place), None)
        return count if following is None else min(count, following - place)

    @staticmethod
    def _shift_to(state: QueueState, wanted: Unit, place: int) -> int:
        """How far from ``place`` the wanted unit stands, when the queue was built with a gap."""
        assert state.queue is not None
        for at, unit in state.queue.units(max(place - _MOST_SHIFT, 0), place):
            if unit == wanted:
                return at - place
        return 0

    def _note_lost(self, state: QueueState, run: Wanted, row: int, count: int) -> Iterator[Finding]:
        """Records without a unit: behind the newest unit they only wait for dispatch."""
        places = run.physical_offset[row : row + count]
        waiting = self._waiting(places)
        if waiting:
            self._waits.note_behind(int(places[count - waiting]), waiting)
        if waiting < count:
            queue_offset = int(run.queue_offset[row])
            position = state.position(queue_offset + state.shift)
            yield from state.note(
                Run("record-without-unit", queue_offset, int(places[0]), position, count - waiting)
            )

    def _note_missing(self, state: QueueState, wanted: Wanted) -> None:
        """Records of a queue without files."""
        places = wanted.physical_offset
        waiting = self._waiting(places)
        if waiting:
            self._waits.note_behind(int(places[len(places) - waiting]), waiting)
        if waiting < len(places):
            if not state.missing:
                state.first_missing = int(places[0])
            state.missing += len(places) - waiting

    def _waiting(self, places: NDArray[np.int64]) -> int:
        """How many of the records at ``places``, the last ones, may still wait for dispatch."""
        return 0 if self._waiting_from is None else int((places >= self._waiting_from).sum())
