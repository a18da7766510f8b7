"""Places of the log: ranges in which nothing can be read, and its end, which may move."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

from rmqctl.engine.log.commitlog import RECORD_HEAD, CommitLog
from rmqctl.engine.record.record import Damage, End


class Ranges:
    """Disjoint ranges of physical offsets, added in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, damage: Damage) -> None:
        start, end = damage.physical_offset, damage.physical_offset + damage.length
        if self._ends and self._ends[-1] == start:
            self._ends[-1] = end
        else:
            self._starts.append(start)
            self._ends.append(end)

    def __contains__(self, physical_offset: int) -> bool:
        at = bisect_right(self._starts, physical_offset) - 1
        return at >= 0 and physical_offset < self._ends[at]

    def any_between(self, start: int, end: int) -> bool:
        """Whether one of the ranges begins in ``[start, end)``."""
        return bisect_left(self._starts, start) < bisect_left(self._starts, end)


class GrowingEnd:
    """The end of the log when it was read, and the end that it has by now: under a running broker
    units and index items come in that the check of the log knew nothing of."""

    def __init__(self, open_log: Callable[[], CommitLog]) -> None:
        self._open_log = open_log
        self._log: CommitLog | None = None
        #: Up to where the log was checked; None: not all of it yet.
        self.read_to: int | None = None
        #: The end when it was last looked at.
        self.now = 0

    def reached(self, read_to: int) -> None:
        """All of the log was read."""
        self.read_to = self.now = read_to

    def look_again(self) -> None:
        """Follows the log from its end. Where zeros stand that costs next to nothing: a log that
        has lost its end is asked once for each piece of each queue."""
        if self._log is not None and self._is_unwritten(self._log):
            return
        self.close()
        self._log = self._open_log()  # It may have more files by now.
        for entry in self._log.walk(self.now):
            if isinstance(entry, End):
                self.now = max(self.now, entry.physical_offset)

    def _is_unwritten(self, log: CommitLog) -> bool:
        mapped = log.files.find(self.now)
        if mapped is None:
            return False
        head = mapped.read(self.now - mapped.file_from_offset, RECORD_HEAD)
        return len(head) == RECORD_HEAD and not any(head)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
