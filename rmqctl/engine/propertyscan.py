"""Properties of a whole batch at once: tags codes, index keys, and what does not parse.

The same rules as :func:`formats.text.decode_properties`, over a matrix of property bytes: a row a
record, grouped by length so that one long row does not widen all others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formats import constants
from formats.text import decode_utf8, string_hash_code

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_WIDTHS = (64, 128, 256, 1024, 4096, 32768)
_MATRIX_BYTES = 8 << 20
_PADDING = 0x7E  # Neither a separator, nor a space, nor the start of a UTF-8 sequence.
_NAME_VALUE = ord(constants.NAME_VALUE_SEPARATOR)
_PROPERTY = ord(constants.PROPERTY_SEPARATOR)
_SPACE = ord(constants.KEY_SEPARATOR)
_SHIFTS = np.array([0] + [8 * (8 - n) for n in range(1, 9)], np.uint64)


def _name_code(name: str) -> tuple[int, int]:
    return len(name), int.from_bytes(name.encode()[:8].ljust(8, b"\0"), "big") >> (
        8 * max(0, 8 - len(name))
    )


_TAGS = _name_code(constants.PROPERTY_TAGS)
_KEYS = _name_code(constants.PROPERTY_KEYS)
_UNIQ_KEY = _name_code(constants.PROPERTY_UNIQ_KEY)
_DELAY = _name_code(constants.PROPERTY_DELAY_TIME_LEVEL)
_MULTI = _name_code(constants.PROPERTY_INNER_MULTI_DISPATCH)


@dataclass(slots=True)
class PropertyColumns:
    """What dispatch needs of the properties; rows count in the batch.

    ``key_row`` ascends; the entries of a row are in the order of its index items.
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


def gather(data: Bytes, start: Ints, width: int) -> Bytes:
    """``(len(start), width)`` bytes from arbitrary places; what lies beyond ``data`` is zero."""
    room = len(data) - width
    if room < 0 or int(start.max(initial=0)) > room:
        low = max(room, 0)
        tail = np.zeros(len(data) - low + width, np.uint8)
        tail[: len(data) - low] = data[low:]
        rows = np.empty((len(start), width), np.uint8)
        inside = start < low
        if inside.any():
            rows[inside] = gather(data, start[inside], width)
        outside = np.minimum(start[~inside] - low, len(tail) - width)
        rows[~inside] = gather(tail, outside, width)
        return rows
    places = np.ndarray((room + 1,), np.dtype((np.void, width)), data, strides=(1,))
    return places[start].view(np.uint8).reshape(len(start), width)


def scan(
    data: Bytes, start: Ints, length: Ints, key_prefix: NDArray[np.uint32], *, check: bool
) -> PropertyColumns:
    """Reads the properties at ``start`` (``length`` bytes each) of every row.

    ``key_prefix`` is the hash of ``topic#`` of each row. With ``check`` rows are reported whose
    properties hold a NUL, an entry without a name, or malformed UTF-8.
    """
    columns = PropertyColumns.empty(len(start))
    parts: list[_Part] = []
    narrower = 0
    for width in _WIDTHS:
        rows = np.flatnonzero((length > narrower) & (length <= width))
        narrower = width
        step = max(1, _MATRIX_BYTES // width)
        for at in range(0, len(rows), step):
            chunk = rows[at : at + step]
            parts.append(_Part(data, start[chunk], length[chunk], width, chunk, check))
    keys: list[tuple[Ints, Ints, NDArray[np.uint32]]] = []
    for part in parts:
        part.put_tags(columns.tags_code)
        keys += part.keys(key_prefix)
        columns.delay_levels.update(part.delay_levels())
    if parts:
        columns.malformed = np.unique(np.concatenate([part.malformed for part in parts]))
        columns.multi_dispatch_rows = np.unique(np.concatenate([p.multi_rows() for p in parts]))
    if keys:
        row = np.concatenate([k[0] for k in keys])
        # UNIQ_KEY comes first; the tokens of KEYS are already in their order.
        order = np.argsort(row * 2 + np.concatenate([k[1] for k in keys]), kind="stable")
        code = np.concatenate([k[2] for k in keys])[order]
        columns.key_row = row[order]
        columns.key_hash = _index_hash(code)
    return columns


def _index_hash(code: NDArray[np.uint32]) -> NDArray[np.int32]:
    """``IndexFile#indexKeyHashMethod``: the absolute value, Integer.MIN_VALUE → 0."""
    signed = np.abs(code.view(np.int32))
    signed[signed < 0] = 0
    return signed


class _Part:
    """Rows of similar length as one matrix, and the entries found in it.

    ``entry_*`` are parallel: the row in the matrix, where the name begins and how long it is, where
    the value begins and ends, all as positions in the flattened matrix.
    """

    def __init__(
        self, data: Bytes, start: Ints, length: Ints, width: int, rows: Ints, check: bool
    ) -> None:
        self.rows = rows
        self._width = width
        matrix = gather(data, start, width)
        if not (length == width).all():
            matrix = np.where(np.arange(width) < length[:, None], matrix, np.uint8(_PADDING))
        self._flat = matrix.reshape(-1)
        row_start = np.arange(len(rows), dtype=np.int64) * width
        self._row_end = row_start + length
        low = np.flatnonzero(self._flat < _SPACE)
        kind = self._flat[low]
        separator = (kind == _NAME_VALUE) | (kind == _PROPERTY)
        place, kind = low[separator], kind[separator]
        row = place // width
        new_row = np.ones(len(place), bool)
        np.not_equal(row[1:], row[:-1], out=new_row[1:])
        after_entry = np.ones(len(place), bool)
        np.equal(kind[:-1], _PROPERTY, out=after_entry[1:])
        # The first 0x01 of an entry ends its name; later ones belong to the value.
        keep = (kind == _PROPERTY) | new_row | after_entry
        place, kind, row = place[keep], kind[keep], row[keep]
        same_before = np.zeros(len(place), bool)
        np.equal(row[1:], row[:-1], out=same_before[1:])
        begin = np.where(same_before, np.append(np.int64(0), place[:-1]) + 1, row_start[row])
        same_after = np.append(same_before[1:], False)
        stop = np.where(same_after, np.append(place[1:], 0), self._row_end[row])
        name = np.flatnonzero(kind == _NAME_VALUE)
        name_length, value_length = place[name] - begin[name], stop[name] - place[name] - 1
        self.malformed = (
            self._find_malformed(low[kind_is_nul(self._flat, low)], place, kind, row, begin, stop)
            if check
            else np.empty(0, np.int64)
        )
        real = (name_length > 0) & (value_length > 0)
        name = name[real]
        self.entry_row = row[name]
        self.value_start = place[name] + 1
        self.value_end = stop[name]
        self._name_length = name_length[real]
        self._name_code = self._codes(begin[name])

    def _codes(self, begin: Ints) -> NDArray[np.uint64]:
        """The first eight bytes of each name as a number, as :func:`_name_code` has it."""
        if not len(begin):
            return np.empty(0, np.uint64)
        words = gather(self._flat, begin, 8).view(">u8").reshape(-1).astype(np.uint64)
        return words >> _SHIFTS[np.minimum(self._name_length, 8)]

    def _find_malformed(
        self, nul: Ints, place: Ints, kind: Bytes, row: Ints, begin: Ints, stop: Ints
    ) -> Ints:
        """Rows with a NUL, with an entry that has no 0x01, or with malformed UTF-8."""
        bad = [nul // self._width]
        first_of_row = np.zeros(len(self.rows), bool)
        first_of_row[row] = True
        bad.append(np.flatnonzero(~first_of_row))  # Not a single separator in it.
        ends = kind == _PROPERTY
        after_name = np.zeros(len(place), bool)
        if len(place):
            after_name[1:] = (kind[:-1] == _NAME_VALUE) & (row[1:] == row[:-1])
        bad.append(row[ends & ~after_name & (place > begin)])
        last = np.append(row[1:] != row[:-1], True) if len(row) else np.empty(0, bool)
        bad.append(row[last & ends & (stop > place + 1)])
        high = np.flatnonzero(self._flat >= 0x80) // self._width
        for candidate in np.unique(high).tolist():
            at = candidate * self._width
            try:
                bytes(self._flat[at : self._row_end[candidate]]).decode()
            except UnicodeDecodeError:
                bad.append(np.array([candidate], np.int64))
        return self.rows[np.unique(np.concatenate(bad))]

    def _entries(self, name: tuple[int, int]) -> Ints:
        """The last entry of a name in each row: of a repeated one the last counts."""
        found = np.flatnonzero((self._name_length == name[0]) & (self._name_code == name[1]))
        if len(found) > 1:
            row = self.entry_row[found]
            found = found[np.append(row[1:] != row[:-1], True)]
        return found

    def put_tags(self, tags_code: Ints) -> None:
        entry = self._entries(_TAGS)
        if len(entry):
            code = self._hash(self.value_start[entry], self.value_end[entry])
            tags_code[self.rows[self.entry_row[entry]]] = code.view(np.int32)

    def delay_levels(self) -> dict[int, str]:
        return {
            int(self.rows[self.entry_row[entry]]): self._text(
                int(self.value_start[entry]), int(self.value_end[entry])
            )
            for entry in self._entries(_DELAY)
        }

    def multi_rows(self) -> Ints:
        """Rows that may name extra queues; the first eight bytes of the name decide."""
        found = (self._name_length == _MULTI[0]) & (self._name_code == _MULTI[1])
        return self.rows[self.entry_row[found]]

    def keys(self, key_prefix: NDArray[np.uint32]) -> list[tuple[Ints, Ints, NDArray[np.uint32]]]:
        """``(row, 0 for UNIQ_KEY or 1 for KEYS, hash of "topic#key")`` of every key."""
        unique = self._entries(_UNIQ_KEY)
        found = [
            (self.entry_row[unique], 0, self.value_start[unique], self.value_end[unique]),
            self._key_tokens(),
        ]
        keys = []
        for row, order, start, end in found:
            if len(row):
                at = self.rows[row]
                code = self._hash(start, end, key_prefix[at])
                keys.append((at, np.full(len(at), order, np.int64), code))
        return keys

    def _key_tokens(self) -> tuple[Ints, int, Ints, Ints]:
        """The tokens of KEYS, split at single spaces, empty ones dropped."""
        entry = self._entries(_KEYS)
        start, end, row = self.value_start[entry], self.value_end[entry], self.entry_row[entry]
        space = np.flatnonzero(self._flat == _SPACE)
        owner = np.searchsorted(start, space, "right") - 1
        inside = owner >= 0
        inside[inside] = space[inside] < end[owner[inside]]
        space, owner = space[inside], owner[inside]
        starts = np.sort(np.concatenate([start, space + 1]))
        ends = np.sort(np.concatenate([end, space]))
        rows = np.sort(np.concatenate([row, row[owner]]))
        real = ends > starts
        return rows[real], 1, starts[real], ends[real]

    def _hash(
        self, start: Ints, end: Ints, prefix: NDArray[np.uint32] | None = None
    ) -> NDArray[np.uint32]:
        """``String#hashCode`` of each value, continued from ``prefix`` where given."""
        length = end - start
        code = np.zeros(len(start), np.uint32)
        for size in np.unique(length).tolist():
            at = np.flatnonzero(length == size)
            powers, power = _powers(size)
            rows = gather(self._flat, start[at], size)
            # Unsigned 32-bit numbers wrap as Java's do.
            code[at] = (rows * powers).sum(axis=1, dtype=np.uint32)
            if prefix is not None:
                code[at] += prefix[at] * power
            wide = np.flatnonzero((rows >= 0x80).any(axis=1))
            for index in at[wide].tolist():
                code[index] = self._hash_text(
                    int(start[index]), int(end[index]), 0 if prefix is None else int(prefix[index])
                )
        return code

    def _hash_text(self, start: int, end: int, prefix: int) -> int:
        text = self._text(start, end)
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2
        return (string_hash_code(text) + prefix * pow(31, units, 1 << 32)) & 0xFFFFFFFF

    def _text(self, start: int, end: int) -> str:
        return decode_utf8(self._flat[start:end].tobytes())


def kind_is_nul(flat: Bytes, place: Ints) -> NDArray[np.bool_]:
    """Which of the places hold a NUL."""
    nul: NDArray[np.bool_] = flat[place] == 0
    return nul


_power_cache: dict[int, tuple[NDArray[np.uint32], np.uint32]] = {}


def _powers(size: int) -> tuple[NDArray[np.uint32], np.uint32]:
    """31^(size-1) … 31^0 modulo 2^32, and 31^size."""
    cached = _power_cache.get(size)
    if cached is None:
        powers = [1]
        for _ in range(size):
            powers.append(powers[-1] * 31 & 0xFFFFFFFF)
        cached = np.array(powers[size - 1 :: -1] if size else [], np.uint32), np.uint32(powers[size])
        _power_cache[size] = cached
    return cached
