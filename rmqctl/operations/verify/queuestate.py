"""The state of one queue while it is checked, and what is counted over all queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue, Unit
from rmqctl.operations.verify.findings import Finding, finding
from rmqctl.operations.verify.heldback import HoldsBack
from rmqctl.rows.words import some


@dataclass(slots=True)
class FindingSpan:
    """Neighbouring units with the same damage, or neighbouring records without units: one finding.
    ``count`` is how many they are. The other fields are those of the first."""

    code: str
    queue_offset: int
    physical_offset: int
    position: int | None
    count: int = 1
    expected: str | None = None
    found: str | None = None
    #: The advice, if it is not that of the code.
    advice: str | None = None

    def goes_on(self, other: FindingSpan) -> bool:
        """Whether ``other`` has the same damage and begins where this span ends."""
        is_same = (self.code, self.advice) == (other.code, other.advice)
        # Offsets that were given twice are those of one run of earlier records, up to `expected`.
        if self.code == "queue-offset-repeated":
            is_same = is_same and self.expected == other.expected
        return is_same and self.queue_offset + self.count == other.queue_offset


@dataclass(slots=True)
class QueueState(HoldsBack[FindingSpan]):
    """How far the check of one queue has come.

    The records so far have asked for the units up to queue offset ``proven_end``. ``next_offset``
    is the queue offset that the next record should have; -1: none is expected. ``shift`` is how
    many units behind their records' queue offsets the stored units are: 0 in a sound queue,
    negative where units were left out. ``queue`` is None if it has no files.

    ``spans`` are findings that are held back until the next sound unit. Until then a later record
    may show that the topic was deleted and made anew, so that the queue began again: then they are
    no damage.
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
    #: The last records whose queue offsets are those of earlier ones. Unlike ``spans`` they are
    #: damage in any case, and held back because more of them may come.
    repeated: FindingSpan | None = None
    #: The advice of this queue's findings, if it is not that of their codes.
    advice: str | None = None

    @property
    def first_queue_offset(self) -> int:
        """The queue offset at which the first file begins."""
        assert self.queue is not None
        return max(self.queue.files.min_offset, 0) // UNIT_SIZE

    def goes_on(self, count: int) -> None:
        """Notes that the next ``count`` records have their units at ``proven_end``."""
        self.proven_end += count
        self.next_offset = self.proven_end

    def repeats(self, span: FindingSpan) -> Iterator[Finding]:
        """Takes records with the queue offsets of earlier ones. Yields the finding of those before
        them, if they do not follow these."""
        if self.repeated is not None and self.repeated.goes_on(span):
            self.repeated.count += span.count
            return
        yield from self.release_repeated()
        self.repeated = span

    def release_repeated(self) -> Iterator[Finding]:
        """Yields the finding of :attr:`repeated`, and forgets that."""
        if self.repeated is not None:
            yield self.finding_of(self.repeated)
            self.repeated = None

    def release(self) -> Iterator[Finding]:
        yield from self.release_repeated()
        yield from HoldsBack.release(self)

    def begun_again(self, physical_offset: int) -> Finding:
        """The finding that the spans held back become, if the queue has begun again with a later
        record, at ``physical_offset``. Forgets them."""
        earlier, self.spans = self.spans, []
        return self.finding(
            "queue-begun-again",
            queue_offset=earlier[0].queue_offset,
            physical_offset=earlier[0].physical_offset,
            expected=f"units of {some(sum(one.count for one in earlier), 'record')}",
            found=f"those of later records, from {physical_offset} on",
        )

    def position(self, queue_offset: int) -> int | None:
        """The position (bytes) in its file of the unit at a queue offset; None if the queue is not
        in files."""
        if self.queue is not None and not self.queue.in_files:
            return None
        return queue_offset * UNIT_SIZE % self.file_size

    def finding(self, code: str, **fields: object) -> Finding:
        if self.advice is not None:
            fields["advice"] = self.advice
        return finding(code, path=self.path, topic=self.topic, queue_id=self.queue_id, **fields)

    def finding_of(self, span: FindingSpan) -> Finding:
        expected, found = span.expected, span.found
        if span.code == "record-without-unit":
            expected, found = some(span.count, "unit"), "never written"
        elif span.count > 1 and span.code == "queue-offset-repeated":
            found = f"{span.count} records from {found}"
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
    """What is counted over all queues: queues without files, and records not yet dispatched.

    ``missing`` has for each queue without files: topic, queue id, path, number of records without
    a unit, and the physical offset of the first of these. ``behind`` is how many records are not
    dispatched yet, ``behind_first`` the physical offset of the first.
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
