"""Which pages of a log stay mapped behind a scan: those that are looked at again, while there is
room.

A scan lets go of what it has looked at, so that memory does not grow with the log. To map the pages
anew takes a third of the time of the next scan: who looks at a store again and again (one that
stays open) keeps some of it. What does not stay mapped need not be mapped at all, and is read.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakKeyDictionary

from rmqctl.engine.files.mappedfile import MappedFile

#: Bytes of a log that stay mapped, at most: an eighth of the machine's memory. They lie in the
#: system's cache in any case, which takes them back when it needs them.
MOST_KEPT = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8

#: A range of a file, from its start to its end.
_Range = tuple[int, int]


class KeptPages:
    """What stays mapped of the files of one log, ``most`` bytes at most. Any thread may tell."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        #: Of each file that is open, what was looked at, and what of it stays mapped.
        self._seen: WeakKeyDictionary[MappedFile, _Range] = WeakKeyDictionary()
        self._kept: WeakKeyDictionary[MappedFile, _Range] = WeakKeyDictionary()

    def pass_over(self, mapped: MappedFile, start: int, end: int) -> None:
        """Told when a range was looked at: it is forgotten, unless it was looked at before and
        there is room for it."""
        with self._lock:
            stays = self._stays(mapped, start, end)
        if not stays:
            mapped.forget(start, end)

    def kept_until(self, mapped: MappedFile, position: int) -> int:
        """Up to where what stays mapped goes on from a position; that itself: it does not."""
        with self._lock:
            low, high = self._kept.get(mapped, (position, position))
        return high if low <= position <= high else position

    def will_stay(self, mapped: MappedFile, start: int, end: int) -> bool:
        """Whether a range that is about to be looked at will stay mapped behind the scan, as far as
        it was looked at before."""
        with self._lock:
            low, high = self._seen.get(mapped, (start, start))
            return low <= start < high and self._has_room(mapped, start, min(end, high))

    def _stays(self, mapped: MappedFile, start: int, end: int) -> bool:
        low, high = self._seen.get(mapped, (start, start))
        is_again = low <= start and end <= high
        if not is_again:
            # A scan goes on from range to range: what is elsewhere begins another one.
            is_joined = low <= start <= high
            self._seen[mapped] = (low, end) if is_joined else (start, end)
            return False
        if not self._has_room(mapped, start, end):
            return False
        low, high = self._kept.get(mapped, (start, start))
        self._kept[mapped] = low, max(end, high)
        return True

    def _has_room(self, mapped: MappedFile, start: int, end: int) -> bool:
        """Whether a range is kept, or may be together with what is."""
        low, high = self._kept.get(mapped, (start, start))
        total = sum(until - since for since, until in self._kept.values())
        return low <= start <= high and total + max(end - high, 0) <= self._most
