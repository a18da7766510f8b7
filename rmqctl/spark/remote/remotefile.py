"""Files of object storage as the engine has them, fetched in the ranges that it is about to read.

A file is an unnamed sparse file in the scratch directory, as long as the listing says, into which
ranges are fetched. The engine tells what it is about to read, and works on it unchanged; a range
that was not fetched is never looked at, so a hole is never taken for zeros of the log. Names of the
other side only ever become parts of requests: the scratch files have no name, and end with their
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
from rmqctl.spark.remote.urls import RemoteUnreadable, told, url_path

#: What is fetched at least; zeros take no room on the disk.
PIECE = 1 << 20
_REQUEST = 8 << 20
# A record's magic code is searched for behind its size, and never across extents.
_OVERLAP = BLANK.size


class Store(Protocol):
    """Where the files are: :class:`rmqctl.spark.remote.remote.RemoteStore`."""

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
    """A file of which only what was :meth:`load`-ed is there.

    Everything that reads without saying what is overridden to load first; the buffer itself must
    be read only where :meth:`load` or :meth:`load_entry` was told of it.
    """

    def __init__(
        self, store: Store, name: str, path: Path, size: int, file_from_offset: int
    ) -> None:
        self._store, self._name = store, name
        self._remote: Any = None
        self._loaded: set[int] = set()
        self._data: set[int] = set()
        super().__init__(path, _scratch(size), file_from_offset, False)
        # Its holes are pieces of zeros, and those that nobody has asked for.
        self.whole = (0, size)

    def load(self, start: int, end: int) -> None:
        """Fetches what is missing of a range, and a little behind it: who looks at a place sees
        the fields of an entry there.

        :raises RemoteUnreadable: the other side refuses, or has less than its listing says.
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
        """Fetches neighbouring pieces by one request."""
        start, end = numbers[0] * PIECE, min((numbers[-1] + 1) * PIECE, self.size)
        with told(str(self.path)):
            if self._remote is None:
                self._remote = self._store.open(self._name)
            data = memoryview(self._remote.read_at(end - start, start))
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
        """The pieces of a range that hold data, fetched one after the other. They overlap by some
        bytes, so that what is searched for is found where two of them meet."""
        start = max(start, 0)
        for low in range(start // PIECE * PIECE, end, PIECE):
            high = min(low + PIECE, end)
            self.load(max(low, start), high)
            if low // PIECE in self._data:
                yield max(low - _OVERLAP, start), high

    def end_of_first_data(self) -> int:
        """Nobody knows without fetching it."""
        return self.size

    def close(self) -> None:
        super().close()
        self._remote = None


def _holds_data(piece: memoryview) -> bool:
    return bytes(piece).count(0) != len(piece)


def _scratch(size: int) -> int:
    """A descriptor of a sparse file without a name, where Spark keeps what it spills."""
    known = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    directory = next((name for name in known if name and os.path.isdir(name)), None)
    with tempfile.TemporaryFile(dir=directory) as file:
        os.ftruncate(file.fileno(), size)
        return os.dup(file.fileno())
