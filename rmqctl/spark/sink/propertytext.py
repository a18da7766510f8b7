"""Encodes the properties of many rows as they are stored, by sets of names.

The order of the entries depends only on the names (``formats.text.hash_map_order``), and most rows
of a DataFrame have one of a few sets of names. So each set is sorted once, and Arrow joins the
values. Odd rows must be encoded one by one: those with a separator in a value, with a name twice,
with a rare set, or with a name that has an effect.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from formats import constants
from formats.text import hash_map_order
from rmqctl.engine.record.message import NOT_IN_PROPERTIES
from rmqctl.engine.scan.columns import Ints

TEXT = pa.large_string()
_ODD_MARK = "[" + "".join(rf"\x{ord(mark):02x}" for mark in NOT_IN_PROPERTIES) + "]"
_MOST_SETS = 256
_FEW_ROWS = 8
_MOST_NAMES = 64


class PropertyTexts(NamedTuple):
    """The stored properties of every row, as large binary. Values of odd rows have no meaning."""

    data: pa.Array
    is_odd: NDArray[np.bool_]


class _Entries(NamedTuple):
    """The entries of all rows. ``code`` has the number of each entry's name. The entries of a row
    are at ``first + place`` in both arrays."""

    names: list[str]
    code: Ints
    values: pa.Array
    first: Ints
    length: Ints


def property_texts(
    maps: pa.Array | None,
    single: dict[str, pa.Array],
    count: int,
    *,
    special: Set[str],
    dropped: Set[str],
) -> PropertyTexts:
    """The properties of ``count`` rows: those of the map, and then those of ``single`` (name →
    column), where an empty value counts as absent. Rows with a name in ``special`` are odd. Names
    in ``dropped`` are left out.
    """
    entries = _entries(maps, count)
    is_odd = _rows_with_odd_values(entries, count)
    columns = {name: column.cast(TEXT) for name, column in single.items()}
    given = {
        name: pc.greater(pc.binary_length(column), 0).fill_null(False).to_numpy(False)
        for name, column in columns.items()
    }
    for column in columns.values():
        is_odd |= pc.match_substring_regex(column, _ODD_MARK).fill_null(False).to_numpy(False)
    sets, number = _sets(entries, given)
    order = np.argsort(number, kind="stable")
    starts = np.searchsorted(number[order], np.arange(sets + 1))
    parts = []
    for at in range(sets):
        rows = order[starts[at] : starts[at + 1]]
        text = None
        if sets <= _MOST_SETS or len(rows) >= _FEW_ROWS:
            text = _texts_of(rows, entries, columns, given, special, dropped)
        if text is None:
            is_odd[rows] = True
            text = pa.repeat(pa.scalar("", TEXT), len(rows))
        parts.append(text)
    if len(parts) == 1:
        return PropertyTexts(parts[0].cast(pa.large_binary()), is_odd)
    back = np.empty(count, np.int64)
    back[order] = np.arange(count)
    joined = pa.concat_arrays(parts) if parts else pa.array([], TEXT)
    return PropertyTexts(joined.take(pa.array(back)).cast(pa.large_binary()), is_odd)


def _entries(maps: pa.Array | None, count: int) -> _Entries:
    if maps is None:
        nothing = np.zeros(count, np.int64)
        return _Entries([], nothing, pa.array([], TEXT), nothing, nothing)
    edges = maps.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    length = np.where(maps.is_valid().to_numpy(False), np.diff(edges), 0)
    low, high = (int(edges[0]), int(edges[-1])) if count else (0, 0)
    keys = maps.keys.slice(low, high - low).dictionary_encode()
    return _Entries(
        keys.dictionary.to_pylist(),
        keys.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        maps.items.slice(low, high - low).cast(TEXT),
        edges[:-1] - low,
        length,
    )


def _rows_with_odd_values(entries: _Entries, count: int) -> NDArray[np.bool_]:
    """Which rows (bool) have a value that is null, or that contains a separator."""
    is_odd = entries.length > _MOST_NAMES
    values = entries.values
    odd = pc.match_substring_regex(values, _ODD_MARK).fill_null(True).to_numpy(False)
    places = np.flatnonzero(odd)
    if len(places):
        ends = entries.first + entries.length
        rows = np.searchsorted(ends, places, "right")
        rows = rows[rows < count]
        is_odd[rows] = True
    return is_odd


def _sets(entries: _Entries, given: dict[str, NDArray[np.bool_]]) -> tuple[int, Ints]:
    """How many sets of names there are, and for each row the number of its set."""
    number = np.zeros(len(entries.first), np.int64)
    numbers = 1
    longest = min(int(entries.length.max(initial=0)), _MOST_NAMES)
    digits: list[tuple[Ints, int]] = []
    for place in range(longest):
        digit = np.zeros(len(number), np.int64)
        rows = np.flatnonzero(entries.length > place)
        digit[rows] = entries.code[entries.first[rows] + place] + 1
        digits.append((digit, len(entries.names) + 1))
    digits += [(flags.astype(np.int64), 2) for flags in given.values()]
    for digit, base in digits:
        if numbers * base > 1 << 62:
            known, number = np.unique(number, return_inverse=True)
            numbers = len(known)
        number = number * base + digit
        numbers *= base
    known, number = np.unique(number, return_inverse=True)
    return len(known), number


def _texts_of(
    rows: Ints,
    entries: _Entries,
    columns: dict[str, pa.Array],
    given: dict[str, NDArray[np.bool_]],
    special: Set[str],
    dropped: Set[str],
) -> pa.Array | None:
    """The stored properties of rows with the same names; None if such rows are odd."""
    row = int(rows[0])
    first, length = int(entries.first[row]), int(entries.length[row])
    in_map = [entries.names[code] for code in entries.code[first : first + length]]
    if len(set(in_map)) < len(in_map) or len(in_map) > _MOST_NAMES:
        return None
    alone = [name for name, flags in given.items() if flags[row]]
    names = [name for name in dict.fromkeys([*in_map, *alone]) if name not in dropped]
    marked = any(mark in name for name in names for mark in NOT_IN_PROPERTIES)
    if marked or not special.isdisjoint(names):
        return None
    parts: list[Any] = []
    for name in hash_map_order(names):
        before = constants.PROPERTY_SEPARATOR if parts else ""
        parts.append(pa.scalar(f"{before}{name}{constants.NAME_VALUE_SEPARATOR}", TEXT))
        if name in alone:
            parts.append(columns[name].take(pa.array(rows)))
        else:
            places = entries.first[rows] + in_map.index(name)
            parts.append(entries.values.take(pa.array(places)))
    if not parts:
        return pa.repeat(pa.scalar("", TEXT), len(rows))
    return pc.binary_join_element_wise(*parts, pa.scalar("", TEXT), null_handling="replace")
