"""``lock``: the POSIX record lock that a broker and rmqctl's writers share.

Java takes ``FileChannel.tryLock(0, 1, false)`` on the store's ``lock`` file and writes the text
``lock`` into it (``DefaultMessageStore#start``). The kernel drops the lock with the process, so a
stale file never blocks. POSIX locks do not exclude threads of one process: a set of held paths
does that.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from rmqctl.engine.paths import LOCK, open_for_writing, writing_error
from rmqctl.errors import StoreInUse

_held: set[tuple[int, int]] = set()


class StoreLock:
    """The store's lock, held from construction to :meth:`release`."""

    def __init__(self, root: Path) -> None:
        """:raises StoreInUse: somebody else holds it; nothing but an empty ``lock`` was made."""
        self._descriptor = open_for_writing(root, root / LOCK, create=True)
        status = os.fstat(self._descriptor)
        self._identity = (status.st_dev, status.st_ino)
        if self._identity in _held:
            # Closing this descriptor would drop the POSIX lock of the other holder: leave it open.
            raise StoreInUse(path=str(root))
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise writing_error(root / LOCK, error) from error
            raise StoreInUse(path=str(root)) from error
        _held.add(self._identity)
        if status.st_size < len(b"lock"):
            # Nobody reads the text: on a full disk the lock is as good without it.
            with suppress(OSError):
                os.pwrite(self._descriptor, b"lock", 0)

    def release(self) -> None:
        if self._identity in _held:
            _held.discard(self._identity)
            os.close(self._descriptor)


def is_locked(root: Path) -> bool:
    """Whether another process holds the lock now; touches nothing.

    Asked of the kernel's table: opening and closing the file here would drop a lock of our own.
    """
    try:
        status = os.stat(root / LOCK)
        if (status.st_dev, status.st_ino) in _held:
            return False
        key = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        with open("/proc/locks", encoding="ascii") as locks:
            return any(key in line.split() for line in locks if "POSIX" in line)
    except OSError:
        return False
