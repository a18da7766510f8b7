"""New directories that appear whole: built beside their place, renamed at the end.

A failure or Ctrl-C removes what was built; what a killed run left beside the place is removed by
the next one.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqctl.errors import CannotWrite, OutputExists

_BESIDE = ".rmqctl-new"


def is_remote(path: str) -> bool:
    """Whether a path names another file system than the machine's."""
    return re.match(r"[a-z][a-z0-9+.-]*://", path) is not None and not path.startswith("file://")


@contextmanager
def in_new_directory(path: str) -> Iterator[str]:
    """Where to build what shall be ``path``. Elsewhere (``s3://``) that is the place itself, and
    Spark's own commit must do.

    :raises OutputExists: ``path`` is a file, or a directory that holds something.
    """
    if is_remote(path):
        yield path
        return
    place = Path(path.removeprefix("file://")).absolute()
    if place.is_symlink() or (place.exists() and (not place.is_dir() or any(place.iterdir()))):
        raise OutputExists(path=str(place))
    building = place.with_name(place.name + _BESIDE)
    try:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        yield str(building)
        if place.exists():
            place.rmdir()
        building.rename(place)
    except OSError as error:
        raise CannotWrite(path=str(place), reason=str(error.strerror or error)) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
