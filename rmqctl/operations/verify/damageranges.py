"""Places of the log: the ranges that cannot be read, and the end, which may move."""

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
    """The end of the log when it was read, and its end now. While a broker runs, units and index
    items come in for records that the check of the log has not read."""

    def __init__(self, open_log: Callable[[], CommitLog]) -> None:
        self._open_log = open_log
        self._log: CommitLog | None = None
        #: The end up to which the log was checked; None while the check still reads it.
        self.read_to: int | None = None
        #: The end when it was last looked at.
        self.now = 0

    def reached(self, read_to: int) -> None:
        """Notes that all of the log was read, up to an end."""
        self.read_to = self.now = read_to

    def look_again(self) -> None:
        """Follows the log from its last known end. Where zeros follow this costs next to nothing,
        which matters: for a log that has lost its end it is called for each piece of each queue."""
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
