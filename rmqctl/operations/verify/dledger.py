"""Checks the log of a DLedger group: the order of its entries, its index, and what is committed.

An entry that contradicts itself is damage, which every reader of the log sees. This module finds
contradictions between entries, index and state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats import layouts
from formats.constants import (
    DEFAULT_MAPPED_FILE_SIZE_DLEDGER_INDEX,
    DLEDGER_MAGIC_CODE,
    LONG_MAX,
)
from formats.derive import dtype_of
from rmqctl.engine.files.filequeue import MappedFileQueue
from rmqctl.engine.files.shown import shown
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import Ints, take
from rmqctl.engine.settings.filesizes import dledger_index_file_size
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.engine.state.dledger import CHECKPOINT, INDEX, dledger_state, entry_place
from rmqctl.errors import CannotRead
from rmqctl.operations.verify.findings import Finding, finding
from rmqctl.operations.verify.snapshot import Snapshot

_HEADER = dtype_of(layouts.DLEDGER_ENTRY)
_UNIT = dtype_of(layouts.DLEDGER_INDEX_UNIT)
#: The headers of some entries, as they are stored.
Headers = NDArray[np.void]
#: How many last data files DLedger writes into its index anew at a start
#: (``DLedgerMmapFileStore#recover``).
_RECOVERED_FILES = 3


def entry_checker(snapshot: Snapshot, log: CommitLog) -> EntryChecker | None:
    """The checker of a log that a DLedger group keeps; None for any other log."""
    data = log_directories(snapshot.path, snapshot.config).dledger
    return None if data is None else EntryChecker(snapshot.path, log, data.parent)


class EntriesSeen(NamedTuple):
    """What joins the entries of a part of the log with those of other parts: the header of the
    first one (shape ``(1,)``) and its place as a finding has it, and index, term and end of the
    last one."""

    first: Headers
    place: dict[str, Any]
    last: tuple[int, int, int]


class EntryChecker:
    """Checks the entries of a log, batch by batch, and their units in the index. :attr:`seen` is
    for the checker that joins parts of the log; None before the first entry."""

    def __init__(self, root: Path, log: CommitLog, member: Path) -> None:
        """:param member: the directory of the member, ``dledger-*``."""
        self._root, self._member = root, member
        self.seen: EntriesSeen | None = None
        self._last: tuple[int, int, int] | None = None  # Index, term, end of the entry before.
        self._index = MappedFileQueue(member / INDEX, dledger_index_file_size(member / INDEX))
        framed = [entry for entry in log.files.entries if entry.path.parent.parent == member]
        self._recovered_from = (
            framed[-_RECOVERED_FILES:][0].file_from_offset if framed else log.files.end_offset
        )

    def add(self, batch: Batch) -> Iterator[Finding]:
        """Takes records in the order of the log."""
        if not batch.mapped.framed:
            return
        starts = batch.position - _HEADER.itemsize
        rows = np.flatnonzero(starts >= 0)
        data = np.frombuffer(batch.mapped.buffer, np.uint8)
        headers = take(data, starts[rows], _HEADER)
        # A record behind a damaged header has no number; the damage has been told.
        sound = (headers["magic"] == DLEDGER_MAGIC_CODE) & (
            headers["pos"] == starts[rows] + batch.mapped.file_from_offset
        )
        rows, headers = rows[sound], headers[sound]
        if not len(rows):
            return
        yield from self._order(headers, lambda at: self._place(batch, int(rows[at])))
        yield from self._units(batch, rows, headers)
        assert self._last is not None
        if self.seen is None:
            self.seen = EntriesSeen(
                headers[:1].copy(), self._place(batch, int(rows[0])), self._last
            )
        self.seen = self.seen._replace(last=self._last)

    def join(self, seen: EntriesSeen) -> Iterator[Finding]:
        """Takes what another checker has seen of the next part of the log."""
        yield from self._order(seen.first, lambda _: seen.place)
        self._last = seen.last

    def _order(self, headers: Headers, place: Callable[[int], dict[str, Any]]) -> Iterator[Finding]:
        """Whether each entry follows the one before it. ``place`` tells where the entry with a
        number is."""
        index = headers["index"].astype(np.int64)
        term, pos = headers["term"].astype(np.int64), headers["pos"].astype(np.int64)
        ends = pos + headers["size"]
        last = self._last or (int(index[0]) - 1, int(term[0]), int(pos[0]))
        before = np.append([last[0]], index[:-1])
        terms = np.append([last[1]], term[:-1])
        met = pos == np.append([last[2]], ends[:-1])
        # Behind damage, or a blank, entries may be missing, and none may come again.
        wrong = np.where(met, index != before + 1, index <= before)
        for at in np.flatnonzero(wrong).tolist():
            expected = f"index {before[at] + 1}"
            yield finding(
                "dledger-index-order",
                **place(at),
                expected=expected if met[at] else f"{expected} or more",
                found=str(index[at]),
            )
        for at in np.flatnonzero(term < terms).tolist():
            yield finding(
                "dledger-term-falls",
                **place(at),
                expected=f"term {terms[at]} or more",
                found=str(term[at]),
            )
        self._last = int(index[-1]), int(term[-1]), int(ends[-1])

    def _place(self, batch: Batch, row: int) -> dict[str, Any]:
        return {
            "path": shown(self._root, batch.mapped.path),
            "physical_offset": int(batch.physical_offset[row]),
            "position": int(batch.position[row]) - _HEADER.itemsize,
        }

    def _units(self, batch: Batch, rows: Ints, headers: Headers) -> Iterator[Finding]:
        """Checks the index units of these entries. Neighbours without units are one finding."""
        wrong = np.flatnonzero(~self._in_index(headers))
        for stretch in np.split(wrong, np.flatnonzero(np.diff(wrong) != 1) + 1):
            if len(stretch):
                yield self._unit_finding(batch, rows, headers, stretch[[0, -1]])

    def _in_index(self, headers: Headers) -> NDArray[np.bool_]:
        """Which of the entries have their unit in the index."""
        index = headers["index"].astype(np.int64)
        right = np.zeros(len(headers), bool)
        at = 0
        while at < len(headers):
            place = int(index[at]) * _UNIT.itemsize
            mapped = self._index.find(place) if 0 <= place <= LONG_MAX else None
            if mapped is None:
                at += 1
                continue
            position = place - mapped.file_from_offset
            # So many entries follow each other, and have their units in this file.
            room = (mapped.size - position) // _UNIT.itemsize
            count = int(np.argmax(np.append(np.diff(index[at:]) != 1, True))) + 1
            count = min(count, room)
            data = mapped.read(position, count * _UNIT.itemsize)
            units = np.frombuffer(data[: len(data) // _UNIT.itemsize * _UNIT.itemsize], _UNIT)
            own = headers[at : at + len(units)]
            says = np.ones(len(units), bool)
            for name in _UNIT.names or ():
                says &= units[name] == own[name]
            right[at : at + len(units)] = says
            at += max(count, 1)
        return right

    def _unit_finding(self, batch: Batch, rows: Ints, headers: Headers, ends: Ints) -> Finding:
        """:param ends: the first and the last entry that the index does not have."""
        first = int(ends[0])
        low, high = headers["index"][ends].tolist()
        is_behind = int(batch.physical_offset[rows[first]]) >= self._recovered_from
        number = self._index.index_of(low * _UNIT.itemsize) if low >= 0 else -1
        name = INDEX if number < 0 else f"{INDEX}/{self._index.entries[number].path.name}"
        return finding(
            "dledger-index-behind" if is_behind else "dledger-index-unit-mismatch",
            path=f"{self._member.name}/{name}",
            physical_offset=int(batch.physical_offset[rows[first]]),
            expected=f"units of entries {low} to {high}",
            found="another place, or none",
        )

    def finish(self, end_offset: int) -> Iterator[Finding]:
        """Call this after the last record. Checks what the member says of itself."""
        try:
            state = dledger_state(self._member)
        except CannotRead as error:
            refused = shown(self._root, Path(str(error.path)))
            yield finding("unreadable-file", path=refused, found=str(error.reason))
            return
        yield from self._index_lengths()
        for name in state.unreadable:
            yield finding("dledger-state-unreadable", path=f"{self._member.name}/{name}")
        path, committed = f"{self._member.name}/{CHECKPOINT}", state.committed_index
        end = -1 if self._last is None else self._last[0]
        if committed is None:
            return
        if committed > end:
            found = f"the log ends with entry {end}"
            expected = f"entry {committed}"
            yield finding("dledger-committed-past-end", path=path, expected=expected, found=found)
        elif committed < end:
            found = f"{end - committed} entries behind entry {committed}"
            place = entry_place(self._member, committed + 1)
            yield finding("dledger-uncommitted", path=path, physical_offset=place, found=found)

    def _index_lengths(self) -> Iterator[Finding]:
        """Checks the lengths of index files, which no setting of a broker changes
        (``MmapFileList#load``)."""
        length = DEFAULT_MAPPED_FILE_SIZE_DLEDGER_INDEX
        for entry in self._index.entries:
            if entry.size != length:
                yield finding(
                    "dledger-index-length",
                    path=f"{self._member.name}/{INDEX}/{entry.path.name}",
                    expected=f"{length} bytes",
                    found=f"{entry.size} bytes",
                )
