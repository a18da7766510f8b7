"""Queues against the log, in both directions.

Records come in log order, in batches; each is compared with the unit at its place. What no record
has claimed is then looked at from the queue's side. Memory holds one range a queue and one bulk.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from formats import constants
from rmqctl.engine import paths
from rmqctl.engine.commitlog import CommitLog
from rmqctl.engine.consumequeue import UNIT, UNIT_SIZE, ConsumeQueue, Unit, is_part_of
from rmqctl.engine.consumequeue_ext import ConsumeQueueExt
from rmqctl.engine.dispatch import UnitBatch
from rmqctl.engine.paths import queue_directories
from rmqctl.engine.reput import group_by_queue
from rmqctl.engine.scanner import TopicTable
from rmqctl.errors import CannotRead, FileLengthContradiction
from rmqctl.operations.verify.findings import Finding, finding
from rmqctl.operations.verify.places import GrowingEnd, Ranges
from rmqctl.operations.verify.queueext import check_ext_files, resolve_ext, say_ext

Ints = NDArray[np.int64]

_BULK_UNITS = 1 << 18
_WINDOW = 1 << 16


@dataclass(slots=True)
class _Run:
    """Neighbouring findings of one kind, reported as one."""

    code: str
    queue_offset: int
    physical_offset: int
    count: int
    text: str

    @property
    def next_offset(self) -> int:
        return self.queue_offset + self.count


@dataclass(slots=True)
class _State:
    """How far one queue is proven: units below ``place`` are, by records in log order.

    ``shift`` is how far units stand from where their records say, 0 in a sound queue; ``lost`` are
    neighbouring records without a unit, not reported yet. ``queue`` is None when it has no files.
    """

    queue: ConsumeQueue | None
    topic: str
    queue_id: int
    path: str
    started: bool = False
    place: int = 0
    shift: int = 0
    missing: int = 0
    first_missing: int = 0
    lost: _Run | None = None


class QueueChecker:
    """Checks all queues; feed :meth:`add` in log order, then :meth:`finish`.

    ``waiting_from`` is where the newest unit's record ends, or before that when a writer was
    killed: records from there on are not expected to have units yet. None: all must have theirs.
    """

    def __init__(
        self,
        root: Path,
        open_log: Callable[[], CommitLog],
        file_size: int,
        topics: TopicTable,
        waiting_from: int | None,
        damaged: Ranges,
        unread: Callable[[str | None], bool],
    ) -> None:
        """:param unread: tells the topics whose queues are of a kind that is not looked at."""
        self.root = root
        self._unread = unread
        self.units = 0
        # Its own maps: looking up a record must not close the file that is being scanned.
        self._log = open_log()
        self._damaged = damaged
        self._end = GrowingEnd(open_log)
        self._file_size = file_size
        self._topics = topics
        self._waiting_from = waiting_from
        self._states: dict[tuple[str, int], _State] = {}
        self._pending: list[UnitBatch] = []
        self._pending_units = 0
        self._behind = 0
        self._behind_first = 0

    def add(self, batch: UnitBatch) -> Iterator[Finding]:
        """Takes the units that a batch of records asks for."""
        self._pending.append(batch)
        self._pending_units += len(batch.size)
        if self._pending_units >= _BULK_UNITS:
            yield from self._check_pending()

    def _check_pending(self) -> Iterator[Finding]:
        if not self._pending:
            return
        bulk = UnitBatch(*(np.concatenate(columns) for columns in zip(*self._pending, strict=True)))
        self._pending, self._pending_units = [], 0
        for topic_id, queue_id, rows in group_by_queue(bulk.topic_id, bulk.queue_id):
            if self._unread(self._topics.names[topic_id]):
                continue
            state = self._state(self._topics.names[topic_id], queue_id)
            wanted = UnitBatch(*(column[rows] for column in bulk))
            yield from self._check_queue(state, wanted)

    def _state(self, topic: str, queue_id: int) -> _State:
        state = self._states.get((topic, queue_id))
        if state is None:
            where = self.root / paths.CONSUME_QUEUE / topic / str(queue_id)
            queue = None
            if where.is_dir():
                queue = self._open(where, topic, queue_id)
            relative = str(where.relative_to(self.root))
            state = self._states[topic, queue_id] = _State(queue, topic, queue_id, relative)
        return state

    def _open(self, where: Path, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue as its files are; None when their lengths are wrong (found elsewhere)."""
        ext = self.root / paths.CONSUME_QUEUE_EXT / topic / str(queue_id)
        try:
            queue = ConsumeQueue(
                where,
                topic,
                queue_id,
                self._file_size,
                ext=ConsumeQueueExt(ext) if ext.is_dir() else None,
            )
        except (FileLengthContradiction, CannotRead):
            return None
        queue.close()
        return queue if queue.files.entries else None

    # --- from the records ----------------------------------------------------------------

    def _check_queue(self, state: _State, wanted: UnitBatch) -> Iterator[Finding]:
        """Compares one queue's wanted units, in log order, with those in its files."""
        if state.queue is None:
            self._note_missing(state, wanted)
            return
        breaks = np.flatnonzero(np.diff(wanted.queue_offset) != 1) + 1
        bounds = [0, *breaks.tolist(), len(wanted.size)]
        for start, end in pairwise(bounds):
            run = UnitBatch(*(column[start:end] for column in wanted))
            if not state.started:
                yield from self._begin(state, int(run.queue_offset[0]))
            yield from self._check_run(state, run)
        state.queue.close()

    def _begin(self, state: _State, first: int) -> Iterator[Finding]:
        """Before the queue's first record: units of messages that retention removed."""
        assert state.queue is not None
        state.started = True
        state.place = max(state.queue.files.min_offset, 0) // UNIT_SIZE
        yield from self._unclaimed(state, state.place, first)
        state.place = max(state.place, first)

    def _check_run(self, state: _State, run: UnitBatch) -> Iterator[Finding]:
        """A run of records with consecutive queue offsets."""
        first = int(run.queue_offset[0]) + state.shift
        if first > state.place:
            yield from self._unclaimed(state, state.place, first)
        elif first < state.place:
            yield self._find(
                state,
                "queue-offset-repeated",
                queue_offset=int(run.queue_offset[0]),
                physical_offset=int(run.physical_offset[0]),
                expected=state.place - state.shift,
                found=int(run.queue_offset[0]),
            )
        done, count = 0, len(run.size)
        while done < count:
            matching = self._matching(state, run, done)
            if matching:
                yield from self._report_lost(state)
            done += matching
            if done < count:
                done += yield from self._mismatch(state, run, done)
        state.place = max(state.place, int(run.queue_offset[-1]) + state.shift + 1)

    def _matching(self, state: _State, run: UnitBatch, done: int) -> int:
        """How many rows from ``done`` on have their unit."""
        assert state.queue is not None
        matched = 0
        while done + matched < len(run.size):
            at = done + matched
            place = int(run.queue_offset[at]) + state.shift
            window = state.queue.window(place, min(len(run.size) - at, _WINDOW))
            if not len(window):
                return matched
            end = at + len(window)
            same = (window["physical_offset"] == run.physical_offset[at:end]) & (
                window["size"] == run.size[at:end]
            )
            codes = window["tags_code"].astype(np.int64)
            if state.queue.ext is not None:
                codes = resolve_ext(state.queue, self._log, window, codes)
            same &= codes == run.tags_code[at:end]
            count = len(same) if same.all() else int(np.argmin(same))
            matched += count
            self.units += count
            if count < len(same):
                return matched
        return matched

    def _mismatch(self, state: _State, run: UnitBatch, row: int) -> Generator[Finding, None, int]:
        """Records whose unit is not as it should be, from ``row`` on; how many were dealt with."""
        assert state.queue is not None
        queue_offset = int(run.queue_offset[row])
        place = queue_offset + state.shift
        unwritten = self._unwritten(state.queue, place, len(run.size) - row)
        if unwritten:
            yield from self._note_lost(state, run, row, unwritten)
            return unwritten
        yield from self._report_lost(state)
        self.units += 1
        wanted = Unit(int(run.physical_offset[row]), int(run.size[row]), int(run.tags_code[row]))
        unit = state.queue.unit(place)
        stored = UNIT.pack(*unit) if unit is not None else b""
        may_wait = bool(stored) and self._waiting(run.physical_offset[row : row + 1]) > 0
        if may_wait and is_part_of(stored, UNIT.pack(*wanted)):
            # A store that a kill has cut: the next writer completes it.
            self._note_behind(wanted.physical_offset, 1)
            return 1
        moved = self._shift_to(state, wanted, place)
        state.shift += moved
        code, expected, found = "unit-mismatch", _say(wanted), "nothing"
        if unit is not None:
            found = _say(unit) + say_ext(state.queue, unit)
        is_schedule = state.topic == constants.RMQ_SYS_SCHEDULE_TOPIC
        if is_schedule and unit is not None and unit[:2] == wanted[:2]:
            code = "unit-delivery-time-mismatch"
        elif moved:
            code = "unit-misplaced"
            expected, found = f"queue offset {queue_offset}", f"queue offset {place + moved}"
        yield self._find(
            state,
            code,
            queue_offset=queue_offset,
            physical_offset=wanted.physical_offset,
            position=place * UNIT_SIZE % self._file_size,
            expected=expected,
            found=found,
        )
        return 1

    @staticmethod
    def _unwritten(queue: ConsumeQueue, place: int, count: int) -> int:
        """How many units from ``place`` on, at most ``count``, were never written."""
        window = queue.window(place, min(count, _WINDOW))
        if not len(window):
            following = [e for e in queue.files.entries if e.file_from_offset > place * UNIT_SIZE]
            if not following:
                return count
            return min(count, following[0].file_from_offset // UNIT_SIZE - place)
        # What the engine would not take for a unit may still be one that was damaged.
        written = (window["physical_offset"] != 0) | (window["size"] != 0)
        written |= window["tags_code"] != 0
        return int(np.argmax(written)) if written.any() else len(window)

    def _note_lost(self, state: _State, run: UnitBatch, row: int, count: int) -> Iterator[Finding]:
        """Records without a unit: behind the newest unit they only wait for dispatch."""
        places = run.physical_offset[row : row + count]
        waiting = self._waiting(places)
        if waiting:
            self._note_behind(int(places[count - waiting]), waiting)
        lost = count - waiting
        if not lost:
            return
        queue_offset = int(run.queue_offset[row])
        if state.lost is not None and state.lost.next_offset == queue_offset:
            state.lost.count += lost
            return
        yield from self._report_lost(state)
        state.lost = _Run("record-without-unit", queue_offset, int(places[0]), lost, "")

    def _report_lost(self, state: _State) -> Iterator[Finding]:
        if state.lost is not None:
            lost, state.lost = state.lost, None
            yield self._find(
                state,
                lost.code,
                queue_offset=lost.queue_offset,
                physical_offset=lost.physical_offset,
                position=(lost.queue_offset + state.shift) * UNIT_SIZE % self._file_size,
                expected=f"{lost.count} units",
                found="never written",
            )

    def _find(self, state: _State, code: str, **fields: object) -> Finding:
        return finding(code, path=state.path, topic=state.topic, queue_id=state.queue_id, **fields)

    def _shift_to(self, state: _State, wanted: Unit, place: int) -> int:
        """How far from ``place`` the wanted unit stands, when the queue was built with a gap."""
        assert state.queue is not None
        low, high = max(place - 64, 0), place
        for at, unit in state.queue.units(low, high):
            if unit == wanted:
                return at - place
        return 0

    def _note_missing(self, state: _State, wanted: UnitBatch) -> None:
        """Records of a queue without files."""
        places = wanted.physical_offset
        waiting = self._waiting(places)
        if waiting:
            self._note_behind(int(places[len(places) - waiting]), waiting)
        if waiting < len(places):
            if not state.missing:
                state.first_missing = int(places[0])
            state.missing += len(places) - waiting

    def _waiting(self, places: Ints) -> int:
        """How many of the records at ``places``, the last ones, may still wait for dispatch."""
        return 0 if self._waiting_from is None else int((places >= self._waiting_from).sum())

    def _note_behind(self, physical_offset: int, count: int) -> None:
        first = min(self._behind_first, physical_offset) if self._behind else physical_offset
        self._behind_first = first
        self._behind += count

    # --- from the queues -----------------------------------------------------------------

    def finish(self, log_end: int) -> Iterator[Finding]:
        """After the last record: what no record claimed."""
        self._end.reached(log_end)
        yield from self._check_pending()
        yield from self._missing_queues()
        for where in queue_directories(self.root / paths.CONSUME_QUEUE):
            if self._unread(where.topic):
                continue
            state = self._state(where.topic, where.queue_id)
            if state.queue is not None:
                yield from self._finish_queue(state)
        if self._behind:
            yield finding(
                "dispatch-behind",
                physical_offset=self._behind_first,
                found=f"{self._behind} records",
            )

    def close(self) -> None:
        self._log.close()

    def _finish_queue(self, state: _State) -> Iterator[Finding]:
        """What no record of the queue claimed."""
        assert state.queue is not None
        yield from self._report_lost(state)
        if not state.started:
            state.place = max(state.queue.files.min_offset, 0) // UNIT_SIZE
        end = state.queue.files.end_offset // UNIT_SIZE
        yield from self._unclaimed(state, state.place, end, tail=True)
        yield from check_ext_files(self.root, state.queue)
        state.queue.close()

    def _missing_queues(self) -> Iterator[Finding]:
        missing = [state for state in self._states.values() if state.missing]
        if missing and self._waiting_from is None:
            total = sum(state.missing for state in missing)
            yield finding(
                "consumequeue-missing",
                path=paths.CONSUME_QUEUE,
                expected=f"{len(missing)} queues",
                found=f"{total} records without a unit",
                physical_offset=min(state.first_missing for state in missing),
            )
            return
        for state in missing:
            yield self._find(
                state,
                "queue-missing",
                physical_offset=state.first_missing,
                found=f"{state.missing} records without a unit",
            )

    def _unclaimed(
        self, state: _State, start: int, end: int, *, tail: bool = False
    ) -> Iterator[Finding]:
        """Units in ``[start, end)`` that no record claims; neighbours of a kind are one."""
        run: _Run | None = None
        for queue_offset, unit in self._suspicious(state, start, end, tail):
            self.units += unit.is_written
            code = self._classify(unit, state)
            if run is not None and run.code == code and run.next_offset == queue_offset:
                run.count += 1
                continue
            if run is not None:
                yield self._report(run, state)
            run = _Run(code, queue_offset, unit.physical_offset, 1, _say(unit))
        if run is not None:
            yield self._report(run, state)

    def _suspicious(
        self, state: _State, start: int, end: int, tail: bool
    ) -> Iterator[tuple[int, Unit]]:
        """Unclaimed units that need a word: not expired, not pre-blank, not the unwritten rest."""
        assert state.queue is not None
        log_min = self._log.min_offset
        while start < end:
            window = state.queue.window(start, min(end - start, _WINDOW))
            if not len(window):
                following = [
                    entry.file_from_offset // UNIT_SIZE
                    for entry in state.queue.files.entries
                    if entry.file_from_offset // UNIT_SIZE > start
                ]
                if not following:
                    return
                start = following[0]
                continue
            offset, size = window["physical_offset"], window["size"]
            pre_blank = (offset == 0) & (size == constants.PRE_BLANK_UNIT[1])
            written = (offset >= 0) & (size > 0)
            quiet = pre_blank | (written & (offset < log_min))
            quiet |= written & self._came_later(offset)
            if tail:
                # Zeros up to the end of the last file are the rest that is still to be written.
                marked = np.flatnonzero((offset != 0) | (size != 0) | (window["tags_code"] != 0))
                if len(marked) == 0:
                    start += len(window)
                    continue
                later = self._anything_written(state, start + len(window), end)
                if not later:
                    quiet[marked[-1] + 1 :] = True
            for row in np.flatnonzero(~quiet).tolist():
                yield start + row, Unit._make(window[row].tolist())
            start += len(window)

    def _came_later(self, offset: Ints) -> NDArray[np.bool_]:
        """Units of records that were appended after the log was read."""
        read_to = self._end.read_to
        if read_to is None or not (offset >= read_to).any():
            return np.zeros(len(offset), bool)
        self._end.look_again()
        later: NDArray[np.bool_] = (offset >= read_to) & (offset < self._end.now)
        return later

    def _anything_written(self, state: _State, start: int, end: int) -> bool:
        assert state.queue is not None
        while start < end:
            window = state.queue.window(start, min(end - start, _WINDOW))
            if not len(window):
                return False
            if window.tobytes().strip(b"\0"):
                return True
            start += len(window)
        return False

    def _classify(self, unit: Unit, state: _State) -> str:
        if not unit.is_written:
            return "unit-hole"
        read_to = self._end.read_to
        if read_to is not None and unit.physical_offset >= read_to:
            return "unit-points-past-log-end"
        record = self._log.find_record(unit.physical_offset)
        if record is None:
            damaged = unit.physical_offset in self._damaged
            return "unit-points-into-damage" if damaged else "unit-points-to-no-record"
        if record.topic != state.topic or record.queue_id != state.queue_id:
            return "unit-of-other-queue"
        return "unit-misplaced"

    def _report(self, run: _Run, state: _State) -> Finding:
        return self._find(
            state,
            run.code,
            queue_offset=run.queue_offset,
            physical_offset=run.physical_offset,
            position=run.queue_offset * UNIT_SIZE % self._file_size,
            found=run.text if run.count == 1 else f"{run.count} units from {run.text}",
        )


def _say(unit: Unit) -> str:
    return f"offset {unit.physical_offset}, size {unit.size}, tags code {unit.tags_code}"


def newest_unit_end(root: Path, file_size: int) -> int:
    """Where the record of the newest unit of all queues ends; -1 without units.

    A broker starts dispatching there (``DefaultMessageStore#start``).
    """
    newest = -1
    for where in queue_directories(root / paths.CONSUME_QUEUE):
        try:
            queue = ConsumeQueue(where.path, where.topic, where.queue_id, file_size)
        except (FileLengthContradiction, CannotRead):
            continue
        newest = max(newest, queue.max_physical_offset)
        queue.close()
    return newest
