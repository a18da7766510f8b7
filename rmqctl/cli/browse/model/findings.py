"""The findings of a running verification, worst first, and their places in the log."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rmqctl.cli.browse.model.job import DONE, Job
from rmqctl.cli.browse.model.lines import Column, Counted, Line, Place, Stop, go_on
from rmqctl.operations.verify import CODES, ERROR, INFO, WARNING, Finding, Summary, verify

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.opened import Opened

WORST_FIRST = (ERROR, WARNING, INFO)
#: How many findings of each severity are kept. Further ones are only counted.
MOST_KEPT = 10_000
_MARKS = {ERROR: "█", WARNING: "▒", INFO: "░"}
_NOTHING, _UNSEEN = "─", "·"
#: Into how many parts the log is divided. For each the worst finding is kept. Terminals have fewer
#: columns.
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
        """A key of a finding that stays the same when worse findings are inserted above it: its
        severity, and its number among those of this severity."""
        for severity in WORST_FIRST:
            if 0 <= number < len(self._found[severity]):
                return severity, number
            number -= len(self._found[severity])
        return None

    def number_of(self, key: tuple[str, int]) -> int:
        """The current line of a finding, by its key."""
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
        """For example ``3 errors, 1 warning``; ``no errors, no warnings`` only if everything was
        checked."""
        told = [
            f"{count:,} {name}{'s' if count != 1 else ''}"
            for name, count in self.counts.items()
            if count
        ]
        if self.state == DONE and not self.counts[ERROR] and not self.counts[WARNING]:
            return ", ".join([f"OK: {self._looked_at()}", *told])
        return ", ".join(told) or "nothing found so far"

    def detail(self, number: int) -> list[tuple[str, str]]:
        """The fields of a finding that are shown: name and text."""
        found = self.finding(number)
        if found is None:
            return []
        told = [(found.code, CODES[found.code].meaning)]
        fields = found._asdict()
        told += [(name, str(fields[name])) for name in ("expected", "found") if fields[name]]
        return [*told, ("next", found.advice)]

    def marks(self, columns: int) -> str:
        """A map of the log in so many characters. Each shows the worst finding in its part of the
        log, or that the part is sound, or not checked yet."""
        span = max(self.max_offset - self.min_offset, 1)
        read = columns if self.state == DONE else self.done * columns // span
        cells = [_NOTHING if at < read else _UNSEEN for at in range(columns)]
        with self._adding:
            worst = list(self._worst.items())
        for part, severity in sorted(worst, key=lambda one: -WORST_FIRST.index(one[1])):
            cells[part * columns // _PARTS] = _MARKS[severity]
        return "".join(cells)

    def column_of(self, physical_offset: int, columns: int) -> int:
        """The column of the map, out of so many, for a physical offset."""
        span = max(self.max_offset - self.min_offset, 1)
        return min(max((physical_offset - self.min_offset) * columns // span, 0), columns - 1)


def where_text(found: Finding) -> str:
    """The place of a finding, in a few words."""
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
