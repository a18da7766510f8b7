"""The state of one queue while it is checked, and what several queues have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue, Unit
from rmqctl.operations.verify.findings import Finding, finding

#: Spans of one queue that are held back at a time.
_MOST_SPANS = 8


@dataclass(slots=True)
class FindingSpan:
    """Neighbouring units with one kind of damage, or records that lack theirs: one finding.
    ``count`` is their number; the other fields are those of the first."""

    code: str
    queue_offset: int
    physical_offset: int
    position: int | None
    count: int = 1
    expected: str | None = None
    found: str | None = None
    #: What is to be done about it, where that is not what the code says.
    advice: str | None = None

    def goes_on(self, other: FindingSpan) -> bool:
        """Whether ``other`` is of the same kind and follows."""
        is_same = (self.code, self.advice) == (other.code, other.advice)
        return is_same and self.queue_offset + self.count == other.queue_offset


@dataclass(slots=True)
class QueueState:
    """How far one queue is proven: records in log order have asked for the units before queue
    offset ``proven_end``; ``next_offset`` is the one behind that of the last record.

    ``shift`` is how many units the stored ones stand from where their records say, 0 in a sound
    queue. ``queue`` is None when it has no files. ``spans`` are held back until the next sound
    unit: before that the log may begin the queue again, and they are no damage.
    """

    queue: ConsumeQueue | None
    topic: str
    queue_id: int
    path: str
    file_size: int
    started: bool = False
    proven_end: int = 0
    next_offset: int = -1
    shift: int = 0
    missing: int = 0
    first_missing: int = 0
    was_removed: bool = False
    written_end: int | None = None
    spans: list[FindingSpan] = field(default_factory=list)

    @property
    def first_queue_offset(self) -> int:
        """Queue offset at which the first file begins."""
        assert self.queue is not None
        return max(self.queue.files.min_offset, 0) // UNIT_SIZE

    def goes_on(self, count: int) -> None:
        """So many records more have their units where the proven ones end."""
        self.proven_end += count
        self.next_offset = self.proven_end

    #: What is to be done about it, where that is not what the code says.
    advice: str | None = None

    def position(self, queue_offset: int) -> int | None:
        """Position in its file (bytes) of the unit at a queue offset; None: it is in none."""
        if self.queue is not None and not self.queue.in_files:
            return None
        return queue_offset * UNIT_SIZE % self.file_size

    def finding(self, code: str, **fields: object) -> Finding:
        if self.advice is not None:
            fields["advice"] = self.advice
        return finding(code, path=self.path, topic=self.topic, queue_id=self.queue_id, **fields)

    def hold_back(self, span: FindingSpan) -> Iterator[Finding]:
        """Keeps a span, or adds it to the last one; yields the oldest when there are too many."""
        if self.spans and self.spans[-1].goes_on(span):
            self.spans[-1].count += span.count
            return
        self.spans.append(span)
        if len(self.spans) > _MOST_SPANS:
            yield self.finding_of(self.spans.pop(0))

    def release(self) -> Iterator[Finding]:
        """The findings that were held back."""
        spans, self.spans = self.spans, []
        return map(self.finding_of, spans)

    def finding_of(self, span: FindingSpan) -> Finding:
        expected, found = span.expected, span.found
        if span.code == "record-without-unit":
            expected, found = f"{span.count} units", "never written"
        elif span.count > 1:
            found = f"{span.count} units from {found}"
        told = self.finding(
            span.code,
            queue_offset=span.queue_offset,
            physical_offset=span.physical_offset,
            position=span.position,
            expected=expected,
            found=found,
        )
        return told if span.advice is None else told._replace(advice=span.advice)


@dataclass
class Waits:
    """What is one finding over all queues: those without files, and records not yet dispatched.

    ``missing``: topic, queue id, path, records without a unit, physical offset of the first.
    ``behind`` counts records, ``behind_first`` is the physical offset of the first.
    """

    missing: list[tuple[str, int, str, int, int]] = field(default_factory=list)
    behind: int = 0
    behind_first: int = 0

    def note_behind(self, physical_offset: int, count: int) -> None:
        """Adds ``count`` records that are not dispatched yet, the first at ``physical_offset``."""
        first = min(self.behind_first, physical_offset) if self.behind else physical_offset
        self.behind_first = first
        self.behind += count


def describe(unit: Unit) -> str:
    return f"offset {unit.physical_offset}, size {unit.size}, tags code {unit.tags_code}"
