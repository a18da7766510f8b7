"""Records of one file in bulk: where they stand, and their fields as columns.

The chain of records follows magic and size alone; :func:`read_fields` then checks everything that
:func:`~rmqctl.engine.record.record.read_entry` does and stops before the first record that it
would not take. What is wrong there is not said here: the walk says it.
"""

from __future__ import annotations

from struct import Struct

import numpy as np
from numpy.typing import NDArray

from formats import constants, layouts
from formats.derive import dtype_of
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.record.record import HOSTS_V6_MASK
from rmqctl.engine.scan.columns import Bytes, Ints, take

_PREFIX = {flags: dtype_of(layout) for flags, layout in layouts.RECORD_PREFIX.items()}
_SHORTEST_PREFIX = _PREFIX[0].itemsize
_V1, _V2 = constants.MESSAGE_MAGIC_CODE, constants.MESSAGE_MAGIC_CODE_V2
_HEAD = Struct(">iI")
_HEAD_DTYPE = np.dtype([("total_size", ">i4"), ("magic_code", ">u4")])
_PLACE_DTYPE = np.dtype(">i8")
_PLACE_POSITION = layouts.RECORD_PREFIX[0].fields[6].offset
_SHORT_DTYPE = np.dtype(">i2")
_MAGIC_HEAD = _V1.to_bytes(4, "big")[:3]
# A lane should be worth its start, which is searched for in no more than the first bytes of it.
_LANE_RECORDS = 32
_LANE_BYTES = (1 << 13, 1 << 18)
_LANE_SEARCH = 1 << 12


def chain(mapped: MappedFile, data: Bytes, position: int, limit: int) -> Ints:
    """Positions below ``limit`` of what follows ``position`` record after record, ascending.

    To follow a chain step by step costs Python a fifth of a microsecond each, so many places are
    followed at once: records that were found further on each start a lane, and a lane is believed
    once the one before it has arrived exactly at its start.
    """
    limit = min(limit, mapped.size - constants.MIN_RECORD_SIZE + 1)
    starts = _lane_starts(mapped, data, position, limit)
    if len(starts) < 2:
        return _follow(mapped, position, limit)
    stops = np.append(starts[1:], limit)
    positions, reached = _follow_lanes(data, starts, stops, mapped.size)
    apart = np.flatnonzero(reached[:-1] != starts[1:])
    if not len(apart):
        return positions
    lane = int(apart[0])
    believed: Ints = positions[positions < stops[lane]]
    if reached[lane] < stops[lane]:
        return believed
    # The next lane began inside a body that holds bytes like a record's.
    return np.concatenate([believed, _follow(mapped, int(reached[lane]), limit)])


def _follow(mapped: MappedFile, position: int, limit: int) -> Ints:
    """The same, one after the other."""
    positions: list[int] = []
    append, unpack, buffer = positions.append, _HEAD.unpack_from, mapped.buffer
    size_limit = mapped.size
    while position < limit:
        total_size, magic_code = unpack(buffer, position)
        if (
            (magic_code != _V1 and magic_code != _V2)
            or total_size < constants.MIN_RECORD_SIZE
            or position + total_size > size_limit
        ):
            break
        append(position)
        position += total_size
    return np.array(positions, np.int64)


def _lane_starts(mapped: MappedFile, data: Bytes, position: int, limit: int) -> Ints:
    """``position``, and probable records at some distance from each other after it."""
    starts = []
    if position >= limit:
        return np.empty(0, np.int64)
    size = _HEAD.unpack_from(mapped.buffer, position)[0]
    step = min(max(size * _LANE_RECORDS, _LANE_BYTES[0]), _LANE_BYTES[1])
    for low in range(position + step, limit - step, step):
        at = next(mapped.occurrences(_MAGIC_HEAD, low + 4, low + min(step, _LANE_SEARCH)), None)
        if at is not None:
            starts.append(at - 4)
    places = np.array(starts, np.int64)
    if len(places):
        named = take(data, places + _PLACE_POSITION, _PLACE_DTYPE)
        places = places[named == places + mapped.file_from_offset]
    return np.concatenate([np.array([position], np.int64), places])


def _follow_lanes(data: Bytes, starts: Ints, stops: Ints, size_limit: int) -> tuple[Ints, Ints]:
    """Positions of all lanes, ascending, and the first place of each lane that is not its own."""
    lane, at, reached = np.arange(len(starts)), starts, starts.copy()
    found = []
    while len(lane):
        head = take(data, at, _HEAD_DTYPE)
        size = head["total_size"].astype(np.int64)
        magic = head["magic_code"]
        sound = (magic == _V1) | (magic == _V2)
        sound &= (size >= constants.MIN_RECORD_SIZE) & (at + size <= size_limit)
        if not sound.all():
            lane, at, size = lane[sound], at[sound], size[sound]
        found.append(at)
        at = at + size
        reached[lane] = at
        on = at < stops[lane]
        if not on.all():
            lane, at = lane[on], at[on]
    return np.sort(np.concatenate(found)), reached


def read_fields(data: Bytes, position: Ints, file_from_offset: int) -> dict[str, Ints] | None:
    """Columns of the records at ``position`` up to the first that is not sound; None: no record.

    ``position`` is what :func:`chain` found. Besides the fields of a batch there are
    ``topic_position`` and ``topic_length``.
    """
    fixed = take(data, position, _PREFIX[0])
    columns = {
        name: fixed[name].astype(np.int64)
        for name in (
            "total_size",
            "body_crc",
            "queue_id",
            "queue_offset",
            "physical_offset",
            "sys_flag",
            "store_timestamp",
            "body_length",
        )
    }
    columns["position"] = position
    body_position = position + _SHORTEST_PREFIX
    columns["body_position"] = body_position
    sound = columns["physical_offset"] == position + file_from_offset
    if (columns["sys_flag"] & HOSTS_V6_MASK).any():
        _widen(data, columns, sound)
    np.maximum(columns["body_length"], 0, out=columns["body_length"])
    _locate_strings(data, columns, sound, fixed["magic_code"] == _V2)
    count = len(position) if sound.all() else int(np.argmin(sound))
    if count == 0:
        return None
    return {name: column[:count] for name, column in columns.items()}


def _widen(data: Bytes, columns: dict[str, Ints], sound: NDArray[np.bool_]) -> None:
    """Reads again what stands elsewhere in records with IPv6 hosts."""
    position, hosts = columns["position"], columns["sys_flag"] & HOSTS_V6_MASK
    for flags, dtype in _PREFIX.items():
        rows = np.flatnonzero(hosts == flags)
        fits = dtype.itemsize <= columns["total_size"][rows]
        sound[rows[~fits]] = False
        rows = rows[fits]
        wide = take(data, position[rows], dtype)
        for name in ("store_timestamp", "body_length"):
            columns[name][rows] = wide[name]
        columns["body_position"][rows] = position[rows] + dtype.itemsize


def _locate_strings(
    data: Bytes, columns: dict[str, Ints], sound: NDArray[np.bool_], is_v2: NDArray[np.bool_]
) -> None:
    """Adds where topic and properties lie; ``sound`` is cleared where they do not fit.

    Unsound rows are read at the first record, so that no length leads out of its record.
    """
    limit = columns["position"] + columns["total_size"]
    at = columns["body_position"] + columns["body_length"]
    sound &= at + 3 + is_v2 <= limit
    first = columns["position"][0]
    safe = np.where(sound, at, first)
    topic_length = data[safe].astype(np.int64)
    if is_v2.any():
        topic_length = np.where(is_v2, take(data, safe, _SHORT_DTYPE), topic_length)
    longest = np.where(is_v2, 0x7FFF, constants.MAX_TOPIC_LENGTH)
    topic_position = at + 1 + is_v2
    at = topic_position + topic_length
    sound &= (topic_length > 0) & (topic_length <= longest) & (at + 2 <= limit)
    # Java reads a signed short; a negative length counts as none.
    properties_length = take(data, np.where(sound, at, first), _SHORT_DTYPE).astype(np.int64)
    np.maximum(properties_length, 0, out=properties_length)
    at += 2
    sound &= at + properties_length - columns["position"] == columns["total_size"]
    columns["topic_position"] = topic_position
    columns["topic_length"] = topic_length
    columns["properties_position"] = at
    columns["properties_length"] = properties_length
