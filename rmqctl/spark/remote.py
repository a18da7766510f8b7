"""Stores in object storage, and wherever else no map reaches: ``s3://``, ``gs://``, ``hdfs://``, ….

The engine works on maps. So a file of such a store is an unnamed sparse file in the scratch
directory, as long as the listing says, into which the ranges that are about to be read are fetched
(:class:`RemoteFile`). The engine tells what it is about to read, and works on it unchanged; a range
that was not fetched is never looked at, so a hole is never taken for zeros of the log. Names of the
other side only ever become parts of requests: the scratch files have no name, and end with their
process.

Filesystems are pyarrow's, for the schemes that it knows, else fsspec's. Keys and endpoints are
found as those do it: in the environment of every node, or in the URL's query.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PosixPath
from struct import Struct
from typing import Any, NamedTuple

from formats.constants import INDEX_HEADER_SIZE
from rmqctl.engine import paths
from rmqctl.engine.commitlog import CommitLog
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.consumequeue import ConsumeQueue
from rmqctl.engine.indexfile import IndexFile
from rmqctl.engine.indexservice import is_index_name
from rmqctl.engine.mappedfile import FileEntry, MappedFile, MappedFileQueue, is_offset_name
from rmqctl.engine.record import HOSTS_V6_MASK, PREFIXES
from rmqctl.errors import NotAStore, RmqctlError, StoreNotFound
from rmqctl.spark.staging import is_remote

#: What is fetched at least; zeros take no room on the disk.
PIECE = 1 << 20
_REQUEST = 8 << 20
#: More than a record's fields before the body.
_HEAD = 128
#: More than what follows a record's body: its topic and properties, each of a Java short.
_TAIL = (1 << 16) + 16
# A record's magic code is searched for 4 bytes behind its start, and never across extents.
_OVERLAP = 8
_LARGEST = 0x7FFFFFFF
_SYS_FLAG_POSITION = 36
_INT = Struct(">i")
_NOWHERE = Path("/dev/null/remote")
_PYARROW = frozenset(("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss", "local"))
_SAME = {"s3a": "s3", "s3n": "s3"}


class RemoteUnreadable(RmqctlError):
    """The other side, or the network, refused: never a statement about the bytes."""

    template = (
        "cannot read {path}: {reason}. Check the address, the network, and the credentials in "
        "the environment of every node."
    )


class UrlPath(PosixPath):
    """A URL where the engine has paths: for messages only."""

    url = ""

    def __str__(self) -> str:
        return self.url or super().__str__()


def _url_path(url: str, name: str) -> UrlPath:
    path = UrlPath(name)
    path.url = f"{shown(url)}/{name}"
    return path


def shown(store: str) -> str:
    """A store's name for rows and messages: a URL without user, password and query."""
    if not is_remote(store):
        return store
    return re.sub(r"^([^:]+://)[^/@]*@", r"\1", store.partition("?")[0]).rstrip("/")


@lru_cache(maxsize=64)
def connect(url: str) -> tuple[Any, str]:
    """The filesystem of a URL, and the path in it.

    :raises RemoteUnreadable: there is none for its scheme, or it cannot be reached.
    """
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    scheme, rest = url.split("://", 1)
    scheme = _SAME.get(scheme, scheme)
    with told(url):
        if scheme in _PYARROW:
            filesystem, path = FileSystem.from_uri(f"{scheme}://{rest}")
            return filesystem, path.rstrip("/")
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise RemoteUnreadable(
                path=shown(url),
                reason=f"pyarrow has no filesystem for {scheme}://, and fsspec is not installed: "
                "`pip install fsspec`, and its package for this scheme",
            ) from error
        filesystem, path = url_to_fs(url)
        return PyFileSystem(FSSpecHandler(filesystem)), path.rstrip("/")


@contextmanager
def told(url: str) -> Iterator[None]:
    """Makes rmqctl's error of whatever a filesystem raises: their classes have nothing in common.

    :raises RemoteUnreadable: instead.
    """
    try:
        yield
    except RmqctlError:
        raise
    except Exception as error:
        lines = str(error).replace(url, shown(url)).strip().splitlines()
        reason = (lines or [type(error).__name__])[0][:300].rstrip(".")
        raise RemoteUnreadable(path=shown(url), reason=reason) from error


def expand_url(pattern: str) -> list[str]:
    """The stores that a URL with ``*`` or ``[…]`` in its path means, sorted; ``?`` starts a query.

    :raises RemoteUnreadable, StoreNotFound: it cannot be listed, or means nothing.
    """
    address, mark, query = pattern.partition("?")
    scheme, rest = address.rstrip("/").split("://", 1)
    found = [""]
    for number, part in enumerate(rest.split("/")):
        if number and ("*" in part or "[" in part):
            found = [
                f"{base}/{name}"
                for base in found
                for name, size in RemoteStore(f"{scheme}://{base}{mark}{query}").names("")
                if size is None and fnmatchcase(name, part)
            ]
        else:
            found = [f"{base}/{part}" if number else part for base in found]
    if not found:
        raise StoreNotFound(path=shown(pattern))
    return [f"{scheme}://{base}{mark}{query}" for base in sorted(found)]


def check_store(url: str) -> None:
    """:raises StoreNotFound, NotAStore, RemoteUnreadable: there is no store at a URL."""
    names = {name for name, _ in RemoteStore(url).names("")}
    if not names:
        raise StoreNotFound(path=shown(url))
    if not names & {paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.CHECKPOINT}:
        reason = "it has no commitlog/, consumequeue/ or checkpoint"
        raise NotAStore(path=shown(url), reason=reason)


class RemoteQueue(NamedTuple):
    """A queue as the listing shows it; ``sizes`` are those of its files."""

    topic: str
    queue_id: int
    sizes: list[int]


class RemoteStore:
    """The files of one store, listed when they are asked for."""

    def __init__(self, url: str, config: MessageStoreConfig | None = None) -> None:
        from pyarrow.fs import FSSpecHandler

        self.url = url
        self._config = config or MessageStoreConfig()
        self._filesystem, self._base = connect(url)
        if isinstance(handler := getattr(self._filesystem, "handler", None), FSSpecHandler):
            handler.fs.invalidate_cache()  # What was listed may have changed since.
        #: Names that no store has, as text that is safe to show.
        self.refused: list[str] = []

    def names(self, directory: str) -> list[tuple[str, int | None]]:
        """Sorted names below a directory, with sizes; None for directories. Without it: none."""
        return sorted(
            (parts[0], size) for parts, size in self._listed(directory, False) if len(parts) == 1
        )

    def _listed(self, directory: str, recursive: bool) -> Iterator[tuple[list[str], int | None]]:
        from pyarrow.fs import FileSelector, FileType

        place = f"{self._base}/{directory}".rstrip("/")
        with told(self.url):
            selector = FileSelector(place, allow_not_found=True, recursive=recursive)
            for info in self._filesystem.get_file_info(selector):
                if not info.path.startswith(place + "/"):
                    continue
                size = info.size if info.type == FileType.File else None
                yield info.path[len(place) + 1 :].rstrip("/").split("/"), size

    def files(self, directory: str) -> list[FileEntry]:
        """The files of a directory whose names are offsets.

        :raises RemoteUnreadable: one is longer than any file of a broker.
        """
        entries = []
        for name, size in self.names(directory):
            if size is None or not is_offset_name(name):
                continue
            path = _url_path(self.url, f"{directory}/{name}")
            entries.append(FileEntry(int(name), path, _checked(size, path)))
        return entries

    def log(self) -> CommitLog:
        """The log, for reading."""
        return CommitLog(_NOWHERE, 1, files=RemoteFiles(self, paths.COMMIT_LOG, keep=4))

    def queues(self) -> list[RemoteQueue]:
        """Every queue, sorted by topic and number; what no queue is called is :attr:`refused`."""
        found: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self.refused = []
        for parts, size in self._listed(paths.CONSUME_QUEUE, True):
            if len(parts) < 2 or not paths.is_queue_id(parts[1]):
                continue
            topic = parts[0]
            if paths.topic_directory_problem(topic) is not None or not topic.isprintable():
                self.refused.append(ascii(topic))
                continue
            names = found.setdefault((topic, int(parts[1])), [])
            if len(parts) == 3 and size is not None and is_offset_name(parts[2]):
                names.append((parts[2], size))
        self.refused = sorted(set(self.refused))
        return [
            RemoteQueue(*key, [size for _, size in sorted(found[key])]) for key in sorted(found)
        ]

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """One queue; what it is asked for is fetched in whole files.

        :raises FileLengthContradiction: its files are not of one length.
        """
        paths.check_topic_directory(topic)
        files = RemoteFiles(self, f"{paths.CONSUME_QUEUE}/{topic}/{queue_id}", keep=2, whole=True)
        size = self._config.mapped_file_size_consume_queue
        if files.entries and not self._config.is_explicit("mapped_file_size_consume_queue"):
            size = files.entries[0].size
        return ConsumeQueue(_NOWHERE, topic, queue_id, size, files=files)

    def index_names(self) -> list[str]:
        return [n for n, size in self.names(paths.INDEX) if size is not None and is_index_name(n)]

    def index_file(self, name: str) -> IndexFile:
        """One index file; its items are fetched as they are read."""
        if not is_index_name(name):
            raise RemoteUnreadable(path=shown(self.url), reason="no index file has such a name")
        path = _url_path(self.url, f"{paths.INDEX}/{name}")
        with told(self.url):
            (info,) = self._filesystem.get_file_info([f"{self._base}/{paths.INDEX}/{name}"])
        mapped = RemoteFile(self, f"{paths.INDEX}/{name}", path, _checked(info.size, path), 0)
        mapped.load(0, INDEX_HEADER_SIZE)
        return IndexFile(mapped, self._config.index_geometry)

    def open(self, name: str) -> Any:
        """A file to read at places."""
        with told(self.url):
            return self._filesystem.open_input_file(f"{self._base}/{name}")


def _checked(size: int | None, path: Path) -> int:
    if size is None or not 0 <= size <= _LARGEST:
        raise RemoteUnreadable(path=str(path), reason=f"a broker has no file of {size} bytes")
    return size


class RemoteFiles(MappedFileQueue):
    """The files of one directory of a remote store."""

    def __init__(self, store: RemoteStore, name: str, *, keep: int, whole: bool = False) -> None:
        self._store, self._name, self._whole = store, name, whole
        super().__init__(_url_path(store.url, name), 1, keep=keep)

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
        self, store: RemoteStore, name: str, path: Path, size: int, file_from_offset: int
    ) -> None:
        self._store, self._name = store, name
        self._remote: Any = None
        self._loaded: set[int] = set()
        self._data: set[int] = set()
        super().__init__(path, _scratch(size), file_from_offset, False)

    def load(self, start: int, end: int) -> None:
        """Fetches what is missing of a range, and a little behind it: who looks at a place sees
        the fields of an entry there.

        :raises RemoteUnreadable: the other side refuses, or has less than its listing says.
        :raises OSError: the scratch disk is full.
        """
        end = min(end + _HEAD, self.size)
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
                _store(self.descriptor, piece, number * PIECE)
                self._data.add(number)
            self._loaded.add(number)

    def load_entry(self, position: int) -> None:
        self.load(position, position)
        if position + PREFIXES[0].size > self.size:
            return
        (flags,) = _INT.unpack_from(self.buffer, position + _SYS_FLAG_POSITION)
        prefix = PREFIXES[flags & HOSTS_V6_MASK]
        if position + prefix.size <= self.size:
            behind = position + prefix.size + max(prefix.unpack_from(self.buffer, position)[16], 0)
            if behind < self.size:
                self.load(behind, behind + _TAIL)

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


def _store(descriptor: int, data: memoryview, position: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, position)
        data, position = data[written:], position + written
