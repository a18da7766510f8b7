"""Where Spark's results go: to a new directory that appears whole, or to another file system."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.engine.files.newdirectory import made_anew, new_directory
from rmqctl.engine.files.unfinished import BESIDE
from rmqctl.errors import OutputInUse, RmqctlError

__all__ = [
    "BESIDE",
    "NotShared",
    "OutputInUse",
    "in_new_directory",
    "is_remote",
    "made_anew",
    "noted_if_given_up",
    "remove_abandoned",
]

#: New directories that were given up.
_abandoned: list[Path] = []


class NotShared(RmqctlError):
    """What a task writes on such a node would be nowhere."""

    template = (
        "a worker of Spark does not see {path}. Write to a place that every node sees under the "
        "same path."
    )


def is_remote(path: str) -> bool:
    """Whether a path names another file system than the machine's."""
    return re.match(r"[a-z][a-z0-9+.-]*://", path) is not None and not path.startswith("file://")


@contextmanager
def in_new_directory(path: str) -> Iterator[str]:
    """Where to build what shall be ``path``. Elsewhere (``s3://``) that is the place itself, and
    Spark's own commit must do. Errors as of
    :func:`~rmqctl.engine.files.newdirectory.new_directory`."""
    if is_remote(path):
        yield path
        return
    with (
        new_directory(Path(paths.local_path(path))) as building,
        noted_if_given_up(building),
    ):
        yield str(building)


@contextmanager
def noted_if_given_up(building: Path) -> Iterator[None]:
    """Around what tasks write to the place that
    :func:`~rmqctl.engine.files.newdirectory.new_directory` lends: after an error, or Ctrl-C,
    :func:`remove_abandoned` knows of it."""
    try:
        yield
    except BaseException:
        _abandoned.append(building)
        raise


def remove_abandoned() -> None:
    """Removes what tasks wrote to a new directory after it was given up and removed: Ctrl-C ends
    this side of a query, and Java's goes on until the session ends. Call it then."""
    while _abandoned:
        building = _abandoned.pop()
        if not building.is_dir():
            continue
        try:
            lock = made_anew(building, building)
        except (OutputInUse, OSError):
            continue  # Somebody builds there anew, or nobody may.
        building.rmdir()
        os.close(lock)
