"""Connected clients, and what they tell of themselves (``AdminBrokerProcessor``,
``Broker2Client``)."""

from __future__ import annotations

from typing import Any

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.read.bytime import Boundary, bisect, store_times
from rmqctl.errors import NoRecordAt
from rmqctl.serve.processors.pull import stored_bytes, unreadable
from rmqctl.serve.processors.queues import queue_of
from rmqctl.serve.processors.request import Call, Later, Outcome, Request, Served
from rmqctl.serve.state.accounts import CREDENTIALS
from rmqctl.serve.wire.bodies import MessageQueue, encode_body
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.fields import BadRequest

#: How long (ms) a client may take for its answer (``Broker2Client#callClient``).
CALL_TIMEOUT = 10_000
#: The first client versions that answer (``MQVersion``: V3_1_8_SNAPSHOT, V3_0_7_SNAPSHOT).
_ANSWERS_CALLS, _CAN_RESET = 62, 28
#: How many hexadecimal digits a message id has: address (IPv4 or IPv6), port, physical offset.
_ID_LENGTHS = (32, 56)


def get_consumer_connections(served: Served, request: Request) -> RemotingCommand:
    """``getConsumerConnectionList``."""
    name = request.fields.group("consumerGroup", served.groups)
    group = served.clients.consumers.get(name)
    if group is None:
        remark = f"the consumer group[{name}] not online"
        return request.command.answer(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    body = {
        "connectionSet": [one.as_json() for one in group.members.values()],
        "consumeFromWhere": group.consume_from_where or None,
        "consumeType": group.consume_type or None,
        "messageModel": group.message_model or None,
        "subscriptionTable": {n: one.as_json() for n, one in group.subscriptions.items()},
    }
    return request.command.answer(ResponseCode.SUCCESS, body=encode_body(body))


def get_producer_connections(served: Served, request: Request) -> RemotingCommand:
    """``getProducerConnectionList``."""
    name = request.fields.group("producerGroup", served.groups)
    members = served.clients.producers.get(name)
    if members is None:
        remark = f"the producer group[{name}] not exist"
        return request.command.answer(ResponseCode.SYSTEM_ERROR, remark)
    body = encode_body({"connectionSet": [one.as_json() for one in members.values()]})
    return request.command.answer(ResponseCode.SUCCESS, body=body)


def get_running_info(served: Served, request: Request) -> Outcome:
    """``getConsumerRunningInfo``: the request goes on to the client."""
    return _call_consumer(served, request, b"")


def consume_directly(served: Served, request: Request) -> Outcome:
    """``consumeMessageDirectly``: a client is given one message to consume, and answers with the
    result. The message is named by its offset message id."""
    offset = _offset_of(request.fields.text("msgId"))

    def work() -> bytes | str:
        try:
            record = served.store.look_message_by_offset(offset)
        except NoRecordAt:
            return f"there is no message at {offset}"
        return unreadable([record]) or stored_bytes(served.store, [record])

    def then(found: bytes | str, now: int) -> Outcome:
        if isinstance(found, str):
            return request.command.answer(ResponseCode.SYSTEM_ERROR, found)
        return _call_consumer(served, request, found, brokerName=served.names.broker)

    return Later(work, then)


def _call_consumer(served: Served, request: Request, body: bytes, **more: str) -> Outcome:
    """``callConsumer``: passes the request on to a client, and the client's answer back."""
    command = request.command
    name = request.fields.group("consumerGroup", served.groups)
    client_id = request.fields.text("clientId")[:255]
    group = served.clients.consumers.get(name)
    member = group.find(client_id) if group is not None else None
    if member is None:
        remark = f"The Consumer <{name}> <{client_id}> not online"
        return command.answer(ResponseCode.SYSTEM_ERROR, remark)
    if member.version < _ANSWERS_CALLS:
        remark = f"The Consumer <{client_id}> Version <{member.version}> too low to finish"
        return command.answer(ResponseCode.SYSTEM_ERROR, remark)
    # A signature is not bound to one request: with it a client could act as the administrator.
    fields = {n: text for n, text in command.ext_fields.items() if n not in CREDENTIALS}
    asked = served.request_to(member.channel, command.code, fields | more, body)

    def then(found: RemotingCommand | None, now: int) -> Outcome:
        if found is None:
            remark = f"consumer <{name}> <{client_id}> Timeout: it has not answered"
            return command.answer(ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        return command.answer(found.code, found.remark, found.ext_fields, found.body)

    return Call(member.channel, asked, CALL_TIMEOUT, then)


def _offset_of(message_id: str) -> int:
    """The physical offset in a message id (``MessageDecoder#decodeMessageId``).

    :raises BadRequest: the text is no message id.
    """
    try:
        data = bytes.fromhex(message_id) if len(message_id) in _ID_LENGTHS else b""
    except ValueError:
        data = b""
    if not data:
        raise BadRequest(f"the field msgId {message_id[:64]!r} is no id with an offset")
    return int.from_bytes(data[-8:], signed=True)


def reset_offset(served: Served, request: Request) -> Outcome:
    """``resetOffset``: tells the members of a group at which offsets to go on. The offsets that the
    broker knows stay until the members commit theirs."""
    fields, command = request.fields, request.command
    name = fields.topic("topic", served.topics)
    group = fields.group("group", served.groups)
    time, forces = fields.int64("timestamp"), fields.boolean("isForce")
    topic = served.topics.find(name)
    if topic is None:
        remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={name}"
        return command.answer(ResponseCode.SYSTEM_ERROR, remark)
    offsets = [served.offsets.find(name, group, n) for n in range(topic.write_queue_nums)]
    if None in offsets:
        remark = f"THe consumer group <{group}> not exist"
        return command.answer(ResponseCode.SYSTEM_ERROR, remark)

    def work() -> dict[MessageQueue, int]:
        table = {}
        for queue_id, offset in enumerate(offsets):
            assert offset is not None
            there = _offset_at(served, name, queue_id, time)
            queue = MessageQueue(served.names.broker, queue_id, name)
            table[queue] = there if forces or there < offset else offset
        return table

    def then(table: dict[MessageQueue, int], now: int) -> Outcome:
        return _tell_offsets(served, request, group, name, table)

    return Later(work, then)


def _offset_at(served: Served, topic: str, queue_id: int, time: int) -> int:
    """The queue offset of a time; for -1 the present end of the queue."""
    queue = queue_of(served.store, topic, queue_id)
    if queue is None:
        return 0
    if time == -1:
        return queue.max_offset
    times = store_times(served.store.commit_log, queue)
    found = bisect(times, queue.min_offset, queue.max_offset, time, Boundary.NEAREST)
    return found or 0


def _tell_offsets(
    served: Served, request: Request, group: str, topic: str, table: dict[MessageQueue, int]
) -> RemotingCommand:
    """Tells all members, those in C++ in a form of their own. Returns the answer to the request."""
    command = request.command
    online = served.clients.consumers.get(group)
    if online is None:
        remark = f"Consumer not online, so can not reset offset, Group: {group}"
        return command.answer(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    if any(one.version < _CAN_RESET for one in online.members.values()):
        remark = "the client does not support this feature"
        return command.answer(ResponseCode.SYSTEM_ERROR, remark)
    plain: dict[str, Any] = {"offsetTable": table}
    for_c = {"offsetTable": [{**q.as_json(), "offset": offset} for q, offset in table.items()]}
    body = encode_body(for_c if command.language == "CPP" else plain)
    fields = {"topic": topic, "group": group, "timestamp": request.fields.int64("timestamp")}
    fields["isForce"] = request.fields.boolean("isForce")
    for member in online.members.values():
        served.send(member.channel, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
    return command.answer(ResponseCode.SUCCESS, body=encode_body(plain))
