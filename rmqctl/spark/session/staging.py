"""Where Spark writes results: into a new directory that appears complete, or to another file
system."""

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

#: New directories that were abandoned.
_abandoned: list[Path] = []


class NotShared(RmqctlError):
    """A node does not see a directory that all nodes must share: what its tasks write would be
    lost."""

    template = (
        "a worker of Spark does not see {path}. Write to a place that every node sees under the "
        "same path."
    )


def is_remote(path: str) -> bool:
    """Whether a path is in another file system than this machine's, such as ``s3://``."""
    return re.match(r"[a-z][a-z0-9+.-]*://", path) is not None and not path.startswith("file://")


@contextmanager
def in_new_directory(path: str) -> Iterator[str]:
    """The directory in which to build ``path``. In another file system (``s3://``) it is ``path``
    itself, and only Spark's own commit protects it. Raises what
    :func:`~rmqctl.engine.files.newdirectory.new_directory` raises."""
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
    """A context for tasks that write to the directory of
    :func:`~rmqctl.engine.files.newdirectory.new_directory`. After an error, or Ctrl-C, it notes the
    directory for :func:`remove_abandoned`."""
    try:
        yield
    except BaseException:
        _abandoned.append(building)
        raise


def remove_abandoned() -> None:
    """Removes what tasks have written to a new directory after it was abandoned and removed. Ctrl-C
    ends only this side of a query; Java goes on until the session ends. Call this after that."""
    while _abandoned:
        building = _abandoned.pop()
        if not building.is_dir():
            continue
        try:
            lock = made_anew(building, building)
        except (OutputInUse, OSError):
            continue  # Another process builds there now, or it cannot be removed.
        building.rmdir()
        os.close(lock)
