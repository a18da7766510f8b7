"""Keeps some queues of tiered storage open, for items of the index that lead to them."""

from __future__ import annotations

from collections import OrderedDict

from rmqctl.engine.tiered.store import TieredQueue, TieredStore

_OPEN_QUEUES = 32


class OpenQueues:
    """A cache of open queues: items lead to them in no order."""

    def __init__(self, store: TieredStore) -> None:
        self._store = store
        self._open: OrderedDict[tuple[str, int], list[TieredQueue]] = OrderedDict()

    def get(self, topic: str, queue_id: int) -> list[TieredQueue]:
        """The queues of a topic and queue id: several if clusters or brokers share the
        directory."""
        key = topic, queue_id
        if key not in self._open:
            self._open[key] = self._store.open_queues(topic, queue_id)
        self._open.move_to_end(key)
        while len(self._open) > _OPEN_QUEUES:
            _, queues = self._open.popitem(last=False)
            for queue in queues:
                queue.close()
        return self._open[key]

    def close(self) -> None:
        """Closes all queues."""
        for queue in (one for some in self._open.values() for one in some):
            queue.close()
        self._open.clear()

    def __enter__(self) -> OpenQueues:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
