"""Names and whole files on disk: they are there after a power loss, too."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rmqctl.engine.files.paths import writing_error
from rmqctl.engine.files.unfinished import BESIDE


def sync_directory(directory: Path | str) -> None:
    """Forces the names in a directory to disk. :raises OSError: the disk failed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directories(root: Path, on_disk: dict[str, list[str]] | None = None) -> None:
    """Forces the names of what is below a directory to disk. :raises OSError: the disk failed.

    :param on_disk: of directories, by their paths, the names that are on disk already, which this
        adds to: one that has no others is left out.
    """
    on_disk = {} if on_disk is None else on_disk
    for directory, directories, files in os.walk(root, onerror=_refused):
        names = [*directories, *files]
        if on_disk.get(directory) == names:
            continue
        sync_directory(directory)
        on_disk[directory] = names


def _refused(error: OSError) -> None:
    """``os.walk`` would leave out what it cannot list."""
    raise error


def put_in_place(built: Path, place: Path) -> None:
    """Gives what was built its name, where nothing has it, durably; an empty directory goes.

    :raises OSError: the system refuses. It is called ``built`` still: who is told that it was not
        made can make it again.
    """
    os.rename(built, place)
    try:
        sync_directory(place.parent)
    except BaseException:
        with suppress(OSError):
            os.rename(place, built)
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file, or puts one in the place of another, at once and durably.

    :raises CannotWrite, StoreReadOnly: what the system says.
    """
    beside = path.with_name(path.name + BESIDE)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if os.path.lexists(path):
            os.rename(beside, path)
            sync_directory(path.parent)
        else:
            put_in_place(beside, path)
    except OSError as error:
        # Where it could not be made it cannot be removed, either.
        with suppress(OSError):
            beside.unlink()
        raise writing_error(path, error) from error
