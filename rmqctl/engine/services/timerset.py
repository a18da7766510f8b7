"""The messages that a store's timer still has to deliver, by the log: the content of a new wheel.

Nothing notes whether a message was delivered. A message is done if its time is before the read
clock and the timer had it in its wheel; unless a future slot still has it, as in a wheel that was
made anew when it was due. Other due messages are done if their copy is in their topic.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats import constants
from rmqctl.engine.record.record import Record
from rmqctl.engine.services.timer import (
    Timer,
    copy_of,
    is_timers,
    number_of,
    out_timestamp,
    recalled_key,
    victim_keys,
)
from rmqctl.engine.timer.timerlog import DTYPE

if TYPE_CHECKING:
    from rmqctl.engine.store import Store

_UNITS_AT_ONCE = 4096
#: How often :meth:`TimerSet.messages` reads the timer's queue.
LOOKS = 2
#: Properties of rolled messages and of recalls.
_RARE = (
    constants.PROPERTY_TIMER_ROLL_TIMES.encode(),
    constants.PROPERTY_TIMER_DEL_UNIQKEY.encode(),
)
#: Slots of half the wheel; a start skips older ones.
_HALF_RING = constants.TIMER_SLOTS // 2 - constants.TIMER_BLANK_SLOTS
#: A read clock never overtakes the time. If it is more than so many milliseconds ahead, it does not
#: count: the check point is damaged, or the clock was wrong.
MOST_AHEAD = 60_000


class Waiting(NamedTuple):
    """A record of the timer's topic that belongs in the wheel, and its decoded properties."""

    record: Record
    properties: Mapping[str, str]
    queue_offset: int
    out_timestamp: int
    is_recall: bool


class _Recall(NamedTuple):
    """A record that recalls a message, and its time (ms)."""

    queue_offset: int
    record: Record
    properties: Mapping[str, str]
    out_timestamp: int


@dataclass
class Counts:
    """How many records of the timer's topic there are of each kind.

    ``messages`` and ``recalls`` wait. ``due`` of the messages are due and not recalled, and for
    ``doubtful`` of these no copy can be found, or no check point proves that they wait. The rest
    does not belong in the wheel: ``done``, ``delivered_before`` (the topic has a copy),
    ``superseded`` (a later record is the same message, rolled), ``gone`` (no record) and
    ``unreadable`` (no time).
    """

    messages: int = 0
    recalls: int = 0
    due: int = 0
    doubtful: int = 0
    done: int = 0
    delivered_before: int = 0
    superseded: int = 0
    gone: int = 0
    unreadable: int = 0


class TimerSet:
    """The messages of a store that wait at ``now`` (ms).

    ``clock`` is the first slot (ms) of a wheel for them, and never in the future: the timer's own
    read clock, or now if that is unknown or so old that a start would skip it.
    """

    def __init__(
        self,
        store: Store,
        timer: Timer,
        now: int,
        *,
        until: int | None = None,
        delivered: Collection[int] = (),
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """:param until: messages that were due by then (ms) may have been delivered, too.
        :param delivered: physical offsets of records that are known to be delivered.
        :param progress: told how many units of the timer's queue :meth:`messages` has read, and how
            many it will: each one twice."""
        self._delivered = delivered
        self._progress, self._read_units = progress, 0
        self._store = store
        self._timer = timer
        self._now = now
        self._until = now if until is None else max(now, until)
        precision, read = timer.precision, timer.checkpoint.read_timestamp
        self._is_known = 0 < read <= now + MOST_AHEAD
        floor = now // precision * precision
        self._read = read if self._is_known else 0
        is_kept = self._is_known and read > floor - _HALF_RING * precision
        self.clock = min(read // precision * precision, floor) if is_kept else floor
        self.end = 0 if timer.queue is None else timer.queue.max_offset
        self.counts = Counts()
        #: Sorted physical offsets of records in future slots of the wheel (type ``q``); None: not
        #: read yet.
        self._to_come: array[int] | None = None

    def last_unit(self) -> tuple[int, int] | None:
        """Physical offset and size of the last message of the timer's queue; None without any."""
        queue = self._timer.queue
        unit = None if queue is None else queue.unit(self.end - 1)
        return None if unit is None or not unit.is_written else (unit.physical_offset, unit.size)

    def messages(self) -> Iterator[Waiting]:
        """The waiting records, in queue order. :attr:`counts` are complete behind the last."""
        rolls, recalls = self._rolls_and_recalls()
        late = self._in_next_slot()
        recalled = {
            (self._slot(out), recalled_key(properties))
            for queue_offset, record, properties, out in recalls
            if _rolls(properties) >= rolls.get(_identity(record, properties), 0)
            and (
                record.physical_offset in late
                or not self._is_done(record, queue_offset, out, is_recall=True)
            )
        }
        for queue_offset, record in self._records():
            if record is None:
                self.counts.gone += 1
                continue
            properties = record.properties
            out = out_timestamp(properties)
            if out is None:
                self.counts.unreadable += 1
                continue
            is_recall = recalled_key(properties) is not None
            if rolls and _rolls(properties) < rolls.get(_identity(record, properties), 0):
                self.counts.superseded += 1
            elif record.physical_offset not in late and self._is_done(
                record, queue_offset, out, is_recall=is_recall
            ):
                self.counts.done += 1
            elif (
                not is_recall
                and self._may_be_delivered(record, out)
                and self._is_delivered(record, properties)
            ):
                self.counts.delivered_before += 1
            else:
                slot = self._slot(out)
                keys = victim_keys(properties) if recalled else ()
                is_recalled = any((slot, key) in recalled for key in keys)
                self._count(properties, out, is_recall=is_recall, is_recalled=is_recalled)
                yield Waiting(record, properties, queue_offset, out, is_recall)

    def _is_done(self, record: Record, queue_offset: int, out: int, *, is_recall: bool) -> bool:
        """Whether the timer is done with a record: its slot is done, and it was in the wheel. A
        recall needs only the first: it has no effect any more."""
        if not self._is_known:
            return is_recall and out < self.clock
        was_in_wheel = queue_offset < self._timer.checkpoint.queue_offset
        is_past = out < self._read and (was_in_wheel or is_recall)
        return is_past and not self._is_to_come(record)

    def _is_to_come(self, record: Record) -> bool:
        """Whether the existing wheel has a record in a slot from the read clock on."""
        if self._to_come is None:
            log, precision = self._timer.log, self._timer.precision
            offsets = array("q")
            for time, last in self._timer.heads(self._read // precision):
                offsets.extend(log.chain(last, time, precision).offsets)
            np.frombuffer(offsets, np.int64).sort()
            self._to_come = offsets
        at = bisect_left(self._to_come, record.physical_offset)
        return at < len(self._to_come) and self._to_come[at] == record.physical_offset

    def _may_be_delivered(self, record: Record, out: int) -> bool:
        """Whether to look for a copy: if the record is due, or not in the wheel, because
        ``timer deliver --until`` also delivers before the time."""
        return out <= self._until or not self._is_to_come(record)

    def _in_next_slot(self) -> set[int]:
        """Physical offsets of records that the timer log has for the next slot to deliver."""
        found: set[int] = set()
        precision = self._timer.precision
        for _, data in self._timer.log.pieces() if self._is_known else ():
            units = np.frombuffer(data, DTYPE)
            delay = units["delay_milliseconds"].astype(np.int64)
            times = (units["write_timestamp"].astype(np.int64) + delay) // precision
            found.update(units["physical_offset"][times == self._read // precision].tolist())
        return found

    def _is_delivered(self, record: Record, properties: Mapping[str, str]) -> bool:
        if record.physical_offset in self._delivered:
            return True
        return copy_of(self._store, record, properties) is not None

    def _slot(self, out: int) -> int:
        """The slot (ms) of a new wheel for a delivery time (ms)."""
        return max(out // self._timer.precision * self._timer.precision, self.clock)

    def _count(
        self, properties: Mapping[str, str], out: int, *, is_recall: bool, is_recalled: bool
    ) -> None:
        self.counts.recalls += is_recall
        self.counts.messages += not is_recall
        if not (is_recall or is_recalled) and out <= self._now:
            self.counts.due += 1
            key = properties.get(constants.PROPERTY_UNIQ_KEY)
            self.counts.doubtful += key is None or not self._is_known

    def _rolls_and_recalls(
        self,
    ) -> tuple[dict[tuple[str | None, ...], int], list[_Recall]]:
        """The most rolls of each rolled message; and the recalls."""
        found: dict[tuple[str | None, ...], int] = {}
        recalls: list[_Recall] = []
        for queue_offset, record in self._records():
            # Most records have neither property, and need not be decoded to see that.
            if record is None or not any(name in record.properties_bytes for name in _RARE):
                continue
            properties = record.properties
            if rolls := _rolls(properties):
                key = _identity(record, properties)
                found[key] = max(found.get(key, 0), rolls)
            out = out_timestamp(properties)
            if recalled_key(properties) is not None and out is not None:
                recalls.append(_Recall(queue_offset, record, properties, out))
        return found, recalls

    def _records(self) -> Iterator[tuple[int, Record | None]]:
        """Queue offsets and records of the timer's topic; None where the log has no such record."""
        queue = self._timer.queue
        if queue is None:
            return
        find = self._store.commit_log.find_record
        total = LOOKS * (self.end - queue.min_offset)
        for start in range(queue.min_offset, self.end, _UNITS_AT_ONCE):
            self._progress(self._read_units, total)
            for offset, unit in list(queue.units(start, min(start + _UNITS_AT_ONCE, self.end))):
                if unit.is_pre_blank or not unit.is_written:
                    continue
                record = find(unit.physical_offset)
                if record is not None and not is_timers(record, unit.size):
                    record = None
                yield offset, record
            self._read_units += min(_UNITS_AT_ONCE, self.end - start)


def _rolls(properties: Mapping[str, str]) -> int:
    return number_of(properties, constants.PROPERTY_TIMER_ROLL_TIMES) or 0


def _identity(record: Record, properties: Mapping[str, str]) -> tuple[str | None, ...]:
    """The values that are the same in a message and its rolled copies."""
    names = (
        constants.PROPERTY_UNIQ_KEY,
        constants.PROPERTY_REAL_TOPIC,
        constants.PROPERTY_REAL_QUEUE_ID,
        constants.PROPERTY_TIMER_OUT_MS,
        constants.PROPERTY_TIMER_DEL_UNIQKEY,
    )
    born = f"{record.born_timestamp} {record.body_crc}"
    return (born, *(properties.get(name) for name in names))
