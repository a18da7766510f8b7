"""Ranges of a file by its descriptor: where a sparse file has data, and where holes, without a look
at any page; and how all of a range is stored."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

#: As many zeros as are looked at, or written, together.
ZEROS = bytes(1 << 20)
_STRIPPED = 1 << 10


def extents(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a range that hold data, in order; holes (all zeros) are left out."""
    position = start
    while position < end:
        try:
            data = os.lseek(descriptor, position, os.SEEK_DATA)
            hole = os.lseek(descriptor, data, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            data, hole = position, end
        if data >= end:
            return
        yield max(data, position), min(hole, end)
        position = hole


def holes(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a range between its :func:`extents`, in order."""
    position = start
    for low, high in extents(descriptor, start, end):
        if position < low:
            yield position, low
        position = high
    if position < end:
        yield position, end


def write_at(descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Stores all of ``data`` at a position: the system may take less of it at a time.

    :raises OSError: the disk is full, or failed; a part may have been stored.
    """
    done = 0
    with memoryview(data) as view:
        while done < len(view):
            done += os.pwrite(descriptor, view[done:], position + done)


def end_of_first_data(descriptor: int) -> int:
    """Position before which all data of a file stands, from its first byte on; its size when data
    stands behind a hole, too. No page of a hole is touched."""
    end = 0
    try:
        end = os.lseek(descriptor, 0, os.SEEK_HOLE)
        os.lseek(descriptor, end, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return end
    return os.fstat(descriptor).st_size


def length_of_data(piece: bytes) -> int:
    """How long a piece is up to its last byte that is not zero; by halves, for to strip zeros takes
    fifty times longer than to compare them."""
    length = len(piece)
    while length > _STRIPPED:
        half = length // 2
        if piece[half:length] != ZEROS[: length - half]:
            tail = length_of_data(piece[half:length])
            return half + tail
        length = half
    return len(piece[:length].rstrip(b"\0"))
