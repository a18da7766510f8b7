"""Which pages of a log stay mapped after a scan: those that were scanned before, up to a limit.

A scan drops the pages behind it, so that memory does not grow with the log. Mapping them again
takes a third of the time of the next scan, so a store that stays open and is scanned repeatedly
keeps some. Pages that would not stay mapped are read with ``pread`` instead of being mapped.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakKeyDictionary

from rmqctl.engine.files.mappedfile import MappedFile

#: Bytes of a log that stay mapped, at most: an eighth of the machine's memory. These are pages of
#: the page cache, which the kernel reclaims when it needs them.
MOST_KEPT = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8

#: Start and end of a range of a file, in bytes.
_Range = tuple[int, int]


class KeptPages:
    """Decides what stays mapped of the files of one log: ``most`` bytes at most. Any thread may
    call its methods."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        #: By open file: the range that was scanned, and the range that stays mapped.
        self._seen: WeakKeyDictionary[MappedFile, _Range] = WeakKeyDictionary()
        self._kept: WeakKeyDictionary[MappedFile, _Range] = WeakKeyDictionary()

    def pass_over(self, mapped: MappedFile, start: int, end: int) -> None:
        """Called after a range was scanned. Drops its pages, unless the range was scanned before
        and fits into the limit."""
        with self._lock:
            stays = self._stays(mapped, start, end)
        if not stays:
            mapped.forget(start, end)

    def kept_until(self, mapped: MappedFile, position: int) -> int:
        """Where the mapped range that holds ``position`` ends; ``position`` when none holds it."""
        with self._lock:
            low, high = self._kept.get(mapped, (position, position))
        return high if low <= position <= high else position

    def will_stay(self, mapped: MappedFile, start: int, end: int) -> bool:
        """Whether the pages of a range will stay mapped once it has been scanned. Only the part
        that was scanned before counts."""
        with self._lock:
            low, high = self._seen.get(mapped, (start, start))
            return low <= start < high and self._has_room(mapped, start, min(end, high))

    def _stays(self, mapped: MappedFile, start: int, end: int) -> bool:
        low, high = self._seen.get(mapped, (start, start))
        is_again = low <= start and end <= high
        if not is_again:
            # A scan goes on from range to range; a range elsewhere begins another scan.
            is_joined = low <= start <= high
            self._seen[mapped] = (low, end) if is_joined else (start, end)
            return False
        if not self._has_room(mapped, start, end):
            return False
        low, high = self._kept.get(mapped, (start, start))
        self._kept[mapped] = low, max(end, high)
        return True

    def _has_room(self, mapped: MappedFile, start: int, end: int) -> bool:
        """Whether a range joins what stays mapped of the file, within the limit of all files."""
        low, high = self._kept.get(mapped, (start, start))
        total = sum(until - since for since, until in self._kept.values())
        return low <= start <= high and total + max(end - high, 0) <= self._most
