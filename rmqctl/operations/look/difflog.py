"""Compares two logs by their bytes, and names the records that differ.

Two copies of one log have the same bytes at the same physical offsets. Bytes behind a blank have no
meaning, and are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.record.record import BLANK, Blank, Damage, Entry, Record, body_seen, crc_matches
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    from rmqctl.engine.log.commitlog import CommitLog

#: Bytes that are compared at once: at first, for the next difference may be near, and at most.
_FIRST_PIECE, _PIECE = 1 << 14, 4 << 20
#: After so many differing records in a row the rest is not compared: the logs have parted.
_MOST_IN_A_ROW = 1000


class LogDifference(NamedTuple):
    """Differing records, one behind the other, from ``physical_offset`` on. ``record`` is the first
    of them, from one of the logs. ``a`` and ``b`` say what each log has there. ``has_parted``: they
    were so many that the rest was not compared."""

    physical_offset: int
    length: int
    records: int
    record: Record | None
    a: str
    b: str
    has_parted: bool = False


class _Differing(NamedTuple):
    """A range of physical offsets in which the logs differ: one record, or what stands there."""

    start: int
    end: int
    record: Record | None
    a: str
    b: str


def log_differences(
    a: CommitLog, b: CommitLog, start: int, end: int, progress: Progress | None = None
) -> Iterator[LogDifference]:
    """The differences in ``[start, end)`` between two logs whose files have the same size, in
    order. In both logs a record starts at ``start``."""
    run: LogDifference | None = None
    for one in _differing(a, b, start, end, progress):
        if run is not None and run.physical_offset + run.length == one.start:
            run = run._replace(length=one.end - run.physical_offset, records=run.records + 1)
        else:
            if run is not None:
                yield run
            run = LogDifference(one.start, one.end - one.start, 1, one.record, one.a, one.b)
        if run.records >= _MOST_IN_A_ROW:
            yield run._replace(length=end - run.physical_offset, has_parted=True)
            return
    if run is not None:
        yield run


def _differing(
    a: CommitLog, b: CommitLog, start: int, end: int, progress: Progress | None
) -> Iterator[_Differing]:
    size = a.file_size
    # The anchor is the last offset at which an entry is known to start, such as a file's first.
    at, anchor = start, start
    while at < end:
        border = min((at // size + 1) * size, end)
        place = _first_difference(a, b, at, border)
        if progress is not None:
            progress((border if place is None else place) - start)
        if place is None:
            at = anchor = border
            continue
        entry = _entry_over(a, anchor, place)
        found, other = _entry_at(a, entry), _entry_at(b, entry)
        if isinstance(found, Blank) and isinstance(other, Blank) and place >= entry + BLANK.size:
            at = anchor = border
            continue
        following = min(max(_end_of(found, other, entry, border), place + 1), border)
        record = next((one for one in (found, other) if isinstance(one, Record)), None)
        told = _told(a, found, other), _told(b, other, found)
        yield _Differing(entry, following, record, *told)
        at = anchor = following


def _first_difference(a: CommitLog, b: CommitLog, start: int, end: int) -> int | None:
    """The first physical offset in ``[start, end)``, which lies in one file, at which the logs have
    different bytes, or one of them has none."""
    at, size = start, _FIRST_PIECE
    while at < end:
        pieces = [_bytes(log, at, min(size, end - at)) for log in (a, b)]
        if pieces[0] != pieces[1]:
            low, high = 0, min(map(len, pieces))
            if pieces[0][:high] == pieces[1][:high]:
                return at + high
            while high - low > 1:
                middle = (low + high) // 2
                if pieces[0][low:middle] == pieces[1][low:middle]:
                    low = middle
                else:
                    high = middle
            return at + low
        at += min(size, end - at)
        size = min(2 * size, _PIECE)
    return None


def _bytes(log: CommitLog, physical_offset: int, size: int) -> bytes:
    mapped = log.files.find(physical_offset)
    if mapped is None:
        return b""
    return mapped.read(physical_offset - mapped.file_from_offset, size)


def _entry_over(log: CommitLog, anchor: int, place: int) -> int:
    """The physical offset of the entry that a place lies in, found by a walk from ``anchor``."""
    if log.files.index_of(anchor) < 0:
        return place
    start = anchor
    for entry in log.walk(anchor, place + 1):
        if entry.physical_offset <= place:
            start = entry.physical_offset
    return start


def _entry_at(log: CommitLog, physical_offset: int) -> Entry | None:
    if log.files.index_of(physical_offset) < 0:
        return None
    return log.entry_at(physical_offset)


def _end_of(a: Entry | None, b: Entry | None, start: int, border: int) -> int:
    """The physical offset at which the comparison goes on: behind the record of one of the logs, or
    at the next file."""
    for entry in (a, b):
        if isinstance(entry, Record):
            return entry.physical_offset + entry.total_size
    return border


def _told(log: CommitLog, entry: Entry | None, other: Entry | None) -> str:
    """What a log has at a place, in words. A record is told with its topic, queue and queue offset
    if the other log does not have the same one there."""
    if entry is None:
        return "no file"
    if isinstance(entry, Record):
        mapped, _ = log.locate(entry.physical_offset)
        if not crc_matches(body_seen(mapped, entry), entry):
            return "body-crc-mismatch"
        is_same = isinstance(other, Record) and _place(other) == _place(entry)
        where = (
            "" if is_same else f" of {entry.topic}, queue {entry.queue_id}, {entry.queue_offset}"
        )
        return f"record{where}"
    if isinstance(entry, Damage):
        return entry.reason
    return "blank" if isinstance(entry, Blank) else "nothing"


def _place(record: Record) -> tuple[bytes, int, int]:
    return record.topic_bytes, record.queue_id, record.queue_offset
