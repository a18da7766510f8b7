"""Compares two logs by their bytes, and says where they differ in records.

Two copies of one log have the same bytes at the same physical offsets. What stands behind a blank
has no meaning and is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.record.record import BLANK, Blank, Damage, Entry, Record, body_seen, crc_matches
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    from rmqctl.engine.log.commitlog import CommitLog

_PIECE = 4 << 20
#: Records that differ one behind the other, after which the logs are said to have gone apart.
_MOST_IN_A_ROW = 1000


class LogDifference(NamedTuple):
    """Records that differ, one behind the other, from ``physical_offset`` on. ``record`` is the
    first of them as one of the logs has it, ``a`` and ``b`` say what stands there. ``has_parted``:
    so many that the rest was not compared."""

    physical_offset: int
    length: int
    records: int
    record: Record | None
    a: str
    b: str
    has_parted: bool = False


class _Differing(NamedTuple):
    """One place at which the logs differ, and the place behind it."""

    start: int
    end: int
    record: Record | None
    a: str
    b: str


def log_differences(
    a: CommitLog, b: CommitLog, start: int, end: int, progress: Progress | None = None
) -> Iterator[LogDifference]:
    """Where two logs with files of one size differ in ``[start, end)``, where both have records
    from ``start`` on; in order."""
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
    # The last place at which a record starts, as far as is known: of each file its begin.
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
    """The first physical offset in a part of one file at which the logs have different bytes, or
    one of them none."""
    at = start
    while at < end:
        pieces = [_bytes(log, at, min(_PIECE, end - at)) for log in (a, b)]
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
        at += min(_PIECE, end - at)
    return None


def _bytes(log: CommitLog, physical_offset: int, size: int) -> bytes:
    mapped = log.files.find(physical_offset)
    if mapped is None:
        return b""
    return mapped.read(physical_offset - mapped.file_from_offset, size)


def _entry_over(log: CommitLog, anchor: int, place: int) -> int:
    """Where the entry starts that a place lies in, walked to from one before it."""
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
    """Where the comparison goes on: behind the record of one side, or with the next file."""
    for entry in (a, b):
        if isinstance(entry, Record):
            return entry.physical_offset + entry.total_size
    return border


def _told(log: CommitLog, entry: Entry | None, other: Entry | None) -> str:
    """What stands at a place, in words; of a record whose it is where the other has another."""
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
