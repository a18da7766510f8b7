"""``PullRequestHoldService``: pulls that found nothing, and wait for a message or their time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

#: A client has one for each queue that it consumes.
MAX_PARKED = 100_000
Queue = tuple[str, int]


class Parked(NamedTuple, Generic[T]):
    """One pull of a queue, from ``offset`` on, answered at ``deadline`` (ms) at the latest."""

    channel: int
    queue: Queue
    offset: int
    deadline: int
    pull: T


class ParkedPulls(Generic[T]):
    """All that wait, by queue."""

    def __init__(self) -> None:
        self._queues: dict[Queue, list[Parked[T]]] = {}
        self._ends: dict[Queue, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= MAX_PARKED

    def end_of(self, queue: Queue) -> int:
        """Where a queue ends since a message has come; 0: none has since the server began."""
        return self._ends.get(queue, 0)

    def park(self, one: Parked[T]) -> None:
        self._queues.setdefault(one.queue, []).append(one)
        self._count += 1

    def arrived(self, queue: Queue, end: int) -> list[Parked[T]]:
        """Takes out whoever waits for a message before queue offset ``end``."""
        self._ends[queue] = max(end, self._ends.get(queue, 0))
        return self._take(queue, lambda one: one.offset < end)

    def due(self, now: int) -> list[Parked[T]]:
        """Takes out those whose time is over."""
        queues = list(self._queues)
        return [one for q in queues for one in self._take(q, lambda one: one.deadline <= now)]

    def lost(self, channel: int) -> None:
        """Forgets those of a connection."""
        for queue in list(self._queues):
            self._take(queue, lambda one: one.channel == channel)

    def all(self) -> list[Parked[T]]:
        """Takes out everything."""
        return [one for queue in list(self._queues) for one in self._take(queue, lambda _: True)]

    def _take(self, queue: Queue, wanted: Callable[[Parked[T]], bool]) -> list[Parked[T]]:
        waiting = self._queues.pop(queue, [])
        kept = [one for one in waiting if not wanted(one)]
        if kept:
            self._queues[queue] = kept
        self._count -= len(waiting) - len(kept)
        return [one for one in waiting if wanted(one)]
