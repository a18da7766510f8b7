"""``MultiPathMappedFileQueue``: a commit log whose files lie in several directories.

``storePathCommitLog`` lists directories, separated by commas; ``readOnlyCommitLogStorePaths`` lists
more, which get no new files. The log is the union of their files, sorted by name, and new files go
to the directories in turn. Without a comma the log lies in the store's own ``commitlog/``.

The log of a DLedger group is read as one of several directories, of which the last holds framed
files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqctl.engine.files import writing
from rmqctl.engine.files.filequeue import FileEntry, MappedFileQueue
from rmqctl.engine.files.filequeuewriter import MappedFileQueueWriter
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.owner import make_directories
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.settings.logdirectories import LogDirectories, is_spread, log_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import AmbiguousLog


def log_files(root: Path, config: MessageStoreConfig, file_size: int) -> MappedFileQueue:
    """The files of a store's log, wherever they lie; errors as in :func:`log_directories`."""
    directories = log_directories(root, config)
    if directories.dledger is not None:
        return DLedgerFileQueue(directories, file_size)
    if not is_spread(config):
        return MappedFileQueue(directories.all[0], file_size)
    return MultiPathMappedFileQueue(directories, file_size)


def log_files_writer(
    root: Path, config: MessageStoreConfig, file_size: int
) -> MappedFileQueueWriter:
    """:func:`log_files`, open for writing."""
    directories = log_directories(root, config)
    if not is_spread(config):
        return MappedFileQueueWriter(directories.all[0], file_size, root)
    return MultiPathMappedFileQueueWriter(directories, file_size)


def open_commit_log(root: Path, config: MessageStoreConfig, file_size: int) -> CommitLog:
    """A store's log for reading, wherever its files lie; errors as in :func:`log_directories`."""
    files = log_files(root, config, file_size)
    return CommitLog(files.directory, file_size, files=files)


class _FromSeveral(MappedFileQueue):
    """The files of several directories as one range of offsets."""

    _directories: LogDirectories

    @property
    def directories(self) -> tuple[Path, ...]:
        return self._directories.all

    def _list_files(self) -> Iterator[FileEntry]:
        found: dict[int, FileEntry] = {}
        for directory in self.directories:
            for entry in self._list_directory(directory):
                if entry.file_from_offset in found:
                    raise AmbiguousLog(path=str(entry.path), name=str(directory.parent))
                found[entry.file_from_offset] = entry
        yield from (found[offset] for offset in sorted(found))


class MultiPathMappedFileQueue(_FromSeveral):
    """The files of several directories, for reading."""

    def __init__(self, directories: LogDirectories, file_size: int) -> None:
        self._directories = directories
        super().__init__(directories.all[0], file_size)


class FramedFile(MappedFile):
    """A file in which each record stands behind the header of a DLedger entry."""

    framed = True


class DLedgerFileQueue(MultiPathMappedFileQueue):
    """The files of a DLedger group's log. In front of them may stand plain files, from before the
    broker joined the group (``DLedgerCommitLog#dividedCommitlogOffset``)."""

    framed = True

    def _open_file(self, entry: FileEntry) -> MappedFile:
        if entry.path.parent != self._directories.dledger:
            return super()._open_file(entry)
        return FramedFile.open(entry.path, entry.file_from_offset)


class MultiPathMappedFileQueueWriter(_FromSeveral, MappedFileQueueWriter):
    """The files of several directories, open for writing: new files go to them in turn."""

    def __init__(self, directories: LogDirectories, file_size: int) -> None:
        self._directories = directories
        super().__init__(directories.all[0], file_size, directories.all[0])

    def root_of(self, path: Path) -> Path:
        """The directories need not lie in the store."""
        return path.parent

    def _next_directory(self, file_from_offset: int) -> Path:
        """``tryCreateMappedFile``, but how full the disks are does not matter."""
        directories = self._directories.appendable
        directory = directories[file_from_offset // self.file_size % len(directories)]
        try:
            make_directories(directory)
        except OSError as error:
            raise writing.writing_error(directory, error) from error
        return directory
