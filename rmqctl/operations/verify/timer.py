"""Checks the timer of 5.x: its wheel, timer log and check point against each other, and against the
messages.

What a killed broker leaves, and a start repairs by itself, is no finding: a wheel that lacks the
last units of the timer log, and a check point that is behind both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.engine.files import paths
from rmqctl.engine.files.shown import shown
from rmqctl.engine.messagestore import system_clock
from rmqctl.engine.services.timer import Timer
from rmqctl.engine.services.timerset import MOST_AHEAD
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.rocksdb import RocksDBUnreadable
from rmqctl.engine.store import Store
from rmqctl.engine.timer.timerlog import DTYPE, UNIT_SIZE, has_right_magic
from rmqctl.engine.timer.wheel import WHEEL_SIZE
from rmqctl.errors import CannotRead
from rmqctl.operations.verify.findings import Finding, finding
from rmqctl.rows.words import some

if TYPE_CHECKING:
    from numpy.typing import NDArray

_QUEUE_UNITS_AT_ONCE = 1 << 16
#: How far (ms) a crash can leave the check point behind the end of the timer log.
_MOST_BEHIND = 30_000


def check_timer(
    root: Path, config: MessageStoreConfig, now: int | None = None
) -> Iterator[Finding]:
    """The findings of a store that has timer files; none for another store.

    :param now: the current time (ms), which the timer's read clock must not be ahead of; None: that
        of the system.
    :raises FileLengthContradiction: a ``broker.conf`` contradicts the lengths of the files.
    """
    names = (paths.TIMER_WHEEL, paths.TIMER_LOG, paths.TIMER_CHECKPOINT)
    if not any(os.path.lexists(root / name) for name in names):
        return
    try:
        with Store(root, config) as store:
            checker = _Checker(store, system_clock() if now is None else now)
            try:
                yield from checker.files()
                yield from checker.checkpoint()
                if checker.has_whole_wheel:
                    yield from checker.chains()
                    yield from checker.messages()
            finally:
                checker.timer.close()
    except CannotRead as error:
        path = shown(root, Path(str(error.path)))
        yield finding("unreadable-file", path=path, found=str(error.reason))
    except RocksDBUnreadable as error:
        path = shown(root, Path(str(error.path)))
        yield finding("rocksdb-unreadable", path=path, found=str(error.reason))


class _Live(NamedTuple):
    """The units of the timer log whose time is not reached yet, in the order of their slots, and in
    a slot of their positions: parallel arrays of int64, of shape ``(units,)``.

    ``time`` is that of the slot, in units of the timer's precision. ``position`` and ``prev`` are
    bytes in the timer log, ``offset`` and ``size`` bytes in the commit log.
    """

    time: NDArray[np.int64]
    position: NDArray[np.int64]
    prev: NDArray[np.int64]
    magic: NDArray[np.int64]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]


class _Checker:
    def __init__(self, store: Store, now: int) -> None:
        self._store = store
        self._now = now
        self.timer = Timer(store)
        self._clock = max(self.timer.checkpoint.read_timestamp // self.timer.precision, 1)
        self._live = _live_units(self.timer, self._clock)

    @property
    def has_whole_wheel(self) -> bool:
        """Whether there is a wheel with which a broker starts. If not, the broker makes a new one,
        and no slot leads to the units of the timer log any more."""
        return self.timer.wheel is not None and self.timer.wheel.size == WHEEL_SIZE

    def files(self) -> Iterator[Finding]:
        """Checks that the files exist and have the right lengths, and that the timer log and the
        wheel have only units and slots where these belong."""
        log, wheel = self.timer.log, self.timer.wheel
        files = log.files
        for entry in files.irregular:
            if entry != files.empty_last:
                yield finding(
                    "timer-log-length",
                    path=f"{paths.TIMER_LOG}/{entry.path.name}",
                    expected=f"{files.file_size} bytes",
                    found=f"{entry.size} bytes" if entry.size >= 0 else "no regular file",
                )
        for one, following in zip(files.entries, files.entries[1:], strict=False):
            end = one.file_from_offset + files.file_size
            if following.file_from_offset != end:
                name = f"{paths.TIMER_LOG}/{end:020d}"
                yield finding("timer-log-file-missing", path=name)
        if log.end > log.min_position and (wheel is None or wheel.size == 0):
            yield finding("timer-wheel-missing", path=paths.TIMER_WHEEL)
        yield from self._behind_the_end()
        yield from self._damaged_units()
        for slot in wheel.slots(self._clock) if wheel is not None else ():
            if wheel is not None and wheel.size == WHEEL_SIZE and not slot.is_in_place:
                yield finding(
                    "timer-slot-misplaced",
                    path=paths.TIMER_WHEEL,
                    position=slot.number * 32,
                    found=f"time {slot.time}",
                )
                return  # One finding is enough: the slots behind it are usually misplaced, too.

    def _behind_the_end(self) -> Iterator[Finding]:
        """The finding of bytes behind the end of the timer log, where the first place without a
        unit is. A start cuts them off."""
        log, end = self.timer.log, self.timer.log.closed_end
        number = log.files.index_of(end)
        if number < 0:
            return
        mapped = log.files.file(number)
        at = mapped.first_nonzero(end - mapped.file_from_offset, mapped.size)
        if at < mapped.size:
            yield finding("timer-log-cut-short", **self._place(end), found="bytes that are no unit")

    def _damaged_units(self) -> Iterator[Finding]:
        """The finding of units with a wrong magic code. They are in files before those that a start
        checks, where they do not end the log."""
        damaged: list[int] = []
        for position, data in self.timer.log.pieces():
            rows = np.flatnonzero(~has_right_magic(np.frombuffer(data, DTYPE)))
            damaged += (position + rows * UNIT_SIZE).tolist()
        if damaged:
            found = some(len(damaged), "unit")
            yield finding("timer-unit-damaged", **self._place(damaged[0]), found=found)

    def checkpoint(self) -> Iterator[Finding]:
        """Checks how far the check point says that the timer has come, against the ends of the
        timer log and of the timer's queue."""
        timer, checkpoint = self.timer, self.timer.checkpoint
        where = {"path": paths.TIMER_CHECKPOINT}
        if checkpoint.read_timestamp == 0 and timer.log.end > timer.log.min_position:
            what = "zeros" if timer.has_checkpoint else "no file"
            yield finding("timer-checkpoint-missing", **where, found=what)
            return
        clock = checkpoint.read_timestamp
        if clock < 0 or self._is_to_come(clock):
            yield finding("timer-clock-implausible", **where, position=0, found=clock)
        if checkpoint.flushed_position > timer.log.closed_end:
            yield finding(
                "timer-log-lost",
                **where,
                position=8,
                expected=f"a timer log up to {checkpoint.flushed_position}",
                found=f"one up to {timer.log.end}",
            )
        end = 0 if timer.queue is None else timer.queue.max_offset
        if checkpoint.queue_offset > end:
            yield finding(
                "timer-queue-lost",
                **where,
                position=16,
                expected=f"at most {end}, where the queue of rmq_sys_wheel_timer ends",
                found=checkpoint.queue_offset,
            )
        elif timer.queue is not None and end > timer.enqueue_offset():
            count = some(end - timer.enqueue_offset(), "message")
            code = "timer-checkpoint-behind" if self._enqueues_again() else "timer-behind"
            yield finding(code, **where, position=16, found=count)

    def _is_to_come(self, time: int) -> bool:
        """Whether a time (ms) is ahead of this machine's clock, and also of the latest store time
        in the log, which shows how far the broker's clock was."""
        if time <= self._now + MOST_AHEAD:
            return False
        return time > self._store.obstacle.store_timestamp + MOST_AHEAD

    def _enqueues_again(self) -> bool:
        """Whether a start puts messages into the wheel again that have been in it for longer than a
        crash explains. The check point is written every second."""
        timer = self.timer
        unit = None if timer.queue is None else timer.queue.unit(timer.enqueue_offset())
        place = -1 if unit is None else unit.physical_offset
        first = last = 0
        for _, data in timer.log.pieces():
            units = np.frombuffer(data, DTYPE)
            rows = np.flatnonzero(units["physical_offset"] == place)
            first = first or (int(units["write_timestamp"][rows[0]]) if len(rows) else 0)
            last = int(units["write_timestamp"][-1])
        return bool(first) and last - first > _MOST_BEHIND

    def chains(self) -> Iterator[Finding]:
        """Checks that the units of each slot are one chain, which begins where the slot says."""
        live, heads = self._live, dict(self.timer.heads(self._clock))
        starts = np.flatnonzero(np.diff(live.time, prepend=-1))
        ends = np.append(starts[1:], len(live.time))[: len(starts)]
        before = np.concatenate([[-1], live.position])[: len(live.position)]
        before[starts] = -1
        is_deleted = (before == -1) & (live.prev < self.timer.log.min_position)
        is_odd = (live.prev != before) & ~is_deleted
        odd = np.logical_or.reduceat(is_odd, starts) if len(starts) else is_odd
        broken: list[tuple[int, str]] = []
        unreached: list[int] = []
        for start, end, is_bad in zip(starts.tolist(), ends.tolist(), odd.tolist(), strict=True):
            time, last = int(live.time[start]), int(live.position[end - 1])
            head = heads.pop(time, -1)
            if head == last and not is_bad:
                continue
            chain = self.timer.log.chain(head, time, self.timer.precision)
            if chain.broken:
                broken.append((time, chain.broken))
            unreached += sorted({*live.position[start:end].tolist()} - {*chain.positions})
        broken += [(time, f"no unit of it stands at {head}") for time, head in heads.items()]
        if broken:
            time, why = broken[0]
            yield finding(
                "timer-chain-broken",
                path=paths.TIMER_WHEEL,
                position=self._slot_position(time),
                found=f"slot of {time * self.timer.precision}: {why}{_more(broken, 'slots')}",
            )
        if unreached:
            yield finding(
                "timer-unit-unreachable",
                **self._place(unreached[0]),
                found=some(len(unreached), "unit"),
            )

    def messages(self) -> Iterator[Finding]:
        """Checks that the messages of the units are where the units say."""
        store, live = self._store, self._live
        if store.min_offset < 0 or not len(live.time):
            return
        low, high = store.min_offset, store.max_offset
        expired, past = live.offset < low, live.offset > high - live.size
        if past.any() and not self._is_still(high):
            past[:] = False  # A broker is running, and has appended to the log meanwhile.
        doubtful = np.flatnonzero(~expired & ~past & ~_in_queue(self.timer, live))
        wrong = [at for at in doubtful.tolist() if not self._has_message(int(live.position[at]))]
        found = {
            "timer-message-expired": np.flatnonzero(expired).tolist(),
            "timer-unit-past-log-end": np.flatnonzero(past).tolist(),
            "timer-unit-mismatch": wrong,
        }
        for code, rows in found.items():
            if rows:
                yield finding(
                    code,
                    **self._place(int(live.position[rows[0]])),
                    physical_offset=int(live.offset[rows[0]]),
                    found=some(len(rows), "unit"),
                )

    def _is_still(self, end: int) -> bool:
        with Store(self._store.root, self._store.config) as again:
            return again.max_offset == end

    def _has_message(self, position: int) -> bool:
        unit = self.timer.log.unit(position)
        return unit is not None and self.timer.record_of(unit) is not None

    def _place(self, position: int) -> dict[str, object]:
        """The fields of a finding that name a position of the timer log: file, and position in
        it."""
        size = self.timer.log.files.file_size
        name = f"{paths.TIMER_LOG}/{position // size * size:020d}"
        return {"path": name, "position": position % size}

    def _slot_position(self, time: int) -> int:
        return time * 32 % WHEEL_SIZE


def _more(found: list[tuple[int, str]], what: str) -> str:
    return "" if len(found) == 1 else f" (and {len(found) - 1} {what} more)"


def _live_units(timer: Timer, clock: int) -> _Live:
    """The units whose slot has the time ``clock``, in units of the precision, or a later one."""
    names = ("prev_position", "magic", "physical_offset", "total_size")
    parts: list[list[NDArray[np.int64]]] = []
    for position, data in timer.log.pieces():
        units = np.frombuffer(data, DTYPE)
        delay = units["delay_milliseconds"].astype(np.int64)
        times = (units["write_timestamp"].astype(np.int64) + delay) // timer.precision
        rows = np.flatnonzero(times >= clock)
        fields = [units[name][rows].astype(np.int64) for name in names]
        parts.append([times[rows], position + rows * UNIT_SIZE, *fields])
    none = np.empty(0, np.int64)
    columns = [
        np.concatenate([none, *(part[number] for part in parts)])
        for number in range(len(_Live._fields))
    ]
    order = np.lexsort((columns[1], columns[0]))
    return _Live(*(column[order] for column in columns))


def _in_queue(timer: Timer, live: _Live) -> NDArray[np.bool_]:
    """Which units (bool, by row) have a message in the queue of the timer's topic, with the same
    physical offset and size."""
    found = np.zeros(len(live.offset), bool)
    queue = timer.queue
    start = queue.min_offset if queue is not None else 0
    order = np.argsort(live.offset, kind="stable")
    offsets, sizes = live.offset[order], live.size[order]
    while queue is not None and start < queue.max_offset:
        units = queue.window(start, min(_QUEUE_UNITS_AT_ONCE, queue.max_offset - start))
        if not len(units):
            break
        stands = units["physical_offset"].astype(np.int64)
        # The search needs ascending offsets, as in a sound queue. In another one it misses
        # messages, and the caller then looks these up one by one.
        at = np.minimum(np.searchsorted(stands, offsets), len(stands) - 1)
        found[order] |= (stands[at] == offsets) & (units["size"][at] == sizes)
        start += len(units)
    return found
