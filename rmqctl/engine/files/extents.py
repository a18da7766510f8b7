"""Data and holes of a sparse file (``SEEK_DATA``, ``SEEK_HOLE``), and complete writes to it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

#: Zeros to compare with, or to write, at once.
ZEROS = bytes(1 << 20)
_STRIPPED = 1 << 10


def extents(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts ``(start, end)`` of a range that hold data, in order; holes are left out.

    No page is read. A file system that does not know holes has one part: the whole range.
    """
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
    """The parts of a range that are holes: those between its :func:`extents`, in order."""
    position = start
    for low, high in extents(descriptor, start, end):
        if position < low:
            yield position, low
        position = high
    if position < end:
        yield position, end


def write_at(descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Writes all of ``data`` at a position, in as many calls as the system needs.

    :raises OSError: the disk is full, or failed; a part may have been stored.
    """
    done = 0
    with memoryview(data) as view:
        while done < len(view):
            done += os.pwrite(descriptor, view[done:], position + done)


def allocate(descriptor: int, start: int, size: int) -> None:
    """Allocates the blocks of a range; what it holds stays.

    Where a file system cannot do so (ext2, ext3), the C library reads a byte of each block, and
    writes it. Reading ahead would bring pages of the hole behind, in one large folio with those of
    the range, and a store into any of its pages wants blocks for all: on a full disk SIGBUS would
    end the process.

    :raises OSError: the disk is full (ENOSPC, EDQUOT) or refuses otherwise.
    """
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        os.posix_fallocate(descriptor, start, size)
    finally:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_NORMAL)


def end_of_first_data(descriptor: int) -> int:
    """Where the first hole of a file begins when only zeros follow; else the file's size.

    So all data of the file lies before the returned position. No page is read.
    """
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
    """Length of a piece without the zeros at its end.

    Halves are compared with zeros, which is fifty times faster than ``rstrip``.
    """
    length = len(piece)
    while length > _STRIPPED:
        half = length // 2
        if piece[half:length] != ZEROS[: length - half]:
            tail = length_of_data(piece[half:length])
            return half + tail
        length = half
    return len(piece[:length].rstrip(b"\0"))
