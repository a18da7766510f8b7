"""CRC-32 of many bodies.

For short bodies a call of isal's CRC costs much more than the CRC itself: from 64 bytes on, where
it uses AVX-512, a call was measured to take 200 ns instead of 40. So short bodies are checked in
smaller pieces, which numpy cuts for many bodies at once.
"""

from __future__ import annotations

from itertools import repeat

import numpy as np
from isal.isal_zlib import crc32

from rmqctl.engine.scan.columns import Bytes, Codes, Ints, gather
from rmqctl.engine.scan.tuning import DEFAULT, ScanTuning

_PIECE = 63
# The register begins as 0, and zeros keep it 0. Then these four bytes fill it with ones, as at the
# beginning of a CRC. So a body can stand at the end of a row of any width.
_START = bytes.fromhex("62f52692")
_FROM_ZERO = 0xFFFFFFFF
_LONGEST_PIECES = 3


def body_crcs(data: Bytes, start: Ints, length: Ints, tuning: ScanTuning = DEFAULT) -> Codes:
    """CRC-32 of the bodies at ``start``: uint32, parallel to ``start`` and ``length`` (both int64).

    ``data`` is the file (uint8). Before each body must be as many bytes as a record's prefix has.
    """
    codes = np.empty(len(start), np.uint32)
    shorter = -1
    for pieces in range(1, _LONGEST_PIECES + 1):
        longest = pieces * _PIECE - len(_START)
        rows = np.flatnonzero((length > shorter) & (length <= longest))
        shorter = longest
        for at in range(0, len(rows), tuning.crc_rows):
            part = rows[at : at + tuning.crc_rows]
            codes[part] = _short(data, start[part], length[part], pieces)
    rows = np.flatnonzero(length > shorter)
    lows, highs = start[rows], start[rows] + length[rows]
    with data.data as view:
        codes[rows] = [
            crc32(view[low:high]) for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
        ]
    return codes


def _short(data: Bytes, start: Ints, length: Ints, pieces: int) -> list[int]:
    width = pieces * _PIECE
    keep = np.repeat(np.array([0, 0xFF], np.uint8), width)
    begin = np.zeros(2 * width, np.uint8)
    begin[width - len(_START) : width] = np.frombuffer(_START, np.uint8)
    rows = gather(data, start + length - width, width)
    rows &= gather(keep, length, width)
    rows |= gather(begin, length, width)
    columns = rows.view(np.dtype((np.void, _PIECE)))
    codes = map(crc32, columns[:, 0].tolist(), repeat(_FROM_ZERO))
    for piece in range(1, pieces):
        codes = map(crc32, columns[:, piece].tolist(), codes)
    return list(codes)
