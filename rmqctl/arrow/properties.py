"""Stored properties of a whole batch as Arrow maps, and the tags codes in them.

The compiled kernel makes both. This module does so without the kernel, and tests compare the kernel
with it.

The rules are those of ``formats.text.decode_properties``. Nearly all properties are regular: each
entry has one 0x01, entries are joined by one 0x02, and everything is UTF-8. Regular rows are cut
out of the bytes by numpy and Arrow. Every other row goes through ``decode_properties`` itself, so
that the odd cases are defined only once.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from formats import constants
from formats.text import decode_properties, tags_code
from rmqctl.engine.scan.buffers import Buffers
from rmqctl.engine.scan.columns import Bytes, Ints, hash_codes, take

MAP = pa.map_(pa.string(), pa.string())
_NAME_VALUE = ord(constants.NAME_VALUE_SEPARATOR)
_PROPERTY = ord(constants.PROPERTY_SEPARATOR)
_TAGS = np.frombuffer(constants.PROPERTY_TAGS.encode(), np.uint32)
_OFFSET_BYTES = 4
# Names of a batch that fit into the bits of a word, with room for the sum of 2^23 of them.
_NAME_BITS = 40


def ragged(data: Bytes, start: Ints, length: Ints) -> pa.Array:
    """Values of any lengths at ascending places that do not overlap, as one binary array.

    Arrow makes a single copy: the places and the gaps between them form an array over the map, and
    every second value of it is taken.
    """
    count = len(start)
    if not count:
        return pa.array([], pa.binary())
    low, high = int(start[0]), int(start[-1] + length[-1])
    if high - low > constants.INT_MAX:
        places = zip(start.tolist(), (start + length).tolist(), strict=True)
        return pa.array([data[a:b].tobytes() for a, b in places], pa.binary())
    edges = np.empty(2 * count + 1, np.int32)
    edges[0:-1:2] = start - low
    edges[1::2] = start - low + length
    edges[-1] = high - low
    return _every_other(edges, data[low:high], pa.binary())


def _every_other(edges: NDArray[np.int32], data: Bytes, kind: pa.DataType) -> pa.Array:
    """The values between the edges 0 and 1, 2 and 3, and so on."""
    count = len(edges) // 2
    whole = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return whole.take(pa.array(np.arange(0, 2 * count, 2)))


class CompiledProperties:
    """The properties of a batch as the kernel makes them. It leaves odd rows to
    ``decode_properties``; they are the same in both columns."""

    def __init__(self, data: Bytes, start: Ints, length: Ints, odd_rows: Ints) -> None:
        self._odd_rows = odd_rows
        self._odd = _decoded(data, start[odd_rows], length[odd_rows])

    def maps(self, buffers: Buffers) -> pa.Array:
        rows, *texts_of, _ = buffers
        count = memoryview(rows).nbytes // _OFFSET_BYTES - 1
        maps = pa.MapArray.from_arrays(
            pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(rows)]),
            texts(texts_of[:2], pa.string()),
            texts(texts_of[2:], pa.string()),
        )
        return _with_odd(maps, self._odd_rows, self._odd)

    def tags_codes(self, buffers: Buffers) -> Ints:
        codes: Ints = np.frombuffer(buffers[0], np.int64)
        if len(self._odd_rows):
            codes = codes.copy()
            codes[self._odd_rows] = [_tags_code(properties) for properties in self._odd]
        return codes


def texts(buffers: Buffers, kind: pa.DataType) -> pa.Array:
    """An array of strings, or of binary values, over buffers."""
    held = [pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(kind, held[0].size // _OFFSET_BYTES - 1, [None, *held])


def _decoded(data: Bytes, start: Ints, length: Ints) -> list[dict[str, str]]:
    places = zip(start.tolist(), length.tolist(), strict=True)
    return [decode_properties(data[at : at + size].tobytes()) for at, size in places]


def _with_odd(maps: pa.Array, odd_rows: Ints, odd: list[dict[str, str]]) -> pa.Array:
    """Maps with some of their rows replaced."""
    if not len(odd_rows):
        return maps
    others = pa.array([list(properties.items()) for properties in odd], MAP)
    which = np.arange(len(maps))
    which[odd_rows] = len(maps) + np.arange(len(odd_rows))
    return pa.concat_arrays([maps, others]).take(pa.array(which))


def _tags_code(properties: dict[str, str]) -> int:
    tags = properties.get(constants.PROPERTY_TAGS)
    return tags_code(tags) if tags else 0


class PropertyEntries:
    """The properties of a batch's records, made by numpy and Arrow. They are taken apart once for
    all columns that need them."""

    def __init__(self, data: Bytes, start: Ints, length: Ints) -> None:
        self._data, self._start, self._length = data, start, length
        self._count = len(start)
        # One 0x02 at the end is how some versions write it.
        trimmed = length - ((data[start + length - 1] == _PROPERTY) & (length > 0))
        full = np.flatnonzero(trimmed)
        closed = pc.binary_join_element_wise(
            ragged(data, start[full], trimmed[full]), b"", constants.PROPERTY_SEPARATOR.encode()
        )
        edges = np.frombuffer(closed.buffers()[1], np.int32)[: len(full) + 1]
        self._text = np.frombuffer(closed.buffers()[2] or b"", np.uint8)[: edges[-1]]
        self._locate(full, edges.astype(np.int64), closed)

    def _locate(self, full: Ints, edges: Ints, closed: pa.Array) -> None:
        """The places of names and values in the regular rows, and the numbers of the odd rows."""
        text = self._text
        place = np.flatnonzero((text - np.uint8(_NAME_VALUE)) < 2)
        is_end = text[place] == _PROPERTY
        odd = np.zeros(len(full), bool)
        if (text > 0x7F).any() and not _is_utf8(closed):
            odd |= ~np.fromiter((_is_text(value) for value in closed), bool, len(full))
        ends = np.searchsorted(place, edges)
        if odd.any() or len(place) % 2 or not is_end[1::2].all() or is_end[0::2].any():
            # The last separator of a row is a 0x02, so the ones before it must take turns.
            row = np.repeat(np.arange(len(full)), np.diff(ends))
            turn = ((np.arange(len(place)) - ends[row]) & 1).astype(bool)
            odd[row[turn != is_end]] = True
            keep = ~odd[row]
            place, row = place[keep], row[keep][0::2]
        else:
            row = np.repeat(np.arange(len(full)), np.diff(ends) // 2)
        name_end, value_end = place[0::2], place[1::2]
        begin = edges[row]
        np.maximum(begin[1:], value_end[:-1] + 1, out=begin[1:])
        real = (name_end > begin) & (value_end > name_end + 1)
        if not real.all():
            row, begin = row[real], begin[real]
            name_end, value_end = name_end[real], value_end[real]
        self._row, self._begin = full[row], begin
        self._name_end, self._value_end = name_end, value_end
        self.odd_rows = full[odd]

    @cached_property
    def _odd(self) -> list[dict[str, str]]:
        odd = self.odd_rows
        return _decoded(self._data, self._start[odd], self._length[odd])

    def maps(self) -> pa.Array:
        """A map for each row. A repeated name has its last value."""
        names = self._cut(self._begin, self._name_end)
        row, begin, end = self._row, self._name_end + 1, self._value_end
        keep = _last_of_name(row, names)
        if keep is not None:
            names = names.filter(pa.array(keep))
            row, begin, end = row[keep], begin[keep], end[keep]
        offsets = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.bincount(row, minlength=self._count), out=offsets[1:])
        maps = pa.MapArray.from_arrays(pa.array(offsets), names, self._cut(begin, end))
        return _with_odd(maps, self.odd_rows, self._odd)

    def tags_codes(self) -> Ints:
        """The ``hashCode`` of the TAGS of each row; 0 without TAGS."""
        codes = np.zeros(self._count, np.int64)
        entry = np.flatnonzero(self._name_end - self._begin == _TAGS.nbytes)
        entry = entry[take(self._text, self._begin[entry], _TAGS.dtype) == _TAGS]
        begin = self._name_end[entry] + 1
        # Of a repeated name the last one counts, and so does the last one stored here.
        codes[self._row[entry]] = hash_codes(
            self._text, begin, self._value_end[entry] - begin
        ).view(np.int32)
        for row, properties in zip(self.odd_rows.tolist(), self._odd, strict=True):
            codes[row] = _tags_code(properties)
        return codes

    def _cut(self, begin: Ints, end: Ints) -> pa.Array:
        """Cuts texts out of the regular rows, which are known to be UTF-8."""
        if not len(begin):
            return pa.array([], pa.string())
        edges = np.empty(2 * len(begin) + 1, np.int32)
        edges[0:-1:2], edges[1::2], edges[-1] = begin, end, end[-1]
        return _every_other(edges, self._text, pa.string())


def _is_utf8(stored: pa.Array) -> bool:
    try:
        stored.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _is_text(value: pa.Scalar) -> bool:
    try:
        value.as_py().decode()
    except UnicodeDecodeError:
        return False
    return True


def _last_of_name(row: Ints, names: pa.Array) -> NDArray[np.bool_] | None:
    """The entries without those whose name is repeated later in the row, for a map may hold a name
    only once. None: no name is repeated."""
    if not len(row):
        return None
    code = names.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if int(code.max()) < _NAME_BITS:
        first = np.flatnonzero(np.diff(row, prepend=-1))
        bits = np.int64(1) << code
        # A sum is more than the union when a bit is there twice, and so is a sum of such sums.
        if bits.sum() == np.bitwise_or.reduceat(bits, first).sum():
            return None
    key = row << 32 | code
    last = np.ones(len(key), bool)
    order = np.argsort(key, kind="stable")
    last[order[:-1]] = key[order[:-1]] != key[order[1:]]
    return last
