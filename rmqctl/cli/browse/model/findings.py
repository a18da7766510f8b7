"""What verify finds, worst first, as it is found, and where it lies in the log."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rmqctl.cli.browse.model.job import DONE, Job
from rmqctl.cli.browse.model.lines import Column, Counted, Line, Place, Stop, go_on
from rmqctl.operations.verify import CODES, ERROR, INFO, WARNING, Finding, Summary, verify

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.opened import Opened

WORST_FIRST = (ERROR, WARNING, INFO)
#: Findings of a severity that are kept; the others are counted.
MOST_KEPT = 10_000
_MARKS = {ERROR: "█", WARNING: "▒", INFO: "░"}
_NOTHING, _UNSEEN = "─", "·"
#: Parts of the log of which the worst finding is remembered; terminals have fewer columns.
_PARTS = 1024


class Findings(Job, Counted):
    """One verification."""

    columns: tuple[Column, ...] = (
        Column("severity", 8),
        Column("code", 26, grows=1),
        Column("where", 24, grows=2),
    )
    noun = "findings"

    def __init__(self, opened: Opened) -> None:
        super().__init__()
        self._opened = opened
        self._found: dict[str, list[Finding]] = {severity: [] for severity in WORST_FIRST}
        self.counts = dict.fromkeys(WORST_FIRST, 0)
        self._worst: dict[int, str] = {}
        self.summary: Summary | None = None
        self._adding = threading.Lock()
        self.min_offset = self.max_offset = 0

    def work(self, stop: Stop) -> None:
        store = self._opened.store
        self.min_offset, self.max_offset = store.min_offset, store.max_offset
        self.total = self.max_offset - self.min_offset
        for found in verify(store.root, store.config, self.advance(stop)):
            go_on(stop)
            if isinstance(found, Summary):
                self.summary = found
            else:
                self.add(found)

    def add(self, finding: Finding) -> None:
        kept = self._found[finding.severity]
        with self._adding:
            self.counts[finding.severity] += 1
            if len(kept) < MOST_KEPT:
                kept.append(finding)
            if finding.physical_offset is not None:
                part = self.column_of(finding.physical_offset, _PARTS)
                known = self._worst.get(part, INFO)
                self._worst[part] = min(known, finding.severity, key=WORST_FIRST.index)

    def count(self) -> int:
        return sum(map(len, self._found.values()))

    def key_of(self, number: int) -> tuple[str, int] | None:
        """What stays with a finding when worse ones push it down: its severity, and its number
        among those of it."""
        for severity in WORST_FIRST:
            if 0 <= number < len(self._found[severity]):
                return severity, number
            number -= len(self._found[severity])
        return None

    def number_of(self, key: tuple[str, int]) -> int:
        """The line of a finding now."""
        before = WORST_FIRST[: WORST_FIRST.index(key[0])]
        return sum(len(self._found[severity]) for severity in before) + key[1]

    def finding(self, number: int) -> Finding | None:
        key = self.key_of(number)
        return None if key is None else self._found[key[0]][key[1]]

    def line(self, number: int, stop: Stop) -> Line:
        found = self.finding(number)
        assert found is not None, "nothing is ever taken away"
        place = Place(found.physical_offset, found.topic, found.queue_id, found.queue_offset)
        return Line((found.severity, found.code, where_text(found)), found.severity, place)

    def _looked_at(self) -> str:
        summary = self.summary
        if summary is None:
            return ""
        counts = (
            (summary.records, "messages"),
            (summary.units, "units"),
            (summary.index_items, "index items"),
        )
        return ", ".join(f"{count:,} {name}" for count, name in counts)

    def verdict(self) -> str:
        """``3 errors, 1 warning``; ``no errors, no warnings`` only when all was looked at."""
        told = [
            f"{count:,} {name}{'s' if count != 1 else ''}"
            for name, count in self.counts.items()
            if count
        ]
        if self.state == DONE and not self.counts[ERROR] and not self.counts[WARNING]:
            return ", ".join([f"OK: {self._looked_at()}", *told])
        return ", ".join(told) or "nothing found so far"

    def detail(self, number: int) -> list[tuple[str, str]]:
        """What is to be said of a finding: name and text."""
        found = self.finding(number)
        if found is None:
            return []
        told = [(found.code, CODES[found.code].meaning)]
        fields = found._asdict()
        told += [(name, str(fields[name])) for name in ("expected", "found") if fields[name]]
        return [*told, ("next", found.advice)]

    def marks(self, columns: int) -> str:
        """The log in so many characters: a mark for the worst that lies in each, what is sound,
        and what was not looked at yet."""
        span = max(self.max_offset - self.min_offset, 1)
        read = columns if self.state == DONE else self.done * columns // span
        cells = [_NOTHING if at < read else _UNSEEN for at in range(columns)]
        with self._adding:
            worst = list(self._worst.items())
        for part, severity in sorted(worst, key=lambda one: -WORST_FIRST.index(one[1])):
            cells[part * columns // _PARTS] = _MARKS[severity]
        return "".join(cells)

    def column_of(self, physical_offset: int, columns: int) -> int:
        """Where a place of the log lies among so many columns."""
        span = max(self.max_offset - self.min_offset, 1)
        return min(max((physical_offset - self.min_offset) * columns // span, 0), columns - 1)


def where_text(found: Finding) -> str:
    """Where a finding lies, in a few words."""
    parts = []
    if found.topic is not None:
        queue = "" if found.queue_id is None else f" {found.queue_id}"
        at = "" if found.queue_offset is None else f"@{found.queue_offset}"
        parts.append(f"{found.topic}{queue}{at}")
    if found.physical_offset is not None:
        parts.append(f"log {found.physical_offset}")
    if found.path is not None and not parts:
        parts.append(found.path)
    return ", ".join(parts)
