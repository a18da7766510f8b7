"""The state of one batch queue while it is checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
from rmqctl.operations.verify.findings import Finding, finding
from rmqctl.operations.verify.heldback import HoldsBack
from rmqctl.rows.words import some

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LOST = "record-without-unit"


@dataclass(slots=True)
class Span:
    """Neighbouring units with the same kind of damage, or neighbouring records without units: one
    finding. ``count`` is how many they are. All other fields are those of the first: ``number`` is
    the number of its unit in the queue, or of the unit in its place."""

    code: str
    number: int
    queue_offset: int | None
    physical_offset: int
    count: int = 1
    expected: str | None = None
    found: str | None = None

    def goes_on(self, other: Span) -> bool:
        """Whether ``other`` is of the same kind and follows this span."""
        follows = self.number + self.count == other.number
        return self.code == other.code and (follows or self.code == _LOST)


@dataclass(slots=True)
class BatchQueueState(HoldsBack[Span]):
    """How far one queue is checked: all units before number ``next`` are done.

    ``queue`` is None without files. ``base_end`` is the queue offset behind the last record, and
    ``last_record`` the physical offset of that record; both are -1 where unknown. ``spans`` are
    held back until the next sound unit, for until then it may turn out that the queue begins again,
    and that they are no damage. After a search without result ``searches`` is off until the next
    sound unit.
    """

    queue: BatchConsumeQueue | None
    topic: str
    queue_id: int
    path: str
    next: int = 0
    base_end: int = -1
    last_record: int = -1
    has_matched: bool = False
    searches: bool = True
    missing: int = 0
    first_missing: int = 0
    was_removed: bool = False
    spans: list[Span] = field(default_factory=list)

    def finding(self, code: str, number: int, **fields: object) -> Finding:
        """A finding about the unit of a number, or about its place."""
        place = None if self.queue is None else self.queue.place(number)
        path, position = self.path, None
        if place is not None:
            path, position = f"{self.path}/{place[0].name}", place[1]
        where = {"path": path, "topic": self.topic, "queue_id": self.queue_id}
        return finding(code, **where, position=position, **fields)

    def matches(self, units: NDArray[np.void]) -> Iterator[Finding]:
        """Takes note of sound units. If all records before them have no unit, and their queue
        offsets are given again now, the topic was deleted with its queues, and made anew."""
        first = int(units["base_offset"][0])
        is_again = not self.has_matched and len(self.spans) == 1 and self.spans[0].code == _LOST
        if is_again and (self.spans[0].queue_offset or 0) >= first:
            (lost,) = self.spans
            self.spans, self.base_end = [], -1
            yield self.finding(
                "queue-begun-again",
                lost.number,
                queue_offset=lost.queue_offset,
                physical_offset=lost.physical_offset,
                expected=f"units of {some(lost.count, 'record')}",
                found=f"those of later records, from {int(units['physical_offset'][0])} on",
            )
        yield from self.release()
        self.has_matched = self.searches = True

    def finding_of(self, span: Span) -> Finding:
        texts: dict[str, Any] = {"expected": span.expected, "found": span.found}
        if span.code == _LOST:
            texts = {"expected": some(span.count, "unit"), "found": "never written"}
        elif span.count > 1:
            texts["found"] = f"{span.count} units from {span.found}"
        return self.finding(
            span.code,
            span.number,
            queue_offset=span.queue_offset,
            physical_offset=span.physical_offset,
            **texts,
        )
