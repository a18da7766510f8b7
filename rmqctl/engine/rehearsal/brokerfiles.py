"""``MappedFileQueue`` in a played start: files with a write position, loaded, cut and deleted.

Nothing is opened for writing. Appended units are kept as runs: only their number and the first and
last unit, however many there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from formats.text import java_long
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.paths import open_listed
from rmqctl.engine.files.shown import shown
from rmqctl.engine.rehearsal.model import Deleted, StartFails
from rmqctl.errors import CannotRead


class Run(NamedTuple):
    """``units`` units that were appended from number ``start`` in a file on. It has the physical
    offset and size of the first and the last one; offsets ascend between them."""

    start: int
    units: int
    first: int
    last: int
    first_size: int
    last_size: int


@dataclass
class BrokerFile:
    """A loaded file, or one that the start has made (``is_new``: it is not on disk)."""

    path: Path
    file_from_offset: int
    wrote: int
    is_new: bool = False
    is_first_created: bool = False
    runs: list[Run] = field(default_factory=list)

    def open(self) -> MappedFile:
        return MappedFile.open(self.path, self.file_from_offset)

    @contextmanager
    def reading(self) -> Iterator[Callable[[int, int], bytes]]:
        """A function that returns the bytes at a position, and of a size; short at the end of the
        file. Nothing is mapped: of each of many thousand queues a start reads a few units, several
        times. :raises FileGone: it was deleted. :raises CannotRead: the system
        refuses."""
        descriptor = open_listed(self.path)
        try:
            yield lambda position, size: os.pread(descriptor, size, position)
        except OSError as error:
            raise CannotRead(path=str(self.path), reason=error.strerror) from error
        finally:
            os.close(descriptor)


class BrokerFileQueue:
    """The files of the log, a queue or an extension, in the order in which a broker loads them."""

    def __init__(self, file_size: int, deleted: list[Deleted]) -> None:
        self.file_size = file_size
        self.files: list[BrokerFile] = []
        self._deleted = deleted

    def load(self, directories: Iterable[Path], root: Path, *, as_5: bool) -> None:
        """``MappedFileQueue#load``. :raises StartFails: a broker refuses one of the files."""
        found = sorted(
            (entry for directory in directories for entry in _listed(directory)),
            key=lambda entry: entry.name,
        )
        for entry in found:
            path = Path(entry.path)
            named = shown(root, path)
            is_directory = entry.is_dir()
            size = _length(entry)
            if as_5 and is_directory:
                continue
            if as_5 and size == 0 and entry is found[-1]:
                self._deleted.append(Deleted(path, 0, "empty"))
                continue
            if is_directory or size != self.file_size:
                what = "a directory" if is_directory else f"{size} bytes"
                raise StartFails(f"{named}: {what}, not a file of {self.file_size} bytes")
            offset = java_long(entry.name)
            if offset is None:
                raise StartFails(f"{named}: the name is no offset")
            self.files.append(BrokerFile(path, offset, size))

    @property
    def max_offset(self) -> int:
        """``getMaxOffset``: the write position of the last file; 0 without files."""
        return self.files[-1].file_from_offset + self.files[-1].wrote if self.files else 0

    def truncate_dirty(self, offset: int, why: str) -> None:
        """``truncateDirtyFiles``: moves write positions, and deletes files behind ``offset``."""
        kept = []
        for file in self.files:
            if file.file_from_offset + self.file_size > offset:
                if offset >= file.file_from_offset:
                    file.wrote = offset % self.file_size
                else:
                    self.note_deleted(file, why)
                    continue
            kept.append(file)
        self.files = kept

    def delete_last(self, why: str) -> None:
        self.note_deleted(self.files.pop(), why)

    def destroy(self, why: str) -> None:
        for file in self.files:
            self.note_deleted(file, why)
        self.files = []

    def note_deleted(self, file: BrokerFile, why: str) -> None:
        if not file.is_new:
            self._deleted.append(Deleted(file.path, self.file_size, why))

    def last_for(self, offset: int, directory: Path) -> BrokerFile:
        """``getLastMappedFile(offset)``: the last file; a new one if that is full or missing."""
        if self.files and self.files[-1].wrote != self.file_size:
            return self.files[-1]
        is_first = not self.files
        if is_first:
            rest = abs(offset) % self.file_size  # Java's remainder has the sign of the offset.
            start = offset - (rest if offset >= 0 else -rest)
        else:
            start = self.files[-1].file_from_offset + self.file_size
        made = BrokerFile(directory / f"{start:020d}", start, 0, True, is_first)
        self.files.append(made)
        return made

    def find(self, offset: int, *, first_when_absent: bool) -> BrokerFile | None:
        """``findMappedFileByOffset``."""
        if not self.files:
            return None
        first, last = self.files[0], self.files[-1]
        if first.file_from_offset <= offset < last.file_from_offset + self.file_size:
            for file in self.files:
                if file.file_from_offset <= offset < file.file_from_offset + self.file_size:
                    return file
        return first if first_when_absent else None


def _listed(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CannotRead(path=str(directory), reason=error.strerror) from error


def _length(entry: os.DirEntry[str]) -> int:
    """``File#length``: 0 for a link that leads nowhere."""
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise CannotRead(path=entry.path, reason=error.strerror) from error


def subdirectories(directory: Path) -> Iterator[tuple[str, Path]]:
    """The entries of a directory, in order of their names."""
    for entry in sorted(_listed(directory), key=lambda entry: entry.name):
        yield entry.name, Path(entry.path)
