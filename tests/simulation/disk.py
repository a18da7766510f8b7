"""A disk that loses what was not forced to it, writes only some sectors, fills up, and fails.

The files are real; kept beside them is the content that each had when it was last forced to disk
(fsync), and the names that each directory had when it was. A file that was removed stays removed
after a loss of power.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: Bytes that a disk writes wholly or not at all.
SECTOR = 512
_SYNC, _DATASYNC, _ALLOCATE = os.fsync, os.fdatasync, os.posix_fallocate


class PowerLoss(BaseException):
    """The machine has lost power while something was forced to disk."""


class Disk:
    """The disk of one machine: the files below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.is_full = False
        #: Whether the next fsync fails, and whether the machine loses power at it.
        self.fails_next = self.stops_next = False
        #: Called with the path of each file that was forced to disk.
        self.on_synced: list[Callable[[Path], None]] = []
        self._durable: dict[int, bytes] = {}
        #: The names that are on disk of each directory, by its inode.
        self._names: dict[int, set[str]] = {}

    def synced(self, descriptor: int) -> None:
        """Notes that a file was forced to disk. :raises PowerLoss, OSError: it was not."""
        self._may_stop()
        status = os.fstat(descriptor)
        with open(f"/proc/self/fd/{descriptor}", "rb") as file:
            self._durable[status.st_ino] = file.read(status.st_size)
        for tell in self.on_synced:
            tell(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    def named(self, descriptor: int) -> None:
        """Notes that a directory was forced to disk: the names in it, not the content of its files.

        :raises PowerLoss, OSError: it was not.
        """
        self._may_stop()
        self._names[os.fstat(descriptor).st_ino] = set(os.listdir(descriptor))

    def contents(self, path: Path) -> tuple[bytes, bytes]:
        """A file's content as it is read now, and as it is on disk; both empty when there is no
        such file."""
        try:
            inode, now = path.stat().st_ino, path.read_bytes()
        except FileNotFoundError:
            return b"", b""
        return now, self._durable.get(inode, b"").ljust(len(now), b"\0")

    def allocated(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _may_stop(self) -> None:
        if self.stops_next:
            self.stops_next = False
            raise PowerLoss
        if self.fails_next:
            self.fails_next = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def lose_power(self, chance: random.Random) -> None:
        """Takes away what was not forced to disk: none of it, some or all, drawn for each sector
        and each name in a directory."""
        kept = chance.choice((0.0, 0.5, 0.5, 1.0))
        for directory in (self.root, *sorted(self.root.rglob("*/"))):
            if directory.exists():
                inode = directory.stat().st_ino
                for name in sorted({*os.listdir(directory)} - self._names.get(inode, set())):
                    if chance.random() >= kept:
                        remove(directory / name)
                self._names[inode] = {*os.listdir(directory)}
        for path in sorted(self.root.rglob("*")):
            if not path.is_file():
                continue
            now = path.read_bytes()
            then = self._durable.get(path.stat().st_ino, b"").ljust(len(now), b"\0")
            pieces = []
            for at in range(0, len(now), SECTOR):
                new, old = now[at : at + SECTOR], then[at : at + SECTOR]
                pieces.append(new if new == old or chance.random() < kept else old)
            image = b"".join(pieces)
            if image != now:
                path.write_bytes(image)
            self._durable[path.stat().st_ino] = image


def remove(path: Path) -> None:
    """Removes a file, or a directory with all that is in it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def simulated(*disks: Disk) -> Iterator[None]:
    """Inside, fsync, fdatasync and posix_fallocate of files below the roots of these disks are
    answered by them."""

    roots = [(f"{disk.root}/", disk) for disk in disks]

    def disk_of(descriptor: int) -> Disk | None:
        # A file that was made without a name (O_TMPFILE) is shown as one in its directory.
        path = os.readlink(f"/proc/self/fd/{descriptor}") + "/"
        return next((disk for root, disk in roots if path.startswith(root)), None)

    def forcing(real: Callable[[int], None]) -> Callable[[int], None]:
        def force(descriptor: int) -> None:
            disk = disk_of(descriptor)
            if disk is None:
                real(descriptor)
            elif stat.S_ISREG(os.fstat(descriptor).st_mode):
                disk.synced(descriptor)
            else:
                disk.named(descriptor)

        return force

    def allocate(descriptor: int, offset: int, length: int) -> None:
        disk = disk_of(descriptor)
        if disk is not None:
            disk.allocated()
        _ALLOCATE(descriptor, offset, length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", forcing(_SYNC))
        patch.setattr(os, "fdatasync", forcing(_DATASYNC))
        patch.setattr(os, "posix_fallocate", allocate)
        yield
