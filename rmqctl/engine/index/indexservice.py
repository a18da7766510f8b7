"""``IndexService``: the files of ``index/`` as one index, newest last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from formats.geometry import Geometry
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.opencache import OpenCache
from rmqctl.engine.files.paths import scan_names
from rmqctl.engine.index.header import IndexHeader, IndexItem
from rmqctl.engine.index.indexfile import IndexFile

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.engine.index.lookup import IndexReader, KeyRows, Lookup, RowMaker
    from rmqctl.engine.read.lines import KeyLines, LineMaker

#: Lookups after which the kernel is worth its loading.
_MANY_QUERIES = 32
#: What says that the kernel cannot read a file, or an argument that is no Unicode.
_NOT_READ = (OSError, EOFError, UnicodeEncodeError, OverflowError)
#: Files that stay open from one lookup to the next.
_KEPT = 16


class QueryItem(NamedTuple):
    """One hit of an index query: the file, the number of the item in it, the item."""

    path: Path
    index_no: int
    item: IndexItem
    store_time: int


class IndexService:
    """The files of ``index/`` in order of their names, for reading: opened when they are needed.

    Lookups leave those open that were looked into last, and what is open is what they look into,
    whatever became of its name. Any thread may ask.
    """

    #: Whether messages may be indexed while an item is looked for.
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
        #: So many files there were when these were opened; -1: they were not.
        self._readers_of = -1
        self._queries = 0
        #: What looks keys up where there are many: who asks once does not wait for it to load.
        self.compiled: ModuleType | None = None
        self._irregular: dict[Path, int] | None = None
        self._is_of_other_geometry = False

    @property
    def irregular(self) -> dict[Path, int]:
        """Files of a wrong length, and how long they are: a reader passes over them.

        When no file is as long as the geometry says, and some hold something, it is the geometry
        that may be wrong, and none is here: opening one tells.
        """
        if self._irregular is None:
            self._look_at_lengths()
            assert self._irregular is not None
        return self._irregular

    @property
    def is_of_other_geometry(self) -> bool:
        """Whether some files hold something, and none is as long as the geometry says: none of
        them can be read."""
        if self._irregular is None:
            self._look_at_lengths()
        return self._is_of_other_geometry

    def _look_at_lengths(self) -> None:
        sizes = {}
        for path in self.paths:
            with suppress(OSError):  # Opening tells of those.
                sizes[path] = path.stat().st_size
        wrong = {path: size for path, size in sizes.items() if size != self.geometry.file_size}
        self._is_of_other_geometry = len(wrong) == len(sizes) and any(wrong.values())
        self._irregular = {} if self._is_of_other_geometry else wrong

    def open(self, path: Path) -> IndexFile:
        """Opens one file for reading; the caller closes it."""
        return IndexFile(MappedFile.open(path), self.geometry)

    def files(self) -> Iterator[IndexFile]:
        """Every file in order, but :attr:`irregular` ones, each open only while it is looked at."""
        for path in self.paths:
            if path in self.irregular:
                continue
            file = self.open(path)
            try:
                yield file
            finally:
                file.close()

    def settle(self) -> None:
        """Told before a lookup: who puts, too, has everything stored then."""

    def query(self, key_hash: int, begin: int, end: int) -> Iterator[QueryItem]:
        """Items of a key hash, newest file first (``IndexService#queryOffset``). Of a message that
        is indexed meanwhile there may be none."""
        self.settle()
        self._queries += 1
        if self._queries == _MANY_QUERIES:
            self._load()
        for path in reversed(self.paths):
            if path in self.irregular:
                continue
            found = self._lookup(path)(key_hash, begin, end, is_growing=self.is_growing)
            first = found.begin_timestamp
            for index_no, item in found.items:
                yield QueryItem(path, index_no, item, first + item.time_diff_seconds * 1000)
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
        """The newest ``most`` messages of a key from a time (ms) on, made by the kernel's ``rows``
        of what stands in the log, where ``find`` gives the file of an offset.

        None where it does not make all of them: there is no record somewhere, or it is not plain,
        or there are more than a few, or the kernel is not there, or has no such text, which is what
        an argument has of other bytes than UTF-8: :meth:`query` gives them.
        """
        readers = self._settled_readers()
        if self.compiled is None or readers is None:
            return None
        try:
            found: KeyRows | None = self.compiled.rows_of_key(
                rows, readers, find, topic, key, begin, self.is_growing, most
            )
        except _NOT_READ:
            return None  # A search item by item comes upon it too, and says of which file.
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
        """The messages of :meth:`rows_of_key` of the first keys as ``lines``: before a key of which
        that gives none, or when there are enough, it ends; None where it does not begin."""
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
        """Told before many lookups: the kernel, where there is one, is worth its loading."""
        if self.compiled is None:
            self._load()

    def _settled_readers(self) -> list[IndexReader] | None:
        """What the kernel looks into all files with, which have what was stored so far; None where
        it does not."""
        if self.compiled is None:
            return None
        self.settle()
        if self._readers_of != len(self.paths):
            self._readers = self._compiled_readers()
            self._readers_of = len(self.paths)
        return self._readers

    def _compiled_readers(self) -> list[IndexReader] | None:
        """What the kernel looks into all files with, newest first; None where it does not, or there
        are more than stay open."""
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
        """Begin (store time, ms) of the oldest file that a start after a crash throws away, when
        the checkpoint's index time is this; None: it throws none away (``IndexService#load``)."""
        since, is_odd = None, False
        for path in reversed(self.paths):
            header = self._header(path)
            if header is not None and header.index_count <= 1 and not header.end_timestamp:
                continue  # A crash leaves zeros of one that was just made, and tells nothing.
            if header is None or 0 <= header.end_timestamp <= index_timestamp:
                # Where the file behind it begins the header of that does not tell.
                return header.end_timestamp if is_odd and header is not None else since
            since, is_odd = header.begin_timestamp, not header.is_plausible
        return 0 if is_odd else since

    def filled_timestamp(self, changed: Collection[Path] = ()) -> int:
        """End timestamp of the newest full file before those that are ``changed``; 0 without: the
        engine's checkpoint has it when that file is on disk (``IndexService#flush``)."""
        return next(self._filled_timestamps(changed), 0)

    def latest_timestamp(self, changed: Collection[Path]) -> int:
        """The latest of all full files before those that are ``changed``, which is to stay trusted,
        too: an older one than the newest, where the clock has gone back. Looks at every file."""
        return max(self._filled_timestamps(changed), default=0)

    def _filled_timestamps(self, changed: Collection[Path]) -> Iterator[int]:
        paths = list(takewhile(lambda path: path not in changed, self.paths))
        for path in reversed(paths):
            header = self._header(path)
            is_full = header is not None and header.index_count >= self.geometry.index_num
            if header is not None and header.is_plausible and (is_full or path != paths[-1]):
                yield header.end_timestamp

    def last_header(self) -> IndexHeader | None:
        """That of the newest file; None without one, or where it is of a wrong length."""
        return self._header(self.paths[-1]) if self.paths else None

    def _header(self, path: Path) -> IndexHeader | None:
        """The header of a file; None of one of a wrong length."""
        if path in self.irregular:
            return None
        file = self.open(path)
        file.close()
        return file.header

    def close(self) -> None:
        """Lets go of the files; what somebody looks into lives on with him."""
        self._forget()


def is_index_name(name: str) -> bool:
    """Whether a name is one that the engine gives: ``yyyyMMddHHmmssSSS``."""
    return len(name) == 17 and name.isascii() and name.isdigit()
