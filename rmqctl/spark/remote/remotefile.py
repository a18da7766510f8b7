"""Files in object storage, for the engine: the ranges that it is about to read are fetched.

A file is represented by an unnamed sparse file in the scratch directory, as long as the listing
says. The engine says what it will read, and that range is fetched into the sparse file. A range
that was not fetched is never read, so a hole is never taken for zeros of the log. Names from the
object storage are used only in requests: the scratch files have no names, and disappear with the
process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.filequeue import FileEntry, MappedFileQueue
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.record.record import BLANK, LONGEST_PREFIX, LONGEST_TAIL, tail_position
from rmqctl.spark.remote.urls import RemoteUnreadable, asked, url_path

#: The unit of fetching (bytes). Pieces of zeros take no disk space.
PIECE = 1 << 20
_REQUEST = 8 << 20
# Extents overlap by this, because a search for a record's magic code must see the size before it,
# and does not go from one extent to the next.
_OVERLAP = BLANK.size


class Store(Protocol):
    """The store of the files: :class:`rmqctl.spark.remote.remote.RemoteStore`."""

    @property
    def url(self) -> str: ...
    def files(self, directory: str) -> list[FileEntry]: ...
    def open(self, name: str) -> Any: ...


class RemoteFiles(MappedFileQueue):
    """The files of one directory of a remote store."""

    def __init__(self, store: Store, name: str, *, keep: int, whole: bool = False) -> None:
        self._store, self._name, self._whole = store, name, whole
        super().__init__(url_path(store.url, name), 1, keep=keep)

    def _list_files(self) -> Iterator[FileEntry]:
        yield from self._store.files(self._name)

    def _open_file(self, entry: FileEntry) -> MappedFile:
        name = f"{self._name}/{entry.path.name}"
        mapped = RemoteFile(self._store, name, entry.path, entry.size, entry.file_from_offset)
        if self._whole:
            mapped.load(0, entry.size)
        return mapped


class RemoteFile(MappedFile):
    """A file of which only the ranges given to :meth:`load` are there.

    Methods that read are overridden to load first. The buffer itself may be read only where
    :meth:`load` or :meth:`load_entry` was called before.
    """

    def __init__(
        self, store: Store, name: str, path: Path, size: int, file_from_offset: int
    ) -> None:
        self._store, self._name = store, name
        self._remote: Any = None
        self._loaded: set[int] = set()
        self._data: set[int] = set()
        super().__init__(path, _scratch(size), file_from_offset, False)
        # Its holes are pieces of zeros, and pieces that were not fetched.
        self.whole = (0, size)

    def load(self, start: int, end: int) -> None:
        """Fetches what is missing of a range, and a little behind it, so that the fixed fields of
        an entry at its end are there, too.

        :raises RemoteUnreadable: the object storage refuses, or has less than its listing says.
        :raises OSError: the scratch disk is full.
        """
        end = min(end + LONGEST_PREFIX, self.size)
        missing: list[int] = []
        for number in range(max(start, 0) // PIECE, -(-end // PIECE)):
            if number not in self._loaded:
                missing.append(number)
            if missing and (missing[-1] != number or len(missing) * PIECE >= _REQUEST):
                self._fetch(missing)
                missing = []
        if missing:
            self._fetch(missing)

    def _fetch(self, numbers: list[int]) -> None:
        """Fetches neighbouring pieces with one request."""
        start, end = numbers[0] * PIECE, min((numbers[-1] + 1) * PIECE, self.size)
        if self._remote is None:
            self._remote = self._store.open(self._name)
        remote = self._remote
        data = memoryview(asked(str(self.path), lambda: remote.read_at(end - start, start)))
        if len(data) != end - start:
            raise RemoteUnreadable(
                path=str(self.path),
                reason=f"expected {end - start} bytes at {start}, got {len(data)}: it has changed",
            )
        for number in numbers:
            piece = data[number * PIECE - start : (number + 1) * PIECE - start]
            if _holds_data(piece):
                write_at(self.descriptor, piece, number * PIECE)
                self._data.add(number)
            self._loaded.add(number)

    def load_entry(self, position: int) -> None:
        self.load(position, position)
        tail = tail_position(self.buffer, position, self.size)
        if tail is not None and tail < self.size:
            self.load(tail, tail + LONGEST_TAIL)

    def read(self, position: int, size: int) -> bytes:
        self.load(position, max(position, 0) + max(size, 0))
        return super().read(position, size)

    def read_aside(self, position: int, size: int) -> bytes:
        self.load(position, position + size)
        return super().read_aside(position, size)

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The pieces of a range that have data, fetched one after the other. They overlap by some
        bytes, so that a search also finds what is on the border of two."""
        start = max(start, 0)
        for low in range(start // PIECE * PIECE, end, PIECE):
            high = min(low + PIECE, end)
            self.load(max(low, start), high)
            if low // PIECE in self._data:
                yield max(low - _OVERLAP, start), high

    def end_of_first_data(self) -> int:
        """The end of the file: where its data ends is not known without fetching it."""
        return self.size

    def close(self) -> None:
        super().close()
        self._remote = None


def _holds_data(piece: memoryview) -> bool:
    return bytes(piece).count(0) != len(piece)


def _scratch(size: int) -> int:
    """A descriptor of an unnamed sparse file, in the directory to which Spark spills."""
    known = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    directory = next((name for name in known if name and os.path.isdir(name)), None)
    with tempfile.TemporaryFile(dir=directory) as file:
        os.ftruncate(file.fileno(), size)
        return os.dup(file.fileno())
