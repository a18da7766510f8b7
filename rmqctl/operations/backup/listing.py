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

#: The unit of ``st_blocks``, whatever the file system's own blocks are.
BLOCK_BYTES = 512


class SourceFile(NamedTuple):
    """A file of a store: its path in the store, with slashes, and where it lies."""

    path: str
    # No Path: a store of 100,000 queues has as many of these, and a Path takes half a kilobyte.
    where: str

    @property
    def place(self) -> Path:
        return Path(self.where)


class Found(NamedTuple):
    """A file whose content is to be copied. The caller closes ``content``. ``allocated_bytes`` is
    the space that the file takes on disk."""

    path: str
    content: Content
    mode: int
    modified_timestamp: int
    allocated_bytes: int


class State(NamedTuple):
    """What changes when a file is written or replaced (``modified``: ns), and the space that it
    takes on disk."""

    size: int
    modified: int
    inode: int
    allocated_bytes: int


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
        return (file for file, _ in self.states(below))

    def states(self, below: str | None = None) -> Iterator[tuple[SourceFile, State]]:
        """The files as of :meth:`files`, each with its state when it was listed."""
        own = self.root / paths.COMMIT_LOG
        for path, where in self._walked(self.root if below is None else self.root / below):
            if own not in self._log and path.startswith(paths.COMMIT_LOG + "/"):
                self.left_out.add(path)
            elif path != paths.LOCK and (state := self._state(path, where)) is not None:
                yield SourceFile(path, where), state
        if below in (None, paths.COMMIT_LOG):
            yield from self._elsewhere(own)

    def _elsewhere(self, own: Path) -> Iterator[tuple[SourceFile, State]]:
        """The files in the other directories of the log. Of files with the same name the first one
        is listed."""
        taken = set(paths.scan_names(own)) if own in self._log else set()
        for directory in (one for one in self._log if one != own):
            for name in paths.scan_names(directory):
                path, where = f"{paths.COMMIT_LOG}/{name}", f"{directory}/{name}"
                if name in taken:
                    self.left_out.add(where)
                elif (state := self._state(path, where)) is not None:
                    taken.add(name)
                    yield SourceFile(path, where), state

    def newest_first(self, below: str) -> list[SourceFile]:
        """The files below a directory of the store, grouped by directory, the newest first in each.
        So the copy has no gap if the oldest files are deleted meanwhile."""
        files = sorted(
            self.files(below), key=lambda file: file.path.rpartition("/")[2], reverse=True
        )
        return sorted(files, key=lambda file: file.path.rpartition("/")[0])

    def allocated_bytes(self) -> int:
        """The space that all files take on disk: about how many bytes there are to be read."""
        return sum(state.allocated_bytes for _, state in self.states())

    def _walked(self, start: Path) -> Iterator[tuple[str, str]]:
        """The path of each file below a directory, and where the file lies."""
        seen = {_identity(place) for place in (self.root, start) if place.is_dir()}
        for directory, names, files in os.walk(start, followlinks=True, onerror=_refused):
            kept = []
            for name in sorted(names):
                identity = _identity(f"{directory}/{name}")
                if identity is not None and identity not in seen:
                    seen.add(identity)
                    kept.append(name)
            names[:] = kept
            relative = Path(directory).relative_to(self.root).as_posix()
            before = "" if relative == "." else f"{relative}/"
            if not files and not kept and before:
                self.empty.add(relative)
            for name in sorted(files):
                yield before + name, f"{directory}/{name}"

    def _state(self, path: str, where: str) -> State | None:
        """The state of a file that is copied; None: it is left out, or has gone."""
        status = None
        try:
            status = os.stat(where)
        except FileNotFoundError:
            if not os.path.islink(where):
                return None  # It has gone since it was listed.
        except OSError as error:
            raise CannotRead(path=where, reason=error.strerror) from error
        is_file = status is not None and stat.S_ISREG(status.st_mode)
        if status is None or not is_file or status.st_size > MOST_SIZE or not is_sound_path(path):
            self.left_out.add(path)
            return None
        return State(
            status.st_size, status.st_mtime_ns, status.st_ino, status.st_blocks * BLOCK_BYTES
        )


def _identity(directory: str | Path) -> tuple[int, int] | None:
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
    allocated = status.st_blocks * BLOCK_BYTES
    return Found(file.path, content, stat.S_IMODE(status.st_mode) & 0o777, modified, allocated)
