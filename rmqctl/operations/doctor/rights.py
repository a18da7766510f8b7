"""Whether a broker may write a store, as far as that shows from outside: by mounts, owners and
rights. Who has made most of what is there is taken for the broker's user; lists of access that a
file system has beside these are not looked at.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from rmqctl.engine.files.shown import shown
from rmqctl.operations.verify import Finding
from rmqctl.operations.verify.findings import finding

_ROOT = 0
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Rights:
    """What was seen of owners and rights, in the order in which it was looked at."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.owners: Counter[int] = Counter()
        #: The first file of each owner.
        self._owned: dict[int, str] = {}
        #: What its own owner may not write.
        self._locked: list[str] = []
        #: Files by owner that he may not write, and those that nobody else may: the first of each.
        self._shut: dict[int, str] = {}
        self._own: dict[int, str] = {}
        self._read_only: list[Path] = []

    def note(self, path: str, status: os.stat_result) -> None:
        """Something that a broker writes."""
        self.note_owner(path, status)
        may = bool(status.st_mode & stat.S_IWUSR)
        if not may:
            self._locked.append(path)
        if stat.S_ISREG(status.st_mode):
            if not may:
                self._shut.setdefault(status.st_uid, path)
            if not status.st_mode & _OTHERS:
                self._own.setdefault(status.st_uid, path)

    def note_owner(self, path: str, status: os.stat_result) -> None:
        """Something whose owner tells who the broker is."""
        self._owned.setdefault(status.st_uid, path)
        self.owners[status.st_uid] += 1

    def note_mounts(self, directories: Iterable[Path]) -> None:
        """Notes which directories, of those that are there, nobody writes since they are mounted
        so; those below such a one count to it."""
        for path in directories:
            try:
                mount = os.statvfs(path)
            except OSError:
                continue  # Who lists it says so.
            is_new = not any(path.is_relative_to(noted) for noted in self._read_only)
            if mount.f_flag & os.ST_RDONLY and is_new:
                self._read_only.append(path)

    def findings(self) -> Iterator[Finding]:
        """``read-only-mount``, ``mixed-owners`` and ``not-writable``."""
        for path in self._read_only:
            yield finding("read-only-mount", path=shown(self._root, path))
        (owner, _), *others = self.owners.most_common()
        for uid, count in others:
            what = f"{count} of user {uid}, this one the first"
            where = {"path": shown(self._root, Path(self._owned[uid])), "expected": f"user {owner}"}
            yield finding("mixed-owners", **where, found=what)
        if self._locked:
            first = shown(self._root, Path(self._locked[0]))
            what = f"{len(self._locked)} without the right, this one the first"
            yield finding("not-writable", path=first, found=what)

    def refusal(self) -> str | None:
        """Why a start fails that opens each file for writing; None where nothing shows that it
        does. Root needs no right."""
        for path in self._read_only:
            name = "the store" if path == self._root else shown(self._root, path)
            return f"{name}: its file system is mounted read-only"
        ((user, _),) = self.owners.most_common(1)
        if user == _ROOT:
            return None
        refused = [path for uid, path in self._shut.items() if uid == user]
        refused += [path for uid, path in self._own.items() if uid != user]
        for first in refused:
            return (
                f"{shown(self._root, Path(first))}: user {user}, who owns most of the store, may "
                "not write it"
            )
        return None
