"""Which bytes of a store's files were stored and are not forced to disk yet."""

from __future__ import annotations

import mmap
from pathlib import Path

_PAGE = mmap.PAGESIZE


class DirtyRange:
    """The range of a file that was stored into since its last fsync; empty when ``end`` is 0."""

    __slots__ = ("end", "start")

    def __init__(self, start: int = 0, end: int = 0) -> None:
        self.start, self.end = start, end

    @property
    def pages(self) -> int:
        """How many pages the range touches."""
        return -(-self.end // _PAGE) - self.start // _PAGE


#: By path: files with bytes that are not on disk, whether they are still mapped or not, and
#: directories with names that are not on disk.
Unsynced = dict[Path, DirtyRange]


def take_unsynced(unsynced: Unsynced, least_pages: int = 0) -> set[Path]:
    """Takes the files of which at least ``least_pages`` pages are dirty; the caller syncs them.

    They count as clean from now on. Nobody may store into any file of ``unsynced`` during the call.
    """
    taken = {path for path, dirty in unsynced.items() if dirty.pages >= least_pages}
    for path in taken:
        unsynced.pop(path).end = 0
    return taken
