"""``RebalanceLockManager``: which client of a group consumes a queue in order."""

from __future__ import annotations

from collections.abc import Iterable

from rmqctl.serve.wire.bodies import MessageQueue

#: ``rocketmq.broker.rebalance.lockMaxLiveTime``, in milliseconds since it was renewed.
LOCK_MAX_LIVE_TIME = 60_000


class QueueLocks:
    """Locks do not depend on connections: they end when they are released, or not renewed."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueue, tuple[str, int]]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now: int
    ) -> list[MessageQueue]:
        """Takes or renews what is free, or the client's own; what it has now (``tryLockBatch``)."""
        held = self._groups.setdefault(group, {})
        locked = []
        for queue in queues:
            owner, renewed = held.get(queue, (client_id, now))
            if owner == client_id or now - renewed > LOCK_MAX_LIVE_TIME:
                held[queue] = client_id, now
                locked.append(queue)
        return locked

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Releases what is the client's own (``unlockBatch``)."""
        held = self._groups.get(group, {})
        for queue in queues:
            if held.get(queue, ("", 0))[0] == client_id:
                del held[queue]
        if not held:
            self._groups.pop(group, None)

    def expire(self, now: int) -> None:
        """Forgets what nobody has renewed."""
        for group, held in list(self._groups.items()):
            for queue in [q for q, (_, at) in held.items() if now - at > LOCK_MAX_LIVE_TIME]:
                del held[queue]
            if not held:
                del self._groups[group]
