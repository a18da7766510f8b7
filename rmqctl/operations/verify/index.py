"""Checks the index against the log: every key must have an item, and every item a key.

Items are in the order of the log. So the check merges the keys of the log with them. Behind a
difference it goes on at the next item that fits a key. Neighbours of one damage are one finding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.dispatch.batches import KeyBatch
from rmqctl.engine.files import paths
from rmqctl.engine.index.header import time_diff_seconds
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.index.links import time_diff_array
from rmqctl.operations.verify.damageranges import GrowingEnd, Ranges
from rmqctl.operations.verify.findings import INFO, Finding, finding
from rmqctl.operations.verify.indexcursor import IndexCursor, and_more, neighbours
from rmqctl.operations.verify.indexparts import KEYS_AT_ONCE, IndexPart, IndexStart
from rmqctl.operations.verify.indexspans import Gap, SurplusItems, matching_items
from rmqctl.operations.verify.indextags import ExpectedKeys
from rmqctl.operations.verify.resumedindex import ItemPlace
from rmqctl.operations.verify.snapshot import Snapshot
from rmqctl.rows.words import some

#: How many items, or keys, the merge searches for the place where both fit again.
_NEAR = 64
_INDEXED_LATER = "The next start of a broker dispatches these records, and indexes them."


class IndexChecker:
    """Checks the index. Call :meth:`add` with the marked keys in log order, then :meth:`finish`.

    Missing items of records that the next start of a broker dispatches are only behind, and no
    damage. A start dispatches the records that have no units, and after an unclean shutdown those
    that its recovery reads.
    """

    def __init__(self, snapshot: Snapshot, damaged: Ranges, part: IndexPart | None = None) -> None:
        root = snapshot.path
        service = IndexService(root / paths.INDEX, snapshot.config.index_geometry)
        self._cursor = IndexCursor(root, service, snapshot.unclean)
        if part is not None:
            self._cursor.only(part.first, part.end, part.names)
        self._has_end = part is None or part.end is None
        self._log_min = snapshot.log_min
        self._damaged = damaged
        self._end = GrowingEnd(snapshot.open_log)
        self._snapshot = snapshot
        self._has_files = bool(service.paths)
        self._started = False
        # Whether messages have items of their tags here.
        self._has_tags = snapshot.indexes_tags
        # Whether there may have been an older index file, which retention has removed.
        self._starts_late = snapshot.log_min > 0
        # Whether items may still come whose records retention has removed.
        self._expires = True
        self._gap: Gap | None = None
        self._surplus: SurplusItems | None = None
        self._pending: list[KeyBatch] = []
        self._pending_keys = 0
        self._told: list[Finding] = []
        # Of the last item that had its key: its record's physical offset, and that record's hashes.
        self._last_offset = -1
        self._last_hashes: set[int] = set()
        # How many keys were merged, and how many the next merge takes.
        self._merged = 0
        self._room = KEYS_AT_ONCE
        # The number of the key at which the items of a part ended.
        self._ended_at: int | None = None
        if part is not None and part.start is not None:
            self._begin(part.start)

    def _begin(self, start: IndexStart) -> None:
        self._started, self._expires = True, False
        self._last_offset, self._last_hashes = start.last_offset, set(start.last_hashes)
        self._has_tags = start.has_tags
        self._merged = start.key_no
        self._room = KEYS_AT_ONCE - start.key_no % KEYS_AT_ONCE

    @property
    def items(self) -> int:
        """Items looked at so far."""
        return self._cursor.items

    def log_begins(self, log_min: int) -> None:
        """Call this when the log now begins at ``log_min``: retention has removed files."""
        self._told += self._take_pending(1)
        self._log_min, self._expires, self._starts_late = log_min, True, True

    def resumes(self, place: ItemPlace | None) -> None:
        """Call this before the first key of a stretch. Items of earlier keys end at ``place``."""
        self._starts_late = self._starts_late or place is None
        if place is not None:
            self._begin(IndexStart(0, place.physical_offset, place.hashes, self._has_tags))
        self._cursor.seek(*((0, 1) if place is None else place[:2]))

    def taken_again(self) -> None:
        """Call this after the last key that was taken again: the stretch before has told it."""
        deque(self.pause(), 0)
        self._cursor.items = 0

    def pause(self) -> Iterator[Finding]:
        """Call this after the last record of a stretch, when the log goes on behind it. Yields the
        findings of keys without items, and of items without keys, up to there."""
        yield from self._take_pending(1)
        yield from self._report_surplus()
        has_items = len(self._cursor.peek(1)) > 0
        yield from self._cursor.drain()
        if not has_items:
            yield from self._report_last_gap()
        elif not self._cursor.was_removed:
            yield from self._report_gap("key-not-indexed" if self._started else "index-starts-late")
        self._gap = None

    def add(self, keys: KeyBatch) -> Iterator[Finding]:
        """Takes the keys of some records (:func:`marked_key_batch`)."""
        self._pending.append(keys)
        self._pending_keys += len(keys.key_hash)
        if self._pending_keys >= self._room:
            yield from self._take_pending(KEYS_AT_ONCE)

    def _take_pending(self, least: int) -> Iterator[Finding]:
        """Merges keys that were added, until fewer than ``least`` are left. Merges end at the same
        key numbers whatever sizes the batches have; so do the spans of findings."""
        told, self._told = self._told, []
        yield from told
        if not self._pending:
            return
        keys = KeyBatch.joined(self._pending)
        done, count = 0, len(keys.key_hash)
        while count - done >= min(least, self._room):
            end = min(done + self._room, count)
            if self._ended_at is None:
                yield from self._merge(keys.part(done, end))
            self._merged += end - done
            done, self._room = end, KEYS_AT_ONCE
        self._pending, self._pending_keys = [keys.part(done, count)], count - done

    def _merge(self, marked: KeyBatch) -> Iterator[Finding]:
        """Merges keys with the next items. Where messages begin to have items of their tags, or
        have none any more, it goes on from there with or without these keys."""
        done, count = 0, len(marked.key_hash)
        while done < count and self._ended_at is None:
            expected = ExpectedKeys.of(marked, done, has_tags=self._has_tags)
            done = yield from self._merge_expected(expected)
        yield from self._cursor.drain()

    def _merge_expected(self, expected: ExpectedKeys) -> Generator[Finding, None, int]:
        """Returns the row of the marked keys up to which it has come."""
        keys, done, count = expected.keys, 0, len(expected.rows)
        while done < count:
            items = self._cursor.peek(count - done)
            yield from self._cursor.drain()
            if not len(items) and not self._has_end:
                self._ended_at = self._merged + expected.row(done)
                return expected.row(done)
            if not len(items):
                self._note_gap(keys, done, count)
                return expected.row(count)
            proven = self._proven(keys, done, items)
            done, items = done + proven, items[proven:]
            if not len(items):
                continue
            matching = matching_items(keys, done, items)
            if matching:
                # The time of a file's first item is computed differently. The items behind it can
                # take the fast path of _proven.
                matching = 1 if self._cursor.next_no == 1 else matching
                yield from self._match(keys, done, items[:matching])
                done += matching
            elif (turn := expected.turn(done, items)) is not None:
                self._has_tags = not self._has_tags
                return turn
            else:
                done = yield from self._align(keys, done, items)
        turn = expected.turn(count, self._cursor.peek(1)) if expected.passes_over_last else None
        if turn is None:
            return expected.row(count)
        self._has_tags = not self._has_tags
        return turn

    def _proven(self, keys: KeyBatch, done: int, items: NDArray[np.void]) -> int:
        """How many of ``items``, the next items, are byte for byte what the keys from row ``done``
        on give. Those are taken. 0 while a gap or surplus must be reported before them."""
        if not self._started or self._gap is not None or self._surplus is not None:
            return 0
        proven = self._cursor.prove(items, keys.part(done, done + len(items)))
        if proven:
            self._expires = False
            self._remember(items[:proven])
        return proven

    def _match(self, keys: KeyBatch, done: int, items: NDArray[np.void]) -> Iterator[Finding]:
        """Takes items that fit the next keys, and checks their times and the file's header."""
        yield from self._report_surplus()
        if self._cursor.was_removed:
            # The items of the keys in the gap went with the removed file.
            self._cursor.was_removed, self._gap, self._starts_late = False, None, True
        self._starts_late = self._starts_late or (not self._started and self._gap is not None)
        yield from self._report_gap("key-not-indexed" if self._started else "index-starts-late")
        self._started, self._expires = True, False
        stamps = keys.store_timestamp[done : done + len(items)]
        yield from self._check_times(stamps, items)
        if self._cursor.next_no == 1:
            self._cursor.check_begin_timestamp(int(stamps[0]))
        self._remember(items)
        self._cursor.take(len(items), int(stamps[-1]))

    def _remember(self, items: NDArray[np.void]) -> None:
        """Notes the record of the last of some items that have their keys."""
        offset = int(items["physical_offset"][-1])
        if offset != self._last_offset:
            self._last_offset = offset
            self._last_hashes.clear()
        own = items["physical_offset"] == offset
        self._last_hashes.update(items["key_hash"][own].tolist())

    def _check_times(self, stamps: NDArray[np.int64], items: NDArray[np.void]) -> Iterator[Finding]:
        cursor = self._cursor
        expected = time_diff_array(stamps, cursor.header.begin_timestamp)
        stored = items["time_diff_seconds"].astype(np.int64)
        if cursor.next_no == 1:
            # The time of a file's first item counts from the end timestamp of the file before it.
            if cursor.previous is not None:
                expected[0] = time_diff_seconds(int(stamps[0]), cursor.previous.end_timestamp)
            else:
                expected[0] = stored[0] if self._starts_late else 0
        for row, count in neighbours(np.flatnonzero(expected != stored)):
            yield finding(
                "index-item-mismatch",
                path=cursor.path,
                position=cursor.position(cursor.next_no + row),
                physical_offset=int(items["physical_offset"][row]),
                expected=f"{expected[row]} s",
                found=f"{stored[row]} s" + and_more(count),
            )

    def _align(
        self, keys: KeyBatch, done: int, items: NDArray[np.void]
    ) -> Generator[Finding, None, int]:
        """Where keys and items differ, skips what only one side has. Returns the row of the next
        key."""
        offset, key_hash = int(items["physical_offset"][0]), int(items["key_hash"][0])
        wanted, wanted_hash = int(keys.physical_offset[done]), int(keys.key_hash[done])
        if 0 <= offset < self._log_min and self._expires:
            expired = items["physical_offset"] < self._log_min
            self._cursor.take(len(items) if expired.all() else int(np.argmin(expired)))
            return done
        near = items[:_NEAR]
        meets = np.flatnonzero(
            (near["physical_offset"] == wanted) & (near["key_hash"] == wanted_hash)
        )
        is_outlier = offset > wanted and self._is_outlier(offset, wanted)
        if len(meets) and not is_outlier:
            yield from self._take_surplus(items[: int(meets[0])])
            return done
        if offset < wanted or is_outlier:
            yield from self._take_surplus(items[:1])
            return done
        if offset == wanted:
            same_record = keys.physical_offset[done : done + _NEAR] == wanted
            hashes = keys.key_hash[done : done + _NEAR]
            later = np.flatnonzero(same_record & (hashes == key_hash))
            skipped = int(later[0]) if len(later) else 1
            if not len(later):
                # An indexing that broke off within a record, between two files, is done again from
                # the first key of the record. Then the item is repeated, and the key still to come.
                skipped = 0 if self._is_repeated(offset, key_hash) else 1
                yield from self._take_surplus(items[:1])
            self._note_gap(keys, done, done + skipped)
            return done + skipped
        found = done + int(np.searchsorted(keys.physical_offset[done:], offset))
        self._note_gap(keys, done, found)
        return found

    def _is_outlier(self, offset: int, wanted: int) -> bool:
        """Whether the item behind the next one fits the place of the keys again, whose next one is
        of the record at ``wanted``, so that the ``offset`` of the next one is wrong."""
        behind = self._cursor.offset_behind_next()
        if behind is None or behind >= offset:
            return False
        return behind >= wanted or (self._expires and behind < self._log_min)

    def _is_repeated(self, offset: int, key_hash: int) -> bool:
        """Whether the last record had the same item already."""
        return offset == self._last_offset and key_hash in self._last_hashes

    def _take_surplus(self, items: NDArray[np.void]) -> Iterator[Finding]:
        """Takes items for which the log has no key."""
        for item in items:
            offset = int(item["physical_offset"])
            if self._is_repeated(offset, int(item["key_hash"])):
                code = "index-item-repeated"
            elif offset in self._damaged:
                code = "index-item-points-into-damage"
            else:
                code = "index-item-without-key"
            surplus = self._surplus
            if surplus is not None and (surplus.code, surplus.path) == (code, self._cursor.path):
                surplus.count += 1
            else:
                yield from self._report_surplus()
                position = self._cursor.position(self._cursor.next_no)
                self._surplus = SurplusItems(code, self._cursor.path, position, offset)
            self._cursor.take(1)

    def _report_surplus(self) -> Iterator[Finding]:
        if self._surplus is not None:
            surplus, self._surplus = self._surplus, None
            yield finding(
                surplus.code,
                path=surplus.path,
                position=surplus.position,
                physical_offset=surplus.physical_offset,
                found=some(surplus.count, "item"),
            )

    def _note_gap(self, keys: KeyBatch, start: int, end: int) -> None:
        if end <= start:
            return
        first, last = int(keys.physical_offset[start]), int(keys.physical_offset[end - 1])
        if self._gap is None:
            self._gap = Gap(first, last, end - start)
        else:
            self._gap.last = last
            self._gap.keys += end - start

    def _report_gap(self, code: str, **more: object) -> Iterator[Finding]:
        if self._gap is not None:
            gap, self._gap = self._gap, None
            yield finding(
                code,
                physical_offset=gap.first,
                expected=some(gap.keys, "item"),
                found=f"none, up to the record at {gap.last}",
                **more,
            )

    def finish_part(self) -> Generator[Finding, None, IndexStart | None]:
        """Call this after the last key of a part that is not the last one. Returns the premise with
        which the next part can begin; None where an item has no key yet, or a key no item."""
        yield from self._take_pending(1)
        has_items = self._ended_at is None and len(self._cursor.peek(1)) > 0
        yield from self._cursor.drain()
        is_open = has_items or self._gap is not None or self._surplus is not None
        if is_open or not self._started or self._cursor.was_removed or self._cursor.skipped:
            return None
        key_no = self._merged if self._ended_at is None else self._ended_at
        hashes = frozenset(self._last_hashes)
        return IndexStart(key_no, self._last_offset, hashes, self._has_tags)

    def finish(self, log_end: int) -> Iterator[Finding]:
        """Call this after the last record. Yields the findings of the items that are left, and of
        the last keys without items."""
        yield from self._take_pending(1)
        self._end.reached(log_end)
        while len(items := self._cursor.peek(_NEAR)):
            yield from self._cursor.drain()
            later = self._later(items["physical_offset"])
            if later:
                self._cursor.take(later)
                continue
            expired = items["physical_offset"] < self._log_min
            if expired.all() and self._expires:
                self._cursor.take(len(items))
            else:
                yield from self._take_surplus(items)
        yield from self._cursor.drain()
        yield from self._report_surplus()
        yield from self._report_last_gap()

    def _report_last_gap(self) -> Iterator[Finding]:
        """Yields the finding of keys without items behind the last item."""
        if self._cursor.skipped or self._gap is None:
            return  # The skipped files may have had the items of these keys.
        if self._gap.first >= self._snapshot.dispatched_again_from(unclean=self._cursor.unclean):
            # A killed writer or a running broker has not indexed these yet.
            yield from self._report_gap("index-behind", severity=INFO, advice=_INDEXED_LATER)
        elif self._has_files:
            yield from self._report_gap("index-behind")
        else:
            yield from self._report_gap("index-missing", path=paths.INDEX)

    def _later(self, offsets: NDArray[np.int64]) -> int:
        """How many of the next items have records that were appended after the log was read."""
        read_to = self._end.read_to
        if read_to is None or offsets[0] < read_to:
            return 0
        self._end.look_again()
        later = (offsets >= read_to) & (offsets < self._end.now)
        return len(later) if later.all() else int(np.argmin(later))

    def close(self) -> None:
        self._cursor.close()
        self._end.close()
