"""What a window of a log is looked at through: the file's map, or a copy where that has holes."""

from __future__ import annotations

from rmqctl.engine.files.holes import Aside, is_whole, whole
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.scan.columns import LONGEST

#: So far around what it takes a batch's columns reach: the longest texts are gathered in rows of
#: this width.
_AROUND = 2 * LONGEST


#: Bytes before a hole that are worth a window of their own.
_WORTH = 1 << 20


def window_end(mapped: MappedFile, start: int, end: int) -> int:
    """Where a window of ``start`` to at most ``end`` is to end: so far before the next hole, if
    there is one, that no copy is needed, unless little would be left."""
    low = max(start - _AROUND, 0)
    if is_whole(mapped, low, min(end + _AROUND, mapped.size)):
        return end
    first, hole = mapped.whole
    last = hole - _AROUND
    return last if first <= low and start + _WORTH <= last < end else end


def window_seen(mapped: MappedFile, start: int, end: int) -> MappedFile:
    """What stands for the file where ``start`` to ``end`` and some bytes around are looked at."""
    return whole(mapped, start - _AROUND, end + _AROUND)


def with_last_record(
    mapped: MappedFile, seen: MappedFile, start: int, end: int, record_end: int
) -> MappedFile:
    """The same for a window of ``start`` to ``end`` that ``seen`` stands for, with its last record,
    which may reach beyond."""
    if record_end <= end:
        return seen
    if isinstance(seen, Aside):
        seen.add(mapped, end, min(record_end + _AROUND, mapped.size))
        return seen
    return window_seen(mapped, start, record_end)
