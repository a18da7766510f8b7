"""Reads every item of every index file in order, and checks links, slots and headers on the way.

The links are not followed. They are computed again from the items, window by window, as an append
computes them, and compared. So memory holds the slots of one file and one window of items, and a
cycle of links cannot trap the walk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from formats import layouts
from rmqctl.engine.dispatch.batches import KeyBatch
from rmqctl.engine.files import paths
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.index.header import IndexHeader, first_header
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.index.links import item_dtype
from rmqctl.engine.index.newslots import NewSlots, new_slots, wrong_slots
from rmqctl.errors import CannotRead, FileLengthContradiction
from rmqctl.operations.verify.findings import INFO, Finding, finding, refused

#: How many items are read at once: 1.3 MB.
_WINDOW = 1 << 16
#: How many slots are compared at once: 1 MiB.
_SLOTS = 1 << 18
_HEADER_POSITIONS = {field.name: field.offset for field in layouts.INDEX_HEADER.fields}


class IndexCursor:
    """:meth:`peek` returns the next items, :meth:`take` goes past them, and :meth:`drain` returns
    the findings so far.

    ``previous`` is the header of the file before the current one. ``items`` counts the items taken,
    ``skipped`` the files that could not be opened. ``next_no`` is the index number of the next
    item. ``unclean`` says that a writer was killed, or is at work; the latter can also become true
    while the files are read.
    """

    def __init__(self, root: Path, service: IndexService, unclean: bool) -> None:
        self.previous: IndexHeader | None = None
        self.items = 0
        self.skipped = 0
        #: Whether a broker's retention has removed a file before the current one.
        self.was_removed = False
        self.next_no = 1
        self._root = root
        self.unclean = unclean
        self._service = service
        self._paths = deque(service.paths)
        self._file: IndexFile | None = None
        self._slots: NewSlots = new_slots(0)
        # The items of the last peek, and the index number of the first.
        self._peeked: tuple[int, NDArray[np.void]] = (0, np.empty(0, item_dtype()))
        self._last_offset: int | None = None
        self._last_stamp: int | None = None
        self._findings: list[Finding] = []

    def only(self, first: int, end: int | None, names: Sequence[str]) -> None:
        """Limits the cursor to the files ``[first, end)``; None: up to the last one. ``names`` are
        the names of all files when the parts were planned, by which files are numbered. Files with
        newer names come behind these. Without names the files are numbered as they are now."""
        newer = [path for path in self._service.paths if not names or path.name > names[-1]]
        every = [*(self._service.directory / name for name in names), *newer]
        self._paths = deque(every[first:end])
        if not first:
            return
        try:
            with closing(self._service.open(every[first - 1])) as before:
                self.previous = before.header
        except (FileLengthContradiction, CannotRead):
            self.was_removed = True

    def seek(self, file: int, index_no: int) -> None:
        """Goes to the item with ``index_no`` of the file with the number ``file``, or the next one
        behind files without items. What is before it is neither counted nor told."""
        self.only(file, None, ())
        if len(self.peek(1)) and index_no > 1:
            self.take(index_no - 1)
        self._findings.clear()
        self.items = 0

    @property
    def header(self) -> IndexHeader:
        assert self._file is not None
        return self._file.header

    @property
    def path(self) -> str:
        """The current file, relative to the store."""
        assert self._file is not None
        return str(self._file.path.relative_to(self._root))

    def position(self, index_no: int) -> int:
        assert self._file is not None
        return self._file.geometry.item_position(index_no)

    def peek(self, count: int) -> NDArray[np.void]:
        """Up to ``count`` next items, all from one file; empty after the last file."""
        while True:
            if self._file is None and not self._open_next():
                return np.empty(0, item_dtype())
            assert self._file is not None
            items = self._items(min(count, _WINDOW))
            if len(items):
                return items
            self._close_file()

    def _items(self, count: int) -> NDArray[np.void]:
        """Up to ``count`` next items of the current file. Those of the last peek are not read
        again."""
        assert self._file is not None
        first, items = self._peeked
        if first != self.next_no or len(items) < count:
            items = self._file.items(self.next_no, count)
            self._peeked = self.next_no, items
        return items[:count]

    def offset_behind_next(self) -> int | None:
        """The physical offset of the item behind the next one, which may be in the next file; None
        if there is none, or that file cannot be read."""
        assert self._file is not None
        items = self._items(2)
        if len(items) < 2 and self._paths:
            try:
                with closing(self._service.open(self._paths[0])) as following:
                    items = np.append(items, following.items(1, 1))
            except (FileLengthContradiction, CannotRead):
                return None
        return int(items["physical_offset"][1]) if len(items) > 1 else None

    def take(self, count: int, store_timestamp: int | None = None) -> None:
        """Goes past ``count`` items of the current file, and checks their links.
        ``store_timestamp`` (ms) is that of the last item's record, if it is known."""
        assert self._file is not None
        while count > 0:
            items = self._items(min(count, _WINDOW))
            if self.next_no == 1:
                self._check_header("begin_phy_offset", int(items["physical_offset"][0]))
            self._check_links(items)
            self._last_offset = int(items["physical_offset"][-1])
            self.next_no += len(items)
            self.items += len(items)
            count -= len(items)
        self._last_stamp = store_timestamp

    def prove(self, items: NDArray[np.void], keys: KeyBatch) -> int:
        """How many of ``items``, the next items, are byte for byte what ``keys`` give
        (:meth:`NewSlots.prove`). The cursor goes past those. 0 at the start of a file, where the
        header must be checked as well."""
        if self.next_no == 1:
            return 0
        count = self._slots.prove(items, keys, self.next_no, self.header.begin_timestamp)
        if count:
            self._last_offset = int(items["physical_offset"][count - 1])
            self._last_stamp = int(keys.store_timestamp[count - 1])
            self.next_no += count
            self.items += count
        return count

    def check_begin_timestamp(self, store_timestamp: int) -> None:
        """Checks the header's begin timestamp, which must be the store timestamp (ms) of the first
        item's record."""
        self._check_header("begin_timestamp", store_timestamp)

    def _open_next(self) -> bool:
        while self._paths:
            path = self._paths.popleft()
            try:
                self._file = IndexFile(MappedFile.open(path), self._service.geometry)
            except (FileLengthContradiction, CannotRead) as error:
                # A wrong length the check of the directories reports. The items are not known.
                self.skipped += 1
                # A file that is gone, or that the system refuses, is no damage of the index: the
                # keys of its items are treated like those of a file that retention has removed.
                if isinstance(error, CannotRead):
                    self.was_removed, self.previous = True, None
                    self._findings += refused(self._root, error)
                continue
            self.next_no = 1
            self._peeked = 0, np.empty(0, item_dtype())
            self._slots = new_slots(self._service.geometry.hash_slot_num)
            self._last_offset = self._last_stamp = None
            return True
        return False

    def _check_links(self, items: NDArray[np.void]) -> None:
        rows, previous = self._slots.wrong_links(items, self.next_no)
        for first, count in neighbours(rows):
            row = int(np.searchsorted(rows, first))
            self._find(
                "index-prev-mismatch",
                position=self.position(self.next_no + first),
                physical_offset=int(items["physical_offset"][first]),
                expected=int(previous[row]),
                found=f"{items['prev_index_no'][first]}" + and_more(count),
            )

    def _close_file(self) -> None:
        """Closes a file after its last item. First checks its slots, its header, and whether there
        are items behind those that the header counts."""
        assert self._file is not None
        file, geometry = self._file, self._file.geometry
        uncounted = file.uncounted_items()
        self.unclean = self.unclean or file.has_grown or (self._root / paths.ABORT).exists()
        if uncounted:
            killed = {"severity": INFO} if self.unclean else {}
            self._find(
                "index-uncounted-items",
                position=geometry.item_position(self.next_no),
                physical_offset=file.header.begin_phy_offset,
                expected=self.next_no - 1,
                found=f"{uncounted} more",
                **killed,
            )
        self._check_slots(file, undoes=uncounted > 0 and self.unclean)
        if not (uncounted and self.unclean):
            self._check_header("hash_slot_count", self._slots.used)
            self._check_end(file)
        # A new file's count is 0 until the first item is stored (IndexHeader#load reads 0 as 1).
        is_fresh = file.stored_index_count == 0 and self.next_no == 1
        if not (is_fresh or 1 <= file.stored_index_count <= geometry.index_num):
            self._check_header("index_count", self.next_no, file.stored_index_count)
        self.previous = file.header
        file.close()
        self._file = None
        # Free the slots before the next file gets its own: by default they take 20 MB.
        self._slots = new_slots(0)

    def _check_end(self, file: IndexFile) -> None:
        """Compares where the items end by the header. A writer counts an item before it stores
        these fields (``IndexFile#putKey``). So they may be those before the newest item of all if
        the writer was killed, or is at work."""
        is_newest = file.path == self._service.paths[-1]
        killed = self.unclean and is_newest and self._ends_before_last_item(file)
        if self._last_offset is not None:
            self._check_header("end_phy_offset", self._last_offset, killed=killed)
        if self._last_stamp is not None:
            self._check_header("end_timestamp", self._last_stamp, killed=killed)

    def _ends_before_last_item(self, file: IndexFile) -> bool:
        """Whether each end in the header is that of the last counted item, or of the one before."""
        header, last_no = file.header, self.next_no - 1
        if last_no > 1:
            before = file.item(last_no - 1)
            # An item has its seconds since the first one, which has those since the file before.
            seconds = before.time_diff_seconds if last_no > 2 else 0
            since_first = max(header.end_timestamp - header.begin_timestamp, 0)
            offset, is_time_before = before.physical_offset, since_first // 1000 == seconds
        else:
            fresh = first_header(self.previous)
            offset = fresh.end_phy_offset
            is_time_before = header.end_timestamp == fresh.end_timestamp
        is_known = is_time_before or header.end_timestamp == self._last_stamp
        return is_known and header.end_phy_offset in (offset, self._last_offset)

    def _check_slots(self, file: IndexFile, *, undoes: bool) -> None:
        """Compares the slots of a file, some at a time, with those that its items give. A killed
        writer may have stored items and slots that the header does not count yet; with ``undoes``
        the slots are compared as they were before those."""
        found = []
        for start in range(0, file.geometry.hash_slot_num, _SLOTS):
            slots = file.slots(start, _SLOTS)
            if undoes:
                slots = slots.astype(np.int32)
                self._undo_uncounted(file, slots)
            wrong, newest = wrong_slots(self._slots, start, slots)
            if len(wrong):
                found.append((wrong, newest, slots[wrong - start]))
        if not found:
            return
        wrong, expected, stored = (np.concatenate(column) for column in zip(*found, strict=True))
        for slot, count in neighbours(wrong):
            row = int(np.searchsorted(wrong, slot))
            self._find(
                "index-slot-mismatch",
                position=file.geometry.slot_position(slot),
                expected=int(expected[row]),
                found=f"{stored[row]}" + and_more(count),
            )

    def _undo_uncounted(self, file: IndexFile, slots: NDArray[np.int32]) -> None:
        """Sets slots that point to uncounted items back, in place, to the counted items that they
        pointed to before."""
        for slot in np.flatnonzero(slots >= self.next_no).tolist():
            index_no = int(slots[slot])
            while self.next_no <= index_no < file.geometry.index_num:
                previous = file.item(index_no).prev_index_no
                if previous >= index_no:
                    break
                index_no = previous
            slots[slot] = index_no

    def _check_header(
        self, name: str, expected: int, found: int | None = None, *, killed: bool = False
    ) -> None:
        """Compares a field of the header. ``killed``: a kill explains any difference."""
        found = getattr(self.header, name) if found is None else found
        if expected != found:
            self._find(
                "index-uncounted-items" if killed else "index-header-mismatch",
                position=_HEADER_POSITIONS[name],
                expected=f"{name} {expected}",
                found=f"{name} {found}",
                **({"severity": INFO} if killed else {}),
            )

    def _find(self, code: str, **fields: object) -> None:
        self._findings.append(finding(code, path=self.path, **fields))

    def drain(self) -> list[Finding]:
        """The findings since the last call."""
        found, self._findings = self._findings, []
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def neighbours(rows: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """``(first, count)`` of each run of consecutive rows: one finding. ``rows`` is ascending."""
    starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    counts = np.diff(np.append(starts, len(rows)))
    return zip(rows[starts].tolist(), counts.tolist(), strict=True)


def and_more(count: int) -> str:
    """The words with which a finding counts the neighbours that it stands for."""
    return f", and {count - 1} more behind it" if count > 1 else ""
