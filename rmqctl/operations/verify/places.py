"""Ranges of the log in which nothing can be read: damage and missing files."""

from __future__ import annotations

from bisect import bisect_right

from rmqctl.engine.record import Damage


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
