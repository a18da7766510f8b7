"""``TimerMessageStore`` (5.x): which messages wait for their time, and what a start does with each.

A message waits as a record of ``rmq_sys_wheel_timer``. It is in the wheel if a unit of the timer
log, in the chain of a slot, points to it; else it stands in the queue behind the timer's read
position. Nothing notes that it was delivered: slots before the read clock are done, and a copy with
the same UNIQ_KEY is in its real topic.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats import constants
from formats.constants import TIMER_TOPIC
from formats.text import java_long
from rmqctl.engine.files import paths
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.filesizes import timer_log_file_size
from rmqctl.engine.settings.storeconfig import TIMER_PRECISIONS
from rmqctl.engine.timer.timercheck import TimerCheckpoint, read_timer_checkpoint
from rmqctl.engine.timer.timerlog import (
    DTYPE,
    UNIT_SIZE,
    Chain,
    TimerLog,
    TimerUnit,
    has_right_magic,
)
from rmqctl.engine.timer.wheel import TimerWheel

if TYPE_CHECKING:
    from rmqctl.engine.store import Store

PENDING = "pending"
DUE = "due"
OVERDUE = "overdue"
ROLLED = "rolled"
RECALLED = "recalled"
GONE = "gone"
_TOPIC = TIMER_TOPIC.encode()
#: Slots that are read to find the precision, and the most steps back of ``reviseQueueOffset``.
_SLOTS_ASKED = 64
_MOST_STEPS_BACK = 20_000
_UNITS_AT_ONCE = 4096
#: Slots whose recalls are cached.
_SLOTS_KEPT = 1024


class Timed(NamedTuple):
    """A waiting message and its state. ``unit`` is None if it is not in the wheel; ``record`` is
    None if the log no longer has it. ``properties`` are the record's, decoded."""

    state: str
    unit: TimerUnit | None
    record: Record | None
    properties: Mapping[str, str]
    physical_offset: int
    total_size: int


def is_timers(record: Record, size: int) -> bool:
    """Whether a record, at a place where one of ``size`` bytes should be, is of the timer's
    topic."""
    return record.total_size == size and record.topic_bytes == _TOPIC


def number_of(properties: Mapping[str, str], name: str) -> int | None:
    """A property by ``Long.parseLong``; None where that throws, or without the property."""
    text = properties.get(name)
    return None if text is None else java_long(text)


def out_timestamp(properties: Mapping[str, str]) -> int | None:
    """TIMER_OUT_MS: when a record of the timer's topic is delivered (ms)."""
    return number_of(properties, constants.PROPERTY_TIMER_OUT_MS)


def recalled_key(properties: Mapping[str, str]) -> str | None:
    """The key of the message that a record recalls; None if the record is a message itself."""
    return properties.get(constants.PROPERTY_TIMER_DEL_UNIQKEY)


def victim_keys(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The keys by which a message may be recalled. 5.3.2 and 5.3.3 compare the topic as well, other
    versions do not (``TimerMessageStore#buildDeleteKey``); a recall has the key of its version."""
    key = properties.get(constants.PROPERTY_UNIQ_KEY)
    topic = properties.get(constants.PROPERTY_REAL_TOPIC)
    return () if key is None else (key, f"{topic}+{key}")


class Timer:
    """The timer of an open store. Without a file ``checkpoint`` is all zeros, as in a broker, and
    ``wheel`` is None.

    :param checkpoint: to be used instead of that of the file, which a broker replaces each second.
    """

    def __init__(self, store: Store, checkpoint: TimerCheckpoint | None = None) -> None:
        self._store = store
        root, config = store.root, store.config
        path = root / paths.TIMER_WHEEL
        self.wheel = TimerWheel(path) if os.path.lexists(path) else None
        self.log = TimerLog(root / paths.TIMER_LOG, timer_log_file_size(root, config))
        found = checkpoint or read_timer_checkpoint(root / paths.TIMER_CHECKPOINT)
        self.has_checkpoint = found is not None
        self.checkpoint = found or TimerCheckpoint()
        self.log.checked_from = self.recovery_position
        self.queue = store.consume_queue(TIMER_TOPIC, 0)
        self.precision = self._find_precision()
        self._tail_heads: dict[int, int] | None = None
        self._slot_recalls: dict[int, set[str]] = {}

    def close(self) -> None:
        self.log.close()

    def _find_precision(self) -> int:
        """``timerPrecisionMs``: as configured, else the one by which slots and units agree."""
        config = self._store.config
        if config.is_explicit("timer_precision_ms"):
            return config.timer_precision_ms
        slots = iter(()) if self.wheel is None else self.wheel.slots(1)
        for slot in islice(slots, _SLOTS_ASKED):
            unit = self.log.unit(slot.last_position)
            time = 0 if unit is None else unit.slot_timestamp
            for precision in TIMER_PRECISIONS:
                if time // precision == slot.time:
                    return precision
        return config.timer_precision_ms

    @property
    def recovery_position(self) -> int:
        """Position in the timer log from which on a start reads; it begins with the file there."""
        return max(self.checkpoint.flushed_position - self.log.files.file_size, 0)

    def heads(self, from_time: int) -> Iterator[tuple[int, int]]:
        """Slot times (in units of the precision) from ``from_time`` on, in order, with the position
        of each slot's newest unit: by the wheel, and by the end of the timer log, which a start
        reads again (``recoverAndRevise``)."""
        tail = self._tail()
        slots = iter(()) if self.wheel is None else self.wheel.slots(from_time)
        found = {slot.time: slot.last_position for slot in slots if slot.is_in_place}
        found.update((time, last) for time, last in tail.items() if time >= from_time)
        for time in sorted(found):
            yield time, found[time]

    def _tail(self) -> dict[int, int]:
        """Slot times in the part of the log that a start reads, each with its newest unit's
        position."""
        if self._tail_heads is None:
            found: dict[int, int] = {}
            for position, data in self.log.pieces(min(self.recovery_position, self._looked_at())):
                units = np.frombuffer(data, DTYPE)
                delay = units["delay_milliseconds"].astype(np.int64)
                times = (units["write_timestamp"].astype(np.int64) + delay) // self.precision
                right = np.flatnonzero(has_right_magic(units))
                positions = (position + right * UNIT_SIZE).tolist()
                found.update(zip(times[right].tolist(), positions, strict=True))
            self._tail_heads = found
        return self._tail_heads

    def _looked_at(self) -> int:
        """Position from which on a start reads the log once more, because future slots lead behind
        its end: the first position that such a slot names (``TimerWheel#checkPhyPos``)."""
        clock = self.checkpoint.read_timestamp // self.precision
        slots = iter(()) if self.wheel is None else self.wheel.slots(max(clock, 1))
        first = (one.first_position for one in slots if one.last_position > self.log.end)
        return max(min(first, default=constants.LONG_MAX), 0)

    def read_clock(self, now: int) -> int:
        """The first slot (ms) that a start at ``now`` (ms) delivers: it skips slots older than half
        the ring (``TimerMessageStore#recover``)."""
        ring = constants.TIMER_SLOTS // 2 - constants.TIMER_BLANK_SLOTS
        oldest = (now // self.precision - ring) * self.precision
        return max(self.checkpoint.read_timestamp, oldest)

    def enqueue_offset(self) -> int:
        """Queue offset of the first message that a start puts into the wheel: behind the message of
        the timer log's last unit, but not behind the check point's offset."""
        checkpoint, queue = self.checkpoint, self.queue
        if queue is None:
            return 0
        offset = checkpoint.queue_offset
        last = self.log.unit(self.log.end - UNIT_SIZE)
        record = self.record_of(last) if last is not None else None
        if last is not None and record is not None:
            offset = self._queue_offset_of(last, record) + 1
        offset = min(offset, checkpoint.master_queue_offset)
        return min(max(offset, queue.min_offset), queue.max_offset)

    def _queue_offset_of(self, last: TimerUnit, record: Record) -> int:
        """``reviseQueueOffset``: the queue offset of a unit's message."""
        assert self.queue is not None
        for offset in range(record.queue_offset, record.queue_offset - _MOST_STEPS_BACK, -1):
            unit = self.queue.unit(offset) if offset >= 0 else None
            if unit is not None and unit[:2] == (last.physical_offset, last.total_size):
                return offset
        return record.queue_offset

    def record_of(self, unit: TimerUnit) -> Record | None:
        """The record that a unit points to; None if there is none of its size in the timer's
        topic."""
        return self._timer_record(unit.physical_offset, unit.total_size)

    def _timer_record(self, physical_offset: int, size: int) -> Record | None:
        record = self._store.commit_log.find_record(physical_offset)
        return record if record is not None and is_timers(record, size) else None

    def timed(self, now: int) -> Iterator[Timed]:
        """The messages that wait or would be lost, as a start at ``now`` (ms) finds them: slot by
        slot in the order of times, then those that are not in the wheel.

        Messages before the check point's read clock are done, and left out; so are recalls.
        """
        return self._timed(now, constants.LONG_MAX)

    def due(self, now: int) -> Iterator[Timed]:
        """Those of :meth:`timed` that are due or overdue."""
        last = max(now, self.read_clock(now)) // self.precision
        return (one for one in self._timed(now, last) if one.state in (DUE, OVERDUE))

    def _timed(self, now: int, last_time: int) -> Iterator[Timed]:
        """:meth:`timed`, but without slots behind ``last_time``, in units of the precision."""
        first = self.enqueue_offset()
        recalls = self._queued_recalls(first)
        has_queued = next(self._queued(first), None) is not None
        again: set[int] = set()
        none: set[str] = set()
        for time, last in self.heads(self.checkpoint.read_timestamp // self.precision):
            # If messages are in the queue behind the wheel's, a later slot may have one of them.
            if time > last_time and not has_queued:
                return
            chain = self.log.chain(last, time, self.precision)
            yield from self._of_slot(chain, recalls.get(time, none), now, first, again)
        for offset, size in self._queued(first):
            if offset not in again:
                yield from self._of_queue(offset, size, recalls, now)

    def _of_slot(
        self, chain: Chain, queued: set[str], now: int, first: int, again: set[int]
    ) -> Iterator[Timed]:
        """The messages of one slot. ``again`` gets the physical offsets of records that the queue
        also has from queue offset ``first`` on."""
        recalls, rolled_recalls = self._recalls_of(chain)
        recalls |= queued
        rolled_recalls |= recalls
        clock = self.read_clock(now)
        for unit in self.log.units_at(reversed(chain.positions)):
            place = unit.physical_offset, unit.total_size
            if unit.is_delete or unit.physical_offset in again:
                continue
            record = self._timer_record(*place)
            if record is None:
                yield Timed(GONE, unit, None, {}, *place)
                continue
            if record.queue_offset >= first:
                again.add(unit.physical_offset)
            properties = record.properties
            keys = rolled_recalls if unit.is_roll else recalls
            out = out_timestamp(properties)
            if keys and not keys.isdisjoint(victim_keys(properties)):
                state = RECALLED
            elif unit.slot_timestamp < clock:
                state = OVERDUE
            elif unit.is_roll and (out is None or out > now):
                state = ROLLED
            else:
                state = DUE if unit.slot_timestamp <= now else PENDING
            yield Timed(state, unit, record, properties, *place)

    def _recalls_of(self, chain: Chain) -> tuple[set[str], set[str]]:
        """The keys that units of a slot recall: for its messages, and for those that are rolled."""
        keys: tuple[set[str], set[str]] = set(), set()
        for unit in self.log.units_at(chain.positions if chain.recalls else ()):
            record = self.record_of(unit) if unit.is_delete else None
            key = recalled_key(record.properties) if record is not None else None
            if key is not None:
                keys[unit.is_roll].add(key)
        return keys

    def _queued(self, first: int) -> Iterator[tuple[int, int]]:
        """Physical offsets and sizes of messages that are not in the wheel, in queue order."""
        queue = self.queue
        if queue is None:
            return
        for start in range(first, queue.max_offset, _UNITS_AT_ONCE):
            end = min(start + _UNITS_AT_ONCE, queue.max_offset)
            for _, unit in list(queue.units(start, end)):
                if unit.is_written and not unit.is_pre_blank:
                    yield unit.physical_offset, unit.size

    def _queued_recalls(self, first: int) -> dict[int, set[str]]:
        """The keys of recalls that are not in the wheel, by their slot's time."""
        found: dict[int, set[str]] = {}
        for offset, _ in self._queued(first):
            record = self._store.commit_log.find_record(offset)
            properties = {} if record is None else record.properties
            key, out = recalled_key(properties), out_timestamp(properties)
            if key is not None and out is not None:
                found.setdefault(out // self.precision, set()).add(key)
        return found

    def _of_queue(
        self, offset: int, size: int, recalls: dict[int, set[str]], now: int
    ) -> Iterator[Timed]:
        record = self._timer_record(offset, size)
        if record is None:
            yield Timed(GONE, None, None, {}, offset, size)
            return
        properties = record.properties
        if recalled_key(properties) is not None:
            return
        out = out_timestamp(properties)
        keys = set() if out is None else recalls.get(out // self.precision, set())
        keys = keys if out is None else keys | self._recalls_in_slot(out)
        if out is not None and out > now and not keys.isdisjoint(victim_keys(properties)):
            state = RECALLED
        else:
            state = DUE if out is not None and out <= now else PENDING
        yield Timed(state, None, record, properties, offset, size)

    def _recalls_in_slot(self, timestamp: int) -> set[str]:
        """The keys that the wheel's units recall in the slot of a time (ms)."""
        time = timestamp // self.precision
        known = self._slot_recalls.get(time)
        if known is None:
            slot = self.wheel.slot(time) if self.wheel is not None else None
            last = -1 if slot is None else slot.last_position
            chain = self.log.chain(self._tail().get(time, last), time, self.precision)
            if len(self._slot_recalls) >= _SLOTS_KEPT:
                self._slot_recalls.clear()
            known = self._slot_recalls[time] = self._recalls_of(chain)[0]
        return known


def copy_of(store: Store, record: Record, properties: Mapping[str, str]) -> Record | None:
    """The copy that a timer has put for a record of its topic, found by the index.

    It has the same UNIQ_KEY, is in the real topic behind the record, and has the time at which it
    left the wheel. None: there is none, or no key to find it by.

    :param properties: the record's, decoded.
    """
    topic = properties.get(constants.PROPERTY_REAL_TOPIC)
    key = properties.get(constants.PROPERTY_UNIQ_KEY)
    if topic is None or key is None:
        return None
    out = properties.get(constants.PROPERTY_TIMER_OUT_MS)
    for match in store.query_message(topic, key, record.store_timestamp):
        other = match.record
        if other is None or not match.matches or other.physical_offset <= record.physical_offset:
            continue
        said = other.properties
        is_copy = constants.PROPERTY_TIMER_DEQUEUE_MS in said
        if is_copy and said.get(constants.PROPERTY_TIMER_OUT_MS) == out:
            return other
    return None
