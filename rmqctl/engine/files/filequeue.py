"""``MappedFileQueue``: files of one length, named by their first offsets, as one range."""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from formats.constants import LONG_MAX
from rmqctl.engine.files.mappedfile import MappedFile, Unsynced, take_unsynced
from rmqctl.engine.files.opencache import OpenCache
from rmqctl.engine.files.paths import (
    remove_file,
    scan_names,
)
from rmqctl.errors import CannotRead, CannotWrite, FileLengthContradiction

FILE_NAME_DIGITS = 20


def is_offset_name(name: str) -> bool:
    """Whether a file's name is its first offset: 20 digits, and a Java long."""
    is_digits = len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()
    return is_digits and int(name) <= LONG_MAX


class FileEntry(NamedTuple):
    """A file of a queue as the directory shows it."""

    file_from_offset: int
    path: Path
    size: int


class MappedFileQueue:
    """``MappedFileQueue``: the files of one directory as one range of offsets.

    ``file_size`` is the size of a file. ``foreign`` holds names that are no file's offset. A
    :class:`MappedFile` that was handed out is valid while somebody refers to it, also when its name
    is removed or the queue closed; of others at most ``keep`` stay mapped. Any thread may read
    while one appends files or removes them.

    :param unsynced: where files with something that is not on disk are noted; they outlive the maps
        there.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        *,
        writable_root: Path | None = None,
        keep: int = 4,
        unsynced: Unsynced | None = None,
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.root = writable_root
        self.foreign: list[str] = []
        #: Whether a new file and its name are on disk at once; else whoever made it syncs both.
        self.is_durable = True
        self._not_regular: list[FileEntry] = []
        self._unsynced: Unsynced = {} if unsynced is None else unsynced
        self._open: OpenCache[int, MappedFile] = OpenCache(keep)
        #: Files with room for what is to come, which have no names yet.
        self._ahead: dict[int, MappedFile] = {}
        self._listed = list(self._list_files())
        # Never shorter than the offsets: who takes the entries first may use any number after.
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
        root = self.root_of(entry.path)
        try:
            return MappedFile.open_writable(
                root, entry.path, entry.file_from_offset, self._unsynced
            )
        except CannotWrite as error:
            if os.path.lexists(entry.path):
                raise
            gone = os.strerror(errno.ENOENT)
            raise CannotRead(path=str(entry.path), reason=gone) from error

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
        entries = self.entries
        return entries[0].file_from_offset if entries else -1

    @property
    def end_offset(self) -> int:
        """First offset after the last file; 0 without files."""
        entries = self.entries
        if not entries:
            return 0
        last = entries[-1]
        return last.file_from_offset + last.size

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
        return self._index_in(self.entries, offset)

    def _index_in(self, entries: list[FileEntry], offset: int) -> int:
        number = bisect_right(self._offsets, offset) - 1
        if number < 0 or offset >= entries[number].file_from_offset + entries[number].size:
            return -1
        return number

    def file(self, number: int) -> MappedFile:
        """The ``number``-th file, mapped. :raises CannotRead: it cannot be, or is gone."""
        entry = self.entries[number]
        return self._open.get(entry.file_from_offset) or self._opened(entry)

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds ``offset`` (``MappedFileQueue#findMappedFileByOffset``)."""
        entries = self.entries
        number = self._index_in(entries, offset)
        if number < 0:
            return None
        entry = entries[number]
        return self._open.get(entry.file_from_offset) or self._opened(entry)

    def _opened(self, entry: FileEntry) -> MappedFile:
        mapped = self._open.get(entry.file_from_offset, lambda: self._map(entry))
        assert mapped is not None
        return mapped

    def _map(self, entry: FileEntry) -> MappedFile:
        mapped = self._open_file(entry)
        if mapped.size > entry.size:
            mapped.size = entry.size
        return mapped

    def append_file(self, file_from_offset: int, head: bytes = b"") -> MappedFile:
        """Makes the next file, which begins with ``head``. :raises CannotWrite: it cannot be made;
        nothing is left of it."""
        path = self._path_of_next(file_from_offset)
        root, ahead = self.root_of(path), self._ahead.pop(file_from_offset, None)
        if ahead is None:
            mapped = MappedFile.create(
                root,
                path,
                self.file_size,
                file_from_offset,
                head,
                self.is_durable,
                self._unsynced,
            )
        else:
            mapped = ahead
            try:
                mapped.give_name(root, head, self.is_durable)
            except BaseException:
                self._unsynced.pop(path, None)
                mapped.close()
                raise
        self._open.put(file_from_offset, mapped)
        self.entries.append(FileEntry(file_from_offset, path, self.file_size))
        self._offsets.append(file_from_offset)
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
                self.root_of(path), path, self.file_size, start, self.is_durable, self._unsynced
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
            path = self.entries[-1].path
            self._open.forget(self._offsets[-1])
            remove_file(self.root_of(path), path)
            self._unsynced.pop(path, None)
            self._offsets = self._offsets[:-1]
            self.entries = self.entries[:-1]

    def take_unsynced(self, least_pages: int = 0) -> set[Path]:
        """:func:`~rmqctl.engine.files.mappedfile.take_unsynced` of these files; not for many queues
        that note theirs in one place."""
        return take_unsynced(self._unsynced, least_pages)

    def sync(self) -> None:
        """Forces to disk what of these files is not there yet; nobody may store into them
        meanwhile. :raises OSError: it failed, and stays noted."""
        paths = [entry.path for entry in self.entries if entry.path in self._unsynced]
        sync_files(paths)
        for path in paths:
            self._unsynced.pop(path).end = 0

    def close(self) -> None:
        """Unmaps all files that nobody holds; who asks for one again gets it mapped anew. What was
        not flushed stays noted for :meth:`take_unsynced`."""
        self._open.clear()


def _not_overlapping(entries: list[FileEntry]) -> Iterator[FileEntry]:
    """The files, of which one that is too long ends where the next one begins."""
    for entry, following in zip_longest(entries, entries[1:]):
        end = None if following is None else following.file_from_offset - entry.file_from_offset
        yield entry if end is None or entry.size <= end else entry._replace(size=end)


#: Files that are forced to disk at a time, when there are many.
_SYNCED_AT_ONCE = 16


def sync_files(paths: Iterable[Path], *, may_be_gone: bool = False) -> None:
    """Forces files to disk that are no longer mapped; of many some at a time, for a disk, and a
    journal, takes several at once for little more than one.

    :param may_be_gone: what retention has removed meanwhile is left out.
    :raises OSError: the disk failed.
    """
    files = list(paths)
    if len(files) < _SYNCED_AT_ONCE:
        for path in files:
            _sync_file(path, may_be_gone)
        return
    from concurrent.futures import ThreadPoolExecutor

    def sync(part: list[Path]) -> None:
        for path in part:
            _sync_file(path, may_be_gone)

    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as pool:
        # What failed is raised when all have ended.
        list(pool.map(sync, (files[at::_SYNCED_AT_ONCE] for at in range(_SYNCED_AT_ONCE))))


def _sync_file(path: Path, may_be_gone: bool) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if not may_be_gone:
            raise
        return
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
