"""``IndexService``: the files of ``index/`` as one index, newest last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from formats.constants import LONG_MAX
from formats.geometry import Geometry
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.opencache import OpenCache
from rmqctl.engine.files.paths import scan_names
from rmqctl.engine.index.header import IndexHeader, IndexItem, item_store_time
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.errors import CannotRead

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.engine.index.lookup import IndexReader, KeyRows, Lookup, RowMaker
    from rmqctl.engine.read.lines import KeyLines, LineMaker

#: Number of lookups after which loading the compiled kernel pays.
_MANY_QUERIES = 32
#: Errors of the kernel for a file that it cannot read, or a text that is no valid Unicode.
_NOT_READ = (OSError, EOFError, UnicodeEncodeError, OverflowError)
#: Files that stay open from one lookup to the next.
_KEPT = 16


class QueryItem(NamedTuple):
    """One hit of an index query: the file, the item's number in it, the item, and its time (ms)."""

    path: Path
    index_no: int
    item: IndexItem
    store_time: int


class IndexService:
    """The files of ``index/`` in the order of their names, for reading.

    Files are opened when they are needed, and the last ones used stay open. An open file is used
    even when its name is gone. Any thread may look up.
    """

    #: Whether messages may be indexed during a lookup.
    is_growing = False

    def __init__(self, directory: Path, geometry: Geometry) -> None:
        self.directory = directory
        self.geometry = geometry
        self.paths: list[Path] = []
        self.foreign: list[str] = []
        for name in scan_names(directory):
            path = directory / name
            if is_index_name(name) and path.is_file():
                self.paths.append(path)
            else:
                self.foreign.append(name)
        self._lookups: OpenCache[str, Lookup] = OpenCache(_KEPT)
        self._readers: list[IndexReader] | None = None
        #: Number of files when ``_readers`` were opened; -1: they are not open.
        self._readers_of = -1
        self._queries = 0
        #: The compiled kernel, loaded after many lookups: a single one would wait longer for it.
        self.compiled: ModuleType | None = None
        self._irregular: dict[Path, int] | None = None
        self._is_of_other_geometry = False

    @property
    def irregular(self) -> dict[Path, int]:
        """Files of a wrong length, and their lengths. A reader skips them.

        Empty when no file has the length of the geometry and some are not empty: then the geometry
        may be wrong, and opening a file raises an error.
        """
        if self._irregular is None:
            self._look_at_lengths()
            assert self._irregular is not None
        return self._irregular

    @property
    def is_of_other_geometry(self) -> bool:
        """Whether no file has the length of the geometry, and some are not empty: none of them can
        be read."""
        if self._irregular is None:
            self._look_at_lengths()
        return self._is_of_other_geometry

    def _look_at_lengths(self) -> None:
        sizes = {}
        for path in self.paths:
            with suppress(OSError):  # Opening such a file will raise.
                sizes[path] = path.stat().st_size
        wrong = {path: size for path, size in sizes.items() if size != self.geometry.file_size}
        self._is_of_other_geometry = len(wrong) == len(sizes) and any(wrong.values())
        self._irregular = {} if self._is_of_other_geometry else wrong

    def open(self, path: Path) -> IndexFile:
        """Opens one file for reading; the caller closes it."""
        return IndexFile(MappedFile.open(path), self.geometry)

    def files(self) -> Iterator[IndexFile]:
        """Every file in order, without the :attr:`irregular` ones. Each is open until the next."""
        for path in self.paths:
            if path in self.irregular:
                continue
            file = self.open(path)
            try:
                yield file
            finally:
                file.close()

    def settle(self) -> None:
        """Called before a lookup; a writer waits here until all items are stored."""

    def items_of_message(self, physical_offset: int) -> int:
        """How many items the index has of its last message, over all files that hold some.

        An irregular file ends the search: nobody reads it, so its items do not count.

        :param physical_offset: that of the last message.
        """
        self.settle()
        count = 0
        for path in reversed(self.paths):
            if path in self.irregular:
                break
            file = self.open(path)
            try:
                if file.header.end_phy_offset != physical_offset:
                    # The message has all items of the next file, and none in this one.
                    break
                own = file.items_of_last_message()
                count += own
                if own < file.item_count:
                    break
            finally:
                file.close()
        return count

    def query(self, key_hash: int, begin: int, end: int) -> Iterator[QueryItem]:
        """Items of a key hash with times in ``[begin, end]`` (ms), newest file first
        (``IndexService#queryOffset``). A message that is indexed meanwhile may be missed.

        Their times are those of :func:`item_store_time`.
        """
        self.settle()
        self._queries += 1
        if self._queries == _MANY_QUERIES:
            self._load()
        for path in reversed(self.paths):
            if path in self.irregular:
                continue
            found = self._lookup(path)(key_hash, begin, LONG_MAX, is_growing=self.is_growing)
            first = found.begin_timestamp
            for index_no, item in found.items if first <= end else ():
                store_time = item_store_time(first, index_no, item.time_diff_seconds)
                if store_time <= end:
                    yield QueryItem(path, index_no, item, store_time)
            if first < begin:
                return

    def rows_of_key(
        self,
        rows: RowMaker,
        find: Callable[[int], MappedFile | None],
        topic: str,
        key: str,
        begin: int,
        most: int,
    ) -> KeyRows | None:
        """The newest ``most`` messages of a key, as rows that the kernel makes from the log.

        :param rows: the kernel's ``Rows``. :param find: returns the log file of a physical offset.
        :param begin: earliest store time (ms).
        :returns: None when the kernel does not make all rows, so that :meth:`query` has to: there
            is no kernel, a record is missing or not plain, there are too many, or a text is no
            valid Unicode.
        """
        readers = self._settled_readers()
        if self.compiled is None or readers is None:
            return None
        try:
            found: KeyRows | None = self.compiled.rows_of_key(
                rows, readers, find, topic, key, begin, self.is_growing, most
            )
        except _NOT_READ:
            return None  # A search item by item fails as well, and names the file.
        return found

    def lines_of_keys(
        self,
        lines: LineMaker,
        find: Callable[[int], MappedFile | None],
        topic: str,
        keys: Sequence[str],
        begin: int,
        most: int,
    ) -> KeyLines | None:
        """:meth:`rows_of_key` for several keys, as lines of text. It stops before a key for which
        that method would return None, and when there are enough lines; None when that is the first
        key."""
        readers = self._settled_readers()
        if self.compiled is None or readers is None:
            return None
        try:
            made: KeyLines = self.compiled.lines_of_keys(
                lines, readers, find, topic, keys, begin, self.is_growing, most
            )
        except _NOT_READ:
            return None
        return made

    def expect_many(self) -> None:
        """Called before many lookups: loads the compiled kernel, if there is one."""
        if self.compiled is None:
            self._load()

    def _settled_readers(self) -> list[IndexReader] | None:
        """The kernel's readers of all files, newest first, when all items are stored; None when the
        kernel does not read all of them."""
        if self.compiled is None:
            return None
        self.settle()
        if self._readers_of != len(self.paths):
            self._readers = self._compiled_readers()
            self._readers_of = len(self.paths)
        return self._readers

    def _compiled_readers(self) -> list[IndexReader] | None:
        """The kernel's readers of all files, newest first. None when it does not read one of them,
        or there are more than stay open."""
        paths = [path for path in reversed(self.paths) if path not in self.irregular]
        if len(paths) > _KEPT:
            return None
        readers = [self._lookup(path).reader for path in paths]
        return None if None in readers else cast("list[IndexReader]", readers)

    def _load(self) -> None:
        from rmqctl import kernel

        self._forget()
        self.compiled = kernel.module()

    def _forget(self) -> None:
        self._lookups.clear()
        self._readers, self._readers_of = None, -1

    def _lookup(self, path: Path) -> Lookup:
        found = self._lookups.get(path.name)
        if found is None:
            from rmqctl.engine.index.lookup import lookup_of

            def open_one() -> Lookup:
                return lookup_of(path, self.geometry, self.compiled)

            found = self._lookups.get(path.name, open_one)
        return found

    def unsafe_since(self, index_timestamp: int) -> int | None:
        """Begin time (ms) of the oldest file that a start after a crash deletes when the
        checkpoint's index time is ``index_timestamp``; None when it deletes none
        (``IndexService#load``)."""
        since, is_odd = None, False
        for path in reversed(self.paths):
            header = self._header(path)
            if header is not None and header.index_count <= 1 and not header.end_timestamp:
                continue  # A new file that a crash has left as zeros says nothing.
            if header is None or 0 <= header.end_timestamp <= index_timestamp:
                # The header of the file behind it is not to be trusted for its begin.
                return header.end_timestamp if is_odd and header is not None else since
            since, is_odd = header.begin_timestamp, not header.is_plausible
        return 0 if is_odd else since

    def is_growing_since(self, timestamp: int) -> bool:
        """Whether the newest file is not full, and ends at just this store time (ms), as where it
        begins amid the messages of one millisecond; of one without an item no more is said than
        where the one before it ends."""
        header = self.last_header()
        return (
            header is not None
            and header.is_plausible
            and header.index_count < self.geometry.index_num
            and 0 < header.end_timestamp == timestamp
        )

    def latest_timestamp(self, changed: Collection[Path] = ()) -> int:
        """The latest end time (ms) of all full files before the first ``changed`` one; 0 without.
        Where the clock was set back, it is not that of the newest file. It goes to the checkpoint
        when these files are on disk (``IndexService#flush``). Reads every header."""
        paths = list(takewhile(lambda path: path not in changed, self.paths))
        latest = 0
        for path in paths:
            try:
                header = self._header(path)
            except CannotRead:
                if path.exists():
                    raise
                continue  # A retention has removed it since the names were listed.
            is_full = header is not None and header.index_count >= self.geometry.index_num
            if header is not None and header.is_plausible and (is_full or path != paths[-1]):
                latest = max(latest, header.end_timestamp)
        return latest

    def last_header(self) -> IndexHeader | None:
        """The header of the newest file; None without files, or when that is irregular."""
        return self._header(self.paths[-1]) if self.paths else None

    def _header(self, path: Path) -> IndexHeader | None:
        """The header of a file; None when the file is irregular."""
        if path in self.irregular:
            return None
        file = self.open(path)
        file.close()
        return file.header

    def close(self) -> None:
        """Drops the open files. A lookup that still runs goes on with its files."""
        self._forget()


def is_index_name(name: str) -> bool:
    """Whether a name has the form of an index file's: ``yyyyMMddHHmmssSSS``."""
    return len(name) == 17 and name.isascii() and name.isdigit()
