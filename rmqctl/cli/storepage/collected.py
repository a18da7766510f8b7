"""Collects findings for a page: it counts them, and keeps some of each.

However many findings come, memory is bounded: it keeps counts by code, some places and commands of
each, and marks on the strips in as many columns as a screen has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqctl.operations.verify import Finding

#: From the worst on.
SEVERITIES = ("error", "warning", "info")
#: How many columns a strip has, and so the most marks on it.
COLUMNS = 500
_PLACES = 20
_COMMANDS = 3
#: The most queues, and the most files, whose findings are counted apart.
_MOST_PARTS = 20_000


@dataclass
class OfCode:
    """The findings of one code that have one advice: the first of them, and the next command
    lines."""

    severity: str
    advice: str
    count: int = 0
    places: list[Finding] = field(default_factory=list)
    commands: dict[str, None] = field(default_factory=dict)
    has_more_commands: bool = False


@dataclass
class OfPart:
    """The findings of one queue, or of one file; ``offsets`` are some of their queue offsets."""

    severities: Counter[str] = field(default_factory=Counter)
    offsets: set[int] = field(default_factory=set)

    @property
    def worst(self) -> str:
        return next(name for name in SEVERITIES if self.severities[name])


class Collected:
    """Collects findings of a log that lies between the physical offsets ``begin`` and ``end``."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, max(end, begin + 1)
        self.severities: Counter[str] = Counter()
        #: By code and advice.
        self.codes: dict[tuple[str, str], OfCode] = {}
        #: Columns of the log's strip, each with the worst severity there.
        self.marks: dict[int, str] = {}
        #: Of everything but queues, by path.
        self.files: dict[str, OfPart] = {}
        self.queues: dict[tuple[str, int], OfPart] = {}

    def add(self, found: Finding, command: str | None) -> None:
        """Adds a finding, and the next command line."""
        self.severities[found.severity] += 1
        of = found.code, found.advice
        code = self.codes.setdefault(of, OfCode(found.severity, found.advice))
        code.count += 1
        if len(code.places) < _PLACES:
            code.places.append(found)
        if command is not None and command not in code.commands:
            if len(code.commands) < _COMMANDS:
                code.commands[command] = None
            else:
                code.has_more_commands = True
        self._mark(found)

    def _mark(self, found: Finding) -> None:
        queue = None if found.structure == "commitlog" else queue_of(found)
        if found.path is not None and queue is None:
            _part(self.files, found.path, found)
        if queue is not None:
            part = _part(self.queues, queue, found)
            if part is not None and found.queue_offset is not None and len(part.offsets) < COLUMNS:
                part.offsets.add(found.queue_offset)
        offset = found.physical_offset
        if (
            found.structure == "commitlog"
            and offset is not None
            and self.begin <= offset < self.end
        ):
            column = (offset - self.begin) * COLUMNS // (self.end - self.begin)
            before = self.marks.get(column, SEVERITIES[-1])
            self.marks[column] = min(before, found.severity, key=SEVERITIES.index)


def _part(parts: dict[Any, OfPart], name: object, found: Finding) -> OfPart | None:
    """Counts one more finding of a part. Returns its counts; None for parts beyond the bound."""
    if name not in parts and len(parts) >= _MOST_PARTS:
        return None
    part = parts.setdefault(name, OfPart())
    part.severities[found.severity] += 1
    return part


def queue_of(found: Finding) -> tuple[str, int] | None:
    """The queue of a finding, by its own fields or by its path."""
    if found.topic is not None and found.queue_id is not None:
        return found.topic, found.queue_id
    names = (found.path or "").split("/")
    if len(names) >= 3 and names[0].startswith("consumequeue") and names[2].isdecimal():
        return names[1], int(names[2][:10])
    return None
