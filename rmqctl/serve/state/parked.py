"""``PullRequestHoldService``: pulls that found nothing, and wait for a message or their time."""

from __future__ import annotations

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
    """All that wait, by queue, and in the order in which they came; by channel, too, for many
    connections are lost when a network is."""

    def __init__(self) -> None:
        self._queues: dict[Queue, dict[int, Parked[T]]] = {}
        #: Where the pulls of a channel wait, by their numbers.
        self._channels: dict[int, dict[int, Queue]] = {}
        self._ends: dict[Queue, int] = {}
        self._count = self._numbers = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= MAX_PARKED

    def end_of(self, queue: Queue) -> int:
        """Where a queue ends since a message has come; 0: none has since the server began."""
        return self._ends.get(queue, 0)

    def park(self, one: Parked[T]) -> None:
        self._numbers += 1
        self._queues.setdefault(one.queue, {})[self._numbers] = one
        self._channels.setdefault(one.channel, {})[self._numbers] = one.queue
        self._count += 1

    def arrived(self, queue: Queue, end: int) -> list[Parked[T]]:
        """Takes out whoever waits for a message before queue offset ``end``."""
        self._ends[queue] = max(end, self._ends.get(queue, 0))
        waiting = self._queues.get(queue, {}).items()
        return self._take([(n, one) for n, one in waiting if one.offset < end])

    def due(self, now: int) -> list[Parked[T]]:
        """Takes out those whose time is over."""
        queues = self._queues.values()
        return self._take([(n, one) for q in queues for n, one in q.items() if one.deadline <= now])

    def lost(self, channel: int) -> None:
        """Forgets those of a connection, and looks at no others."""
        own = self._channels.get(channel, {}).items()
        self._take([(number, self._queues[queue][number]) for number, queue in own])

    def all(self) -> list[Parked[T]]:
        """Takes out everything."""
        return self._take([item for waiting in self._queues.values() for item in waiting.items()])

    def _take(self, found: list[tuple[int, Parked[T]]]) -> list[Parked[T]]:
        """Takes pulls out of both, by their numbers; what has nothing left is not kept."""
        for number, one in found:
            waiting, own = self._queues[one.queue], self._channels[one.channel]
            del waiting[number], own[number]
            if not waiting:
                del self._queues[one.queue]
            if not own:
                del self._channels[one.channel]
        self._count -= len(found)
        return [one for _, one in found]
