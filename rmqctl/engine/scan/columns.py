"""Reads bytes at many places at once: the basis of the batch scanner.

Every function takes one buffer and arrays of places in it, and works on all places in a few passes
of numpy. Places and lengths must lie in the buffer. Nothing here interprets the bytes. Arrays of
places and lengths have the shape ``(n,)``, are parallel to each other and to the result, and are in
any order unless the function says otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from formats import layouts
from formats.text import decode_utf8, string_hash_code
from rmqctl.engine.scan.tuning import DEFAULT, ScanTuning

#: A buffer's bytes, of shape ``(size,)``; or rows of bytes, ``(n, width)``.
Bytes = NDArray[np.uint8]
#: Places, lengths, numbers of rows, and the values of fields.
Ints = NDArray[np.int64]
#: Hashes and checksums, which wrap.
Codes = NDArray[np.uint32]

#: Bytes, a power of two: longer than topic or properties of any record.
LONGEST = 1 << max(
    length.limit.bit_length()
    for tail in layouts.TAIL.values()
    for length in (tail.topic_length, tail.properties_length)
)
_NARROWEST = 8
_WIDTHS = [_NARROWEST << n for n in range((2 * LONGEST // _NARROWEST).bit_length())]
# LONGEST times 0xFF, then zeros: as a mask, the bytes from LONGEST - n on keep n bytes of a row.
_STEP = np.repeat(np.array([0xFF, 0], np.uint8), (LONGEST, 2 * LONGEST))
_HIGH_BITS = np.uint64(0x8080808080808080)


def _power_table(base: int) -> Codes:
    factors = np.full(LONGEST + 1, base, np.uint32)
    factors[0] = 1
    return np.multiply.accumulate(factors, dtype=np.uint32)


_POWERS = _power_table(31)
# 31 is odd, so it has an inverse modulo 2^32: the effect of trailing zeros on a hash can be undone.
_INVERSE_POWERS = _power_table(pow(31, -1, 1 << 32))


def take(data: Bytes, start: Ints, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A copy of the structures of ``dtype`` at the places ``start`` (int64), parallel to them. All
    must lie in ``data`` (uint8)."""
    count = max(len(data) - dtype.itemsize + 1, 0)
    # Raw bytes are copied much faster than fields, and without alignment.
    places: NDArray[np.void] = np.ndarray(
        (count,), np.dtype((np.void, dtype.itemsize)), data, 0, (1,)
    )
    return places[start].view(dtype)


def gather(data: Bytes, start: Ints, width: int) -> Bytes:
    """``width`` bytes from each place in ``start`` (int64): uint8 of shape ``(len(start), width)``,
    contiguous. Bytes behind ``data`` are zero."""
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
    return take(data, start, np.dtype((np.void, width))).view(np.uint8).reshape(len(start), width)


def padded(data: Bytes, start: Ints, length: Ints, width: int) -> Bytes:
    """:func:`gather`, with zeros behind the first ``length`` (int64) bytes of each row: uint8 of
    shape ``(len(start), width)``. ``length`` is at most :data:`LONGEST`, ``width`` at most twice
    that."""
    rows = gather(data, start, width)
    keep = gather(_STEP, LONGEST - length, width)
    return np.bitwise_and(rows, keep, out=rows)


def rows_with_high_bytes(rows: Bytes) -> Ints:
    """Numbers of the rows with a byte that is not ASCII: int64, ascending. ``rows`` is uint8 of
    shape ``(n, width)``, contiguous, with a width that is a multiple of 8."""
    words = rows.view(np.uint64)
    if not np.bitwise_or.reduce(words, axis=None) & _HIGH_BITS:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.bitwise_or.reduce(words, axis=1) & _HIGH_BITS)


def hash_codes(
    data: Bytes,
    start: Ints,
    length: Ints,
    prefix: Codes | None = None,
    tuning: ScanTuning = DEFAULT,
) -> Codes:
    """``String#hashCode`` of UTF-8 texts at many places, continued from ``prefix`` if given.

    Result and ``prefix`` are uint32, parallel to ``start`` and ``length`` (int64, bytes).
    """
    code = np.zeros(len(start), np.uint32)
    for width, rows in by_width(length, tuning):
        code[rows] = _hash_rows(
            data, start[rows], length[rows], width, None if prefix is None else prefix[rows]
        )
    return code


def by_width(length: Ints, tuning: ScanTuning = DEFAULT) -> list[tuple[int, Ints | slice]]:
    """Splits places by ``length`` (int64) into ``(width, rows)`` of bounded size. Empty places are
    left out.

    ``rows`` are ascending indexes (int64), or a slice if all lengths have one width. Widths are
    powers of two, so one long place does not widen all others.
    """
    parts: list[tuple[int, Ints | slice]] = []
    longest, narrower = int(length.max(initial=0)), 0
    for width in _WIDTHS:
        if narrower >= longest:
            break
        step = max(1, tuning.chunk_bytes // width)
        if longest <= width and int(length.min()) > narrower:
            # All have one width, as in most batches: a slice needs no copy.
            parts += [(width, slice(at, at + step)) for at in range(0, len(length), step)]
            break
        rows = np.flatnonzero((length > narrower) & (length <= width))
        parts += [(width, rows[at : at + step]) for at in range(0, len(rows), step)]
        narrower = width
    return parts


def _hash_rows(data: Bytes, start: Ints, length: Ints, width: int, prefix: Codes | None) -> Codes:
    rows = padded(data, start, length, width)
    code = _fold(rows) * _INVERSE_POWERS[width - length]
    if prefix is not None:
        code += prefix * _POWERS[length]
    for row in rows_with_high_bytes(rows).tolist():
        text = decode_utf8(rows[row, : length[row]].tobytes())
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2
        before = 0 if prefix is None else int(prefix[row]) * pow(31, units, 1 << 32)
        code[row] = (string_hash_code(text) + before) & 0xFFFFFFFF
    return code


def _fold(rows: Bytes) -> Codes:
    """Hashes whole rows (uint8): neighbours are joined again and again into one number of twice
    the width."""
    count, width = rows.shape
    # 255 · 32 fits into 16 bits, and that times 962 into 32. After that numbers wrap as in Java.
    pairs = rows.reshape(-1).view("<u2").astype(np.uint16, copy=False)
    pairs = (pairs & np.uint16(0xFF)) * np.uint16(31) + (pairs >> np.uint16(8))
    code = pairs[0::2].astype(np.uint32) * np.uint32(31**2) + pairs[1::2]
    covered = 4
    while covered < width:
        code = code[0::2] * _POWERS[covered] + code[1::2]
        covered *= 2
    assert len(code) == count
    return code
