"""The writing half of :mod:`rmqctl.engine.index.indexservice`: it adds the items of messages, and
makes the next file when one is full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from formats.constants import DEFAULT_MAX_INDEX_NUM
from formats.geometry import Geometry
from rmqctl.engine.files.dirty import Unsynced
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.writing import Forced, remove_file
from rmqctl.engine.index.header import IndexHeader, first_header
from rmqctl.engine.index.indexfilewriter import IndexFileWriter
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.index.mending import repair
from rmqctl.errors import UsageError

if TYPE_CHECKING:
    from types import ModuleType

    from rmqctl.engine.dispatch.batches import KeyBatch


class IndexFilesTooSmall(UsageError):
    """The settings ask for index files that have no room for an item."""

    template = (
        "index files with a maxIndexNum of {count} have no room for an item, and a broker makes "
        "one after the other for the first key. No index file was made. Give a broker.conf with "
        "maxIndexNum of 2 or more (its default is {default})."
    )


class KeyRun(NamedTuple):
    """The index keys of records that the compiled kernel has stored, in the order of their items.

    These are the columns of a ``KeyBatch``, as native numbers of 32, 64 and 64 bits.
    """

    key_hash: bytearray
    physical_offset: bytearray
    store_timestamp: bytearray

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return len(self.physical_offset) // 8

    def at(self, number: int) -> tuple[int, int]:
        """Physical offset and store time of a key."""
        columns = self.physical_offset, self.store_timestamp
        offset, stamp = (int(memoryview(column).cast("q")[number]) for column in columns)
        return offset, stamp


class IndexServiceWriter(IndexService):
    """The index of a store that is open for writing; its newest file stays open.

    :param root: the directory below which no link is followed.
    :param is_new: the directory is empty and nobody else knows of it yet. Its files get batches
        only. A file is whole when it is full or after :meth:`flush`; its name is on disk after
        :func:`~rmqctl.engine.files.durable.sync_directories`.
    """

    is_growing = True

    def __init__(
        self, directory: Path, geometry: Geometry, root: Path, *, is_new: bool = False
    ) -> None:
        """:raises IndexFilesTooSmall: no file would have room for an item."""
        if geometry.index_num < 2:
            # Item 0 is never used, so ``IndexFile#putKey`` refuses every key for such a file.
            raise IndexFilesTooSmall(count=geometry.index_num, default=DEFAULT_MAX_INDEX_NUM)
        super().__init__(directory, geometry)
        self._is_new = is_new
        self.root = root
        #: Its files that are not on disk.
        self.unsynced = Unsynced()
        #: Called before a full file is forced to disk: the records it names must be there first.
        self.before_flush: Callable[[], object] = lambda: None
        #: End timestamp of the newest file that was forced to disk; 0: none was. That happens when
        #: the next file is made (``IndexService#flush``): a full file alone may still be lost.
        self.forced_timestamp = 0
        #: The kernel, where it shall store the items of single messages.
        self.kernel: ModuleType | None = None
        #: The newest file, where it is open.
        self.newest: IndexFileWriter | None = None

    def last(self) -> IndexFileWriter | None:
        """The newest file, open for writing; None when there is none."""
        if self.newest is None and self.paths:
            mapped = self._map(self.paths[-1])
            self.newest = IndexFileWriter(mapped, self.geometry)
        return self.newest

    def open_writable(self, path: Path) -> IndexFileWriter:
        """Opens one file for writing. This service has it open nowhere else then; the caller closes
        it."""
        self.close()
        return IndexFileWriter(self._map(path), self.geometry)

    def _map(self, path: Path) -> MappedFile:
        return MappedFile.open_writable(self.root, path, unsynced=self.unsynced)

    def remove(self, path: Path) -> None:
        """Removes a file for good. Raises what
        :func:`~rmqctl.engine.files.writing.remove_file` raises."""
        self.close()
        remove_file(self.root, path)
        self.unsynced.clean(path)
        self.paths.remove(path)

    def recover(self, store_timestamp_at: Callable[[int], int | None]) -> None:
        """Undoes what a killed writer did not finish
        (:func:`rmqctl.engine.index.mending.repair`)."""
        last = self.last()
        if last is None:
            return
        previous = None
        if len(self.paths) > 1 and self.paths[-2] not in self.irregular:
            before = self.open(self.paths[-2])
            previous = before.header
            before.close()
        repair(last, store_timestamp_at, previous)

    def last_or_new(self) -> IndexFileWriter:
        """The file for the next item (``IndexService#getAndCreateLastIndexFile``).

        :raises CannotWrite: a new one is needed and cannot be made.
        """
        last = self.last()
        if last is not None and not last.is_full:
            return last
        if last is not None:
            # A full file must be on disk before there is a next one: a start doubts only the
            # newest. All of it is flushed: nothing here notes what an earlier, killed process
            # stored.
            self.before_flush()
            last.mapped.mark_dirty(0, last.mapped.size)
            last.flush_full()
            self.forced_timestamp = last.header.end_timestamp
        path = self.directory / self._new_name()
        head = first_header(last.header if last is not None else None).pack()
        forced = Forced.NOTHING if self._is_new else Forced.ALL
        mapped = MappedFile.create(
            *(self.root, path, self.geometry.file_size),
            head=head,
            forced=forced,
            unsynced=self.unsynced,
        )
        fresh = self._new_file(mapped)
        if last is not None:
            last.close()
        self.paths.append(path)
        self.newest = fresh
        return fresh

    def _new_file(self, mapped: MappedFile) -> IndexFileWriter:
        if not self._is_new:
            return IndexFileWriter(mapped, self.geometry)
        from rmqctl.engine.index.newindexfile import NewIndexFile

        return NewIndexFile(mapped, self.geometry)

    def _new_name(self) -> str:
        """A name made of the current local time, and after every existing name."""
        name = datetime.now().strftime("%Y%m%d%H%M%S%f")[:17]
        newest = max([p.name for p in self.paths], default="")
        return name if name > newest else str(int(newest) + 1)

    def put_message(
        self, key_hashes: Sequence[int], physical_offset: int, store_timestamp: int
    ) -> list[int]:
        """Indexes one message (``IndexService#buildIndex``). Returns the end timestamps of the
        files that it filled.

        A message without keys also makes the file that its items would go to. If the message is the
        last one in the index, only its missing items are added; if none is, no file is made.
        """
        filled: list[int] = []
        pending = list(key_hashes)
        end = self._end_phy_offset()
        if physical_offset == end:
            pending = pending[self.items_of_message(end) :]
        if physical_offset < end or (physical_offset == end and not pending):
            return filled
        file = self.last_or_new()
        while pending:
            if self.kernel is None:
                done = file.put_keys(pending, physical_offset, store_timestamp)
            else:
                done = file.put_keys_by(self.kernel, pending, physical_offset, store_timestamp)
            pending = pending[done:]
            if file.is_full:
                filled.append(file.header.end_timestamp)
            if pending:
                file = self.last_or_new()
        return filled

    def put_batch(self, keys: KeyBatch, last_record: int) -> list[int]:
        """:meth:`put_message` for a batch. Returns the end timestamps of the files that it filled.

        :param last_record: physical offset of the batch's last record. Even without a key it makes
            the next file when the newest is full.
        """
        import numpy as np

        filled: list[int] = []
        end = self._end_phy_offset()
        at = int(np.searchsorted(keys.physical_offset, end, "left"))
        if at < len(keys.key_hash) and keys.physical_offset[at] == end:
            at += self.items_of_message(end)
        while at < len(keys.key_hash):
            file = self.last_or_new()
            at = file.put_key_batch(keys, at)
            if file.is_full:
                filled.append(file.header.end_timestamp)
        if last_record > self._end_phy_offset():
            self.last_or_new()
        return filled

    def put_run(self, kernel: ModuleType, keys: KeyRun, last_record: int) -> list[int] | None:
        """:meth:`put_batch` for keys that all lie behind the index's last message. Returns None,
        and stores nothing, when some do not. The items may be in the file only after
        :meth:`settle`."""
        filled: list[int] = []
        at, count, is_full = 0, keys.keys, False
        if count and keys.at(0)[0] <= self._end_phy_offset():
            return None
        while at < count:
            file = self.last_or_new()
            # Asked before: afterwards the file's header would wait for the kernel.
            room = file.geometry.index_num - file.header.index_count
            start, at = at, file.put_key_run(kernel, keys, at)
            is_full = at - start == room
            if is_full:
                filled.append(file.header.end_timestamp)
        if count:
            makes_room = is_full and last_record > keys.at(count - 1)[0]
        else:
            makes_room = last_record > self._end_phy_offset()
        if makes_room:
            self.last_or_new()
        return filled

    def _end_phy_offset(self) -> int:
        """Physical offset of the last message with items; -1 without a file."""
        last = self.last()
        return -1 if last is None else last.header.end_phy_offset

    def settle(self) -> None:
        """Waits until everything that was put is stored. Only then do others who read the files
        see it."""
        newest = self.newest
        if newest is not None:
            newest.settle()

    def flush(self) -> None:
        """Forces the index to disk. :raises OSError: the disk failed, now or before."""
        if self.newest is not None:
            self.newest.flush()
        # What was closed meanwhile.
        self.unsynced.sync()

    def sync_all(self) -> None:
        """Forces all files to disk, also what an earlier process has stored. Errors as in
        :meth:`flush`."""
        self.unsynced.sync_taken(self.paths)

    def close(self) -> None:
        super().close()
        newest, self.newest = self.newest, None
        if newest is not None:
            newest.close()

    def _header(self, path: Path) -> IndexHeader | None:
        if self.newest is not None and self.newest.path == path:
            return self.newest.header
        return super()._header(path)
