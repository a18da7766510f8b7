"""A directory of this process alone below the system's temporary one, for as long as it needs it.

What a kill leaves is removed by the next that makes one of the same name: who has one holds its
``flock``, which ends with the process, in whatever container it ran.
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
            # A file system that knows no locks of directories, as NFS, refuses them to all others,
            # too: nobody removes it there.
            if _is_locked(self._held, self.path) is not False:
                return
            # Another process has come in between, and takes it for one that was left.
            os.close(self._held)

    def remove(self) -> None:
        """Removes it with what it holds; links are not followed."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def _remove_left(prefix: str) -> None:
    """Removes this user's directories of a name that nobody holds, where they can be seen."""
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
    """:raises OSError: it is no directory, or none of ours."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_locked(descriptor: int, path: Path) -> bool | None:
    """Whether a directory is locked now, and still there; False: somebody else has it, or it is
    gone; None: the file system has no such locks."""
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
