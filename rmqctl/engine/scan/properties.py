"""Reads the properties of a whole batch at once: tags codes, index keys, and malformed ones.

The rules are those of :func:`formats.text.decode_properties`. First the few values that dispatch
needs are located, then they are hashed in place. Nearly all properties are regular: each entry has
one 0x01, and one 0x02 stands between entries. numpy locates values in these; :func:`locate` does so
one by one in all others, so odd cases have one simple definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats import constants
from formats.text import decode_utf8, split_properties
from rmqctl.engine.scan.columns import (
    Bytes,
    Codes,
    Ints,
    by_width,
    gather,
    hash_codes,
    padded,
    rows_with_high_bytes,
    take,
)
from rmqctl.engine.scan.topics import TopicTable
from rmqctl.engine.scan.tuning import DEFAULT, ScanTuning

__all__ = [
    "PropertyColumns",
    "gather",
    "key_places",
    "locate",
    "properties_problem",
    "scan",
    "tags",
]

_NAME_VALUE = ord(constants.NAME_VALUE_SEPARATOR)
_PROPERTY = ord(constants.PROPERTY_SEPARATOR)
_SPACE = ord(constants.KEY_SEPARATOR)
_WORD = 8
_WORD_DTYPE = np.dtype(">u8")
_NAMES = (
    constants.PROPERTY_TAGS,
    constants.PROPERTY_KEYS,
    constants.PROPERTY_UNIQ_KEY,
    constants.PROPERTY_DELAY_TIME_LEVEL,
    constants.PROPERTY_INNER_MULTI_DISPATCH,
)
_TAGS, _KEYS, _UNIQ_KEY, _DELAY, _MULTI = range(len(_NAMES))
_NUMBER_BY_NAME = {name.encode(): number for number, name in enumerate(_NAMES)}


@dataclass(slots=True)
class PropertyColumns:
    """What dispatch needs from the properties of a batch.

    ``tags_code`` (int64) has one item per row. ``key_row`` (int64, ascending) is parallel to
    ``key_hash`` (int32, marked as in :class:`~rmqctl.engine.scan.batch.Batch`); keys of a row are
    in the order of its index items. ``malformed`` and ``multi_dispatch_rows`` are rows (int64,
    ascending); the first are only found with ``check``. ``delay_levels`` maps rows to the text of
    their DELAY.
    """

    tags_code: Ints
    key_row: Ints
    key_hash: NDArray[np.int32]
    delay_levels: dict[int, str]
    malformed: Ints
    multi_dispatch_rows: Ints

    @classmethod
    def empty(cls, count: int) -> PropertyColumns:
        none = np.empty(0, np.int64)
        return cls(np.zeros(count, np.int64), none, np.empty(0, np.int32), {}, none, none)


def properties_problem(data: bytes) -> str | None:
    """Why stored properties do not parse; None when they do.

    Every entry that is not empty must have a 0x01, no byte may be NUL, and all must be UTF-8. Empty
    names and values, repeated names and extra separators lose entries, but parse.
    """
    if b"\0" in data:
        return "they hold a NUL"
    if any(name and value is None for name, value in split_properties(data)):
        return "an entry has no separator between name and value"
    try:
        data.decode()
    except UnicodeDecodeError:
        return "they are not UTF-8"
    return None


def locate(data: bytes) -> dict[int, tuple[int, int]]:
    """By number in :data:`_NAMES`: ``(position, length)`` of the value that ``decode_properties``
    gives."""
    found = {}
    position = 0
    for name, value in split_properties(data):
        number = _NUMBER_BY_NAME.get(name)
        if value and number is not None:
            found[number] = (position + len(name) + 1, len(value))
        position += len(name) + 1 + (0 if value is None else len(value) + 1)
    return found


class _Values(NamedTuple):
    """Positions and lengths of values: int64 of shape ``(len(_NAMES), rows)``. Length 0: none."""

    position: Ints
    length: Ints

    def of(self, number: int) -> tuple[Ints, Ints, Ints]:
        """The rows with a value for a name, and positions and lengths of these values (int64)."""
        rows = np.flatnonzero(self.length[number])
        if len(rows) == self.length.shape[1]:
            return rows, self.position[number], self.length[number]
        return rows, self.position[number][rows], self.length[number][rows]


def scan(
    data: Bytes,
    start: Ints,
    length: Ints,
    key_prefix: Codes,
    tuning: ScanTuning = DEFAULT,
    *,
    check: bool,
    tags_prefix: Codes | None = None,
) -> PropertyColumns:
    """Reads the properties of every row, at ``start`` and of ``length`` bytes (int64, ascending).

    ``key_prefix`` (uint32) is the hash of ``topic#`` for each row, and ``tags_prefix`` that of
    ``topic#T#``, if tags are keys, too. With ``check`` rows with a :func:`properties_problem` are
    reported.
    """
    values, malformed = _located(data, start, length, tuning, check=check)
    columns = PropertyColumns.empty(len(start))
    tagged, at, size = values.of(_TAGS)
    columns.tags_code[tagged] = hash_codes(data, at, size, tuning=tuning).view(np.int32)
    columns.key_row, columns.key_hash = _keys(data, values, key_prefix, tuning)
    if tags_prefix is not None:
        # Behind the other keys of the row.
        place = np.searchsorted(columns.key_row, tagged, "right")
        marked = ~_index_hash(hash_codes(data, at, size, tags_prefix[tagged], tuning))
        columns.key_row = np.insert(columns.key_row, place, tagged)
        columns.key_hash = np.insert(columns.key_hash, place, marked)
    delayed, at, size = values.of(_DELAY)
    columns.delay_levels = {
        row: decode_utf8(_text(data, low, many))
        for row, low, many in zip(delayed.tolist(), at, size, strict=True)
    }
    columns.multi_dispatch_rows = values.of(_MULTI)[0]
    columns.malformed = np.array(sorted(malformed), np.int64)
    return columns


def tags(data: Bytes, start: Ints, length: Ints) -> tuple[Ints, Ints, Ints]:
    """The rows with TAGS, ascending, and positions and lengths (not 0) of these. All are int64.

    ``start`` and ``length`` (int64) are the places of every row's properties in ``data`` (uint8).
    """
    return _located(data, start, length, DEFAULT, check=False)[0].of(_TAGS)


def key_places(data: Bytes, start: Ints, length: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Positions and lengths (int64) of all index keys, and whether each is a UNIQ_KEY (bool), in
    the order of a :class:`~rmqctl.engine.scan.batch.Batch`'s ``key_hash``.

    ``start`` and ``length`` (int64, ascending) are the places of rows' properties in ``data``
    (uint8).
    """
    values, _ = _located(data, start, length, DEFAULT, check=False)
    unique, tokens = _key_kinds(data, values, DEFAULT)
    position, size = (np.empty(len(unique.at) + len(tokens.at), np.int64) for _ in range(2))
    for kind in (unique, tokens):
        position[kind.at], size[kind.at] = kind.position, kind.length
    is_unique = np.zeros(len(position), np.bool_)
    is_unique[unique.at] = True
    return position, size, is_unique


def delays_to_look_at(data: Bytes, topics: TopicTable, fields: dict[str, Ints]) -> dict[int, str]:
    """Row → level of the delayed messages of a batch with an unusual level. ``data`` (uint8) is the
    file; ``fields`` are columns of shape ``(records,)``, int64, in log order."""
    schedule = topics.id_of(constants.RMQ_SYS_SCHEDULE_TOPIC)
    rows = np.flatnonzero(fields["topic_id"] == schedule)
    if not len(rows):
        return {}
    places = (fields[name][rows] for name in ("properties_position", "properties_length"))
    found = unusual_delays(data, *places)
    return {int(rows[number]): level for number, level in found.items()}


def unusual_delays(data: Bytes, start: Ints, length: Ints) -> dict[int, str]:
    """Row → DELAY, if that is not one or two digits. ``data`` (uint8) is the file; ``start`` and
    ``length`` (int64, shape ``(records,)``, in log order) are the places of properties in it."""
    rows, at, size = _located(data, start, length, DEFAULT, check=False)[0].of(_DELAY)
    is_usual = size <= 2
    for place in (at, at + size - 1):
        is_usual &= (data[place] >= ord("0")) & (data[place] <= ord("9"))
    unusual = np.flatnonzero(~is_usual).tolist()
    return {int(rows[n]): decode_utf8(_text(data, at[n], size[n])) for n in unusual}


def _located(
    data: Bytes, start: Ints, length: Ints, tuning: ScanTuning, *, check: bool
) -> tuple[_Values, list[int]]:
    """The places of the values of :data:`_NAMES`, and with ``check`` the malformed rows."""
    count = len(start)
    values = _Values(*(np.zeros((len(_NAMES), count), np.int64) for _ in range(2)))
    malformed: list[int] = []
    # Some versions write one 0x02 at the end. Empty properties need no look.
    trimmed = length - ((data[start + length - 1] == _PROPERTY) & (length > 0))
    for width, rows in by_width(trimmed + _WORD * (trimmed > 0), tuning):
        part = _Part(data, start[rows], trimmed[rows], width)
        numbers = np.arange(count)[rows]
        part.put(values, numbers)
        for row in numbers[part.irregular].tolist():
            for name, (offset, many) in locate(_text(data, start[row], length[row])).items():
                values.position[name, row] = start[row] + offset
                values.length[name, row] = many
        if check:
            malformed += [
                row
                for row in numbers[part.suspects()].tolist()
                if properties_problem(_text(data, start[row], length[row])) is not None
            ]
    return values, malformed


def _text(data: Bytes, position: int | np.int64, length: int | np.int64) -> bytes:
    return data[position : position + length].tobytes()


class _Part:
    """Properties of similar length as one matrix (uint8). Its regular rows are taken apart.

    ``irregular`` are the other rows (int64). ``width`` is at least 8 more than any length.
    """

    def __init__(self, data: Bytes, start: Ints, length: Ints, width: int) -> None:
        # No wider than necessary, in whole words.
        width = min(width, -(-(int(length.max()) + _WORD) // _WORD) * _WORD)
        self._start, self._length, self._width = start, length, width
        self._matrix = padded(data, start, length, width)
        self._flat = self._matrix.reshape(-1)
        # With an end behind the last entry as well, each entry is a pair of separators.
        self._flat[np.arange(len(start)) * width + length] = _PROPERTY
        place = np.flatnonzero((self._flat - np.uint8(_NAME_VALUE)) < 2)
        place, self.irregular = self._regular(place, self._flat[place] == _PROPERTY)
        self._name_end, self._value_end = place[0::2], place[1::2]

    def _regular(self, place: Ints, is_end: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """The places of separators in rows where 0x01 and 0x02 alternate, and all other rows."""
        # A row always ends with 0x02, so if they alternate in all rows, they alternate altogether.
        if len(place) % 2 == 0 and is_end[1::2].all() and not is_end[0::2].any():
            return place, np.empty(0, np.int64)
        row = place // self._width
        count = np.bincount(row, minlength=len(self._start))
        first = np.cumsum(count) - count
        odd = ((np.arange(len(place)) - first[row]) & 1).astype(bool)
        bad = np.zeros(len(self._start), bool)
        bad[row[odd != is_end]] = True
        return place[~bad[row]], np.flatnonzero(bad)

    def put(self, values: _Values, numbers: Ints) -> None:
        """Stores the places of values in regular rows; ``numbers`` are these rows in ``values``."""
        if not len(self._value_end):
            return
        row = self._value_end // self._width
        begin = row * self._width
        np.maximum(begin[1:], self._value_end[:-1] + 1, out=begin[1:])
        size = self._value_end - self._name_end - 1
        # The first 8 bytes tell a short name, with the 0x01 behind it.
        word = take(self._flat, begin, _WORD_DTYPE).astype(np.uint64)
        name_length = self._name_end - begin
        for number, name in enumerate(_NAMES):
            head = (name + constants.NAME_VALUE_SEPARATOR).encode()[:_WORD]
            shift = np.uint64(8 * (_WORD - len(head)))
            same = (word >> shift) == np.uint64(int.from_bytes(head, "big"))
            if len(name) >= _WORD:
                same &= name_length == len(name)
            entry = np.flatnonzero(same & (size > 0))
            if len(name) > _WORD:
                entry = self._with_name(entry, begin, name.encode())
            if len(entry):
                # The last one of a repeated name counts: it is stored last here, too.
                at = row[entry]
                column = self._name_end[entry] + 1 - at * self._width
                values.position[number, numbers[at]] = self._start[at] + column
                values.length[number, numbers[at]] = size[entry]

    def _with_name(self, entry: Ints, begin: Ints, name: bytes) -> Ints:
        if len(entry):
            same = gather(self._flat, begin[entry], len(name)) == np.frombuffer(name, np.uint8)
            entry = entry[same.all(axis=1)]
        return entry

    def suspects(self) -> Ints:
        """Rows that may have a :func:`properties_problem` (int64); no others have one."""
        suspects = [self.irregular, rows_with_high_bytes(self._matrix)]
        zeros = self._width - 1 - self._length
        if np.count_nonzero(self._flat) != self._flat.size - int(zeros.sum()):
            suspects.append(np.flatnonzero(np.count_nonzero(self._matrix == 0, axis=1) != zeros))
        return np.unique(np.concatenate(suspects))


def _keys(
    data: Bytes, values: _Values, key_prefix: Codes, tuning: ScanTuning
) -> tuple[Ints, NDArray[np.int32]]:
    """Row and hash of every key. For each row UNIQ_KEY comes first, then the tokens of KEYS."""
    kinds = _key_kinds(data, values, tuning)
    key_row = np.empty(sum(len(kind.row) for kind in kinds), np.int64)
    code = np.empty(len(key_row), np.uint32)
    for kind in kinds:
        key_row[kind.at] = kind.row
        code[kind.at] = hash_codes(data, kind.position, kind.length, key_prefix[kind.row], tuning)
    return key_row, _index_hash(code)


class _Keys(NamedTuple):
    """The keys of one kind: the number of each among the keys of both kinds, its row, position and
    length. All are int64 and parallel."""

    at: Ints
    row: Ints
    position: Ints
    length: Ints


def _key_kinds(data: Bytes, values: _Values, tuning: ScanTuning) -> tuple[_Keys, _Keys]:
    """The keys in UNIQ_KEY, and those in KEYS, numbered in the order of their index items."""
    unique_row, *unique = values.of(_UNIQ_KEY)
    token_row, *tokens = _tokens(data, *values.of(_KEYS), tuning)
    rows = values.length.shape[1]
    # Merges two ascending runs: each key's place is the number of keys before it.
    unique_count = np.cumsum(np.bincount(unique_row, minlength=rows))
    token_count = np.cumsum(np.bincount(token_row, minlength=rows))
    before = token_count[unique_row] - np.bincount(token_row, minlength=rows)[unique_row]
    unique_at = np.arange(len(unique_row)) + before
    token_at = np.arange(len(token_row)) + unique_count[token_row]
    return _Keys(unique_at, unique_row, *unique), _Keys(token_at, token_row, *tokens)


def _tokens(
    data: Bytes, row: Ints, start: Ints, length: Ints, tuning: ScanTuning
) -> tuple[Ints, Ints, Ints]:
    """Splits KEYS at single spaces, without empty tokens: row, position and length of each."""
    found = [np.empty(0, np.int64)]
    for width, part in by_width(length, tuning):
        low = start[part]
        flat = padded(data, low, length[part], width).reshape(-1)
        space = np.flatnonzero(flat == _SPACE)
        if len(space):
            at = space // width
            found.append(low[at] + (space - at * width))
    space = np.sort(np.concatenate(found))
    if not len(space):
        return row, start, length
    # Records ascend in the file, and so do all these places.
    owner = np.searchsorted(start, space, "right") - 1
    starts = np.sort(np.concatenate([start, space + 1]))
    sizes = np.sort(np.concatenate([start + length, space])) - starts
    rows = np.sort(np.concatenate([row, row[owner]]))
    real = sizes > 0
    return rows[real], starts[real], sizes[real]


def _index_hash(code: Codes) -> NDArray[np.int32]:
    """``IndexFile#indexKeyHashMethod``: the absolute value, Integer.MIN_VALUE → 0."""
    signed = np.abs(code.view(np.int32))
    signed[signed < 0] = 0
    return signed
