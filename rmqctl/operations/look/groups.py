"""groups: how far each consumer group has read, by ``consumerOffset.json`` and the queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from formats.constants import LONG_MAX
from rmqctl.engine.services.anyqueue import opened_queue, queue_directories
from rmqctl.engine.state.brokerjson import consumer_offsets
from rmqctl.engine.state.topicconfig import is_made_by_broker, subscription_groups
from rmqctl.operations.look.pop import normal_topic

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.services.anyqueue import AnyQueue
    from rmqctl.rows.summaries import GroupsSummary
    from rmqctl.rows.topics import GroupQueueRow, GroupRow

#: What is wrong with the offset of a group, the worst first.
PAST_QUEUE, BEFORE_QUEUE, NO_QUEUE, NO_OFFSET, OK = STATES = (
    "past-queue",
    "before-queue",
    "no-queue",
    "no-offset",
    "ok",
)


class Progress(NamedTuple):
    """How far a group has read one queue.

    ``lag`` counts the messages that it has still to read, ``missed`` those that retention deleted
    before they were read. ``next_store_timestamp`` is the store time of the first unread message;
    it is also None without lag. ``behind_milliseconds`` is the time from that message to the
    queue's newest one. No clock is asked, so a store of last week is as far behind as it was then.
    Both are None where no record can be read.
    """

    queue_id: int
    consumer_offset: int
    min_offset: int
    max_offset: int
    lag: int
    behind_milliseconds: int | None
    missed: int
    next_store_timestamp: int | None
    state: str


class Consumption(NamedTuple):
    """A group and a topic (None: the group has no offset at all), with the queues in which it has
    an offset, and the number of queues with messages in which it has none."""

    group: str
    topic: str | None
    is_configured: bool | None
    queues: list[Progress]
    queues_without_offset: int


class _Groups:
    """The offsets and groups of the files, and the queues of the store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._offsets = consumer_offsets(store.root, store.config.told_lmq)
        self._configured = subscription_groups(store.root)
        self._queue_ids: dict[str, set[int]] = {}
        #: Many groups read the same queues, and a store may have too many to keep them open.
        self._ends: dict[tuple[str, int], _Ends] = {}
        for where in queue_directories(store):
            self._queue_ids.setdefault(where.topic, set()).add(where.queue_id)

    def consumptions(self, group: str | None, topic: str | None) -> Iterator[Consumption]:
        found = {(owner, name): offsets for (name, owner), offsets in self._offsets.items()}
        for owner, name in sorted(found):
            # A retry topic of pop counts as its topic.
            if group in (None, owner) and topic in (None, name, normal_topic(name, owner)):
                yield self._consumption(owner, name, found[owner, name])
        if topic is None:
            for owner in sorted((self._configured or set()) - {owner for owner, _ in found}):
                if owner == group or (group is None and not is_made_by_broker(owner)):
                    yield Consumption(owner, None, True, [], 0)

    def _consumption(self, group: str, topic: str, offsets: dict[int, int]) -> Consumption:
        existing = self._queue_ids.get(topic, set())
        without = 0
        for queue_id in existing:
            if queue_id not in offsets:
                ends = self._ends_of(topic, queue_id, LONG_MAX)
                without += ends is not None and ends.min_offset < ends.max_offset
        return Consumption(
            group,
            topic,
            None if self._configured is None else group in self._configured,
            [
                self._progress(topic, queue_id, offset, exists=queue_id in existing)
                for queue_id, offset in sorted(offsets.items())
            ],
            without,
        )

    def _progress(self, topic: str, queue_id: int, offset: int, *, exists: bool) -> Progress:
        nowhere = Progress(queue_id, offset, 0, 0, 0, 0, 0, None, NO_QUEUE)
        if not exists:
            return nowhere
        ends = self._ends_of(topic, queue_id, offset)
        return nowhere if ends is None else _progress_in(queue_id, ends, offset)

    def _ends_of(self, topic: str, queue_id: int, offset: int) -> _Ends | None:
        """What a group with this offset needs of a queue; None when it has no directory."""
        ends = self._ends.get((topic, queue_id))
        if ends is None or not ends.tell(offset):
            with opened_queue(self._store, topic, queue_id) as queue:
                if queue is None:
                    return None
                ends = self._ends[topic, queue_id] = _ends(queue, offset)
        return ends


class _Ends(NamedTuple):
    """What was read of a queue for one group, and serves others: its offsets, and the store times
    of its newest message and of the one at ``unread``, None where there is no lag."""

    min_offset: int
    max_offset: int
    unread: int
    following: int | None
    newest: int | None

    def tell(self, offset: int) -> bool:
        """Whether they are all that is needed of the queue for a group with this offset."""
        unread = max(offset, self.min_offset)
        return unread >= self.max_offset or unread == self.unread


def _ends(queue: AnyQueue, offset: int) -> _Ends:
    low, high = queue.min_offset, queue.max_offset
    unread = max(offset, low)
    if unread >= high:
        return _Ends(low, high, unread, None, None)
    return _Ends(low, high, unread, queue.stored_at(unread), queue.stored_at(high - 1))


def _progress_in(queue_id: int, ends: _Ends, offset: int) -> Progress:
    low, high = ends.min_offset, ends.max_offset
    lag = max(high - max(offset, low), 0)
    following, newest = (ends.following, ends.newest) if lag else (None, None)
    waits: int | None = 0
    if lag:
        is_known = following is not None and newest is not None
        waits = max(newest - following, 0) if is_known else None  # type: ignore[operator]
    state = PAST_QUEUE if offset > high else BEFORE_QUEUE if offset < low else OK
    missed = max(low - offset, 0)
    return Progress(queue_id, offset, low, high, lag, waits, missed, following, state)


def groups(
    store: MessageStore, group: str | None = None, topic: str | None = None
) -> Iterator[GroupRow | GroupsSummary]:
    """Rows ``group``, one for each group and topic, sorted, then ``summary``. A given ``topic``
    includes its retry topics of pop (5.x). Without ``topic``, groups of ``subscriptionGroup.json``
    that have no offset are included, except those that every broker makes.

    :raises ConfigFileUnreadable: a file is broken, and so is its ``.bak``.
    """
    totals = _Totals()
    for one in _Groups(store).consumptions(group, topic):
        totals.add(one)
        yield _group_row(one)
    yield totals.row()


def group_queues(
    store: MessageStore, group: str | None = None, topic: str | None = None
) -> Iterator[GroupQueueRow | GroupsSummary]:
    """Rows ``group_queue``, one for each group, topic and queue, sorted, then ``summary``; errors
    as of :func:`groups`."""
    totals = _Totals()
    for one in _Groups(store).consumptions(group, topic):
        totals.add(one)
        if one.topic is None:
            continue  # A group without any offset.
        for progress in one.queues:
            yield _group_queue_row(one.group, one.topic, progress)
    yield totals.row()


def _group_queue_row(group: str, topic: str, progress: Progress) -> GroupQueueRow:
    return {
        "type": "group_queue",
        "group": group,
        "topic": topic,
        "queue_id": progress.queue_id,
        "consumer_offset": progress.consumer_offset,
        "min_offset": progress.min_offset,
        "max_offset": progress.max_offset,
        "lag": progress.lag,
        "behind_milliseconds": progress.behind_milliseconds,
        "missed": progress.missed,
        "next_store_timestamp": progress.next_store_timestamp,
        "state": progress.state,
    }


def _group_row(one: Consumption) -> GroupRow:
    lags = [queue.behind_milliseconds for queue in one.queues]
    nexts = [queue.next_store_timestamp for queue in one.queues]
    states = {queue.state for queue in one.queues} or {NO_OFFSET}
    return {
        "type": "group",
        "group": one.group,
        "topic": one.topic,
        "configured": one.is_configured,
        "queues": len(one.queues),
        "queues_without_offset": one.queues_without_offset,
        "lag": sum(queue.lag for queue in one.queues),
        "behind_milliseconds": max((lag for lag in lags if lag is not None), default=None),
        "missed": sum(queue.missed for queue in one.queues),
        "next_store_timestamp": min((time for time in nexts if time is not None), default=None),
        "state": min(states, key=STATES.index),
    }


class _Totals:
    def __init__(self) -> None:
        self._groups: set[str] = set()
        self._queues = self._lag = self._missed = self._past_queue = 0

    def add(self, one: Consumption) -> None:
        self._groups.add(one.group)
        self._queues += len(one.queues)
        for queue in one.queues:
            self._lag += queue.lag
            self._missed += queue.missed
            self._past_queue += queue.state == PAST_QUEUE

    def row(self) -> GroupsSummary:
        return {
            "type": "summary",
            "groups": len(self._groups),
            "queues": self._queues,
            "lag": self._lag,
            "missed": self._missed,
            "past_queue": self._past_queue,
        }
