"""How a writer opens, makes and removes the files of a store.

Every path is opened component by component below the store's root, and no symbolic link is
followed. What root makes belongs to the owner of the directory that it is in
(:mod:`~rmqctl.engine.files.owner`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path

from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.owner import hand_over
from rmqctl.engine.files.paths import NOT_REGULAR
from rmqctl.errors import (
    CannotWrite,
    NoDirectoryToWriteTo,
    NoFileToWrite,
    StoreReadOnly,
    SymbolicLinkRefused,
)


def open_for_writing(root: Path, path: Path, *, create: bool = False) -> int:
    """Opens ``path`` (below ``root``) read-write without following a link below ``root``.

    With ``create`` missing directories and an empty file are made.

    :raises SymbolicLinkRefused: a component is a link. :raises NoFileToWrite: something else than a
        regular file stands there. :raises StoreReadOnly: no right to write. :raises CannotWrite:
        any other error of the system.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with parent_directory(root, path, create) as directory:
        made = False
        try:
            descriptor = os.open(path.name, flags, dir_fd=directory)
        except FileNotFoundError:
            if not create:
                raise
            descriptor = os.open(path.name, flags | os.O_CREAT, 0o644, dir_fd=directory)
            made = True
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise NoFileToWrite(path=str(path), reason=NOT_REGULAR)
            if made:
                hand_over(descriptor, directory)
                os.fsync(directory)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


class Forced(IntEnum):
    """What of a new file is forced to disk when it is made; the caller syncs the rest."""

    NOTHING = 0
    #: Its bytes, before it gets its name; not the name, nor the names of new directories above it.
    FILE = 1
    ALL = 2


def create_file(
    root: Path, path: Path, size: int, head: bytes = b"", forced: Forced = Forced.ALL
) -> int:
    """Makes a sparse file of ``size`` bytes, ``head`` and zeros, and opens it read-write.

    The file gets its name when it has its length, so a kill leaves a whole file or none: a broker
    does not start on a short one. Errors as in :func:`open_for_writing`; nothing is left then.
    """
    with parent_directory(root, path, True, forced) as directory:
        descriptor = _open_unnamed(directory)
        named = descriptor < 0
        if named:
            # A file system without unnamed files: the length follows the name at once.
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path.name, flags, 0o644, dir_fd=directory)
        try:
            hand_over(descriptor, directory)
            os.ftruncate(descriptor, size)
            write_at(descriptor, head, 0)
            if not named:
                _name(descriptor, path.name, directory, forced)
            elif forced >= Forced.FILE:
                os.fsync(descriptor)
                if forced >= Forced.ALL:
                    os.fsync(directory)
        except BaseException:
            os.close(descriptor)
            if named:
                with suppress(OSError):
                    os.unlink(path.name, dir_fd=directory)
            raise
        return descriptor


def create_unnamed(root: Path, path: Path, size: int, forced: Forced = Forced.ALL) -> int:
    """Makes a sparse file of ``size`` bytes that has no name before :func:`name_file` gives it
    ``path``. A kill until then leaves nothing of it.

    :returns: a descriptor; -1 where the file system has no unnamed files (``O_TMPFILE``).
    Errors as in :func:`open_for_writing`.
    """
    with parent_directory(root, path, True, forced) as directory:
        descriptor = _open_unnamed(directory)
        if descriptor >= 0:
            try:
                hand_over(descriptor, directory)
                os.ftruncate(descriptor, size)
            except BaseException:
                os.close(descriptor)
                raise
        return descriptor


def name_file(root: Path, path: Path, descriptor: int, forced: Forced = Forced.ALL) -> None:
    """Gives a file of :func:`create_unnamed` its name. After an error it has none. Errors as in
    :func:`open_for_writing`."""
    with parent_directory(root, path, True, forced) as directory:
        _name(descriptor, path.name, directory, forced)


def _open_unnamed(directory: int) -> int:
    """A new file without a name; -1 where the file system has no such files."""
    try:
        return os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644, dir_fd=directory)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
        return -1


def _name(descriptor: int, name: str, directory: int, forced: Forced) -> None:
    """Links an unnamed file into a directory; after an error, or an interrupt, the name is gone
    again."""
    if forced >= Forced.FILE:
        os.fsync(descriptor)
    try:
        os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=directory)
        if forced >= Forced.ALL:
            os.fsync(directory)
    except BaseException:
        # Without a link the name, if there is one, is another file's.
        with suppress(OSError):
            if os.fstat(descriptor).st_nlink:
                os.unlink(name, dir_fd=directory)
        raise


def remove_file(root: Path, path: Path) -> None:
    """Removes ``path`` (below ``root``) durably, without following a link below ``root``.

    Does nothing when there is no such file. Errors as in :func:`open_for_writing`.
    """
    with parent_directory(root, path, False) as directory:
        try:
            status = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        os.unlink(path.name, dir_fd=directory)
        os.fsync(directory)


@contextmanager
def parent_directory(
    root: Path, path: Path, create: bool, forced: Forced = Forced.ALL
) -> Iterator[int]:
    """Yields a descriptor of the directory that holds ``path``, opened without following a link
    below ``root``. System errors inside the ``with`` become rmqctl's (:func:`writing_error`).

    :param create: make missing directories. :param forced: what of their names is forced to disk.
    """
    directory, place = -1, root
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in path.relative_to(root).parts[:-1]:
            place /= part
            # In this order, so that an interrupt in ``close`` does not lead to a second one: the
            # number may belong to another thread's file by then.
            above, directory = directory, _open_directory(directory, place, create, forced)
            os.close(above)
        yield directory
    except OSError as error:
        raise writing_error(path, error) from error
    finally:
        if directory >= 0:
            os.close(directory)


def _open_directory(parent: int, place: Path, create: bool, forced: Forced) -> int:
    name = place.name
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
    except NotADirectoryError as error:
        # Linux says ENOTDIR of a link that must be a directory.
        refused = SymbolicLinkRefused if place.is_symlink() else NoDirectoryToWriteTo
        raise refused(path=str(place)) from error
    os.mkdir(name, 0o755, dir_fd=parent)
    if forced >= Forced.ALL:
        os.fsync(parent)
    made = os.open(name, flags, dir_fd=parent)
    hand_over(made, parent)
    return made


def writing_error(path: Path | str, error: OSError) -> Exception:
    """The error to raise for a system error of a write."""
    if error.errno == errno.EISDIR:
        return NoFileToWrite(path=str(path), reason=NOT_REGULAR)
    if error.errno == errno.ELOOP:
        return SymbolicLinkRefused(path=str(path))
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnly(path=str(path), reason=error.strerror)
    return CannotWrite(path=str(path), reason=error.strerror)
