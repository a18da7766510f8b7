"""Which bytes of a store's files were stored and are not forced to disk yet."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Collection
from pathlib import Path

from rmqctl.engine.files.durable import raise_lost, sync_files

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


class Unsynced(dict[Path, DirtyRange]):
    """By path: files of one structure with bytes that are not on disk, whether they are still
    mapped or not, and directories with names that are not on disk.

    An interrupt may come between any two steps. It leaves each file noted here, or ``taken``, until
    a flush of it has succeeded.
    """

    __slots__ = ("_on_their_way", "_syncing", "lost", "taken")

    def __init__(self) -> None:
        super().__init__()
        #: What the disk has said when it failed. Then each flush fails for good: the kernel tells
        #: only once of a page that it could not write, and may drop it, so a later fsync proves
        #: nothing.
        self.lost: OSError | None = None
        #: Files that count as clean for those who store, and wait for :meth:`sync_taken`.
        self.taken: set[Path] = set()
        #: Held while files are on their way to disk.
        self._syncing = threading.Lock()
        self._on_their_way: set[Path] = set()

    def take(self, least_pages: int = 0) -> None:
        """Takes the files of which at least ``least_pages`` pages are dirty. Nobody may store into
        any of them during the call."""
        for path in [path for path, dirty in self.items() if dirty.pages >= least_pages]:
            self.taken.add(path)
            self.clean(path)

    def clean(self, path: Path) -> None:
        """Notes that a file is on disk, or gone. Nobody may store into it during the call."""
        dirty = self.get(path)
        if dirty is not None:
            # First: a range with an end counts as noted.
            dirty.end = 0
            self.pop(path, None)

    def sync_taken(self, also: Collection[Path] = ()) -> None:
        """Forces the files that were taken to disk, and those that an earlier call could not force;
        files that are gone are passed over. Others may store into them meanwhile, and take others.

        :param also: more files. :raises OSError: the disk failed, now or before; a limit of open
            files makes only this call fail.
        """
        with self._syncing:
            raise_lost(self)
            self._on_their_way.update(also)
            while self.taken:
                # In one step each: other threads add to the set.
                self._on_their_way.update(self.taken)
                self.taken.difference_update(self._on_their_way)
            sync_files(self._on_their_way, may_be_gone=True, loser=self)
            self._on_their_way.clear()

    def sync(self) -> None:
        """Forces all files to disk. Nobody may store into any of them meanwhile. Errors as in
        :meth:`sync_taken`."""
        self.take()
        self.sync_taken()
