"""What a start makes of the index: which items of which files stay.

After a crash the engine throws away every file that is newer than the checkpoint's index time
(``IndexService#load``), and indexes again only the records that its recovery reads. Here such a
file is read through. Items stay as long as they name records of the log in order, and torn links
between them are made anew. Records from the first other item on are indexed again. So are records
behind the place of a lost file: the engine's recovery would read them, too. If two files have items
of the same records, the second goes, with all files behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from formats.text import index_key_hash
from rmqctl.engine.dispatch.rules import every_key
from rmqctl.engine.index.header import IndexItem, time_diff_seconds
from rmqctl.engine.index.indexfile import ITEMS_AT_ONCE, IndexFile
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.index.indexwriter import IndexServiceWriter
from rmqctl.engine.index.mending import is_linked, keep

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.engine.record.record import Record

#: Most items that are compared with their records. More than one is torn only if the log has a
#: damaged record, too.
_MOST_TORN = 1000


class IndexCut(NamedTuple):
    """One file that changes. Its header counts ``counted`` items; the first ``kept`` of them stay,
    with the right links and header. 0: the file goes."""

    path: Path
    kept: int
    counted: int


class IndexPlan(NamedTuple):
    """``cuts``, in the order of the files. ``end`` is the physical offset of the last item that
    stays in a doubted file: keys from there on are indexed again. None: none stays."""

    cuts: tuple[IndexCut, ...] = ()
    end: int | None = None


def plan_clean(index: IndexService, log_end: int) -> IndexPlan:
    """After a clean stop only items of records that the log has lost go.

    The newest file is also mended when its header is impossible, or counts fewer items than there
    are: new keys would not be indexed, or would overwrite items.
    """
    cuts: list[IndexCut] = []
    for path in reversed(index.paths):
        if path in index.irregular:
            continue
        file = index.open(path)
        try:
            kept = counted = items_before(file, log_end)
            if path == index.paths[-1] and _is_astray(file, log_end, kept):
                counted = file.item_count + file.uncounted_items()
                kept, _ = _look_through(file, log_end, counted)
                cuts.append(IndexCut(path, kept, counted))
            elif kept < file.item_count:
                cuts.append(IndexCut(path, kept, file.item_count))
            if kept:  # A file without items tells nothing of those before it.
                break
        finally:
            file.close()
    return IndexPlan(tuple(reversed(cuts)))


def plan_unclean(
    index: IndexService, log: CommitLog, log_end: int, safe_timestamp: int, start: int | None
) -> IndexPlan:
    """After a crash the files that end behind ``safe_timestamp`` are in doubt, and the last one.

    :param safe_timestamp: the checkpoint's index time, in ms.
    :param start: physical offset from which a start indexes what no file has; None: it does not.
    """
    cuts: list[IndexCut] = []
    end, is_cut, began, before = None, False, -1, -1
    # It is unknown which records the items of a file of a wrong length name.
    is_behind_irregular = False
    for path in index.paths:
        if path in index.irregular:
            is_behind_irregular = True
            continue
        file = index.open(path)
        try:
            if is_cut:
                cuts.append(IndexCut(path, 0, file.item_count))
                continue
            kept, is_sound = items_before(file, log_end), True
            is_newer = file.header.end_timestamp > safe_timestamp
            is_last = path == index.paths[-1]
            if not (file.item_count or is_last or _may_be_safe(file, log, safe_timestamp)):
                # Its header is lost: no writer would add to it or remove it.
                cuts.append(IndexCut(path, 0, 0))
                continue
            if is_newer or is_last:
                kept, is_sound = _look_through(file, log_end, file.item_count)
                kept = _without_torn_items(file, log, kept)
                first = file.item(1).physical_offset if kept else -1
                if kept and is_newer and start is not None and not is_behind_irregular:
                    if _passes_over_keys(log, before, start, first):
                        kept = 0  # A file between is lost.
                    elif began <= first < before:
                        # A copy, or a file of another index: its items would be there twice.
                        kept, end = 0, before
                if kept:
                    end = file.item(kept).physical_offset
            if kept:
                began, before = file.item(1).physical_offset, file.item(kept).physical_offset
                is_behind_irregular = False
            is_cut = kept < file.item_count
            if is_cut or not is_sound:
                cuts.append(IndexCut(path, kept, file.item_count))
        finally:
            file.close()
    return IndexPlan(tuple(cuts), end)


def _may_be_safe(file: IndexFile, log: CommitLog, safe_timestamp: int) -> bool:
    """Whether the checkpoint's index time may lie behind a file that counts no items. Its keys
    might not be indexed again then."""
    last = file.uncounted_items()
    if not last:
        return False
    record = log.find_record(file.item(last).physical_offset)
    return record is None or record.store_timestamp <= safe_timestamp


def _passes_over_keys(log: CommitLog, before: int, start: int, first: int) -> bool:
    """Whether a record in ``[start, first)``, behind the one at ``before``, has keys."""
    low = max(before + 1, start)
    ends = ((one.file_from_offset, one.size) for one in log.files.entries)
    place = next((begin for begin, size in ends if begin + size > low), first)
    if place < before and log.find_record(before) is not None:
        place = before
    if low >= first or place >= first:
        return False
    from rmqctl.engine.dispatch.batches import key_batch
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import Scanner

    return any(
        isinstance(entry, Batch) and bool((key_batch(entry).physical_offset >= low).any())
        for entry in Scanner(log).scan(place, first)
    )


def _is_astray(file: IndexFile, log_end: int, before: int) -> bool:
    """Whether a file's header contradicts its items, the first ``before`` of which lie before the
    log's end."""
    header, is_cut = file.header, before < file.item_count
    if header.index_count > file.geometry.index_num or file.uncounted_items():
        return True
    return before > 0 and not is_cut and header.end_phy_offset >= log_end


def items_before(file: IndexFile, log_end: int) -> int:
    """How many items from the first on name records before an offset."""
    low, high = 0, file.item_count
    if file.header.end_phy_offset < log_end:
        return high
    while low < high:
        middle = (low + high) // 2
        if file.item(middle + 1).physical_offset < log_end:
            low = middle + 1
        else:
            high = middle
    return low


def _look_through(file: IndexFile, log_end: int, count: int) -> tuple[int, bool]:
    """Reads ``count`` items in order. Returns how many stay, and whether slots, links and header
    are right for these. A page that did not reach the disk is zeros, so offsets go back there."""
    kept = 0
    newest = -1
    count = min(count, file.geometry.index_num - 1)
    while kept < count:
        items = file.items(kept + 1, min(count - kept, ITEMS_AT_ONCE), counted=False)
        sound = _sound_items(items, newest, log_end)
        kept += sound
        if sound < len(items):
            return kept, False
        newest = int(items["physical_offset"][-1])
    if not kept:
        is_empty = file.stored_index_count in (0, 1) and not file.uncounted_items()
        return 0, is_empty and not _has_filled_slots(file)
    return kept, not file.uncounted_items() and is_linked(file)


def _has_filled_slots(file: IndexFile) -> bool:
    start, end = (file.geometry.slot_position(n) for n in (0, file.geometry.hash_slot_num))
    return file.mapped.first_nonzero(start, end) < end


def _without_torn_items(file: IndexFile, log: CommitLog, kept: int) -> int:
    """How many of the first ``kept`` items stay when torn ones are left out. If an item lies on two
    pages, only one may have reached the disk: then the item has no hash, or is the last."""
    for number in _without_hash(file, kept):
        if not _is_believed(file, log, number):
            kept = number - 1
            break
    for number in range(kept, max(kept - _MOST_TORN, 0), -1):
        if _is_believed(file, log, number):
            return number
    return max(kept - _MOST_TORN, 0)


def _without_hash(file: IndexFile, kept: int) -> list[int]:
    """Numbers of items whose hash is 0, which hardly any key has; at most ``_MOST_TORN``."""
    import numpy as np

    found: list[int] = []
    for number in range(1, kept + 1, ITEMS_AT_ONCE):
        items = file.items(number, min(kept + 1 - number, ITEMS_AT_ONCE), counted=False)
        found += (np.flatnonzero(items["key_hash"] == 0) + number).tolist()
        if len(found) >= _MOST_TORN:
            break
    return found[:_MOST_TORN]


def _is_believed(file: IndexFile, log: CommitLog, number: int) -> bool:
    """Whether an item fits a key of its record, or its record has expired."""
    item = file.item(number)
    if item.physical_offset < log.min_offset:
        return True
    record = log.find_record(item.physical_offset)
    return record is not None and _is_item_of(file, number, item, record)


def _is_item_of(file: IndexFile, number: int, item: IndexItem, record: Record) -> bool:
    hashes = (index_key_hash(record.topic, key) for key in every_key(record.properties))
    if item.key_hash not in hashes:
        return False
    # When the first item was made, the file had no begin time yet.
    begin = file.header.begin_timestamp
    if number == 1 or begin <= 0:
        return True
    return item.time_diff_seconds == time_diff_seconds(record.store_timestamp, begin)


def _sound_items(items: NDArray[np.void], newest: int, log_end: int) -> int:
    """How many items (``item_dtype``) from the first on are plausible behind one of the record at
    ``newest``."""
    import numpy as np

    offsets = items["physical_offset"].astype(np.int64)
    sound = np.diff(offsets, prepend=newest) >= 0
    sound &= (offsets < log_end) & (items["key_hash"] >= 0) & (items["time_diff_seconds"] >= 0)
    sound &= (offsets > 0) | (items["key_hash"] != 0)
    return len(items) if sound.all() else int(sound.argmin())


def apply_cuts(
    index: IndexServiceWriter,
    cuts: tuple[IndexCut, ...],
    store_timestamp_at: Callable[[int], int | None],
) -> None:
    """Carries out a plan, from the newest file back. After a kill another run finishes it.

    :param store_timestamp_at: gives the store time (ms) of the record at a physical offset.
    :raises OSError: the disk failed.
    """
    for cut in reversed(cuts):
        if cut.kept:
            file = index.open_writable(cut.path)
            try:
                keep(file, cut.kept, store_timestamp_at)
                file.flush()
            finally:
                file.close()
        else:
            index.remove(cut.path)
