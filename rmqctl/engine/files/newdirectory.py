"""New directories that appear whole: built beside their place, and renamed at the end.

A failure or Ctrl-C removes what was built. What a killed run has left is removed by the next run,
or with ``is_kept`` completed by it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqctl.engine.files.durable import put_in_place
from rmqctl.engine.files.owner import make_directories
from rmqctl.engine.files.unfinished import BESIDE
from rmqctl.errors import CannotWrite, NoDirectoryToWriteTo, OutputExists, OutputInUse


@contextmanager
def new_directory(path: Path, *, is_kept: bool = False) -> Iterator[Path]:
    """Yields the directory in which to build what shall be ``path``; it is renamed at the end.

    :param is_kept: an incomplete directory stays, and the next run finds it.
    :raises OutputExists: ``path`` is a file, or a directory that holds something.
    :raises OutputInUse: another process builds there.
    :raises CannotWrite: the disk is full, or the path takes no other directory's place. It names
        ``path``, also where a file of what is built could not be written: that has gone since.
    :raises PlacedInDoubt: ``path`` is there, and a loss of power may take it away.
    :raises NoDirectoryToWriteTo: as in :func:`made_anew`.
    :raises OSError: the system refused something else, which the error names: what is copied.
    """
    place = free_place(path)
    building = place.with_name(place.name + BESIDE)
    lock = -1
    try:
        lock = made_anew(building, place, is_kept=is_kept)
        try:
            yield building
            put_in_place(building, place)
        finally:
            if not is_kept:
                shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        if _is_elsewhere(error, building, place):
            raise
        # Libraries have words of their own, which no step is known for.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise _cannot_build(reason, building, place, is_kept) from error
    except CannotWrite as error:
        is_inside = Path(str(error.path)).is_relative_to(building)
        if type(error) is not CannotWrite or not is_inside:
            raise
        raise _cannot_build(str(error.reason), building, place, is_kept) from error
    finally:
        if lock >= 0:
            os.close(lock)


def _is_elsewhere(error: OSError, building: Path, place: Path) -> bool:
    """Whether an error names a path that is neither part of what is built, nor above it."""
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return False
    named = Path(os.fsdecode(error.filename)).absolute()
    is_inside = named.is_relative_to(building) or named.is_relative_to(place)
    return not is_inside and named not in building.parents


def _cannot_build(reason: str, building: Path, place: Path, is_kept: bool) -> CannotWrite:
    if is_kept and building.is_dir():
        reason += f"; what is written stays in {building}, and the same command continues it"
    return CannotWrite(path=str(place), reason=reason)


def free_place(path: Path) -> Path:
    """``path``, made absolute, when a new directory can take its place.

    :raises OutputExists, CannotWrite: as in :func:`new_directory`.
    """
    place = path.absolute()
    if place.is_symlink() or (place.exists() and (not place.is_dir() or any(place.iterdir()))):
        raise OutputExists(path=str(place))
    if os.path.ismount(place):
        reason = "it is a mount point, whose place nothing can take: name a directory below it"
        raise CannotWrite(path=str(place), reason=reason)
    return place


def made_anew(building: Path, place: Path, *, is_kept: bool = False) -> int:
    """Makes the directory ``building``, locks it, and empties it of what a killed run has left.

    :param place: what an error names. :param is_kept: do not empty it.
    :returns: a descriptor that holds the lock.
    :raises OutputInUse: another process holds the lock.
    :raises NoDirectoryToWriteTo: something else has the name of ``building``.
    """
    if building.is_symlink() or (building.exists() and not building.is_dir()):
        raise NoDirectoryToWriteTo(path=str(building))
    make_directories(building)
    lock = os.open(building, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    lock_directory(lock, place)
    try:
        for entry in () if is_kept else os.scandir(building):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
    except BaseException:
        os.close(lock)
        raise
    return lock


def lock_directory(descriptor: int, place: Path) -> None:
    """Locks an open directory, until its descriptor is closed.

    :param place: what an error names.
    :raises OutputInUse: another process holds the lock. After any error, and an interrupt, the
        descriptor is closed.
    """
    try:
        with suppress(OSError):  # Network file systems may not lock directories.
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputInUse(path=str(place)) from None
    except BaseException:
        os.close(descriptor)
        raise
