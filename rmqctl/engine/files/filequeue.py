"""``MappedFileQueue``: files of one length, named by their first offsets, as one range."""

from __future__ import annotations

import stat
from bisect import bisect_right
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from formats.constants import LONG_MAX
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.opencache import OpenCache
from rmqctl.engine.files.paths import NOT_REGULAR, scan_names
from rmqctl.errors import CannotRead, FileLengthContradiction, NotAFile, RmqctlError

FILE_NAME_DIGITS = 20


def is_offset_name(name: str) -> bool:
    """Whether a file's name is its first offset: 20 digits, and a Java long."""
    is_digits = len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()
    return is_digits and int(name) <= LONG_MAX


class FileMisnamed(RmqctlError):
    """The name of a queue's file is no offset at which one of its files can begin."""

    template = (
        "{path} is in the place of a queue's file, but its name is no multiple of {size}, the "
        "length of all files of queues."
    )
    step = "See what it is, and move it out of the store while the broker is down."
    command_step = (
        "See what it is, and move it out of the store while the broker is down; then `rmqctl "
        "verify` says what the queue lacks."
    )


class FileEntry(NamedTuple):
    """A file of a queue as its directory lists it; ``size`` in bytes."""

    file_from_offset: int
    path: Path
    size: int


class MappedFileQueue:
    """``MappedFileQueue``: the files of one directory as one range of offsets.

    ``entries`` are the files, sorted by offset; ``file_size`` is the regular size of each, in
    bytes. ``foreign`` is what else lies in :attr:`directories`, and :func:`strays`.

    A :class:`MappedFile` that was handed out is valid while somebody refers to it, even when its
    name is removed or the queue closed. Of files that nobody refers to, at most ``keep`` stay
    mapped. Any thread may read while one appends files or removes them
    (:class:`MappedFileQueueWriter`).
    """

    #: Whether the queue may hold files that are :attr:`MappedFile.framed`.
    framed = False

    def __init__(self, directory: Path, file_size: int, *, keep: int = 4) -> None:
        self.directory = directory
        self.file_size = file_size
        self.foreign: list[Path] = []
        self._not_regular: list[FileEntry] = []
        self._open: OpenCache[int, MappedFile] = OpenCache(keep)
        self._listed = list(self._list_files())
        own = self._listed
        if odd := strays(own, file_size):
            self.foreign += [entry.path for entry in odd]
            own = [entry for entry in own if entry not in odd]
        # A reader takes the entries first and bisects the offsets then, so a writer must keep the
        # offsets no longer than the entries.
        self.entries: list[FileEntry] = list(_not_overlapping(own))
        self._offsets = [entry.file_from_offset for entry in self.entries]

    def _list_files(self) -> Iterator[FileEntry]:
        """The files whose names are offsets, in order; all others go to :attr:`foreign`."""
        return self._list_directory(self.directory)

    def _list_directory(self, directory: Path) -> Iterator[FileEntry]:
        for name in scan_names(directory):
            path = directory / name
            if not is_offset_name(name):
                self.foreign.append(path)
                continue
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
                self.foreign.append(path)
                self._not_regular.append(FileEntry(int(name), path, -1))

    def _open_file(self, entry: FileEntry) -> MappedFile:
        """Maps a file."""
        return MappedFile.open(entry.path, entry.file_from_offset)

    @property
    def directories(self) -> tuple[Path, ...]:
        """Where the files lie, and may lie."""
        return (self.directory,)

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
        """Files of another length than :attr:`file_size`, and things with a file's name that are no
        regular files (``size`` -1). A broker does not start on them (``MappedFileQueue#load``)."""
        wrong = [entry for entry in self._listed if entry.size != self.file_size]
        return [*self._not_regular, *wrong]

    @property
    def empty_last(self) -> FileEntry | None:
        """The last file when its length is 0: a kill came while it was made. 5.x deletes such a
        file when it loads the others (``MappedFileQueue#doLoad``); 4.9.3 does not start on it."""
        last = self.entries[-1] if self.entries else None
        return last if last is not None and last.size == 0 else None

    def check_lengths(self, kind: str, *, drops_empty: bool = False) -> None:
        """Refuses :attr:`irregular` files.

        :param kind: what the files are of, for the error.
        :param drops_empty: the :attr:`empty_last` file is allowed, because the caller removes it.
        :raises FileLengthContradiction: a file has another length. :raises NotAFile: an entry is no
            regular file.
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

    def check_names(self) -> None:
        """Refuses files whose names are no offset at which a file begins: nothing could be appended
        at the queue's end.

        :raises FileMisnamed: there is such a file.
        """
        for entry in self._listed:
            if entry.file_from_offset % self.file_size:
                raise FileMisnamed(path=str(entry.path), size=self.file_size)

    def check_regular(self, *, links_only: bool = False) -> None:
        """Refuses things with a file's name that are no regular files. A caller that passed over
        them would take the log for shorter than it is.

        :param links_only: refuse only links that lead nowhere, perhaps to a disk that is not
            mounted.
        :raises NotAFile: there is such a thing.
        """
        for entry in self._not_regular:
            if not links_only or (entry.path.is_symlink() and not entry.path.exists()):
                raise NotAFile(path=str(entry.path), reason=NOT_REGULAR)

    def index_of(self, offset: int) -> int:
        """Number of the file that holds ``offset``, from 0; -1 when none does."""
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
        # The same as _index_in, without its call: every pull comes here twice.
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
        """Unmaps all files that nobody refers to. A file that is asked for again is mapped anew."""
        self._open.clear()


def strays(entries: list[FileEntry], file_size: int) -> list[FileEntry]:
    """Files that do not belong to a queue, though their names are numbers: neither their length nor
    their name fits, while at least two files, and more than there are strays, fit in both.

    An empty file is no stray: a kill may have left it. A broker does not start where there are
    strays (``MappedFileQueue#load``).
    """
    if file_size < 2:  # The queue has no regular file size.
        return []
    odd = [one for one in entries if one.size not in (0, file_size)]
    odd = [one for one in odd if one.file_from_offset % file_size]
    own = sum(one.size == file_size and one.file_from_offset % file_size == 0 for one in entries)
    return odd if odd and own > max(len(odd), 1) else []


def _not_overlapping(entries: list[FileEntry]) -> Iterator[FileEntry]:
    """The files with sizes cut so that each ends where the next one begins, at the latest."""
    for entry, following in zip_longest(entries, entries[1:]):
        end = None if following is None else following.file_from_offset - entry.file_from_offset
        yield entry if end is None or entry.size <= end else entry._replace(size=end)
