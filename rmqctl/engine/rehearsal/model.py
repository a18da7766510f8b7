"""What a played start leaves, as data: :class:`Outcome` and its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

#: The versions whose start is known, by the names that ``--as`` takes.
VERSIONS = ("4.9.3", "5.3.3")


class StartFails(Exception):
    """Inside this room: the broker does not start, or its start never ends; the text says why."""


class Step(NamedTuple):
    """One step of a start: what is done, where, and why there."""

    what: str
    where: str
    why: str


class Deleted(NamedTuple):
    """A file that a start deletes; ``why`` as of the rows."""

    path: Path
    size: int
    why: str


class QueueState(NamedTuple):
    """A queue after a start. ``cut_to`` is the queue offset at which its recovery has cut it,
    before anything was dispatched again; ``max_physical_offset`` where its last record ends, -1
    without one. ``directory`` is below ``consumequeue/``."""

    topic: str
    queue_id: int
    directory: Path
    min_offset: int
    max_offset: int
    max_physical_offset: int
    cut_to: int


@dataclass
class Outcome:
    """What a start has done. Offsets are physical; ``min_offset`` is -1 without a file of the log.

    ``end_why`` says what stands at the end of the log, in words; ``walked_to`` is that end, also
    where the start fails later. ``reput_from`` is where the dispatch of what the queues lack
    begins, None where there is none. ``is_in_use``: a broker holds the store's lock, so what was
    played is what another one would do.
    """

    is_clean: bool
    reason: str | None = None
    steps: list[Step] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)
    queues: list[QueueState] = field(default_factory=list)
    min_offset: int = -1
    max_offset: int = 0
    first_scanned: Path | None = None
    scanned_bytes: int = 0
    walked_to: int | None = None
    end_why: str = ""
    reput_from: int | None = None
    dispatched_bytes: int = 0
    is_in_use: bool = False

    @property
    def starts(self) -> bool:
        return self.reason is None
