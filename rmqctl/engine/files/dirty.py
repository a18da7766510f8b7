"""What of the store's files is not on disk yet."""

from __future__ import annotations

import mmap
from pathlib import Path

_PAGE = mmap.PAGESIZE


class DirtyRange:
    """What was stored into a file since it was forced to disk; empty when ``end`` is 0."""

    __slots__ = ("end", "start")

    def __init__(self, start: int = 0, end: int = 0) -> None:
        self.start, self.end = start, end

    @property
    def pages(self) -> int:
        """How many pages lie in it."""
        return -(-self.end // _PAGE) - self.start // _PAGE


#: Files with something that is not on disk, be they mapped or not any more, and directories with
#: names that are not.
Unsynced = dict[Path, DirtyRange]


def take_unsynced(unsynced: Unsynced, least_pages: int = 0) -> set[Path]:
    """Files of which at least so many pages are not on disk; they count as clean from now on, and
    the caller syncs them. Whoever stores into them must not do so meanwhile."""
    taken = {path for path, dirty in unsynced.items() if dirty.pages >= least_pages}
    for path in taken:
        unsynced.pop(path).end = 0
    return taken
