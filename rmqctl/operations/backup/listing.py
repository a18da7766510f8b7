"""Lists the files of a store, wherever they lie, and opens them to be copied."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotRead
from rmqctl.operations.backup.content import Content
from rmqctl.operations.backup.manifest import MOST_SIZE, is_sound_path


class SourceFile(NamedTuple):
    """A file of a store: its path in the store, with slashes, and the place where it lies."""

    path: str
    place: Path


class Found(NamedTuple):
    """A file whose content is to be copied. The caller closes ``content``."""

    path: str
    content: Content
    mode: int
    modified_timestamp: int


#: Gives the content of a file that is copied: all of it or its beginning; None: nothing.
Opener = Callable[[MappedFile], Content | None]


class Listing:
    """The files of a store. Files of a log with several directories are listed in ``commitlog/``.
    Links to directories are followed, each directory once.

    Listing also fills two sets. ``left_out`` has the paths of what is no plain file, is longer than
    any file of a store, or has a name that another one has already. ``empty`` has the directories
    without files.
    """

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        """:raises StoreNotFound, NotAStore, AmbiguousLog: there is no store, or no one log."""
        paths.check_store(root)
        self.root = root
        directories = log_directories(root, config)
        # The log of a DLedger group is in the member's directory, also where it is restored.
        self._log = tuple(one for one in directories.all if one != directories.dledger)
        self.left_out: set[str] = set()
        self.empty: set[str] = set()

    def files(self, below: str | None = None) -> Iterator[SourceFile]:
        """The files in a directory of the store, or in all of it. ``lock`` is left out: it belongs
        to a process and not to the data."""
        return (file for file, _ in self._listed(below))

    def _listed(self, below: str | None = None) -> Iterator[tuple[SourceFile, os.stat_result]]:
        """The files, each with its status when it was listed."""
        own = self.root / paths.COMMIT_LOG
        for path, place in self._walked(self.root if below is None else self.root / below):
            if own not in self._log and path.startswith(paths.COMMIT_LOG + "/"):
                self.left_out.add(path)
            elif path != paths.LOCK and (status := self._status(path, place)) is not None:
                yield SourceFile(path, place), status
        if below in (None, paths.COMMIT_LOG):
            yield from self._elsewhere(own)

    def _elsewhere(self, own: Path) -> Iterator[tuple[SourceFile, os.stat_result]]:
        """The files in the other directories of the log. Of files with the same name the first one
        is listed."""
        taken = set(paths.scan_names(own)) if own in self._log else set()
        for directory in (one for one in self._log if one != own):
            for name in paths.scan_names(directory):
                path = f"{paths.COMMIT_LOG}/{name}"
                if name in taken:
                    self.left_out.add(str(directory / name))
                elif (status := self._status(path, directory / name)) is not None:
                    taken.add(name)
                    yield SourceFile(path, directory / name), status

    def newest_first(self, below: str) -> list[SourceFile]:
        """The files below a directory of the store, grouped by directory, the newest first in each.
        So the copy has no gap if the oldest files are deleted meanwhile."""
        files = sorted(self.files(below), key=lambda file: file.place.name, reverse=True)
        return sorted(files, key=lambda file: file.path.rpartition("/")[0])

    def state(self) -> dict[SourceFile, tuple[int, int, int]]:
        """Each file, with its size, modification time (ns) and inode."""
        return {
            file: (status.st_size, status.st_mtime_ns, status.st_ino)
            for file, status in self._listed()
        }

    def data_bytes(self) -> int:
        """About how many bytes there are to be read: those that take space on disk."""
        return sum(status.st_blocks * 512 for _, status in self._listed())

    def _walked(self, start: Path) -> Iterator[tuple[str, Path]]:
        seen = {_identity(place) for place in (self.root, start) if place.is_dir()}
        for directory, names, files in os.walk(start, followlinks=True, onerror=_refused):
            where, kept = Path(directory), []
            for name in sorted(names):
                identity = _identity(where / name)
                if identity is not None and identity not in seen:
                    seen.add(identity)
                    kept.append(name)
            names[:] = kept
            relative = where.relative_to(self.root)
            if not files and not kept and where != self.root:
                self.empty.add(relative.as_posix())
            for name in sorted(files):
                yield (relative / name).as_posix(), where / name

    def _status(self, path: str, place: Path) -> os.stat_result | None:
        """The status of a file that is copied; None: it is left out, or has gone."""
        status = None
        try:
            status = place.stat()
        except FileNotFoundError:
            if not place.is_symlink():
                return None  # It has gone since it was listed.
        except OSError as error:
            raise CannotRead(path=str(place), reason=error.strerror) from error
        is_file = status is not None and stat.S_ISREG(status.st_mode)
        if status is None or not is_file or status.st_size > MOST_SIZE or not is_sound_path(path):
            self.left_out.add(path)
            return None
        return status


def _identity(directory: Path) -> tuple[int, int] | None:
    """Device and inode of a directory; None: it has gone."""
    try:
        status = os.stat(directory)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _refused(error: OSError) -> None:
    """Passes over a directory that a broker has removed meanwhile. :raises CannotRead: a directory
    may not be read."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise CannotRead(path=str(error.filename), reason=error.strerror) from error


def found(file: SourceFile, opener: Opener = Content) -> Found | None:
    """Opens a file. None: it has gone, or nothing of it is wanted.

    :raises CannotRead: the system refuses.
    """
    try:
        mapped = MappedFile.open(file.place)
    except CannotRead:
        if os.path.lexists(file.place):
            raise
        return None
    status = os.fstat(mapped.descriptor)
    try:
        content = opener(mapped)
    except BaseException:
        mapped.close()
        raise
    if content is None:
        mapped.close()
        return None
    modified = max(status.st_mtime_ns // 1_000_000, 0)
    return Found(file.path, content, stat.S_IMODE(status.st_mode) & 0o777, modified)
