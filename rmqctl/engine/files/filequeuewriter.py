"""The writing half of :mod:`rmqctl.engine.files.filequeue`: appends files, removes them, and forces
them to disk."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from rmqctl.engine.files.advice import expect_readers
from rmqctl.engine.files.dirty import DirtyRange, Unsynced
from rmqctl.engine.files.durable import raise_lost, sync_files
from rmqctl.engine.files.filequeue import FILE_NAME_DIGITS, FileEntry, MappedFileQueue
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.writing import Forced, remove_file
from rmqctl.errors import CannotRead, CannotWrite, RmqctlError


class MappedFileQueueWriter(MappedFileQueue):
    """The files of one directory, open for writing. What was not flushed stays noted for
    :meth:`sync` after :meth:`close`.

    :param root: the directory below which no link is followed.
    :param unsynced: takes the paths of files with bytes that are not on disk; entries outlive the
        maps.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        root: Path,
        *,
        keep: int = 4,
        unsynced: Unsynced | None = None,
    ) -> None:
        super().__init__(directory, file_size, keep=keep)
        self.root = root
        #: Whether a new file and its name are on disk when it is made; else the caller syncs both.
        self.is_durable = True
        #: Whether the name of the first file, and of directories made for it, may wait for the next
        #: flush: most queues have one file, and are made with one wait for the disk less. Names of
        #: later files never wait: a power loss could keep such a file and lose the one before it.
        self.names_wait = False
        self._unsynced = Unsynced() if unsynced is None else unsynced
        #: By offset: files that have disk blocks already, and no name yet.
        self._ahead: dict[int, MappedFile] = {}

    def _open_file(self, entry: FileEntry) -> MappedFile:
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
        """The directory below which no link to a file is followed."""
        return self.root

    def _next_directory(self, file_from_offset: int) -> Path:
        """Where a file that begins at an offset is made."""
        return self.directory

    def append_file(self, file_from_offset: int, head: bytes = b"") -> MappedFile:
        """Makes the next file, which begins with ``head`` and is zeros behind it.

        :raises CannotWrite: it cannot be made; nothing is left of it.
        """
        path = self._path_of_next(file_from_offset)
        is_free = not os.path.lexists(path)
        try:
            return self._append_file(path, file_from_offset, head)
        except BaseException:
            # An interrupt may come when the file has its name and is not listed yet, or half: then
            # no later call could make it.
            if self._offsets[-1:] != [file_from_offset]:
                del self.entries[len(self._offsets) :]
                self._open.forget(file_from_offset)
                self._unsynced.clean(path)
                if is_free:
                    with suppress(RmqctlError):
                        remove_file(self.root_of(path), path)
            raise

    def _append_file(self, path: Path, file_from_offset: int, head: bytes) -> MappedFile:
        root, ahead = self.root_of(path), self._ahead.pop(file_from_offset, None)
        forced = self._forced
        if forced is Forced.FILE:
            # Noted before they are made: after an interrupt a flush must know of every name.
            for directory in (root / part for part in path.relative_to(root).parents):
                self._unsynced.setdefault(directory, DirtyRange(0, 1))
        before = self._open.get(self._offsets[-1]) if self._offsets else None
        if ahead is None:
            mapped = MappedFile.create(
                root,
                path,
                self.file_size,
                file_from_offset,
                head,
                forced,
                self._unsynced,
            )
        else:
            mapped = ahead
            try:
                mapped.give_name(root, head, forced)
            except BaseException:
                mapped.close()
                raise
        if before is not None:
            expect_readers(before.buffer)
            # Else up to a chunk of pages of each file would stay mapped as long as it is open.
            before.forget(0, before.size)
        self._open.put(file_from_offset, mapped)
        self.entries.append(FileEntry(file_from_offset, path, self.file_size))
        self._offsets.append(file_from_offset)
        return mapped

    @property
    def _forced(self) -> Forced:
        """What of the next file is forced to disk when it is made."""
        if not self.is_durable:
            return Forced.NOTHING
        return Forced.FILE if self.names_wait and not self.entries else Forced.ALL

    def _path_of_next(self, file_from_offset: int) -> Path:
        directory = self._next_directory(file_from_offset)
        return directory / f"{file_from_offset:0{FILE_NAME_DIGITS}d}"

    def reserve_ahead(self, offset: int, size: int) -> None:
        """Allocates the blocks of a range that lies in the file behind the last one.

        That file has no name before :meth:`append_file` gives it one, so a kill leaves nothing of
        it. Where the file system has no unnamed files, it gets its name here.

        :param offset: the first byte of the range, which lies in one file; ``size`` is in bytes.
        :raises OSError: the disk is full. :raises CannotWrite: no file can be made.
        """
        start = offset - offset % self.file_size
        ahead = self._ahead.get(start)
        if ahead is None:
            path = self._path_of_next(start)
            ahead = MappedFile.create_unnamed(
                self.root_of(path), path, self.file_size, start, self._forced, self._unsynced
            )
        has_name = ahead is None
        mapped = self.append_file(start) if ahead is None else ahead
        try:
            mapped.reserve(offset - start, size)
        except BaseException:
            if has_name:
                self.remove_from(start)
            elif start not in self._ahead:
                mapped.close()
            raise
        if not has_name:
            self._ahead[start] = mapped

    @property
    def is_ahead(self) -> bool:
        """Whether blocks are allocated behind the last file (:meth:`reserve_ahead`). They are given
        back with the last reference to this object."""
        return bool(self._ahead)

    def remove_from(self, offset: int) -> None:
        """Removes the files that begin at ``offset`` or behind it, the last one first. Errors as in
        :func:`~rmqctl.engine.files.writing.remove_file`."""
        try:
            while self._offsets and self._offsets[-1] >= offset:
                path = self.entries[-1].path
                self._open.forget(self._offsets[-1])
                remove_file(self.root_of(path), path)
                self._unsynced.clean(path)
                self._offsets = self._offsets[:-1]
                self.entries = self.entries[:-1]
        finally:
            del self.entries[len(self._offsets) :]  # An interrupt may have come between the two.

    def close_gap(self, place: int) -> None:
        """Removes the files behind ``place`` when the file that should hold it is missing. The
        caller knows that those are empty. Errors as in :meth:`remove_from`."""
        if self.min_offset <= place < self.end_offset and self.index_of(place) < 0:
            self.remove_from(place)

    def sync(self) -> None:
        """Forces the dirty files to disk. Nobody may store into them meanwhile.

        :raises OSError: the disk failed, now or before; the files stay noted as dirty.
        """
        raise_lost(self._unsynced)
        paths = [entry.path for entry in self.entries if entry.path in self._unsynced]
        sync_files(paths, loser=self._unsynced)
        for path in paths:
            self._unsynced.clean(path)
