"""Which pages of a log stay mapped behind a scan: those that are looked at again, while there is
room.

A scan lets go of what it has looked at, so that memory does not grow with the log. To map the pages
anew takes a third of the time of the next scan: who looks at a store again and again (one that
stays open) keeps some of it.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from rmqctl.engine.files.mappedfile import MappedFile

#: Bytes of a log that stay mapped, at most.
MOST_KEPT = 256 << 20

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

    def _stays(self, mapped: MappedFile, start: int, end: int) -> bool:
        low, high = self._seen.get(mapped, (start, start))
        is_again = low <= start and end <= high
        if not is_again:
            # A scan goes on from range to range: what is elsewhere begins another one.
            is_joined = low <= start <= high
            self._seen[mapped] = (low, end) if is_joined else (start, end)
            return False
        low, high = self._kept.get(mapped, (start, start))
        if low <= start and end <= high:
            return True
        total = sum(until - since for since, until in self._kept.values())
        if not low <= start <= high or total + end - high > self._most:
            return False
        self._kept[mapped] = low, end
        return True
