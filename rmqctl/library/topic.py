"""``Topic``: all queues of a topic; and the mappings of topics and of queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from typing import TYPE_CHECKING

from rmqctl.engine.record.record import Record
from rmqctl.engine.services.anyqueue import queue_directories
from rmqctl.library.messages import Messages
from rmqctl.library.queue import Queue, QueueMessages

if TYPE_CHECKING:
    from rmqctl.library.store import Store

#: How many names a repr shows.
_NAMES = 5


class TopicMessages(Messages):
    """The messages of all queues of a topic, in the order of the log."""

    def __init__(
        self, store: Store, topic: str, since: int | None = None, until: int | None = None
    ) -> None:
        """As of :class:`Messages`."""
        super().__init__(store, since, until)
        self._topic = topic

    def _between(self, since: int | None, until: int | None) -> Messages:
        return TopicMessages(self._store, self._topic, since, until)

    def _records(self) -> Iterator[Record]:
        parts = (
            QueueMessages(self._store, self._topic, number, None, self._since, self._until)
            for number in queue_ids(self._store, self._topic)
        )
        # The messages of each queue are in the order of the log already.
        yield from merge(
            *(part._records() for part in parts), key=lambda record: record.physical_offset
        )

    def __repr__(self) -> str:
        return f"<Messages of {self._topic!r}{self._times_told()}>"


class Topic(TopicMessages):
    """A topic that has queues: its messages in the order of the log, and its queues."""

    @property
    def name(self) -> str:
        return self._topic

    @property
    def queues(self) -> Mapping[int, Queue]:
        """Its queues, by queue number and in that order."""
        return Queues(self._store, self._topic)

    def __repr__(self) -> str:
        if self._store.closed:
            return f"<Topic {self._topic!r}, closed>"
        count = len(self.queues)
        return f"<Topic {self._topic!r}, {count} queue{'s' * (count != 1)}>"


def queue_ids(store: Store, topic: str) -> list[int]:
    """The numbers of a topic's queues, in order; empty for a name that no topic has.

    :raises CannotRead: the system refuses to list them. :raises ValueError: the store is closed.
    """
    return sorted({where.queue_id for where in queue_directories(store.engine, topic)})


class Queues(Mapping[int, Queue]):
    """The queues of a topic, by queue number."""

    def __init__(self, store: Store, topic: str) -> None:
        self._store = store
        self._topic = topic

    def __getitem__(self, number: int) -> Queue:
        if number not in queue_ids(self._store, self._topic):
            raise KeyError(number)
        return Queue(self._store, self._topic, number)

    def __iter__(self) -> Iterator[int]:
        return iter(queue_ids(self._store, self._topic))

    def __len__(self) -> int:
        return len(queue_ids(self._store, self._topic))

    def __repr__(self) -> str:
        told = "closed" if self._store.closed else _shown(list(self))
        return f"<Queues of {self._topic!r}: {told}>"


class Topics(Mapping[str, Topic]):
    """The topics of a store that have queues, by name and sorted."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getitem__(self, name: str) -> Topic:
        if not queue_ids(self._store, name):
            raise KeyError(name)
        return Topic(self._store, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(queue_ids(self._store, name))

    def __iter__(self) -> Iterator[str]:
        engine = self._store.engine
        topics = engine.queues.topics()
        if not engine.dispatcher.batch_topics:
            return iter(topics)
        return iter(sorted({*topics, *(where.topic for where in engine.batch_queues())}))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<Topics: {'closed' if self._store.closed else _shown(list(self))}>"


def _shown(names: list[str] | list[int]) -> str:
    """The first names, and how many more there are. Control characters are escaped."""
    told = ", ".join(repr(name) for name in names[:_NAMES])
    more = len(names) - _NAMES
    return f"{told} and {more} more" if more > 0 else told or "none"
