"""Where a backup lies: a directory, a file, or a file behind a URL (fsspec)."""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from rmqctl.engine.files.answers import PATIENCE, answered
from rmqctl.engine.files.durable import put_in_place
from rmqctl.engine.files.paths import local_path, open_for_reading
from rmqctl.engine.files.unfinished import BESIDE
from rmqctl.engine.files.urls import raised_as, without_secrets
from rmqctl.errors import CannotWrite, OutputExists, OutputInUse
from rmqctl.operations.backup.errors import (
    BackupLibraryMissing,
    BackupNotFound,
    BackupUnreachable,
)

T = TypeVar("T")

#: What a backup of one file is called.
ARCHIVE = ".tar.zst"


def is_url(place: str) -> bool:
    """Whether a place is behind a URL; ``file://`` is this machine's."""
    return "://" in place and not place.startswith("file:/")


def local(place: str) -> Path:
    """The path of a place of this machine."""
    return Path(local_path(place))


def shown(place: str) -> str:
    """A place for rows and messages: a URL without user, password and query."""
    if not is_url(place):
        return str(local(place))
    return without_secrets(place)


def missing(package: str, what: str, error: ImportError) -> BackupLibraryMissing:
    """The error that a package is not there, with the command that installs it here."""
    command = f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(package)}"
    reason = f"{error.name or package} is not installed"
    return BackupLibraryMissing(what=what, package=package, reason=reason, command=command)


def told(place: str) -> AbstractContextManager[None]:
    """Inside, whatever a file system behind a URL raises becomes rmqctl's own error.

    :raises BackupUnreachable: in its place.
    """
    return raised_as(BackupUnreachable, place, shown(place))


def _asked(place: str, ask: Callable[[], T]) -> T:
    """What the file system behind a URL answers to a call that moves no data.

    :raises BackupUnreachable: it has raised anything, or has not answered within half a minute.
    """
    with told(place):
        return answered(ask, PATIENCE)


def _filesystem(place: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise missing("fsspec", "a URL", error) from error
    with told(place):
        filesystem, path = url_to_fs(place)
        return filesystem, path


@contextmanager
def opened(place: str) -> Iterator[IO[bytes]]:
    """Opens a backup's file, to be read at any position.

    :raises BackupNotFound: there is no such file.
    :raises CannotRead, BackupUnreachable: the system, or the file system of the URL, refuses.
    """
    if is_url(place):
        filesystem, path = _filesystem(place)
        if not _asked(place, lambda: filesystem.exists(path)):
            raise BackupNotFound(path=shown(place), reason="nothing has that name")
        file = _asked(place, lambda: filesystem.open(path, "rb"))
        with file:
            yield cast(IO[bytes], _Told(file, place))
        return
    where = local(place)
    if not where.is_file():
        reason = "it is a directory" if where.is_dir() else "nothing has that name"
        if where.exists() and not where.is_dir():
            reason = "it is no regular file"
        raise BackupNotFound(path=str(where), reason=reason)
    with os.fdopen(open_for_reading(where), "rb") as opened_file:
        yield opened_file


class _Told:
    """A file behind a URL. Its errors become rmqctl's (:func:`told`)."""

    def __init__(self, file: Any, place: str) -> None:
        self._file, self._place = file, place

    def read(self, size: int = -1) -> bytes:
        with told(self._place):
            return cast(bytes, self._file.read(size))

    def readline(self, size: int = -1) -> bytes:
        with told(self._place):
            return cast(bytes, self._file.readline(size))

    def write(self, data: bytes) -> int:
        with told(self._place):
            return cast(int, self._file.write(data))

    def seek(self, position: int, whence: int = 0) -> int:
        with told(self._place):
            return cast(int, self._file.seek(position, whence))

    def flush(self) -> None:
        """Does nothing: pieces are sent when they are full, and the last one at the close."""


@contextmanager
def created(place: str) -> Iterator[IO[bytes]]:
    """Makes the file of a new backup. If this raises, no file has its name.

    On this machine the file is written beside its place, and renamed when it is whole and on disk.
    The next run overwrites what a kill has left there. Behind a URL, what a kill leaves depends on
    the file system.

    :raises OutputExists: something has its name. :raises OutputInUse: another process writes it.
    :raises CannotWrite, BackupUnreachable: the disk is full, or the system refuses.
    """
    if is_url(place):
        yield from _created_behind_url(place)
        return
    target = local(place).absolute()
    building = target.with_name(target.name + BESIDE)
    if os.path.lexists(target):
        raise OutputExists(path=str(target))
    try:
        descriptor = os.open(
            building, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
        with os.fdopen(descriptor, "wb") as file:
            _lock(descriptor, building, target)
            file.truncate()
            try:
                yield file
                file.flush()
                os.fsync(descriptor)
                if os.path.lexists(target):
                    raise OutputExists(path=str(target))
                put_in_place(building, target)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(building)
                raise
    except OSError as error:
        raise CannotWrite(path=str(target), reason=str(error.strerror or error)) from error


def _lock(descriptor: int, building: Path, target: Path) -> None:
    """:raises OutputInUse: another process writes the file, or has just renamed it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputInUse(path=str(target)) from None
    except OSError:
        return  # Network file systems may not lock.
    if not building.exists() or not os.path.samestat(os.stat(building), os.fstat(descriptor)):
        raise OutputInUse(path=str(target))


def _created_behind_url(place: str) -> Iterator[IO[bytes]]:
    filesystem, path = _filesystem(place)
    if _asked(place, lambda: filesystem.exists(path)):
        raise OutputExists(path=shown(place))
    file = _asked(place, lambda: filesystem.open(path, "wb"))
    try:
        yield cast(IO[bytes], _Told(file, place))
    except BaseException:
        with suppress(Exception):  # The error that is told is the first one.
            file.close()
            filesystem.rm_file(path)
        raise
    with told(place):
        file.close()
