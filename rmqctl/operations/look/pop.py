"""pop ls: messages that consumers of 5.x have popped and not acknowledged, and when they come back.

The sources are the check points and acknowledgements in the log, the progress of the revive service
in ``consumerOffset.json``, and ``consumerOrderInfo.json`` for queues that are popped in order. Data
that a broker has only in memory (``enablePopBufferMerge``) or in RocksDB
(``popConsumerKVServiceEnable``) is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats.constants import RETRY_GROUP_TOPIC_PREFIX
from rmqctl.engine.services.pop import RETRY_SEPARATORS, CheckPoint, InFlight, ReviveQueue
from rmqctl.engine.state.orderinfo import OrderInfo, order_infos
from rmqctl.engine.state.topicconfig import topic_configs

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows.pops import PopCheckPointRow, PopLsSummary, PopOrderRow, PopQueueRow

INVISIBLE, BLOCKED, DUE, ACKED = "invisible", "blocked", "due", "acked"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What to print: the rows of a group, of a topic (including its retry topics), at most
    ``limit`` check points; ``everything`` includes what is acknowledged."""

    group: str | None = None
    topic: str | None = None
    limit: int | None = None
    everything: bool = False

    def takes(self, group: str, topic: str) -> bool:
        return self.group in (None, group) and self.topic in (
            None,
            topic,
            normal_topic(topic, group),
        )


def normal_topic(topic: str, group: str) -> str:
    """The topic that a retry topic of pop belongs to (``KeyBuilder#parseNormalTopic``); any other
    topic itself."""
    for separator in RETRY_SEPARATORS:
        prefix = f"{RETRY_GROUP_TOPIC_PREFIX}{group}{separator}"
        if topic.startswith(prefix) and len(topic) > len(prefix):
            return topic.removeprefix(prefix)
    return topic


def pops(
    store: MessageStore, now: int, chosen: Chosen
) -> Iterator[PopCheckPointRow | PopOrderRow | PopQueueRow | PopLsSummary]:
    """Rows ``pop_check_point`` by group, topic, queue and time, ``pop_order``, ``pop_queue`` of
    all revive queues, then ``summary`` of all that ``chosen`` takes, without its limit.

    :param now: the time (ms since the epoch) at which messages are due.
    :raises ConfigFileUnreadable: a file is broken, and so is its ``.bak``.
    """
    view = _View(store, now)
    in_flight = InFlight(store)
    printed = 0
    for one in in_flight.check_points():
        if not chosen.takes(one.group, one.topic):
            continue
        row = view.check_point(one)
        if row["state"] != ACKED or chosen.everything:
            printed += 1
            if chosen.limit is None or printed <= chosen.limit:
                yield row
    for info in order_infos(store.root):
        if chosen.takes(info.group, info.topic):
            order = view.order(info)
            if order["state"] != ACKED or chosen.everything:
                yield order
    yield from map(_queue_row, in_flight.queues)
    view.summary["unreadable"] = in_flight.unreadable
    yield view.summary


class _View:
    """Makes the rows as of a time, and sums them up."""

    def __init__(self, store: MessageStore, now: int) -> None:
        self._store = store
        self._now = now
        self._topics = topic_configs(store.root)
        self._separator = RETRY_SEPARATORS[store.config.enable_retry_topic_v2]
        self.summary: PopLsSummary = {
            "type": "summary",
            "check_points": 0,
            "messages": 0,
            "due": 0,
            "lost": 0,
            "acked": 0,
            "ordered_queues": 0,
            "blocked_queues": 0,
            "next_visible_timestamp": None,
            "unreadable": 0,
        }

    def check_point(self, one: CheckPoint) -> PopCheckPointRow:
        waiting, total = one.waiting, self.summary
        is_due = one.visible_timestamp <= self._now
        lost = sum(not self._is_there(one, offset) for offset in waiting)
        total["check_points"] += 1
        total["messages"] += len(waiting)
        total["due"] += len(waiting) * is_due
        total["lost"] += lost
        total["acked"] += not waiting
        if waiting and not is_due:
            self._note_visible(one.visible_timestamp)
        return {
            "type": "pop_check_point",
            "group": one.group,
            "topic": one.topic,
            "queue_id": one.queue_id,
            "state": ACKED if not waiting else DUE if is_due else INVISIBLE,
            "messages": len(one.queue_offsets),
            "acked": len(one.queue_offsets) - len(waiting),
            "waiting": len(waiting),
            "lost": lost,
            "queue_offsets": waiting,
            "pop_timestamp": one.pop_timestamp,
            "visible_timestamp": one.visible_timestamp,
            "remaining_milliseconds": one.visible_timestamp - self._now,
            "retry_topic": self._retry_topic(one),
            "re_put_times": one.re_put_times,
            "revive_topic": one.place.revive_topic,
            "revive_queue_id": one.place.revive_queue_id,
            "revive_offset": one.place.revive_offset,
            "physical_offset": one.place.physical_offset,
        }

    def _retry_topic(self, one: CheckPoint) -> str:
        """The topic to which messages come back (``PopReviveService#reviveRetry``): messages of a
        retry topic come back to that topic."""
        if one.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return one.topic
        return f"{RETRY_GROUP_TOPIC_PREFIX}{one.group}{self._separator}{one.topic}"

    def _is_there(self, one: CheckPoint, offset: int) -> bool:
        """Whether a broker that revives a message finds it, and its topic
        (``PopReviveService#mergeAndRevive``)."""
        if self._topics is not None and normal_topic(one.topic, one.group) not in self._topics:
            return False
        queue = self._store.consume_queue(one.topic, one.queue_id)
        return queue is not None and queue.min_offset <= offset < queue.max_offset

    def order(self, info: OrderInfo) -> PopOrderRow:
        waiting, until = info.waiting, info.blocked_until
        is_blocked = until is not None and until > self._now
        self.summary["ordered_queues"] += 1
        self.summary["blocked_queues"] += is_blocked
        if is_blocked and until is not None:
            self._note_visible(until)
        return {
            "type": "pop_order",
            "group": info.group,
            "topic": info.topic,
            "queue_id": info.queue_id,
            "state": ACKED if not waiting else BLOCKED if is_blocked else DUE,
            "messages": len(info.queue_offsets),
            "acked": len(info.queue_offsets) - len(waiting),
            "waiting": len(waiting),
            "queue_offsets": waiting,
            "pop_timestamp": info.pop_timestamp,
            "visible_timestamp": until,
            "remaining_milliseconds": None if until is None else until - self._now,
        }

    def _note_visible(self, timestamp: int) -> None:
        known = self.summary["next_visible_timestamp"]
        self.summary["next_visible_timestamp"] = (
            timestamp if known is None else min(known, timestamp)
        )


def _queue_row(queue: ReviveQueue) -> PopQueueRow:
    start = 0 if queue.progress is None else queue.progress + 1
    return {
        "type": "pop_queue",
        "revive_topic": queue.topic,
        "revive_queue_id": queue.queue_id,
        "progress": queue.progress,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
        "behind": max(queue.max_offset - max(start, queue.min_offset), 0),
    }
