"""The bytes of a window of a log: the file's map, or a copy if it has holes."""

from __future__ import annotations

from rmqctl.engine.files.holes import Aside, is_whole, whole
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.scan.columns import LONGEST

#: Bytes around a window that may be read as well: the longest texts are gathered in rows of this
#: width.
_AROUND = 2 * LONGEST


#: Fewest bytes before a hole that are worth a window of their own.
_WORTH = 1 << 20


def window_end(mapped: MappedFile, start: int, end: int) -> int:
    """Where a window from ``start`` to at most ``end`` should end: so far before the next hole that
    no copy is needed, unless the window would be too small."""
    low = max(start - _AROUND, 0)
    if is_whole(mapped, low, min(end + _AROUND, mapped.size)):
        return end
    first, hole = mapped.whole
    last = hole - _AROUND
    return last if first <= low and start + _WORTH <= last < end else end


def window_seen(mapped: MappedFile, start: int, end: int) -> MappedFile:
    """The file, or a copy of it, for reading ``start`` to ``end`` and some bytes around."""
    return whole(mapped, start - _AROUND, end + _AROUND)


def with_last_record(
    mapped: MappedFile, seen: MappedFile, start: int, end: int, record_end: int
) -> MappedFile:
    """:func:`window_seen` with the window's last record, which may end behind ``end``. ``seen`` is
    the result for the window itself."""
    if record_end <= end:
        return seen
    if isinstance(seen, Aside):
        seen.add(mapped, end, min(record_end + _AROUND, mapped.size))
        return seen
    return window_seen(mapped, start, record_end)
