"""``lock``: the POSIX record lock that a broker and rmqctl's writers share.

Java takes ``FileChannel.tryLock(0, 1, false)`` on the store's ``lock`` file and writes the text
``lock`` into it (``DefaultMessageStore#start``). The kernel drops the lock with the process, so a
stale file never blocks.

A POSIX lock excludes other processes only; a table of the locks that this process holds excludes
its other threads. The kernel drops the lock when *any* descriptor of the file is closed, so the
file of a held lock is never opened again. A forked child inherits descriptors and table but not the
lock: it clears both.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct

from rmqctl.engine.files.paths import LOCK
from rmqctl.engine.files.unfinished import check_not_amid_repair
from rmqctl.engine.files.writing import open_for_writing, writing_error
from rmqctl.errors import StoreInUse

#: Device and inode: one file, whatever its names are.
Identity = tuple[int, int]

#: ``struct flock`` of a 64-bit Linux: type, whence, start, length, process.
_FLOCK = Struct("hhqqi4x")
#: Reentrant: the garbage collector may close a forgotten store while another one is opened.
_mutex = threading.RLock()
#: Every lock that this process holds, under two keys: its root directory, and its ``lock`` file.
_held: dict[Identity, StoreLock] = {}


class StoreLock:
    """The store's lock, held from construction to :meth:`release`."""

    def __init__(self, root: Path, forked: Callable[[], None] | None = None) -> None:
        """Takes the lock, or raises.

        :param forked: a method that is called in every forked child, which does not hold the lock.
            The lock keeps only a weak reference to its object.
        :raises StoreInUse: another process or thread holds it; at most an empty ``lock`` was made.
        """
        self._forked = None if forked is None else weakref.WeakMethod(forked)
        self._descriptors: list[int] = []
        try:
            with _mutex:
                # The root too: if somebody has removed ``lock``, a second writer would do as much
                # harm.
                for path in (root, root / LOCK):
                    _refuse_held(root, _identity(path))
                self._take(root)
        except BaseException:
            self.release()
            raise

    def _take(self, root: Path) -> None:
        descriptor = open_for_writing(root, root / LOCK, create=True)
        status = os.fstat(descriptor)
        identity = status.st_dev, status.st_ino
        holder = _held.get(identity)
        # If this is the file of a held lock after all, closing it would drop that lock, so it is
        # closed together with that one.
        (self if holder is None else holder)._descriptors.append(descriptor)
        _refuse_held(root, identity)
        try:
            # Held open, so that the inode number is not given to another directory meanwhile.
            self._descriptors.append(os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            root_status = os.fstat(self._descriptors[-1])
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise writing_error(root / LOCK, error) from error
            raise StoreInUse(path=str(root), holder=_name(_asked(descriptor))) from error
        _held[identity] = _held[root_status.st_dev, root_status.st_ino] = self
        if status.st_size < len(b"lock"):
            # Nothing reads the text, so on a full disk the lock is as good without it.
            with suppress(OSError):
                os.pwrite(descriptor, b"lock", 0)

    def release(self) -> None:
        """Gives the lock back. A second call, or one in a forked child, does nothing."""
        with _mutex:
            for identity in [key for key, holder in _held.items() if holder is self]:
                del _held[identity]
            while self._descriptors:
                os.close(self._descriptors.pop())

    def forget(self) -> None:
        """Gives up a lock in a forked child, where it is the parent's. The descriptors are closed
        at once: closed later, they would drop a lock that the child itself may take by then."""
        self.release()
        forked = None if self._forked is None else self._forked()
        if forked is not None:
            forked()


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Holds the lock of a store that is changed without being opened for writing.

    :raises RepairUnfinished: a repair of the store was cut off. This is asked again when the lock
        is held: a repair may have begun in between, and was killed.
    :raises StoreInUse: as of :class:`StoreLock`.
    """
    check_not_amid_repair(root)
    lock = StoreLock(root)
    try:
        check_not_amid_repair(root)
        yield
    finally:
        lock.release()


def _identity(path: Path) -> Identity | None:
    """Device and inode of a path; None when ``stat`` fails: opening it will say why."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _refuse_held(root: Path, identity: Identity | None) -> None:
    """:raises StoreInUse: this process holds the lock that ``identity`` stands for."""
    if identity is not None and identity in _held:
        raise StoreInUse(path=str(root), holder="this process")


def _forget_in_child() -> None:
    try:
        for lock in set(_held.values()):
            lock.forget()
    finally:
        _mutex.release()


# The fork waits until no thread is taking or releasing a lock.
os.register_at_fork(
    before=_mutex.acquire, after_in_parent=_mutex.release, after_in_child=_forget_in_child
)


def is_locked(root: Path) -> bool:
    """Whether another process holds the lock now, also one in another container. Changes nothing.

    False for a lock that this process holds: its file is not opened, since closing it would drop
    the lock.
    """
    return holder_of_lock(root) is not None


def check_not_in_use(root: Path) -> None:
    """:raises StoreInUse: another process holds the lock now. The lock is not taken."""
    holder = holder_of_lock(root)
    if holder is not None:
        raise StoreInUse(path=str(root), holder=holder)


def holder_of_lock(root: Path) -> str | None:
    """The other process that holds the lock, as ``process 4711 (java)``; None: there is none, as
    for :func:`is_locked`."""
    try:
        with _mutex:
            status = os.stat(root / LOCK)
            if (status.st_dev, status.st_ino) in _held or not stat.S_ISREG(status.st_mode):
                return None
            descriptor = os.open(root / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                process = _asked(descriptor)
            finally:
                os.close(descriptor)
    except OSError:
        return None
    return None if process is None else _name(process)


def _asked(descriptor: int) -> int | None:
    """The number of the process that holds the lock of an open ``lock``; None: nobody does. Not
    above 0: one of another container or machine, which has no number here.

    ``F_GETLK`` is asked, because ``/proc/locks`` does not list the locks of other containers and
    machines.

    :raises OSError: the file system has no locks.
    """
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, *_, process = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else int(process)


def _name(process: int | None) -> str:
    """A process as users know it: its number, and its name where the system tells it. ``None`` is
    a holder that has just ended."""
    if process is None or process <= 0:
        return "another process"
    try:
        name = Path(f"/proc/{process}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        name = ""
    return f"process {process} ({name})" if name.isprintable() and name else f"process {process}"
