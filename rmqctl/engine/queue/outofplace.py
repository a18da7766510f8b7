"""Records whose queue offset was not their queue's end when their unit was put."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class OutOfPlace:
    """Counts them over all queues of a table.

    A broker does the same (``ConsumeQueue#putMessagePositionInfo``): where offsets were left out it
    warns `logic queue order maybe wrong`, and stores the unit at the queue's end; where an offset
    was given twice it stores none.

    ``misplaced`` counts the units that are at another queue offset than their record names,
    ``without_unit`` the records whose place an earlier one has. ``first`` is the physical offset of
    the first such record; -1: there is none. ``queues`` has topic and queue id of each queue.
    """

    misplaced: int = 0
    without_unit: int = 0
    first: int = -1
    queues: set[tuple[str, int]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return self.first >= 0

    def note(self, queue: tuple[str, int], physical_offset: int, *, is_stored: bool) -> None:
        """Notes a record of a queue, whose unit was stored, or was not."""
        self.misplaced += is_stored
        self.without_unit += not is_stored
        is_first = self.first < 0 or physical_offset < self.first
        self.first = physical_offset if is_first else self.first
        self.queues.add(queue)
