"""Offsets of queues (``AdminBrokerProcessor``) and of groups (``ConsumerManageProcessor``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from formats.remotingcodes import ResponseCode
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.read.bytime import Boundary, bisect, store_times
from rmqctl.engine.read.getmessage import TransferLimits
from rmqctl.engine.store import Store
from rmqctl.errors import RmqctlError
from rmqctl.serve.processors.queues import queue_of
from rmqctl.serve.processors.request import Later, NoAnswer, Outcome, Request, Served
from rmqctl.serve.wire.fields import BadRequest


def get_max_offset(served: Served, request: Request) -> Outcome:
    """``getMaxOffset``; 0 for a queue that does not exist."""
    return _of_queue(served, request, "offset", lambda store, queue: queue.max_offset)


def get_min_offset(served: Served, request: Request) -> Outcome:
    """``getMinOffset``; 0 for a queue that does not exist."""
    return _of_queue(served, request, "offset", lambda store, queue: queue.min_offset)


def get_earliest_time(served: Served, request: Request) -> Outcome:
    """``getEarliestMsgStoretime``; -1 where there is no message, or no queue."""

    def time(store: Store, queue: ConsumeQueue) -> int:
        found = store_times(store.commit_log, queue)(queue.min_offset)
        return -1 if found is None or queue.min_offset >= queue.max_offset else found

    return _of_queue(served, request, "timestamp", time, absent=-1)


def search_offset(served: Served, request: Request) -> Outcome:
    """``searchOffsetByTimestamp``; 0 for a queue that does not exist."""
    time = request.fields.int64("timestamp")

    def search(store: Store, queue: ConsumeQueue) -> int:
        times = store_times(store.commit_log, queue)
        found = bisect(times, queue.min_offset, queue.max_offset, time, Boundary.NEAREST)
        return 0 if found is None else found

    return _of_queue(served, request, "offset", search)


def _of_queue(
    served: Served,
    request: Request,
    field: str,
    look: Callable[[Store, ConsumeQueue], int],
    *,
    absent: int = 0,
) -> Later:
    topic = request.fields.topic("topic", served.topics)
    queue_id = request.fields.int32("queueId")

    def work() -> int:
        queue = queue_of(served.store, topic, queue_id)
        return absent if queue is None else look(served.store, queue)

    def answer(value: int, now: int) -> Outcome:
        return request.command.answer(ResponseCode.SUCCESS, None, {field: value})

    return Later(work, answer)


class _Unknown(NamedTuple):
    """The store cannot tell an offset now."""

    reason: str


def query_offset(served: Served, request: Request) -> Outcome:
    """``queryConsumerOffset``. A client of 4.x takes any error for "this group is new", and may
    then pass over all messages. So a request that cannot be answered truly gets no answer at all.
    """
    try:
        group = request.fields.group("consumerGroup", served.groups)
        topic = request.fields.topic("topic", served.topics)
        queue_id = request.fields.int32("queueId")
    except BadRequest as error:
        raise NoAnswer(str(error)) from None
    stored = served.offsets.find(topic, group, queue_id)

    def work() -> int | _Unknown | None:
        try:
            return _first_offset(served, topic, queue_id, stored)
        except (RmqctlError, OSError) as error:
            return _Unknown(f"the offset cannot be told: {error}")

    def answer(offset: int | _Unknown | None, now: int) -> Outcome:
        if isinstance(offset, _Unknown):
            raise NoAnswer(offset.reason)
        if offset is None:
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            return request.command.answer(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.command.answer(ResponseCode.SUCCESS, None, {"offset": offset})

    return Later(work, answer)


def _first_offset(served: Served, topic: str, queue_id: int, stored: int | None) -> int | None:
    """The offset at which a group begins: its committed one, or else 0 if the queue begins there
    and its first message counts as being in memory. None: the client decides."""
    queue = queue_of(served.store, topic, queue_id)
    if stored is not None:
        is_beyond = served.ends_offsets and queue is not None and stored > queue.max_offset
        return queue.max_offset if queue is not None and is_beyond else stored
    if queue is None or queue.max_offset == 0:
        return 0
    first = queue.unit(0) if queue.min_offset <= 0 else None
    if first is None:
        return None
    behind = served.store.max_offset - first.physical_offset
    return 0 if behind <= TransferLimits(served.store.config, 1).in_memory else None


def update_offset(served: Served, request: Request) -> Outcome:
    """``updateConsumerOffset``, for existing queues only; a broker would note any queue."""
    group = request.fields.group("consumerGroup", served.groups)
    topic = request.fields.topic("topic", served.topics)
    queue_id, offset = request.fields.int32("queueId"), request.fields.int64("commitOffset")
    found = served.topics.find(topic)
    if found is None or not 0 <= queue_id < found.read_queue_nums or offset < 0:
        raise BadRequest(f"there is no offset {offset} of queue {queue_id} of topic {topic}")
    served.groups.find(group)
    served.offsets.commit(topic, group, queue_id, offset)
    return request.command.answer(ResponseCode.SUCCESS)
