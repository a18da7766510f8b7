"""What is known of one queue while it is checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue, Unit
from rmqctl.operations.verify.findings import Finding, finding

#: More kinds of damage in a row are not held back.
_MOST_RUNS = 8


@dataclass(slots=True)
class Run:
    """Neighbouring units of one kind, or records that lack them: one finding. ``expected`` and
    ``found`` are those of the first."""

    code: str
    queue_offset: int
    physical_offset: int
    position: int
    count: int = 1
    expected: str | None = None
    found: str | None = None

    def goes_on(self, other: Run) -> bool:
        """Whether ``other`` is of the same kind and follows."""
        return self.code == other.code and self.queue_offset + self.count == other.queue_offset


@dataclass(slots=True)
class QueueState:
    """How far one queue is proven: units below ``place`` are, by records in log order.

    ``shift`` is how far units stand from where their records say, 0 in a sound queue. ``queue`` is
    None when it has no files. ``runs`` are records whose units are not as they should be; they are
    told when a unit is, for until then the log may begin the queue again.
    """

    queue: ConsumeQueue | None
    topic: str
    queue_id: int
    path: str
    file_size: int
    started: bool = False
    place: int = 0
    shift: int = 0
    missing: int = 0
    first_missing: int = 0
    was_removed: bool = False
    written_end: int | None = None
    runs: list[Run] = field(default_factory=list)

    @property
    def first_place(self) -> int:
        """Queue offset of the first file's begin."""
        assert self.queue is not None
        return max(self.queue.files.min_offset, 0) // UNIT_SIZE

    def position(self, place: int) -> int:
        """Position of a unit in its file."""
        return place * UNIT_SIZE % self.file_size

    def finding(self, code: str, **fields: object) -> Finding:
        return finding(code, path=self.path, topic=self.topic, queue_id=self.queue_id, **fields)

    def note(self, run: Run) -> Iterator[Finding]:
        """Holds a run back; the oldest is told when there are too many."""
        if self.runs and self.runs[-1].goes_on(run):
            self.runs[-1].count += run.count
            return
        self.runs.append(run)
        if len(self.runs) > _MOST_RUNS:
            yield self.tell(self.runs.pop(0))

    def told(self) -> Iterator[Finding]:
        """What was held back."""
        runs, self.runs = self.runs, []
        return map(self.tell, runs)

    def tell(self, run: Run) -> Finding:
        expected, found = run.expected, run.found
        if run.code == "record-without-unit":
            expected, found = f"{run.count} units", "never written"
        elif run.count > 1:
            found = f"{run.count} units from {found}"
        return self.finding(
            run.code,
            queue_offset=run.queue_offset,
            physical_offset=run.physical_offset,
            position=run.position,
            expected=expected,
            found=found,
        )


@dataclass
class Waits:
    """What queues can only say together: queues without files, and records not yet dispatched."""

    missing: list[tuple[str, int, str, int, int]] = field(default_factory=list)
    behind: int = 0
    behind_first: int = 0

    def note_behind(self, physical_offset: int, count: int) -> None:
        """Records that are not dispatched yet, the first of them at an offset."""
        first = min(self.behind_first, physical_offset) if self.behind else physical_offset
        self.behind_first = first
        self.behind += count


def say(unit: Unit) -> str:
    return f"offset {unit.physical_offset}, size {unit.size}, tags code {unit.tags_code}"
