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
        """:raises OSError: none can be made, or locked."""
        _remove_left(prefix)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix))
            held = _held(self.path)
            if held is not None:
                self._held = held
                return
            # Another process has come in between, and takes it for one that was left.

    def remove(self) -> None:
        """Removes it with what it holds; links are not followed."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def _remove_left(prefix: str) -> None:
    """Removes this user's directories of a name that nobody holds."""
    with os.scandir(tempfile.gettempdir()) as entries:
        left = [Path(one.path) for one in entries if one.name.startswith(prefix)]
    for path in left:
        held = _held(path)
        if held is None:
            continue
        if os.fstat(held).st_uid == os.geteuid():
            shutil.rmtree(path, ignore_errors=True)
        os.close(held)


def _held(path: Path) -> int | None:
    """The descriptor that holds a directory; None: somebody else does, or it is none of ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_there = os.path.samestat(os.stat(path), os.fstat(descriptor))
    except (BlockingIOError, FileNotFoundError):
        is_there = False
    if is_there:
        return descriptor
    os.close(descriptor)
    return None
