"""Stores in object storage and other file systems that cannot be mapped: ``s3://``, ``gs://``,
``hdfs://``, ….

The engine needs mapped files. So the ranges that it is about to read are fetched into local ones
(:mod:`rmqctl.spark.remote.remotefile`).
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from formats.constants import INDEX_HEADER_SIZE, INT_MAX
from rmqctl.engine.files import paths
from rmqctl.engine.files.answers import PATIENCE
from rmqctl.engine.files.filequeue import FileEntry, is_offset_name
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.index.indexservice import is_index_name
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import NotAStore, StoreNotFound
from rmqctl.spark.remote.remotefile import RemoteFile, RemoteFiles
from rmqctl.spark.remote.urls import RemoteUnreadable, asked, connect, shown, url_path

_NOWHERE = Path("/dev/null/remote")


def expand_url(pattern: str) -> list[str]:
    """The stores that a URL with ``*`` or ``[…]`` in its path matches, sorted. ``?`` begins the
    URL's query.

    :raises RemoteUnreadable, StoreNotFound: it cannot be listed, or matches nothing.
    """
    address, mark, query = pattern.partition("?")
    scheme, rest = address.split("://", 1)
    found = [""]
    for number, part in enumerate(rest.rstrip("/").split("/")):
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
    RemoteStore(url).check()


class RemoteQueue(NamedTuple):
    """A queue, by the listing. ``sizes`` are the lengths (bytes) of its files."""

    topic: str
    queue_id: int
    sizes: list[int]


class RemoteStore:
    """The files of one store. They are listed when they are needed."""

    def __init__(self, url: str, config: MessageStoreConfig | None = None) -> None:
        from pyarrow.fs import FSSpecHandler

        self.url = url
        self._config = config or MessageStoreConfig()
        self._filesystem, self._base = connect(url)
        if isinstance(handler := getattr(self._filesystem, "handler", None), FSSpecHandler):
            handler.fs.invalidate_cache()  # A cached listing may be out of date.
        #: Names of directories that cannot be queues, as text that is safe to print.
        self.refused: list[str] = []

    def check(self) -> None:
        """:raises StoreNotFound, NotAStore, RemoteUnreadable: there is no store at its URL."""
        names = {name for name, _ in self.names("")}
        if not names:
            raise StoreNotFound(path=shown(self.url))
        if not names & {paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.CHECKPOINT}:
            reason = "it has no commitlog/, consumequeue/ or checkpoint"
            raise NotAStore(path=shown(self.url), reason=reason)

    def names(self, directory: str) -> list[tuple[str, int | None]]:
        """The sorted names in a directory, with sizes; None for directories. Empty if there is no
        such directory."""
        return sorted(
            (parts[0], size) for parts, size in self._listed(directory, False) if len(parts) == 1
        )

    def _listed(self, directory: str, recursive: bool) -> Iterator[tuple[list[str], int | None]]:
        for name, size, _ in self._infos(directory, recursive):
            yield name.split("/"), size

    def _infos(self, directory: str, recursive: bool) -> Iterator[tuple[str, int | None, int]]:
        """The names in a directory, with sizes (None for directories) and times of the last change
        (ns; 0 if unknown)."""
        from pyarrow.fs import FileSelector, FileType

        place = f"{self._base}/{directory}".rstrip("/")
        selector = FileSelector(place, allow_not_found=True, recursive=recursive)
        # The names of a whole store may be many thousand answers.
        within = None if recursive else PATIENCE
        for info in asked(self.url, lambda: self._filesystem.get_file_info(selector), within):
            if not info.path.startswith(place + "/"):
                continue
            size = info.size if info.type == FileType.File else None
            yield info.path[len(place) + 1 :].rstrip("/"), size, info.mtime_ns or 0

    def listing(self) -> Iterator[tuple[str, int, int]]:
        """Every file of the store: its name, its size (bytes), and when it was last changed
        (ns)."""
        for name, size, changed in self._infos("", True):
            if size is not None:
                yield name, size, changed

    def files(self, directory: str) -> list[FileEntry]:
        """The files of a directory whose names are offsets.

        :raises RemoteUnreadable: one is longer than any file of a broker.
        """
        entries = []
        for name, size in self.names(directory):
            if size is None or not is_offset_name(name):
                continue
            path = url_path(self.url, f"{directory}/{name}")
            entries.append(FileEntry(int(name), path, _checked(size, path)))
        return entries

    def log(self) -> CommitLog:
        """The log, for reading."""
        return CommitLog(_NOWHERE, 1, files=RemoteFiles(self, paths.COMMIT_LOG, keep=4))

    def queues(self) -> list[RemoteQueue]:
        """Every queue, sorted by topic and queue id. Names that cannot be queues go to
        :attr:`refused`."""
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
        """One queue. Its files are fetched as a whole when they are needed. Without a configured
        size they have that of most of them."""
        paths.check_topic_directory(topic)
        files = RemoteFiles(self, f"{paths.CONSUME_QUEUE}/{topic}/{queue_id}", keep=2, whole=True)
        size = self._config.mapped_file_size_consume_queue
        if files.entries and not self._config.is_explicit("mapped_file_size_consume_queue"):
            sizes = [entry.size for entry in files.entries]
            size = max(sizes, key=sizes.count)
        files.file_size = size
        return ConsumeQueue(_NOWHERE, topic, queue_id, size, files=files)

    def index_names(self) -> list[str]:
        return [n for n, size in self.names(paths.INDEX) if size is not None and is_index_name(n)]

    def index_file(self, name: str) -> IndexFile:
        """One index file. Its items are fetched when they are read."""
        if not is_index_name(name):
            raise RemoteUnreadable(path=shown(self.url), reason="no index file has such a name")
        path = url_path(self.url, f"{paths.INDEX}/{name}")
        wanted = [f"{self._base}/{paths.INDEX}/{name}"]
        (info,) = asked(self.url, lambda: self._filesystem.get_file_info(wanted), PATIENCE)
        mapped = RemoteFile(self, f"{paths.INDEX}/{name}", path, _checked(info.size, path), 0)
        mapped.load(0, INDEX_HEADER_SIZE)
        return IndexFile(mapped, self._config.index_geometry)

    def open(self, name: str) -> Any:
        """Opens a file for reading at any position."""
        place = f"{self._base}/{name}"
        return asked(self.url, lambda: self._filesystem.open_input_file(place), PATIENCE)


def _checked(size: int | None, path: Path) -> int:
    if size is None or not 0 <= size <= INT_MAX:
        raise RemoteUnreadable(path=str(path), reason=f"a broker has no file of {size} bytes")
    return size
