"""The units that records ask for against those in a queue's files."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats import constants
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue, Unit, unit_dtype
from rmqctl.operations.verify.findings import Finding
from rmqctl.operations.verify.orphanunits import UnclaimedUnits
from rmqctl.operations.verify.queueext import resolve_ext, say_ext
from rmqctl.operations.verify.queuestate import QueueState, Run, Waits, say

#: So many units are compared at once: few behind a wrong one, and soon many again.
_WINDOW = (1 << 8, 1 << 16)
#: So many wrong units are looked at together: few where the kinds change, else many.
_WRONG = (1 << 4, 1 << 10)
#: How far units may stand before where their records say.
_MOST_SHIFT = 64
_SAME, _UNWRITTEN, _LATE, _OTHER = range(4)


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
            count = _leading(same)
            matched += count
            if count < len(same):
                break
            length = min(4 * length, _WINDOW[1])
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
        place = int(run.queue_offset[row]) + state.shift
        stored, kind = self._wrong_units(state, run, row)
        count = len(stored)
        if not count:
            count = self._in_no_file(state.queue, place, len(run.size) - row)
        if not len(stored) or kind == _UNWRITTEN:
            yield from self._note_lost(state, run, row, count)
            return count
        wanted = _packed(run, row, count)
        waiting = self._waiting(run.physical_offset[row : row + count])
        if waiting == count:
            # Where a start cuts the queue and dispatches again, or what a kill has torn at its end
            # and the next writer completes.
            is_last = place + np.arange(count) >= state.queue.max_offset - 1
            is_written = (stored["physical_offset"] >= 0) & (stored["size"] > 0)
            mended = ~is_written | (is_last & _are_parts(stored, wanted))
            count, waiting = _leading(mended == mended[0]), 0
            if mended[0]:
                self.units += count
                self._waits.note_behind(int(run.physical_offset[row]), count)
                return count
        count, moved = count - waiting, 0
        if kind == _OTHER:
            shifts = _shifts(state.queue, wanted[:count], place)
            moved = int(shifts[0])
            count = 1 if moved else _leading(shifts == 0)
        self.units += count
        state.shift += moved
        unit, asked = (Unit._make(one[0].tolist()) for one in (stored, wanted))
        code, expected, found = "unit-mismatch", say(asked), say(unit) + say_ext(state.queue, unit)
        if moved:
            code = "unit-misplaced"
            expected = f"queue offset {run.queue_offset[row]}"
            found = f"queue offset {place + moved}"
        elif kind == _LATE:
            code = "unit-delivery-time-mismatch"
        at = int(run.queue_offset[row]), asked.physical_offset, state.position(place)
        yield from state.note(Run(code, *at, count, expected, found))
        return count

    def _wrong_units(
        self, state: QueueState, run: Wanted, row: int
    ) -> tuple[NDArray[np.void], int]:
        """The units from ``row`` on that are wrong in one way, some hundreds at most, and the way;
        no unit: the place of the first is in no file."""
        assert state.queue is not None
        place = int(run.queue_offset[row]) + state.shift
        for length in _WRONG:
            window = state.queue.window(place, min(len(run.size) - row, length))
            if not len(window):
                return window, _OTHER
            kinds = self._kinds(state, run, row, window)
            count = _leading(kinds == kinds[0])
            if count < length:
                break
        return window[:count], int(kinds[0])

    def _kinds(
        self, state: QueueState, run: Wanted, row: int, window: NDArray[np.void]
    ) -> NDArray[np.int64]:
        """What is wrong with the units of a window, the rows from ``row`` on."""
        same_place, same_code = self._same(state, run, row, window)
        is_late = same_place & (state.topic == constants.RMQ_SYS_SCHEDULE_TOPIC)
        # What the engine would not take for a unit may still be one that was damaged.
        written = (window["physical_offset"] != 0) | (window["size"] != 0)
        written |= window["tags_code"] != 0
        kinds = np.where(is_late, _LATE, _OTHER)
        kinds[~written] = _UNWRITTEN
        kinds[same_place & same_code] = _SAME
        return kinds

    @staticmethod
    def _in_no_file(queue: ConsumeQueue, place: int, count: int) -> int:
        """How many of ``count`` places, the first one in no file, are in none."""
        starts = (entry.file_from_offset // UNIT_SIZE for entry in queue.files.entries)
        following = next((start for start in starts if start > place), None)
        return count if following is None else min(count, following - place)

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


def _leading(which: NDArray[np.bool_]) -> int:
    """How many rows, from the first on, are true."""
    return len(which) if which.all() else int(np.argmin(which))


def _packed(run: Wanted, row: int, count: int) -> NDArray[np.void]:
    """The units of ``count`` records, from ``row`` on, as they are stored."""
    units = np.empty(count, unit_dtype())
    for name in ("physical_offset", "size", "tags_code"):
        units[name] = getattr(run, name)[row : row + count]
    return units


def _are_parts(stored: NDArray[np.void], wanted: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which stored units are what a store of the wanted ones leaves that was cut: the rest of them
    is zeros."""
    found, whole = (
        np.frombuffer(units.tobytes(), np.uint8).reshape(-1, UNIT_SIZE)
        for units in (stored, wanted)
    )
    parts: NDArray[np.bool_] = ((found == 0) | (found == whole)).all(axis=1)
    return parts


def _shifts(queue: ConsumeQueue, wanted: NDArray[np.void], place: int) -> NDArray[np.int64]:
    """How far from its own place each wanted unit stands, the first one's being ``place``, when the
    queue was built with a gap; 0 where it is not among those shortly before."""
    before = _units(queue, place - _MOST_SHIFT, place + len(wanted) - 1)
    offsets = before["physical_offset"].astype(np.int64)
    near = np.lib.stride_tricks.sliding_window_view(offsets, _MOST_SHIFT)
    rows, back = np.nonzero(near == wanted["physical_offset"].astype(np.int64)[:, np.newaxis])
    same = before[rows + back] == wanted[rows]
    shifts = np.zeros(len(wanted), np.int64)
    # The last one that is stored counts: the first of those at which a unit stands.
    shifts[rows[same][::-1]] = back[same][::-1] - _MOST_SHIFT
    return shifts


def _units(queue: ConsumeQueue, start: int, end: int) -> NDArray[np.void]:
    """The units of a range of places; zeros where a place is in no file."""
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
