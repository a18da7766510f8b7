"""The positions of many records in one file, and their fields as columns.

:func:`chain` follows only magic codes and sizes. Then :func:`read_fields` checks everything that
:func:`~rmqctl.engine.record.record.read_entry` checks, and stops before the first record that is
not sound. The walk finds out what is wrong there.
"""

from __future__ import annotations

from struct import Struct

import numpy as np
from numpy.typing import NDArray

from formats import constants, layouts
from formats.derive import dtype_of
from formats.layouts import Length
from rmqctl.engine.scan.columns import Bytes, Ints, take
from rmqctl.engine.scan.tuning import DEFAULT, ScanTuning

_PREFIX = {flags: dtype_of(layout) for flags, layout in layouts.RECORD_PREFIX.items()}
_SHORTEST_PREFIX = _PREFIX[0].itemsize
# A blank's two fields are the first two of a record.
_HEAD = Struct(layouts.BLANK.format)
_HEAD_DTYPE = dtype_of(layouts.BLANK)
_MAGIC_CODE_AT = layouts.RECORD_MAGIC_CODE.offset
_PLACE_DTYPE = np.dtype(f">{layouts.RECORD_PHYSICAL_OFFSET.code}")
_PLACE_POSITION = layouts.RECORD_PHYSICAL_OFFSET.offset
# Magic codes of the record versions, the oldest and most usual first, and their length fields.
_MAGIC_CODES = tuple(layouts.TAIL)
_OLDEST = _MAGIC_CODES[0]
_TOPIC_LENGTHS = [tail.topic_length for tail in layouts.TAIL.values()]
_PROPERTIES_LENGTHS = [tail.properties_length for tail in layouts.TAIL.values()]


def chain(
    data: Bytes,
    position: int,
    limit: int,
    file_from_offset: int,
    tuning: ScanTuning = DEFAULT,
) -> Ints:
    """Positions of consecutive records from ``position`` on and below ``limit``: int64, ascending.

    ``data`` is the file (uint8). Only bytes before ``limit`` are read, and the heads of records
    that begin before it.

    Each step along the chain would cost Python a fifth of a microsecond, so many chains are
    followed at once: each probable record further on starts a lane. A lane counts once the lane
    before it has arrived exactly at its start.
    """
    limit = min(limit, len(data) - constants.MIN_RECORD_SIZE + 1)
    starts = _lane_starts(data, position, limit, file_from_offset, tuning)
    if len(starts) < 2:
        return _follow(data, position, limit)
    stops = np.append(starts[1:], limit)
    positions, reached = _follow_lanes(data, starts, stops)
    apart = np.flatnonzero(reached[:-1] != starts[1:])
    if not len(apart):
        return positions
    lane = int(apart[0])
    believed: Ints = positions[positions < stops[lane]]
    if reached[lane] < stops[lane]:
        return believed
    # The next lane began inside a body that holds bytes like a record's.
    return np.concatenate([believed, _follow(data, int(reached[lane]), limit)])


def _follow(data: Bytes, position: int, limit: int) -> Ints:
    """:func:`chain`, one record after the other."""
    positions: list[int] = []
    append, unpack, size_limit = positions.append, _HEAD.unpack_from, len(data)
    with data.data as view:
        while position < limit:
            total_size, magic_code = unpack(view, position)
            if (
                (magic_code != _OLDEST and magic_code not in _MAGIC_CODES)
                or total_size < constants.MIN_RECORD_SIZE
                or position + total_size > size_limit
            ):
                break
            append(position)
            position += total_size
    return np.array(positions, np.int64)


def _lane_starts(
    data: Bytes, position: int, limit: int, file_from_offset: int, tuning: ScanTuning
) -> Ints:
    """``position``, and behind it probable records at some distance from each other (int64)."""
    starts = []
    if position >= limit:
        return np.empty(0, np.int64)
    size = _HEAD.unpack_from(data.data, position)[0]
    least, most = tuning.lane_bytes
    step = min(max(size * tuning.lane_records, least), most)
    for low in range(position + step, limit - step, step):
        searched = data[low + _MAGIC_CODE_AT : low + min(step, tuning.lane_search_bytes)]
        at = searched.tobytes().find(layouts.RECORD_MAGIC_HEAD)
        if at >= 0:
            starts.append(low + at)
    places = np.array(starts, np.int64)
    if len(places):
        named = take(data, places + _PLACE_POSITION, _PLACE_DTYPE)
        places = places[named == places + file_from_offset]
    return np.concatenate([np.array([position], np.int64), places])


def _follow_lanes(data: Bytes, starts: Ints, stops: Ints) -> tuple[Ints, Ints]:
    """Positions in all lanes (int64, ascending), and where each lane ended (int64)."""
    lane, at, reached, size_limit = np.arange(len(starts)), starts, starts.copy(), len(data)
    found = []
    while len(lane):
        head = take(data, at, _HEAD_DTYPE)
        size = head["total_size"].astype(np.int64)
        magic = head["magic_code"]
        sound = magic == _OLDEST
        for magic_code in _MAGIC_CODES[1:]:
            sound |= magic == magic_code
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
    """Columns of the records at ``position`` up to the first that is not sound; None without any.

    ``position`` is from :func:`chain`, ``data`` the file. Each column is int64, and parallel to
    ``position`` up to the last sound record. Besides the fields of a batch there are
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
    if (columns["sys_flag"] & constants.HOST_V6_MASK).any():
        _widen(data, columns, sound)
    np.maximum(columns["body_length"], 0, out=columns["body_length"])
    _locate_strings(data, columns, sound, _versions(fixed["magic_code"]))
    count = len(position) if sound.all() else int(np.argmin(sound))
    if count == 0:
        return None
    return {name: column[:count] for name, column in columns.items()}


def _widen(data: Bytes, columns: dict[str, Ints], sound: NDArray[np.bool_]) -> None:
    """Reads again the fields that stand elsewhere in records with IPv6 hosts."""
    position, hosts = columns["position"], columns["sys_flag"] & constants.HOST_V6_MASK
    for flags, dtype in _PREFIX.items():
        rows = np.flatnonzero(hosts == flags)
        fits = dtype.itemsize <= columns["total_size"][rows]
        sound[rows[~fits]] = False
        rows = rows[fits]
        wide = take(data, position[rows], dtype)
        for name in ("store_timestamp", "body_length"):
            columns[name][rows] = wide[name]
        columns["body_position"][rows] = position[rows] + dtype.itemsize


def _versions(magic_code: NDArray[np.uint32]) -> Ints:
    """Index of each record's version in :data:`_MAGIC_CODES` (int64)."""
    version = np.zeros(len(magic_code), np.int64)
    for number, code in enumerate(_MAGIC_CODES[1:], 1):
        version[magic_code == code] = number
    return version


def _locate_strings(
    data: Bytes, columns: dict[str, Ints], sound: NDArray[np.bool_], version: Ints
) -> None:
    """Adds positions and lengths of topic and properties; clears ``sound`` where they do not fit.

    For unsound rows lengths are read from the first record, so no length leads out of its record.
    """
    limit = columns["position"] + columns["total_size"]
    topic, properties = _Lengths(_TOPIC_LENGTHS, version), _Lengths(_PROPERTIES_LENGTHS, version)
    at = columns["body_position"] + columns["body_length"]
    sound &= at + topic.size + properties.size <= limit
    first = columns["position"][0]
    topic_length = topic.read(data, np.where(sound, at, first))
    topic_position = at + topic.size
    at = topic_position + topic_length
    sound &= (topic_length > 0) & (topic_length <= topic.limit) & (at + properties.size <= limit)
    # Java's lengths have a sign; a negative one counts as none.
    properties_length = properties.read(data, np.where(sound, at, first))
    np.maximum(properties_length, 0, out=properties_length)
    at += properties.size
    sound &= properties_length <= properties.limit
    sound &= at + properties_length - columns["position"] == columns["total_size"]
    columns["topic_position"] = topic_position
    columns["topic_length"] = topic_length
    columns["properties_position"] = at
    columns["properties_length"] = properties_length


class _Lengths:
    """One of the two lengths behind the body, for rows whose versions may differ.

    ``size`` and ``limit`` are one number if all rows have the same version, as in most batches;
    else they are arrays parallel to the rows.
    """

    size: int | Ints
    limit: int | Ints

    def __init__(self, lengths: list[Length], version: Ints) -> None:
        self._version = version
        self._dtypes = [np.dtype(f">{length.code}") for length in lengths]
        number = int(version[0])
        self._is_one = bool((version == number).all())
        if self._is_one:
            self.size, self.limit = lengths[number].size, lengths[number].limit
        else:
            self.size = np.array([length.size for length in lengths])[version]
            self.limit = np.array([length.limit for length in lengths])[version]

    def read(self, data: Bytes, place: Ints) -> Ints:
        """The lengths at ``place``, int64, parallel to the rows."""
        if self._is_one:
            return take(data, place, self._dtypes[int(self._version[0])]).astype(np.int64)
        lengths = np.empty(len(place), np.int64)
        for number, dtype in enumerate(self._dtypes):
            rows = np.flatnonzero(self._version == number)
            lengths[rows] = take(data, place[rows], dtype)
        return lengths
