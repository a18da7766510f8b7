"""``IndexService``: the files of ``index/`` as one index, newest last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from formats.geometry import Geometry
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.paths import remove_file, scan_names
from rmqctl.engine.index.header import IndexHeader, IndexItem, first_header
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.index.mending import repair

if TYPE_CHECKING:
    from rmqctl.engine.dispatch.batches import KeyBatch


class QueryItem(NamedTuple):
    """One hit of an index query: the file, the number of the item in it, the item."""

    path: Path
    index_no: int
    item: IndexItem
    store_time: int


class IndexService:
    """The files of ``index/`` in order of their names, opened when they are needed.

    With ``is_new`` nobody else knows of the directory yet, which has no files and gets them from
    batches: each is whole when it is full or after :meth:`flush`, its name on disk after
    :func:`~rmqctl.engine.files.paths.sync_directories`."""

    def __init__(
        self,
        directory: Path,
        geometry: Geometry,
        *,
        writable_root: Path | None = None,
        is_new: bool = False,
    ) -> None:
        self._is_new = is_new
        self.directory = directory
        self.geometry = geometry
        self.root = writable_root
        self.paths: list[Path] = []
        self.foreign: list[str] = []
        for name in scan_names(directory):
            path = directory / name
            if is_index_name(name) and path.is_file():
                self.paths.append(path)
            else:
                self.foreign.append(name)
        #: Called before a full file is forced to disk: what it speaks of must be there first.
        self.before_flush: Callable[[], object] = lambda: None
        self._last: IndexFile | None = None
        self._irregular: dict[Path, int] | None = None

    @property
    def irregular(self) -> dict[Path, int]:
        """Files of a wrong length, and how long they are: a reader passes over them.

        When no file is as long as the geometry says, and some hold something, it is the geometry
        that may be wrong, and none is here: opening one tells.
        """
        if self._irregular is None:
            sizes = {}
            for path in self.paths:
                with suppress(OSError):  # Opening tells of those.
                    sizes[path] = path.stat().st_size
            wrong = {path: size for path, size in sizes.items() if size != self.geometry.file_size}
            is_known = len(wrong) < len(sizes) or not any(wrong.values())
            self._irregular = wrong if is_known else {}
        return self._irregular

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

    def query(self, key_hash: int, begin: int, end: int) -> Iterator[QueryItem]:
        """Items of a key hash, newest file first (``IndexService#queryOffset``). Of a message that
        is indexed meanwhile there may be none."""
        is_growing = self.root is not None
        for path in reversed(self.paths):
            if path in self.irregular:
                continue
            file = self.open(path)
            try:
                if file.is_time_matched(begin, end):
                    items = file.select(key_hash, begin, end, is_growing=is_growing)
                    for index_no, item in items:
                        time = file.header.begin_timestamp + item.time_diff_seconds * 1000
                        yield QueryItem(path, index_no, item, time)
                if file.header.begin_timestamp < begin:
                    return
            finally:
                file.close()

    # --- writing -------------------------------------------------------------------------

    def last(self) -> IndexFile | None:
        """The newest file, open for writing; None when there is none."""
        if self._last is None and self.paths:
            assert self.root is not None, "opened for reading"
            mapped = MappedFile.open_writable(self.root, self.paths[-1])
            self._last = IndexFile(mapped, self.geometry)
        return self._last

    def open_writable(self, path: Path) -> IndexFile:
        """Opens one file for writing, which nobody else of this service has open; the caller closes
        it."""
        assert self.root is not None, "opened for reading"
        self.close()
        return IndexFile(MappedFile.open_writable(self.root, path), self.geometry)

    def remove(self, path: Path) -> None:
        """Removes a file for good; errors as of :func:`~rmqctl.engine.files.paths.remove_file`."""
        assert self.root is not None, "opened for reading"
        self.close()
        remove_file(self.root, path)
        self.paths.remove(path)

    def unsafe_since(self, index_timestamp: int) -> int | None:
        """Begin (store time, ms) of the oldest file that a start after a crash throws away, when
        the checkpoint's index time is this; None: it throws none away (``IndexService#load``)."""
        since, is_odd = None, False
        for path in reversed(self.paths):
            header = self._header(path)
            if header is None or 0 <= header.end_timestamp <= index_timestamp:
                # Where the file behind it begins the header of that does not tell.
                return header.end_timestamp if is_odd and header is not None else since
            since, is_odd = header.begin_timestamp, not header.is_plausible
        return 0 if is_odd else since

    def _header(self, path: Path) -> IndexHeader | None:
        """The header of a file; None of one of a wrong length."""
        if self._last is not None and self._last.path == path:
            return self._last.header
        if path in self.irregular:
            return None
        file = self.open(path)
        file.close()
        return file.header

    def recover(self, store_timestamp_at: Callable[[int], int | None]) -> None:
        """Undoes what a killed writer did not finish (:meth:`IndexFile.repair`)."""
        last = self.last()
        if last is None:
            return
        previous = None
        if len(self.paths) > 1:
            before = self.open(self.paths[-2])
            previous = before.header
            before.close()
        repair(last, store_timestamp_at, previous)

    def last_or_new(self) -> IndexFile:
        """The file for the next item (``IndexService#getAndCreateLastIndexFile``).

        :raises CannotWrite: a new one is needed and cannot be made.
        """
        last = self.last()
        if last is not None and not last.is_full:
            return last
        assert self.root is not None, "opened for reading"
        path = self.directory / self._new_name()
        head = first_header(last.header if last is not None else None).pack()
        mapped = MappedFile.create(
            self.root, path, self.geometry.file_size, head=head, durable=not self._is_new
        )
        fresh = self._new_file(mapped)
        if last is not None:
            self.before_flush()
            last.flush()
            last.close()
        self.paths.append(path)
        self._last = fresh
        return fresh

    def _new_file(self, mapped: MappedFile) -> IndexFile:
        if not self._is_new:
            return IndexFile(mapped, self.geometry)
        from rmqctl.engine.index.newindexfile import NewIndexFile

        return NewIndexFile(mapped, self.geometry)

    def _new_name(self) -> str:
        """A name of the current local time, after every existing one."""
        name = datetime.now().strftime("%Y%m%d%H%M%S%f")[:17]
        newest = max([p.name for p in self.paths], default="")
        return name if name > newest else str(int(newest) + 1)

    def put_message(
        self, key_hashes: Sequence[int], physical_offset: int, store_timestamp: int
    ) -> list[int]:
        """Indexes one message (``IndexService#buildIndex``); end timestamps of files it filled.

        A message without keys makes the file that its items would go to, too. One that the index
        already ends with gets only the items that are missing, and makes no file for none.
        """
        filled: list[int] = []
        pending = list(key_hashes)
        end = self._end_phy_offset()
        if physical_offset == end:
            pending = pending[self._items_of_last_message() :]
        if physical_offset < end or (physical_offset == end and not pending):
            return filled
        file = self.last_or_new()
        while pending:
            pending = pending[file.put_keys(pending, physical_offset, store_timestamp) :]
            if file.is_full:
                filled.append(file.header.end_timestamp)
            if pending:
                file = self.last_or_new()
        return filled

    def _items_of_last_message(self) -> int:
        """How many items the message at the end of the index has already, in however many files."""
        count = 0
        for path in reversed(self.paths):
            file = self._last if self._last is not None and self._last.path == path else None
            opened = file or self.open(path)
            try:
                own = opened.items_of_last_message()
                count += own
                if own < opened.item_count:
                    break
            finally:
                if file is None:
                    opened.close()
        return count

    def put_batch(self, keys: KeyBatch, last_record: int) -> list[int]:
        """:meth:`put_message` for a batch; end timestamps of files that it filled.

        ``last_record`` is the physical offset of the batch's last record: without a key it still
        makes the next file when the one before is full.
        """
        import numpy as np

        filled: list[int] = []
        end = self._end_phy_offset()
        at = int(np.searchsorted(keys.physical_offset, end, "left"))
        if at < len(keys.key_hash) and keys.physical_offset[at] == end:
            at += self._items_of_last_message()
        while at < len(keys.key_hash):
            file = self.last_or_new()
            at = file.put_key_batch(keys, at)
            if file.is_full:
                filled.append(file.header.end_timestamp)
        if last_record > self._end_phy_offset():
            self.last_or_new()
        return filled

    def filled_timestamp(self) -> int:
        """End timestamp of the newest full file; 0 without: the engine's checkpoint has it when
        that file is on disk (``IndexService#flush``)."""
        for path in reversed(self.paths):
            header = self._header(path)
            is_full = header is not None and header.index_count >= self.geometry.index_num
            if header is not None and header.is_plausible and (is_full or path != self.paths[-1]):
                return header.end_timestamp
        return 0

    def _end_phy_offset(self) -> int:
        """Where the last message with items lies; -1 without a file."""
        last = self.last()
        return -1 if last is None else last.header.end_phy_offset

    def flush(self) -> None:
        if self._last is not None:
            self._last.flush()

    def close(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None


def is_index_name(name: str) -> bool:
    """Whether a name is one that the engine gives: ``yyyyMMddHHmmssSSS``."""
    return len(name) == 17 and name.isascii() and name.isdigit()
