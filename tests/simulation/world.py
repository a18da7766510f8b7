"""Simulated time and network: in which order things happen, and which bytes arrive when."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

#: The time at which a run begins, in milliseconds since the epoch.
EPOCH = 1_700_000_000_000
HASTE = 10


class World:
    """The world of one run; ``now`` is the milliseconds since it began, and ``trace`` a list of
    what has happened."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0
        self.trace: list[str] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def clock(self) -> int:
        """The clock that stores use. It runs faster than ``now``: a start goes back three seconds
        before the checkpoint (``StoreCheckpoint#getMinTimestamp``), which would be half of the time
        with faults."""
        return EPOCH + self.now * HASTE

    def tell(self, text: str) -> None:
        self.trace.append(f"{self.now:6d} {text}")

    def after(self, delay: int, what: Callable[[], None]) -> None:
        """Has something happen later; things of the same moment happen in the order of the
        calls."""
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, what))

    def run(self, until: int) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = until


class End:
    """One end of a connection: it is told what arrives, and when the connection ends."""

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def closed(self) -> None:
        raise NotImplementedError


class Link:
    """A connection. Bytes arrive in order and late, and not in the pieces they were sent in."""

    def __init__(self, world: World, one: End, other: End) -> None:
        self._world = world
        self._ends = [one, other]
        self._last = [0, 0]
        self.is_open = True
        #: Whether nothing arrives any more, without either end being told.
        self.is_dead = False

    def send(self, sender: End, data: bytes) -> None:
        if not self.is_open or self.is_dead or not data:
            return
        chance, to = self._world.chance, 1 - self._ends.index(sender)
        cut = chance.randrange(len(data) + 1) if chance.random() < 0.2 else len(data)
        for part in (data[:cut], data[cut:]):
            if part:
                self._arrive(to, part)

    def _arrive(self, to: int, data: bytes) -> None:
        world = self._world
        at = max(world.now + world.chance.choice((0, 1, 1, 2, 5, 40)), self._last[to])
        self._last[to] = at

        def arrive() -> None:
            if self.is_open and not self.is_dead:
                self._ends[to].received(data)

        world.after(at - world.now, arrive)

    def cut(self, *, told: bool = True) -> None:
        """Ends the connection for both ends; without ``told`` they have to find out themselves."""
        if not told:
            self.is_dead = True
        elif self.is_open:
            self.is_open = False
            for end in self._ends:
                self._world.after(0, end.closed)
