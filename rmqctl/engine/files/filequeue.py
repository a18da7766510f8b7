"""``MappedFileQueue``: files of one length, named by their first offsets, as one range."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.paths import (
    remove_file,
    scan_names,
)
from rmqctl.errors import CannotRead, FileLengthContradiction

FILE_NAME_DIGITS = 20


def is_offset_name(name: str) -> bool:
    """Whether a file's name is its first offset: 20 digits, and a Java long."""
    is_digits = len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()
    return is_digits and int(name) <= 0x7FFFFFFFFFFFFFFF


class FileEntry(NamedTuple):
    """A file of a queue as the directory shows it."""

    file_from_offset: int
    path: Path
    size: int


class MappedFileQueue:
    """``MappedFileQueue``: the files of one directory as one range of offsets.

    ``file_size`` is the size of a file. ``foreign`` holds names that are no file's offset. At most
    ``keep`` files stay mapped; a :class:`MappedFile` that was handed out is valid until ``keep``
    others were asked for. Of those open for writing the last one stays: a bulk is appended to it
    while the source of its messages reads other files.
    """

    def __init__(
        self, directory: Path, file_size: int, *, writable_root: Path | None = None, keep: int = 4
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.root = writable_root
        self.foreign: list[str] = []
        #: Whether a new file and its name are on disk at once; else whoever made it syncs both.
        self.is_durable = True
        self._not_regular: list[FileEntry] = []
        self._keep = keep
        self._unsynced: set[Path] = set()
        self._open: OrderedDict[int, MappedFile] = OrderedDict()
        #: Files with room for what is to come, which have no names yet.
        self._ahead: dict[int, MappedFile] = {}
        self._listed = list(self._list_files())
        self.entries: list[FileEntry] = list(_not_overlapping(self._listed))
        self._offsets = [entry.file_from_offset for entry in self.entries]

    def _list_files(self) -> Iterator[FileEntry]:
        """The files whose names are offsets, in order; other names go to :attr:`foreign`."""
        return self._list_directory(self.directory)

    def _list_directory(self, directory: Path) -> Iterator[FileEntry]:
        for name in scan_names(directory):
            if not is_offset_name(name):
                self.foreign.append(name)
                continue
            path = directory / name
            try:
                status = path.stat()
            except OSError as error:
                raise CannotRead(path=str(path), reason=error.strerror) from error
            if stat.S_ISREG(status.st_mode):
                yield FileEntry(int(name), path, status.st_size)
            else:
                self.foreign.append(name)
                self._not_regular.append(FileEntry(int(name), path, -1))

    def _open_file(self, entry: FileEntry) -> MappedFile:
        """Maps a file."""
        if self.root is None:
            return MappedFile.open(entry.path, entry.file_from_offset)
        return MappedFile.open_writable(
            self.root_of(entry.path), entry.path, entry.file_from_offset
        )

    def root_of(self, path: Path) -> Path:
        """The directory below which a writer of a file follows no link."""
        assert self.root is not None, "opened for reading"
        return self.root

    def _next_directory(self, file_from_offset: int) -> Path:
        """Where a file that begins at an offset is made."""
        return self.directory

    @property
    def min_offset(self) -> int:
        """First offset of the first file; -1 without files (``MappedFileQueue#getMinOffset``)."""
        return self._offsets[0] if self._offsets else -1

    @property
    def end_offset(self) -> int:
        """First offset after the last file; 0 without files."""
        return self._offsets[-1] + self.entries[-1].size if self.entries else 0

    @property
    def irregular(self) -> list[FileEntry]:
        """Files of another length than :attr:`file_size`, and what has a file's name and is none
        (with a size of -1): a broker does not start on them (``MappedFileQueue#load``)."""
        wrong = [entry for entry in self._listed if entry.size != self.file_size]
        return [*self._not_regular, *wrong]

    @property
    def empty_last(self) -> FileEntry | None:
        """The last file when there is nothing in it: a kill came while it was made. 5.x deletes it
        when it loads the others (``MappedFileQueue#doLoad``); 4.9.3 does not start."""
        last = self.entries[-1] if self.entries else None
        return last if last is not None and last.size == 0 else None

    def check_lengths(self, kind: str, *, drops_empty: bool = False) -> None:
        """With ``drops_empty`` the :attr:`empty_last` file may be: it will be removed.

        :raises FileLengthContradiction, CannotRead: a file is :attr:`irregular`.
        """
        for entry in self.irregular:
            if drops_empty and entry == self.empty_last:
                continue
            if entry.size < 0:
                raise CannotRead(path=str(entry.path), reason="it is not a regular file")
            raise FileLengthContradiction(
                path=str(entry.path),
                found=entry.size,
                expected=self.file_size,
                why=f"every {kind} file has the same length",
            )

    def index_of(self, offset: int) -> int:
        """Number of the file that holds ``offset``; -1 when none does."""
        number = bisect_right(self._offsets, offset) - 1
        if number < 0 or offset >= self._offsets[number] + self.entries[number].size:
            return -1
        return number

    def file(self, number: int) -> MappedFile:
        """The ``number``-th file, mapped."""
        entry = self.entries[number]
        mapped = self._open.get(entry.file_from_offset)
        if mapped is None:
            mapped = self._open_file(entry)
            if mapped.size > entry.size:
                mapped.size = entry.size
            self._remember(mapped)
        else:
            self._open.move_to_end(entry.file_from_offset)
        return mapped

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds ``offset`` (``MappedFileQueue#findMappedFileByOffset``)."""
        number = self.index_of(offset)
        return None if number < 0 else self.file(number)

    def append_file(self, file_from_offset: int, head: bytes = b"") -> MappedFile:
        """Makes the next file, which begins with ``head``. :raises CannotWrite: it cannot be made;
        nothing is left of it."""
        path = self._path_of_next(file_from_offset)
        root, ahead = self.root_of(path), self._ahead.pop(file_from_offset, None)
        if ahead is None:
            mapped = MappedFile.create(
                root, path, self.file_size, file_from_offset, head, self.is_durable
            )
        else:
            mapped = ahead
            try:
                mapped.give_name(root, head, self.is_durable)
            except BaseException:
                mapped.close()
                raise
        self.entries.append(FileEntry(file_from_offset, path, self.file_size))
        self._offsets.append(file_from_offset)
        self._remember(mapped)
        return mapped

    def _path_of_next(self, file_from_offset: int) -> Path:
        directory = self._next_directory(file_from_offset)
        return directory / f"{file_from_offset:0{FILE_NAME_DIGITS}d}"

    def reserve_ahead(self, offset: int, size: int) -> None:
        """Makes sure of the disk space of a range of one file behind the last one, which gets its
        name, with what it begins with, from :meth:`append_file`: a kill before leaves none. Where
        the file system has no files without a name it is made at once.

        :raises OSError: the disk is full. :raises CannotWrite: no file can be made.
        """
        start = offset - offset % self.file_size
        ahead = self._ahead.get(start)
        if ahead is None:
            path = self._path_of_next(start)
            ahead = MappedFile.create_unnamed(
                self.root_of(path), path, self.file_size, start, self.is_durable
            )
        has_name = ahead is None
        mapped = self.append_file(start) if ahead is None else ahead
        try:
            mapped.reserve(offset - start, size)
        except OSError:
            if has_name:
                self.remove_from(start)
            elif start not in self._ahead:
                mapped.close()
            raise
        if not has_name:
            self._ahead[start] = mapped

    @property
    def is_ahead(self) -> bool:
        """Whether room was made behind the last file, which goes when this is closed."""
        return bool(self._ahead)

    def remove_from(self, offset: int) -> None:
        """Removes the files that begin at an offset or behind it, the last one first; errors as of
        :func:`~rmqctl.engine.files.paths.remove_file`."""
        while self._offsets and self._offsets[-1] >= offset:
            opened = self._open.pop(self._offsets[-1], None)
            if opened is not None:
                opened.close()
            path = self.entries[-1].path
            remove_file(self.root_of(path), path)
            self._unsynced.discard(path)
            self.entries.pop()
            self._offsets.pop()

    def _remember(self, mapped: MappedFile) -> None:
        self._open[mapped.file_from_offset] = mapped
        while len(self._open) > self._keep:
            oldest = next(iter(self._open))
            if self.root is not None and oldest == self._offsets[-1] and self._keep > 1:
                self._open.move_to_end(oldest)
            else:
                self._close_file(self._open.pop(oldest))

    def _close_file(self, mapped: MappedFile) -> None:
        # Syncing is for flush(): a bulk that runs through many files need not wait for the disk.
        if mapped.is_dirty:
            self._unsynced.add(mapped.path)
        mapped.close()

    def take_unsynced(self, least_pages: int = 0) -> set[Path]:
        """Files with something that is not on disk, of at least so many pages, or closed since;
        the caller syncs them."""
        for mapped in self._open.values():
            if mapped.dirty_pages >= max(least_pages, 1):
                self._unsynced.add(mapped.path)
                mapped.leave_unsynced()
        unsynced, self._unsynced = self._unsynced, set()
        return unsynced

    def sync(self) -> None:
        """Forces to disk what is not there yet. :raises OSError: it failed, and stays noted."""
        unsynced = self.take_unsynced()
        try:
            sync_files(unsynced)
        except OSError:
            self._unsynced |= unsynced
            raise

    def close(self) -> None:
        """Unmaps all files; what was not flushed stays noted for :meth:`take_unsynced`."""
        while self._open:
            self._close_file(self._open.popitem()[1])
        while self._ahead:
            self._ahead.popitem()[1].close()


def _not_overlapping(entries: list[FileEntry]) -> Iterator[FileEntry]:
    """The files, of which one that is too long ends where the next one begins."""
    for entry, following in zip_longest(entries, entries[1:]):
        end = None if following is None else following.file_from_offset - entry.file_from_offset
        yield entry if end is None or entry.size <= end else entry._replace(size=end)


def sync_files(paths: Iterable[Path]) -> None:
    """Forces files to disk that are no longer mapped. :raises OSError: the disk failed."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
