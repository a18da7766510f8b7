"""Holes of sparse files, and how to look at what may be one without its pages.

To look into a hole through a map takes a page. A full tmpfs has none, for a reader as little as for
a writer, and the kernel ends the process (SIGBUS), while a read of the file sees zeros. So small
reads do not go through the map (:meth:`MappedFile.read`), and what is looked at in bulk is the map
only where it has no hole, else a copy of what stands there (:func:`whole`).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

from rmqctl.engine.files.mappedfile import MappedFile

#: What mmap has no name for before Python 3.13: the copy takes memory for what is in it only.
_MAP_NORESERVE = 0x4000


class Aside(MappedFile):
    """A copy of a part of a file, at the same positions; elsewhere it has zeros.

    It stands for the file where that part is looked at in bulk, and outlives it.
    """

    def __init__(self, mapped: MappedFile, start: int, end: int) -> None:
        self.path = mapped.path
        self.file_from_offset = mapped.file_from_offset
        self.size = mapped.size
        self.framed = mapped.framed
        self.descriptor = -1
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        # An empty file cannot be mapped.
        self.buffer = mmap.mmap(-1, self.size, flags=flags) if self.size else b""
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
    """Whether a range has no hole, so that the map can be looked at there. What is no hole once
    stays none."""
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
    """What stands for the file where a range is looked at: the file itself, or a copy."""
    start, end = max(start, 0), min(end, mapped.size)
    return mapped if is_whole(mapped, start, end) else Aside(mapped, start, end)
