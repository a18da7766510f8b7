"""Locks of queues for consumers in order (``AdminBrokerProcessor#lockBatchMQ``)."""

from __future__ import annotations

from formats.remotingcodes import ResponseCode
from rmqctl.serve.processors.request import Request, Served
from rmqctl.serve.wire.bodies import (
    MessageQueue,
    decode_body,
    encode_body,
    objects,
    text_in,
    whole_in,
)
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.fields import BadRequest, checked_group


def lock_queues(served: Served, request: Request) -> RemotingCommand:
    """``lockBatchMQ``: answers with the queues that the client holds now."""
    group, client_id, queues = _asked(served, request)
    locked = served.locks.lock(group, client_id, queues, request.now)
    body = encode_body({"lockOKMQSet": locked})
    return request.command.answer(ResponseCode.SUCCESS, body=body)


def unlock_queues(served: Served, request: Request) -> RemotingCommand:
    served.locks.unlock(*_asked(served, request))
    return request.command.answer(ResponseCode.SUCCESS)


def _asked(served: Served, request: Request) -> tuple[str, str, list[MessageQueue]]:
    """Group, client and queues of a request. Only existing queues are taken, so that the memory for
    locks is bounded.

    :raises BadRequest: the body is none of such a request, or names a queue that does not exist.
    """
    body = decode_body(request.command.body)
    group = checked_group("consumerGroup", text_in(body, "consumerGroup"), served.groups)
    served.groups.find(group)
    queues = []
    for one in objects(body, "mqSet"):
        topic, queue_id = text_in(one, "topic"), whole_in(one, "queueId")
        found = served.topics.find(topic)
        if found is None or not 0 <= queue_id < found.read_queue_nums:
            raise BadRequest(f"there is no queue {queue_id} of topic {topic[:127]}")
        if text_in(one, "brokerName") != served.names.broker:
            raise BadRequest(f"this broker is {served.names.broker}")
        queues.append(MessageQueue(served.names.broker, queue_id, topic))
    return group, text_in(body, "clientId")[:255], queues
