"""The outcome of a played start as data: :class:`Outcome` and its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

#: The versions whose start can be played, by the names that ``--as`` takes.
VERSIONS = ("4.9.3", "5.3.3")


class StartFails(Exception):
    """The broker does not start, or its start never ends; the text says why. ``queue`` (topic,
    queue id) is the one whose files alone are the reason. Only used in this room."""

    def __init__(self, why: str, queue: tuple[str, int] | None = None) -> None:
        super().__init__(why)
        self.queue = queue


class Step(NamedTuple):
    """One step of a start: what it does, where, and why."""

    what: str
    where: str
    why: str


class Deleted(NamedTuple):
    """A file that a start deletes; ``why`` is the text in the rows."""

    path: Path
    size: int
    why: str


class QueueState(NamedTuple):
    """A queue after a start.

    ``cut_to`` is the queue offset at which the recovery has cut it, before anything was dispatched
    again. ``max_physical_offset`` is where its last record ends; -1 without one. ``directory`` is
    below ``consumequeue/``. ``misplaced`` counts the units that the dispatch puts at places of
    other messages, because units before them are missing.
    """

    topic: str
    queue_id: int
    directory: Path
    min_offset: int
    max_offset: int
    max_physical_offset: int
    cut_to: int
    misplaced: int = 0


@dataclass
class Outcome:
    """What a start has done. Offsets are physical; ``min_offset`` is -1 without a log file.

    ``walked_to`` is the end of the log, even if the start fails later, and ``end_why`` says in
    words why it ends there. ``reput_from`` is where the dispatch of records that the queues lack
    begins; None without a dispatch. ``failed_queue`` (topic, queue id) is the one whose files alone
    are why the broker does not start. ``is_in_use``: another process holds the store's lock, so
    this is what a second broker would do.
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
    failed_queue: tuple[str, int] | None = None

    @property
    def starts(self) -> bool:
        return self.reason is None
