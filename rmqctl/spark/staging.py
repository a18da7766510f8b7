"""New directories that appear whole: built beside their place, renamed at the end.

A failure or Ctrl-C removes what was built; what a killed run left beside the place is removed by
the next one.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqctl.errors import CannotWrite, OutputExists, RmqctlError

#: What a directory is called while it is built, behind its name.
BESIDE = ".rmqctl-new"
#: Directories that were given up, and what they would have been.
_abandoned: list[tuple[Path, Path]] = []


class NotShared(RmqctlError):
    """What a task writes on such a node would be nowhere."""

    template = (
        "a worker of Spark does not see {path}. Write to a place that every node sees under the "
        "same path."
    )


class OutputInUse(RmqctlError):
    template = "another rmqctl is writing {path}. Wait for it, or give another place."
    exit_code = 4


def is_remote(path: str) -> bool:
    """Whether a path names another file system than the machine's."""
    return re.match(r"[a-z][a-z0-9+.-]*://", path) is not None and not path.startswith("file://")


@contextmanager
def in_new_directory(path: str) -> Iterator[str]:
    """Where to build what shall be ``path``. Elsewhere (``s3://``) that is the place itself, and
    Spark's own commit must do.

    :raises OutputExists: ``path`` is a file, or a directory that holds something.
    :raises OutputInUse: another process builds there.
    """
    if is_remote(path):
        yield path
        return
    place = Path(path.removeprefix("file://")).absolute()
    if place.is_symlink() or (place.exists() and (not place.is_dir() or any(place.iterdir()))):
        raise OutputExists(path=str(place))
    building = place.with_name(place.name + BESIDE)
    lock = -1
    try:
        lock = made_anew(building, place)
        try:
            yield str(building)
            if place.exists():
                place.rmdir()
            building.rename(place)
        except BaseException:
            _abandoned.append((building, place))
            raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise CannotWrite(path=str(place), reason=str(error.strerror or error)) from error
    finally:
        if lock >= 0:
            os.close(lock)


def remove_abandoned() -> None:
    """Removes what tasks wrote to a new directory after it was given up and removed: Ctrl-C ends
    this side of a query, and Java's goes on until the session ends. Call it then."""
    while _abandoned:
        building, place = _abandoned.pop()
        if not building.is_dir():
            continue
        try:
            lock = made_anew(building, place)
        except (OutputInUse, OSError):
            continue  # Somebody builds there anew, or nobody may.
        building.rmdir()
        os.close(lock)


def made_anew(building: Path, place: Path) -> int:
    """Makes an empty directory in place of what a killed run has left; a descriptor with its lock.

    :raises OutputInUse: whoever made it is alive.
    """
    building.mkdir(parents=True, exist_ok=True)
    lock = os.open(building, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise OutputInUse(path=str(place)) from None
    except OSError:
        pass  # Network file systems may not lock directories.
    for entry in os.scandir(building):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    return lock
