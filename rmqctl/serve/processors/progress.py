"""How far queues go, and how far groups have consumed them: statistics of topics and of consumption
(``AdminBrokerProcessor``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import localtime, strftime
from typing import Any

from formats.remotingcodes import ResponseCode
from rmqctl.engine.queue.consumequeue import ConsumeQueue, is_ext_addr
from rmqctl.engine.read.bytime import store_times
from rmqctl.engine.store import Store
from rmqctl.serve.processors.queues import queue_of
from rmqctl.serve.processors.request import Later, Outcome, Request, Served
from rmqctl.serve.state.topics import ServedTopic
from rmqctl.serve.wire.bodies import MessageQueue, encode_body
from rmqctl.serve.wire.command import RemotingCommand

#: How many units one answer has at most; ``queryCq`` asks for ten.
_MOST_UNITS = 4096


class _Queues:
    """What a broker's methods of the same names tell of a store's queues."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def _find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return queue_of(self._store, topic, queue_id)

    def ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Min and max offset; both 0 for a queue that does not exist."""
        queue = self._find(topic, queue_id)
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    def time(self, topic: str, queue_id: int, offset: int) -> int:
        """``getMessageStoreTimeStamp``; -1 where there is none."""
        queue = self._find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return -1
        found = store_times(self._store.commit_log, queue)(offset)
        return -1 if found is None else found

    def first_time(self, topic: str, queue_id: int) -> int:
        """``getEarliestMessageTime``."""
        return self.time(topic, queue_id, self.ends(topic, queue_id)[0])


def _answer_later(request: Request, work: Any) -> Later:
    def answer(value: dict[str, Any], now: int) -> Outcome:
        return request.command.answer(ResponseCode.SUCCESS, body=encode_body(value))

    return Later(work, answer)


def _missing(request: Request, topic: str) -> RemotingCommand:
    return request.command.answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")


def get_topic_stats(served: Served, request: Request) -> Outcome:
    """``getTopicStatsInfo``."""
    name = request.fields.topic("topic", served.topics)
    topic = served.topics.find(name)
    if topic is None:
        return _missing(request, name)

    def work() -> dict[str, Any]:
        queues = _Queues(served.store)
        table = {}
        for queue_id in range(topic.write_queue_nums):
            low, high = queues.ends(name, queue_id)
            time = queues.time(name, queue_id, high - 1) if high > 0 else 0
            table[MessageQueue(served.names.broker, queue_id, name)] = {
                "lastUpdateTimestamp": time,
                "maxOffset": high,
                "minOffset": low,
            }
        return {"offsetTable": table}

    return _answer_later(request, work)


def get_consume_stats(served: Served, request: Request) -> Outcome:
    """``getConsumeStats``: of one topic, or of all topics in which the group has offsets."""
    group = request.fields.group("consumerGroup", served.groups)
    topic = request.fields.find_topic("topic", served.topics)
    topics = list(_consumed(served, group, [topic] if topic else served.offsets.topics_of(group)))
    stored = {one.name: _offsets(served, group, one, one.read_queue_nums) for one in topics}
    tps = sum(served.statistics.group_get_tps(group, one.name) for one in topics)

    def work() -> dict[str, Any]:
        tables = (_offset_table(served, one, stored[one.name]) for one in topics)
        return {"consumeTps": tps, "offsetTable": {k: v for table in tables for k, v in table}}

    return _answer_later(request, work)


def get_broker_consume_stats(served: Served, request: Request) -> Outcome:
    """``fetchAllConsumeStatsInBroker``."""
    in_order = request.fields.boolean("isOrder")
    asked = []
    for group in served.groups:
        for topic in _consumed(served, group.name, served.offsets.topics_of(group.name)):
            if not in_order or topic.order:
                offsets = _offsets(served, group.name, topic, topic.write_queue_nums)
                tps = served.statistics.group_get_tps(group.name, topic.name)
                asked.append((group.name, topic, offsets, tps))
    names = [group.name for group in served.groups]
    address = served.address_for(request.channel)

    def work() -> dict[str, Any]:
        lists: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        behind = 0
        for group, topic, offsets, tps in asked:
            table = dict(_offset_table(served, topic, offsets))
            behind += sum(one["brokerOffset"] - one["consumerOffset"] for one in table.values())
            lists[group].append({"consumeTps": tps, "offsetTable": table})
        stats = [{name: found} for name, found in lists.items()]
        return {"brokerAddr": address, "consumeStatsList": stats, "totalDiff": behind}

    return _answer_later(request, work)


def _date(timestamp: int) -> str:
    """A time (ms) as a broker of this zone writes it (``UtilAll#formatDate``); one of a year that
    the system cannot tell as its number."""
    seconds, milliseconds = divmod(timestamp, 1000)
    try:
        moment = strftime("%Y-%m-%d#%H:%M:%S", localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return f"{moment}:{milliseconds:03d}"


def get_consume_time_span(served: Served, request: Request) -> Outcome:
    """``queryConsumeTimeSpan``."""
    name = request.fields.topic("topic", served.topics)
    group = request.fields.group("group", served.groups)
    topic = served.topics.find(name)
    if topic is None:
        return _missing(request, name)
    offsets = _offsets(served, group, topic, topic.write_queue_nums, none=-1)
    clock = served.now()

    def span(queues: _Queues, queue_id: int, offset: int) -> dict[str, Any]:
        low, high = queues.first_time(name, queue_id), queues.ends(name, queue_id)[1]
        delay = clock - queues.time(name, queue_id, offset) if offset < high else 0
        consumed = queues.time(name, queue_id, offset - 1) if offset > 0 else low
        newest = queues.time(name, queue_id, high - 1)
        return {
            "consumeTimeStamp": consumed,
            "consumeTimeStampStr": _date(consumed),
            "delayTime": delay,
            "maxTimeStamp": newest,
            "maxTimeStampStr": _date(newest),
            "messageQueue": MessageQueue(served.names.broker, queue_id, name),
            "minTimeStamp": low,
            "minTimeStampStr": _date(low),
        }

    def work() -> dict[str, Any]:
        queues = _Queues(served.store)
        return {"consumeTimeSpanSet": [span(queues, n, one) for n, one in enumerate(offsets)]}

    return _answer_later(request, work)


def query_consume_queue(served: Served, request: Request) -> Outcome:
    """``queryConsumeQueue``: units as they are stored. All numbers may be missing, and are 0
    then."""
    fields, command = request.fields, request.command
    topic, queue_id = fields.topic("topic", served.topics), fields.find_int32("queueId") or 0
    start, count = fields.find_int64("index") or 0, fields.find_int32("count") or 0
    count = min(max(count, 0), _MOST_UNITS)
    group = fields.find_group("consumerGroup", served.groups)
    subscription = served.clients.subscription(group, topic)[0] if group else None

    def work() -> dict[str, Any] | None:
        queue = queue_of(served.store, topic, queue_id)
        if queue is None:
            return None
        low, high = queue.min_offset, queue.max_offset
        body: dict[str, Any] = {"maxQueueIndex": high, "minQueueIndex": low}
        if low <= start < high:
            body["queueData"] = [
                {
                    "eval": False,
                    "physicOffset": unit.physical_offset,
                    "physicSize": unit.size,
                    "tagsCode": unit.tags_code,
                }
                | ({"msg": "an address in the extension"} if is_ext_addr(unit.tags_code) else {})
                for _, unit in queue.units(start, min(start + count, high))
            ]
        return body

    def answer(body: dict[str, Any] | None, now: int) -> Outcome:
        place = f"{queue_id}@{topic}"
        if body is None:
            return command.answer(ResponseCode.SYSTEM_ERROR, f"{place} is not exist!")
        if "queueData" not in body:
            remark = f"Index {start} of {place} is not exist!"
            return command.answer(ResponseCode.SUCCESS, remark)
        if subscription is not None:
            body["subscriptionData"] = subscription.as_json()
        elif group:
            body["filterData"] = f"{group}@{topic} is not online!"
        return command.answer(ResponseCode.SUCCESS, body=encode_body(body))

    return Later(work, answer)


def who_consumes(served: Served, request: Request) -> RemotingCommand:
    """``queryTopicConsumeByWho``: groups that are connected, and groups that have offsets."""
    topic = request.fields.topic("topic", served.topics)
    found = [*served.clients.consumers_of(topic), *served.offsets.groups_of(topic)]
    body = encode_body({"groupList": sorted(set(found))})
    return request.command.answer(ResponseCode.SUCCESS, body=body)


# --- what they have in common ----------------------------------------------------------------


def _consumed(served: Served, group: str, names: Iterable[str]) -> Iterator[ServedTopic]:
    """The existing topics among these; for a connected group only those that it subscribes to."""
    for name in names:
        topic = served.topics.find(name)
        subscription, count = served.clients.subscription(group, name)
        if topic is not None and (subscription is not None or not count):
            yield topic


def _offsets(
    served: Served, group: str, topic: ServedTopic, queues: int, none: int = 0
) -> list[int]:
    """A group's offset in each queue of a topic."""
    found = (served.offsets.find(topic.name, group, queue_id) for queue_id in range(queues))
    return [none if one is None else one for one in found]


def _offset_table(
    served: Served, topic: ServedTopic, offsets: list[int]
) -> Iterator[tuple[MessageQueue, dict[str, int]]]:
    """The ``OffsetWrapper`` of each queue."""
    queues = _Queues(served.store)
    for queue_id, offset in enumerate(offsets):
        time = queues.time(topic.name, queue_id, offset - 1) if offset > 0 else 0
        yield (
            MessageQueue(served.names.broker, queue_id, topic.name),
            {
                "brokerOffset": queues.ends(topic.name, queue_id)[1],
                "consumerOffset": offset,
                "lastTimestamp": max(time, 0),
            },
        )
