"""Finds places in a store for somebody who browses it: the message of a unit, the entries before an
offset of the log, the offset of a time. Each takes a few reads, whatever the size of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.engine.log.commitlog import without_file
from rmqctl.engine.queue.consumequeue import Unit
from rmqctl.engine.read.batchunits import BatchUnits
from rmqctl.engine.record.record import Damage, End, Record, find_next, read_entry_of
from rmqctl.errors import NoRecordAt
from rmqctl.operations.look.recordstarts import next_entry_offset, no_record, require_place

if TYPE_CHECKING:
    from rmqctl.engine.files.mappedfile import MappedFile
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.consumequeue import ConsumeQueue
    from rmqctl.engine.record.record import Entry

#: How many bytes before an offset are searched at once for the entries before it.
_WINDOW = 1 << 16


def message_of_unit(
    store: MessageStore, queue: ConsumeQueue | BatchUnits, queue_offset: int
) -> Record | Damage:
    """The record at a queue offset; of a batch queue (5.x) the record that holds its message.

    Where there is none, a damage says why: its ``reason`` is a finding code, its physical offset
    that of the unit, or -1.
    """
    unit = queue.unit(queue_offset)
    if unit is None and isinstance(queue, BatchUnits):
        return Damage(-1, 0, "queue-offsets-skipped", "a unit", "none that holds this message")
    if unit is None:
        return Damage(-1, 0, "consumequeue-file-missing", "a unit", "no file that holds it")
    if not unit.is_written or (isinstance(unit, Unit) and unit.is_pre_blank):
        return Damage(-1, 0, "unit-hole", "a unit", _unit_text(*unit[:2]))
    at = unit.physical_offset
    try:
        entry = store.commit_log.entry_at(at)
    except NoRecordAt:
        found = f"the log has {store.min_offset} to {store.max_offset}"
        return Damage(at, unit.size, "unit-points-past-log-end", _unit_text(*unit[:2]), found)
    if isinstance(entry, Damage):
        return entry._replace(length=entry.length or unit.size)
    if not isinstance(entry, Record) or entry.physical_offset != at:
        what = "zeros" if isinstance(entry, End) else "a blank"
        if isinstance(entry, Record):
            what = "the header before a record"
        return Damage(at, unit.size, "unit-points-to-no-record", "a record", what)
    return entry


def require_walk_start(store: MessageStore, physical_offset: int) -> None:
    """Refuses an offset from which a walk would read nonsense; errors as of
    :func:`~rmqctl.operations.look.recordstarts.require_record`.

    Besides a record, a walk can start at a blank, where damage begins, and at the end of the log.
    """
    if physical_offset == store.max_offset:
        return
    entry = read_entry_of(*require_place(store, physical_offset))
    if isinstance(entry, Damage) and entry_around(store, physical_offset) != physical_offset:
        reason = f"{entry.reason} (expected {entry.expected}, found {entry.found})"
        raise no_record(store, physical_offset, reason)
    if isinstance(entry, End):
        raise no_record(store, physical_offset, "nothing was written there")


def _unit_text(physical_offset: int, size: int) -> str:
    return f"offset {physical_offset}, size {size}"


def entry_around(store: MessageStore, physical_offset: int) -> int:
    """The physical offset of the entry that holds an offset; outside the log its nearer end."""
    if physical_offset <= store.min_offset:
        return store.min_offset
    if physical_offset >= store.max_offset:
        return store.max_offset
    following = next_entry_offset(store, physical_offset - 1)
    if following == physical_offset:
        return physical_offset
    end = store.max_offset if following is None else following
    before = entries_before(store, end, 1)
    return before[-1].physical_offset if before else store.min_offset


def entries_before(store: MessageStore, physical_offset: int, count: int) -> list[Entry]:
    """The last ``count`` entries of the log before an offset at which an entry starts, in order;
    fewer at the log's beginning. Damage is among them, as in a walk.

    A log cannot be read backwards. So the start of a record is searched some way before the offset,
    and the log is walked from there; this is repeated further in front until there are enough.
    """
    found: list[Entry] = []
    end = physical_offset
    while len(found) < count and end > store.min_offset:
        earlier = _some_before(store, end, count - len(found))
        if not earlier:
            break
        found = earlier + found
        end = earlier[0].physical_offset
    return found


def _some_before(store: MessageStore, end: int, count: int) -> list[Entry]:
    """Some of the last entries before ``end``, of the file that holds the byte before it. Where
    that file is missing, this is the only entry, as damage."""
    log = store.commit_log
    number = log.files.index_of(end - 1)
    if number < 0:
        before = [one for one in log.files.entries if one.file_from_offset < end]
        return [without_file(before[-1], end, log.file_size)] if before else []
    mapped = log.files.file(number)
    limit = end - mapped.file_from_offset
    start = max(limit - _WINDOW, 0)
    if start and find_next(mapped, start) >= limit:
        start = max(_last_start(mapped, limit) - _WINDOW, 0)
    start = find_next(mapped, start) if start else 0
    walked = log.walk(mapped.file_from_offset + start, end)
    found: list[Entry] = [entry for entry in walked if not isinstance(entry, End)]
    return found[-count:]


def _last_start(mapped: MappedFile, limit: int) -> int:
    """The position of the last record or blank that starts before ``limit``; 0 without any."""
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        if find_next(mapped, middle) < limit:
            low = middle
        else:
            high = middle
    return low


def log_offset_at_time(store: MessageStore, time: int) -> int:
    """The physical offset of the first record that was stored at a time (ms) or later; the log's
    end where there is none.

    This is a bisection over the bytes of the log. It is right as long as store times never decrease
    along the log, which holds unless the broker's clock was set back.
    """
    low, high = store.min_offset, store.max_offset
    answer = high
    while low < high:
        middle = (low + high) // 2
        record = _record_from(store, middle, high)
        if record is None:
            high = middle
        elif record.store_timestamp >= time:
            answer, high = record.physical_offset, middle
        else:
            low = record.physical_offset + record.total_size
    return answer


def _record_from(store: MessageStore, physical_offset: int, end: int) -> Record | None:
    """The first record that starts in a range of the log."""
    at: int | None = physical_offset - 1
    while at is not None:
        at = next_entry_offset(store, at, end)
        if at is None:
            return None
        record = store.commit_log.find_record(at)
        if record is not None:
            return record
    return None
