"""A backup as a directory: the store's files as they are, and the manifest beside them.

``store/`` of a full backup is a store that any tool can read. The files of a backup that is made on
another one hold only what has changed, at its place, with holes before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from rmqctl.engine.files.durable import sync_directories, sync_files
from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.writing import Forced, create_file, open_for_writing
from rmqctl.errors import CannotRead
from rmqctl.operations.backup.content import Content, Extent, Piece, runs_of_data
from rmqctl.operations.backup.errors import BackupNotFound, BackupUnsound
from rmqctl.operations.backup.manifest import (
    FILES,
    MANIFEST,
    Entry,
    Manifest,
    holds,
    read_manifest,
    write_lines,
)


class TreeWriter:
    """Makes files below a new directory. Pages of zeros become holes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: list[Path] = []

    def add(self, entry: Entry, extents: list[Extent], pieces: Iterable[Piece]) -> None:
        """:meth:`store`, with the extents of the pieces, which are not needed here."""
        self.store(entry, pieces)

    def store(self, entry: Entry, pieces: Iterable[Piece]) -> None:
        """Makes a file with these pieces, or writes them to a file that was made before.

        :raises CannotWrite: the disk is full.
        """
        path = self._root / entry.path
        if path.exists():
            descriptor = open_for_writing(self._root, path)
        else:
            descriptor = create_file(self._root, path, entry.size, forced=Forced.NOTHING)
            self._made.append(path)
        try:
            os.ftruncate(descriptor, entry.size)
            for position, data in pieces:
                for low, high in runs_of_data(position, data):
                    write_at(descriptor, data[low - position : high - position], low)
        finally:
            os.close(descriptor)

    def finish(self, entries: Iterable[Entry], directories: Iterable[str]) -> None:
        """Makes empty directories, gives the files their lengths, rights and times, and forces
        everything to disk. :raises OSError: the disk failed."""
        entries = list(entries)
        for name in directories:
            (self._root / name).mkdir(parents=True, exist_ok=True)
        for entry in entries:
            # No later backup holds anything of a file whose length alone has changed.
            os.truncate(self._root / entry.path, entry.size)
        sync_files(self._made)
        for entry in entries:
            path, time = self._root / entry.path, entry.modified_timestamp * 1_000_000
            os.chmod(path, entry.mode)
            os.utime(path, ns=(time, time))
        sync_directories(self._root)


class DirectoryWriter:
    """Writes a backup into a new directory."""

    def __init__(self, building: Path) -> None:
        self._building = building
        (building / FILES).mkdir()
        self._files = TreeWriter(building / FILES)
        self.add = self._files.add

    def finish(self, manifest: Manifest) -> None:
        """Completes the files, then writes the manifest."""
        held = [entry for entry in manifest.files.values() if holds(manifest, entry)]
        self._files.finish(held, manifest.directories)
        with (self._building / MANIFEST).open("xb") as file:
            file.writelines(write_lines(manifest))
            file.flush()
            os.fsync(file.fileno())
        sync_directories(self._building)


class Directory:
    """A backup in a directory."""

    def __init__(self, path: Path) -> None:
        """Reads the manifest.

        :raises BackupNotFound: there is no manifest. :raises BackupUnsound: it is damaged.
        """
        self.name, self._path = str(path), path
        if not (path / MANIFEST).is_file():
            raise BackupNotFound(path=self.name, reason=f"it has no {MANIFEST}")
        with (path / MANIFEST).open("rb") as file:
            self.manifest = read_manifest(file, self.name)

    def parts(self) -> Iterator[tuple[Entry, Iterator[Piece]]]:
        """The files, each with the pieces that the backup holds of it. The pieces of a file have to
        be taken before the next one is asked for.

        :raises BackupUnsound: a file is missing, has another length, or larger holes than a backup
            has.
        """
        for entry in self.manifest.files.values():
            if not holds(self.manifest, entry):
                continue
            place = self._path / FILES / entry.path
            try:
                mapped = MappedFile.open(place)
            except CannotRead as error:
                if os.path.lexists(place):
                    raise
                reason = f"it holds nothing of {entry.path!r}"
                raise BackupUnsound(path=self.name, reason=reason) from error
            content = Content(mapped, entry.data_end)
            try:
                if content.size != entry.size:
                    reason = f"{entry.path!r} is not as long as its manifest says"
                    raise BackupUnsound(path=self.name, reason=reason)
                start = min(entry.stored_from, content.end)
                if content.has_large_holes(start, content.end):
                    reason = f"{entry.path!r} has larger holes than a backup has"
                    raise BackupUnsound(path=self.name, reason=reason)
                yield entry, content.pieces(content.extents(start, content.end))
            finally:
                content.close()
