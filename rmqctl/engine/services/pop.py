"""Pop: the messages of a 5.x broker that consumers have taken but not acknowledged.

A pop stores a check point (tag ``ck``) for the messages that it took from one queue; an
acknowledgement stores an ``ack`` (or ``bAck`` for several). Both are JSON for the topic
``rmq_sys_REVIVE_LOG_<cluster>``, and timed messages: they wait in ``rmq_sys_wheel_timer`` until the
taken messages become visible again, and are then copied to the revive topic. There
``PopReviveService`` matches acknowledgements with check points, and copies each unacknowledged
message into the group's retry topic. Its progress is the offset of the group
``CID_RMQ_SYS_REVIVE_GROUP``: that of the last check point that it has processed.

:meth:`InFlight.check_points` does the same with the records in the log, and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from formats import constants
from formats.constants import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from formats.text import tags_code
from rmqctl.engine.state import brokerjson

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.record.record import Record

#: ``PopAckConstants``: the revive topic's name without the cluster's, its group, and tags.
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
#: ``KeyBuilder``: separators of group and topic in the name of a retry topic, by version.
RETRY_SEPARATORS = ("_", "+")
#: The most messages of one pop (``PopMessageProcessor``): a byte in the check point.
_MOST_MESSAGES = 127
#: Bits in a check point's bit map.
_BITS = 32
#: Bytes of the largest body that is read. A check point of 127 messages has about 2000.
_LARGEST_BODY = 1 << 16
#: Copies may be out of order by this much time: three threads make them, slot by slot
#: (``TimerDequeuePutMessageService``).
_SLACK_MILLISECONDS = 60_000
_UNITS_AT_ONCE = 1 << 16


class Place(NamedTuple):
    """The place of a check point or acknowledgement. ``revive_offset`` is its queue offset in the
    revive topic; None while it waits in the timer's topic."""

    revive_topic: str
    revive_queue_id: int
    revive_offset: int | None
    physical_offset: int


@dataclass(slots=True)
class CheckPoint:
    """``PopCheckPoint``: the messages that one pop took from a queue. ``acked`` has the indexes of
    acknowledged ones in ``queue_offsets``."""

    group: str
    topic: str
    queue_id: int
    start_offset: int
    pop_timestamp: int
    invisible_milliseconds: int
    queue_offsets: list[int]
    re_put_times: int
    place: Place
    acked: set[int] = field(default_factory=set)

    @property
    def visible_timestamp(self) -> int:
        """``getReviveTime`` (ms): from then on other consumers may get the messages."""
        return self.pop_timestamp + self.invisible_milliseconds

    @property
    def waiting(self) -> list[int]:
        """Queue offsets of messages that are not acknowledged."""
        return [offset for at, offset in enumerate(self.queue_offsets) if at not in self.acked]


#: Topic, group, queue id, start offset and pop time: the same in a check point and its
#: acknowledgements. The real key ends with the broker's name, which is the same in one store, or
#: not known.
_Key = tuple[str, str, int, int, int]


class _Ack(NamedTuple):
    key: _Key
    offsets: list[int]


class ReviveQueue(NamedTuple):
    """A queue of the revive topic. ``progress`` is the queue offset of the last check point that
    the revive service has processed; None without one."""

    topic: str
    queue_id: int
    progress: int | None
    min_offset: int
    max_offset: int


def revive_queues(store: MessageStore) -> list[ReviveQueue]:
    """All queues of the revive topic, in order.

    :raises ConfigFileUnreadable: ``consumerOffset.json`` and its ``.bak`` are broken.
    """
    found = []
    offsets = brokerjson.consumer_offsets(store.root, store.config.told_lmq)
    for where in store.queues.directories():
        if not where.topic.startswith(REVIVE_TOPIC_PREFIX):
            continue
        queue = store.consume_queue(where.topic, where.queue_id)
        if queue is None:
            continue
        progress = offsets.get((where.topic, REVIVE_GROUP), {}).get(where.queue_id)
        found.append(
            ReviveQueue(where.topic, where.queue_id, progress, queue.min_offset, queue.max_offset)
        )
    return sorted(found)


class InFlight:
    """All check points that the revive service has not processed yet.

    ``unreadable`` counts messages of the revive topic that are of none of the three kinds or have
    impossible values. A broker ignores them, or stops at them.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.queues = revive_queues(store)
        self.unreadable = 0
        self._found: dict[_Key, CheckPoint] = {}

    def check_points(self) -> list[CheckPoint]:
        """Reads all check points, in the order of group, topic, queue and time."""
        self._found.clear()
        self.unreadable = 0
        for queue in self.queues:
            start = 0 if queue.progress is None else queue.progress + 1
            for queue_offset, record in self._records(queue.topic, queue.queue_id, start):
                place = Place(queue.topic, queue.queue_id, queue_offset, record.physical_offset)
                self._take(record, place)
        # Waiting ones will be delivered in the order of their times.
        waiting = sorted(self._waiting(), key=lambda one: one[:2])
        for _, _, record, place in waiting:
            self._take(record, place)
        return sorted(
            self._found.values(),
            key=lambda one: (one.group, one.topic, one.queue_id, one.pop_timestamp, one.place),
        )

    def _take(self, record: Record, place: Place) -> None:
        """Takes a message as ``PopReviveService#consumeReviveMessage`` does: an acknowledgement
        before its check point is ignored."""
        read = parsed(self._body(record), record.properties.get(constants.PROPERTY_TAGS), place)
        if read is None:
            self.unreadable += 1
        elif isinstance(read, CheckPoint):
            key = read.topic, read.group, read.queue_id, read.start_offset, read.pop_timestamp
            self._found[key] = read
        elif (check_point := self._found.get(read.key)) is not None:
            for offset in read.offsets:
                if offset in check_point.queue_offsets:
                    check_point.acked.add(check_point.queue_offsets.index(offset))

    def _body(self, record: Record) -> bytes:
        return self._store.body(record) if record.body_length <= _LARGEST_BODY else b""

    def _waiting(self) -> Iterator[tuple[int, int, Record, Place]]:
        """``(time, queue offset, record, place)`` of waiting messages, without a copy in the revive
        topic."""
        newest = max(map(self._newest_out_time, self.queues), default=LONG_MIN)
        delivered = self._delivered_since(newest - _SLACK_MILLISECONDS)
        for queue_offset, record in self._timed_records():
            properties = record.properties
            topic = properties.get(constants.PROPERTY_REAL_TOPIC, "")
            time = _whole(properties.get(constants.PROPERTY_TIMER_OUT_MS))
            queue_id = _whole(properties.get(constants.PROPERTY_REAL_QUEUE_ID))
            if not topic.startswith(REVIVE_TOPIC_PREFIX) or time is None or queue_id is None:
                continue
            if time < newest - _SLACK_MILLISECONDS or _identity(record, topic) in delivered:
                continue
            yield time, queue_offset, record, Place(topic, queue_id, None, record.physical_offset)

    def _newest_out_time(self, queue: ReviveQueue) -> int:
        """Due time (ms) of the last message in a revive queue that the timer has delivered. One
        stored before its due time was not delivered by the timer."""
        for _, record in self._records(queue.topic, queue.queue_id, queue.max_offset - 1):
            time = _whole(record.properties.get(constants.PROPERTY_TIMER_OUT_MS))
            if time is not None and time <= record.store_timestamp:
                return time
        return LONG_MIN

    def _delivered_since(self, time: int) -> set[tuple[str, ...]]:
        """Identities of messages in the revive topic that were stored at ``time`` (ms) or later.
        A message that was due at ``time`` cannot have been stored earlier."""
        found = set()
        for queue in self.queues:
            for offset in range(queue.max_offset - 1, queue.min_offset - 1, -1):
                for _, record in self._records(queue.topic, queue.queue_id, offset, offset + 1):
                    if record.store_timestamp < time:
                        break
                    found.add(_identity(record, queue.topic))
                else:
                    continue
                break
        return found

    def _records(
        self, topic: str, queue_id: int, start: int, end: int | None = None
    ) -> Iterator[tuple[int, Record]]:
        queue = self._store.consume_queue(topic, queue_id)
        if queue is None:
            return
        last = queue.max_offset if end is None else min(end, queue.max_offset)
        for queue_offset, unit in queue.units(max(start, queue.min_offset), last):
            record = self._store.commit_log.find_record(unit.physical_offset)
            if record is not None and record.total_size == unit.size:
                yield queue_offset, record

    def _timed_records(self) -> Iterator[tuple[int, Record]]:
        """Queue offsets and records in the timer's queue whose unit has the tags code of one of the
        three tags. Other timed messages are not read."""
        import numpy as np

        queue = self._store.consume_queue(constants.TIMER_TOPIC, 0)
        if queue is None:
            return
        tags = CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG
        codes = np.array([tags_code(tag) for tag in tags])
        at = queue.min_offset
        while at < queue.max_offset:
            units = queue.window(at, min(_UNITS_AT_ONCE, queue.max_offset - at))
            if not len(units):
                return
            for number in np.isin(units["tags_code"], codes).nonzero()[0].tolist():
                record = self._store.commit_log.find_record(int(units["physical_offset"][number]))
                if record is not None and record.total_size == units["size"][number]:
                    yield at + number, record
            at += len(units)


def _identity(record: Record, topic: str) -> tuple[str, ...]:
    """The values that are the same in a timed message and its copy."""
    names = constants.PROPERTY_UNIQ_KEY, constants.PROPERTY_TIMER_OUT_MS, constants.PROPERTY_TAGS
    return topic, *(record.properties.get(name, "") for name in names), str(record.body_crc)


class _Misfit(Exception):
    """A field is missing, or has another type than in Java."""


def parsed(body: bytes, tag: str | None, place: Place) -> CheckPoint | _Ack | None:
    """Parses a check point or acknowledgement. Any bytes are allowed; None: it is neither."""
    try:
        value = json.loads(body)
        if isinstance(value, dict):
            if tag == CHECK_POINT_TAG:
                return _check_point(value, place)
            if tag in (ACK_TAG, BATCH_ACK_TAG):
                return _ack(value, is_batch=tag == BATCH_ACK_TAG)
    except (ValueError, RecursionError, _Misfit):
        return None
    return None


def _check_point(value: dict[str, Any], place: Place) -> CheckPoint:
    start, popped, invisible = (_number(value, (name,)) for name in ("so", "pt", "it"))
    if popped + invisible > LONG_MAX:
        raise _Misfit
    offsets = _offsets(value.get("d"), start, _number(value, ("n",), _MOST_MESSAGES))
    bits = _number(value, ("bm",), INT_MAX)
    return CheckPoint(
        group=_text(value, ("c",)),
        topic=_text(value, ("t",)),
        queue_id=_number(value, ("q",), INT_MAX),
        start_offset=start,
        pop_timestamp=popped,
        invisible_milliseconds=invisible,
        queue_offsets=offsets,
        re_put_times=_whole(value.get("rp")) or 0,
        place=place,
        acked={at for at in range(min(len(offsets), _BITS)) if bits >> at & 1},
    )


def _offsets(differences: Any, start: int, count: int) -> list[int]:
    """``ackOffsetByIndex`` for all messages."""
    if count < 0:
        raise _Misfit
    if differences is None or differences == []:
        return list(range(start, start + count))
    if not isinstance(differences, list) or len(differences) < count:
        raise _Misfit
    if not all(type(one) is int and INT_MIN <= one <= INT_MAX for one in differences):
        raise _Misfit
    return [start + one for one in differences[:count]]


def _ack(value: dict[str, Any], *, is_batch: bool) -> _Ack:
    key = (
        _text(value, ("t", "topic")),
        _text(value, ("c", "consumerGroup")),
        _number(value, ("q", "queueId"), INT_MAX),
        _number(value, ("so", "startOffset")),
        _number(value, ("pt", "popTime")),
    )
    if not is_batch:
        return _Ack(key, [_number(value, ("ao", "ackOffset"))])
    offsets = value.get("aol", value.get("ackOffsetList"))
    if not isinstance(offsets, list) or not all(type(one) is int for one in offsets):
        raise _Misfit
    return _Ack(key, offsets)


def _text(value: dict[str, Any], names: tuple[str, ...]) -> str:
    """The first of ``names`` that is there. A lone surrogate, which cannot be encoded, becomes
    ``?``."""
    text = next((value[name] for name in names if name in value), None)
    if not isinstance(text, str):
        raise _Misfit
    return text.encode("utf-8", "replace").decode()


def _number(value: dict[str, Any], names: tuple[str, ...], most: int = LONG_MAX) -> int:
    """The first of ``names`` that is there; 0 without, as in Java."""
    number = next((value[name] for name in names if name in value), 0)
    if type(number) is not int or not -most - 1 <= number <= most:
        raise _Misfit
    return number


def _whole(text: Any) -> int | None:
    """A property as a Java ``long``; None if it is none."""
    if not isinstance(text, str) or not text.isascii() or len(text) > 20:
        return None
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdigit():
        return None
    number = int(text)
    return number if LONG_MIN <= number <= LONG_MAX else None
