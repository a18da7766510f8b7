"""Puts right damaged headers of records, where the queue unit and the neighbours prove how.

A unit tells of its record the physical offset, the size, the topic, the queue, the queue offset and
the tags. The body proves itself by its CRC, and the lengths have to add up. Fields that are stored
only once (times, hosts, flags, the CRC) cannot be put right, and are not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import NamedTuple

from formats import layouts
from formats.constants import HOST_V6_MASK, MIN_RECORD_SIZE, RMQ_SYS_SCHEDULE_TOPIC
from formats.text import decode_utf8
from rmqctl.engine.dispatch.rules import Dispatcher, has_bad_delay
from rmqctl.engine.queue.consumequeue import is_ext_addr
from rmqctl.engine.record.record import (
    PREFIXES,
    TAILS,
    Record,
    Tail,
    crc_matches,
    read_entry,
)
from rmqctl.operations.mend.salvageunits import LostUnit

#: The longest record (bytes) that is put right: each attempt reads the whole body.
LONGEST_MENDED = 32 << 20
#: How far the first and the last wrong byte may lie apart: one fault hits no more. With more, any
#: message could be made of another one of its size.
_LONGEST_FAULT = 8
#: These two together tell a record from one that stood there earlier, or stands elsewhere.
_OFFSETS = {"queue_offset", "physical_offset"}
#: How many places are tried for the topic.
_MOST_PLACES = 16
_PREFIX = layouts.RECORD_PREFIX[0]
#: The fields in front of the hosts: their positions are the same for each kind of host.
_FIELDS = {field.name: (Struct(f">{field.code}"), field.offset) for field in _PREFIX.fields}
_BODY_LENGTH = Struct(f">{_PREFIX.fields[-1].code}")
_BODY_LENGTHS = {flags: prefix.size - _BODY_LENGTH.size for flags, prefix in PREFIXES.items()}


class Patch(NamedTuple):
    """Bytes that replace those at a position of a record."""

    position: int
    data: bytes


class _Attempt:
    """A record's bytes with some fields changed; ``changed`` are those fields."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = bytearray(data)
        self.changed: set[str] = set()
        self.patches: list[Patch] = []
        #: From the first to behind the last byte that was wrong.
        self.wrong = (0, 0)

    def copy(self) -> _Attempt:
        other = _Attempt(self.data)
        other.changed, other.patches = set(self.changed), list(self.patches)
        other.wrong = self.wrong
        return other

    @property
    def is_one_fault(self) -> bool:
        low, high = self.wrong
        return high - low <= _LONGEST_FAULT and not self.changed >= _OFFSETS

    def put(self, name: str, position: int, value: bytes) -> None:
        stored = self.data[position : position + len(value)]
        differing = [
            at for at, pair in enumerate(zip(stored, value, strict=True)) if pair[0] != pair[1]
        ]
        if differing:
            low, high = position + differing[0], position + differing[-1] + 1
            if self.changed:
                low, high = min(low, self.wrong[0]), max(high, self.wrong[1])
            self.wrong = low, high
            self.changed.add(name)
            self.patches.append(Patch(position, value))
            self.data[position : position + len(value)] = value

    def put_field(self, name: str, value: int) -> None:
        packing, position = _FIELDS[name]
        self.put(name, position, packing.pack(value))

    def field(self, name: str) -> int:
        packing, position = _FIELDS[name]
        value: int = packing.unpack_from(self.data, position)[0]
        return value


def mended_by_unit(data: bytes, unit: LostUnit, dispatcher: Dispatcher) -> list[Patch] | None:
    """The patches that make the bytes at a unit's physical offset its record again; None where
    nothing proves them.

    :param data: as many bytes as the unit says.
    """
    first = _Attempt(data)
    for name in ("queue_id", "queue_offset", "physical_offset"):
        first.put_field(name, getattr(unit, name))
    first.put_field("total_size", unit.size)
    proven = {
        tuple(attempt.patches): attempt
        for form in _forms(first)
        for attempt in _with_lengths(form, unit)
        if _is_record_of(attempt, unit, dispatcher)
    }
    return _only(list(proven.values()))


def mended_between(data: bytes, physical_offset: int) -> list[Patch] | None:
    """The patches for a record without a unit that fills the space between its neighbours. Its
    size, its magic code or its kinds of hosts may be wrong; all other fields have to agree."""
    first = _Attempt(data)
    first.put_field("total_size", len(data))
    proven = []
    for attempt in _forms(first):
        record = _record(attempt, physical_offset)
        if record is not None and record.body_length and len(attempt.changed) == 1:
            proven.append(attempt)
    return _only(proven)


def _only(attempts: list[_Attempt]) -> list[Patch] | None:
    """The patches of the attempt that changes the fewest fields; None where two attempts change
    equally few, for neither is proven then."""
    attempts.sort(key=lambda one: (len(one.changed), sum(len(p.data) for p in one.patches)))
    if not attempts:
        return None
    if len(attempts) > 1 and len(attempts[0].changed) == len(attempts[1].changed):
        return None
    return attempts[0].patches


def _forms(first: _Attempt) -> Iterator[_Attempt]:
    """Attempts with each magic code and each kind of hosts that the record may have had."""
    magic_code, sys_flag = first.field("magic_code"), first.field("sys_flag")
    for magic in [magic_code] if magic_code in TAILS else TAILS:
        for hosts in PREFIXES:
            if len(first.data) >= PREFIXES[hosts].size + TAILS[magic].size:
                attempt = first.copy()
                attempt.put_field("magic_code", magic)
                attempt.put_field("sys_flag", sys_flag & ~HOST_V6_MASK | hosts)
                yield attempt


def _with_lengths(form: _Attempt, unit: LostUnit) -> Iterator[_Attempt]:
    """The attempt as it is; then, for each place where the topic may stand, the attempt with the
    topic there and the three lengths that follow from it."""
    yield form
    tail = TAILS[form.field("magic_code")]
    hosts = form.field("sys_flag") & HOST_V6_MASK
    topic = unit.topic.encode("utf-8", "surrogateescape")
    if len(topic) > tail.longest_topic:
        return
    for at in dict.fromkeys(islice(_topic_places(form, topic, tail, hosts), _MOST_PLACES)):
        rest = len(form.data) - (at + tail.size + len(topic))
        if at < PREFIXES[hosts].size or not 0 <= rest <= tail.longest_properties:
            continue
        attempt = form.copy()
        body_length = _BODY_LENGTH.pack(at - PREFIXES[hosts].size)
        attempt.put("body_length", _BODY_LENGTHS[hosts], body_length)
        attempt.put("topic", at, tail.topic_length.pack(len(topic)) + topic)
        after = at + tail.topic_length.size + len(topic)
        attempt.put("properties_length", after, tail.properties_length.pack(rest))
        yield attempt


def _topic_places(form: _Attempt, topic: bytes, tail: Tail, hosts: int) -> Iterator[int]:
    """Positions at which the topic's length may stand: the one that the body's length gives, then
    those in front of the topic's bytes wherever these occur, the last ones first."""
    (body_length,) = _BODY_LENGTH.unpack_from(form.data, _BODY_LENGTHS[hosts])
    yield PREFIXES[hosts].size + body_length
    at = form.data.rfind(topic)
    while at >= 0:
        yield at - tail.topic_length.size
        at = form.data.rfind(topic, 0, at + len(topic) - 1)


def _record(attempt: _Attempt, physical_offset: int) -> Record | None:
    """The record of an attempt; None unless it is whole and its body agrees with the CRC."""
    data, size = bytes(attempt.data), len(attempt.data)
    if size < MIN_RECORD_SIZE or not attempt.is_one_fault:
        return None
    entry = read_entry(data, 0, size, physical_offset)
    if not isinstance(entry, Record) or entry.total_size != size:
        return None
    is_stored = crc_matches(data, entry) if entry.body_length else not entry.body_crc
    is_readable = not has_bad_delay(entry.topic, entry.properties)
    return entry if is_stored and is_readable else None


def _is_record_of(attempt: _Attempt, unit: LostUnit, dispatcher: Dispatcher) -> bool:
    """Whether dispatch would make exactly that unit from the record."""
    record = _record(attempt, unit.physical_offset)
    if record is None or decode_utf8(record.topic_bytes) != unit.topic:
        return False
    units = [tuple(one) for one in dispatcher.units(record)]
    if is_ext_addr(unit.tags_code) or unit.topic == RMQ_SYS_SCHEDULE_TOPIC:
        # The unit's code is an address in an extension, or a delivery time by former delay levels.
        return any(one[:5] == unit[:5] for one in units)
    return tuple(unit) in units
