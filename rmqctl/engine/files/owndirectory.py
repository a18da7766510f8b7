"""A temporary directory of this process, below the system's one.

Its owner holds its ``flock``, which ends with the process. So the next process that makes one with
the same prefix can tell which directories a kill has left, in other containers too, and removes
them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path


class OwnDirectory:
    """A new directory, until :meth:`remove`."""

    def __init__(self, prefix: str) -> None:
        """:raises OSError: none can be made, or opened."""
        _remove_left(prefix)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            try:
                self._held = _open(self.path)
            except FileNotFoundError:
                continue
            except OSError:
                os.rmdir(self.path)
                raise
            # None: the file system cannot lock directories (NFS). So no other process can lock this
            # one either, and none removes it.
            if _is_locked(self._held, self.path) is not False:
                return
            # Another process has locked it first, and removes it as one that was left.
            os.close(self._held)

    def remove(self) -> None:
        """Removes the directory and all in it; links are not followed."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def _remove_left(prefix: str) -> None:
    """Removes the directories of this user whose name begins with ``prefix`` and that nobody has
    locked."""
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            left = [Path(one.path) for one in entries if one.name.startswith(prefix)]
    except OSError:
        return
    for path in left:
        try:
            held = _open(path)
        except OSError:
            continue
        try:
            if os.fstat(held).st_uid == os.geteuid() and _is_locked(held, path):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(held)


def _open(path: Path) -> int:
    """A descriptor. :raises OSError: the path is no directory, or the system refuses it."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_locked(descriptor: int, path: Path) -> bool | None:
    """Tries to lock a directory: True when that worked and it is still at ``path``; False when
    another process holds the lock, or it is gone; None when the file system cannot lock it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
