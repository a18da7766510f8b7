"""``MappedFileQueue``: files of one length, named by their first offsets, as one range."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from formats.constants import LONG_MAX
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.opencache import OpenCache
from rmqctl.engine.files.paths import NOT_REGULAR, scan_names
from rmqctl.errors import CannotRead, FileLengthContradiction, NotAFile

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

    ``file_size`` is the size of a file. ``foreign`` holds names that are no file's offset, and
    :func:`strays`. A
    :class:`MappedFile` that was handed out is valid while somebody refers to it, also when its name
    is removed or the queue closed; of others at most ``keep`` stay mapped. Any thread may read
    while one appends files or removes them (:class:`MappedFileQueueWriter`).
    """

    #: Whether some files are (:attr:`MappedFile.framed`).
    framed = False

    def __init__(self, directory: Path, file_size: int, *, keep: int = 4) -> None:
        self.directory = directory
        self.file_size = file_size
        self.foreign: list[str] = []
        self._not_regular: list[FileEntry] = []
        self._open: OpenCache[int, MappedFile] = OpenCache(keep)
        self._listed = list(self._list_files())
        own = self._listed
        if odd := strays(own, file_size):
            self.foreign += [entry.path.name for entry in odd]
            own = [entry for entry in own if entry not in odd]
        # Never shorter than the offsets: who takes the entries first may use any number after.
        self.entries: list[FileEntry] = list(_not_overlapping(own))
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
            except FileNotFoundError:
                if not path.is_symlink():
                    continue  # A broker's retention has removed it meanwhile.
                status = path.lstat()
            except OSError as error:
                raise CannotRead(path=str(path), reason=error.strerror) from error
            if stat.S_ISREG(status.st_mode):
                yield FileEntry(int(name), path, status.st_size)
            else:
                self.foreign.append(name)
                self._not_regular.append(FileEntry(int(name), path, -1))

    def _open_file(self, entry: FileEntry) -> MappedFile:
        """Maps a file."""
        return MappedFile.open(entry.path, entry.file_from_offset)

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
                raise NotAFile(path=str(entry.path), reason=NOT_REGULAR)
            raise FileLengthContradiction(
                path=str(entry.path),
                found=entry.size,
                expected=self.file_size,
                why=f"every {kind} file has the same length",
            )

    def check_regular(self, *, links_only: bool = False) -> None:
        """For who would take what follows for all there is: ``links_only`` of links that lead
        nowhere, behind which messages may lie on a disk that is not mounted.

        :raises NotAFile: what has a file's name is none.
        """
        for entry in self._not_regular:
            if not links_only or (entry.path.is_symlink() and not entry.path.exists()):
                raise NotAFile(path=str(entry.path), reason=NOT_REGULAR)

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
        # As _index_in does: every pull asks twice.
        number = bisect_right(self._offsets, offset) - 1
        if number < 0:
            return None
        first, _, size = entry = entries[number]
        if offset >= first + size:
            return None
        return self._open.get(first) or self._opened(entry)

    def _opened(self, entry: FileEntry) -> MappedFile:
        return self._open.get(entry.file_from_offset, lambda: self._map(entry))

    def _map(self, entry: FileEntry) -> MappedFile:
        mapped = self._open_file(entry)
        if mapped.size > entry.size:
            mapped.size = entry.size
        return mapped

    def close(self) -> None:
        """Unmaps all files that nobody holds; who asks for one again gets it mapped anew."""
        self._open.clear()


def strays(entries: list[FileEntry], file_size: int) -> list[FileEntry]:
    """Files that are none of a queue, though their names are numbers: neither length nor name is of
    such a file, and most others, two at least, have both. A broker does not start on them
    (``MappedFileQueue#load``); an empty one a kill may have left."""
    if file_size < 2:  # Files of which each has a size of its own.
        return []
    odd = [one for one in entries if one.size not in (0, file_size)]
    odd = [one for one in odd if one.file_from_offset % file_size]
    own = sum(one.size == file_size and one.file_from_offset % file_size == 0 for one in entries)
    return odd if odd and own > max(len(odd), 1) else []


def _not_overlapping(entries: list[FileEntry]) -> Iterator[FileEntry]:
    """The files, of which one that is too long ends where the next one begins."""
    for entry, following in zip_longest(entries, entries[1:]):
        end = None if following is None else following.file_from_offset - entry.file_from_offset
        yield entry if end is None or entry.size <= end else entry._replace(size=end)


#: Files that are forced to disk at a time, when there are many, and those that are worth a thread.
_SYNCED_AT_ONCE, _SYNCED_BY_ONE = 16, 4


def sync_files(paths: Iterable[Path], *, may_be_gone: bool = False) -> None:
    """Forces files to disk that are no longer mapped, and the names in directories; of many some at
    a time, for a disk, and a journal, takes several at once for little more than one.

    :param may_be_gone: what retention has removed meanwhile is left out.
    :raises OSError: the disk failed.
    """
    files = list(paths)
    threads = min(len(files) // _SYNCED_BY_ONE, _SYNCED_AT_ONCE)
    if threads < 2:
        for path in files:
            _sync_file(path, may_be_gone)
        return
    from concurrent.futures import ThreadPoolExecutor

    def sync(part: list[Path]) -> None:
        for path in part:
            _sync_file(path, may_be_gone)

    with ThreadPoolExecutor(threads) as pool:
        # What failed is raised when all have ended.
        list(pool.map(sync, (files[at::threads] for at in range(threads))))


def _sync_file(path: Path, may_be_gone: bool) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if not may_be_gone:
            raise
        return
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.fsync(descriptor)  # Names are no data of a file, and a disk may leave them out.
        else:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
