"""Reading sparse files without touching the pages of their holes.

A load from a hole through a map needs a page. On a full tmpfs there is none, and the kernel ends
the process (SIGBUS), reader or writer; ``pread`` of the same range returns zeros. So small reads
use ``pread`` (:meth:`MappedFile.read`). Bulk reads use the map where a range has no hole, else a
copy of its data (:func:`whole`).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.errors import CannotRead

#: Not named by mmap before Python 3.13. The copy takes memory only for the pages that hold data.
_MAP_NORESERVE = 0x4000


class Aside(MappedFile):
    """A copy of a part of a file, at the same positions, with zeros elsewhere.

    It takes the file's place for a bulk read of that part, and may outlive the file.

    :raises CannotRead: there is no memory for it, or the disk does not read the file.
    """

    def __init__(self, mapped: MappedFile, start: int, end: int) -> None:
        self.path = mapped.path
        self.file_from_offset = mapped.file_from_offset
        self.size = mapped.size
        self.framed = mapped.framed
        self.descriptor = -1
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        try:
            # An empty file cannot be mapped.
            self.buffer = mmap.mmap(-1, self.size, flags=flags) if self.size else b""
        except OSError as error:
            raise CannotRead(path=str(mapped.path), reason=error.strerror) from error
        self.add(mapped, start, end)

    def add(self, mapped: MappedFile, start: int, end: int) -> None:
        """Copies another part of the file."""
        for low, high in mapped.extents(start, end):
            assert isinstance(self.buffer, mmap.mmap)
            data = mapped.read_aside(low, high - low)
            self.buffer[low : low + len(data)] = data

    def read_aside(self, position: int, size: int) -> bytes:
        return self.buffer[position : position + size]

    def forget(self, start: int, end: int) -> None:
        """The copy goes with its last user."""

    def close(self) -> None:
        """The copy goes with its last user."""

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        yield start, end


def is_whole(mapped: MappedFile, start: int, end: int) -> bool:
    """Whether a range has no hole, so that the map may be read there.

    Blocks are never taken out of a file again, so the answer is kept in ``mapped.whole``.
    """
    low, high = mapped.whole
    if low <= start and end <= high:
        return True
    try:
        hole = os.lseek(mapped.descriptor, start, os.SEEK_HOLE)
    except OSError:  # Nothing of it lies in the file.
        return False
    if hole > start:
        mapped.whole = low if low <= start <= high else start, hole
    return end <= hole


def whole(mapped: MappedFile, start: int, end: int) -> MappedFile:
    """The file itself when a range has no hole, else a copy (:class:`Aside`) to read instead."""
    start, end = max(start, 0), min(end, mapped.size)
    return mapped if is_whole(mapped, start, end) else Aside(mapped, start, end)
