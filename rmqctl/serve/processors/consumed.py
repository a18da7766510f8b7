"""How far each member of a group has consumed, as the members say themselves:
``AdminBrokerProcessor#getConsumerStatus`` and ``Broker2Client#getConsumeStatus``."""

from __future__ import annotations

from typing import NamedTuple

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.serve.processors.request import Call, Outcome, Request, Served
from rmqctl.serve.state.clients import Member
from rmqctl.serve.wire.bodies import MessageQueue, decode_queue_table, encode_body
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.fields import BadRequest

#: So long (ms) all of them together have for their answers.
_TIMEOUT = 5000
#: Version of clients from which on they answer (``MQVersion``: V3_0_7_SNAPSHOT).
_CAN_TELL = 28
#: Members that are asked, one after the other.
_MOST_ASKED = 64


class _Asking(NamedTuple):
    """Who is still to be asked, and what the others have said."""

    request: Request
    topic: str
    group: str
    members: list[Member]
    told: dict[str, dict[MessageQueue, int]]


def get_consumer_status(served: Served, request: Request) -> Outcome:
    """Members are asked one after the other. One that does not answer, or not what it should, is
    left out, as by a broker; ``clientAddr`` names the only one that is to be asked."""
    topic = request.fields.topic("topic", served.topics)
    group = request.fields.group("group", served.groups)
    wanted = (request.fields.find("clientAddr") or "").strip()
    online = served.clients.consumers.get(group)
    members = [] if online is None else list(online.members.values())
    if not members:
        remark = f"No Any Consumer online in the consumer group: [{group}]"
        return request.command.answer(ResponseCode.SYSTEM_ERROR, remark)
    if any(one.version < _CAN_TELL for one in members):
        remark = "the client does not support this feature"
        return request.command.answer(ResponseCode.SYSTEM_ERROR, remark)
    asked = [one for one in members if wanted in ("", one.client_id)][:_MOST_ASKED]
    return _ask_next(served, _Asking(request, topic, group, asked, {}))


def _ask_next(served: Served, asking: _Asking) -> Outcome:
    if not asking.members:
        body: dict[str, object] = {"consumerTable": asking.told, "messageQueueTable": {}}
        return asking.request.command.answer(ResponseCode.SUCCESS, body=encode_body(body))
    member = asking.members.pop(0)
    fields = {"topic": asking.topic, "group": asking.group}
    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    command = served.request_to(member.channel, code, fields)

    def then(found: RemotingCommand | None, now: int) -> Outcome:
        if found is not None and found.code == ResponseCode.SUCCESS and found.body:
            try:
                table = decode_queue_table(found.body, "messageQueueTable")
            except BadRequest:
                return _ask_next(served, asking)
            asking.told[member.client_id] = table
        return _ask_next(served, asking)

    return Call(member.channel, command, _TIMEOUT, then)
