"""How far each member of a group has consumed, by its own account
(``AdminBrokerProcessor#getConsumerStatus``, ``Broker2Client#getConsumeStatus``)."""

from __future__ import annotations

from typing import NamedTuple

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.serve.processors.request import Call, Outcome, Request, Served
from rmqctl.serve.state.clients import Member
from rmqctl.serve.wire.bodies import MessageQueue, decode_queue_table, encode_body
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.fields import BadRequest

#: How long (ms) all members together may take for their answers.
_TIMEOUT = 5000
#: The first client version that answers (``MQVersion``: V3_0_7_SNAPSHOT).
_CAN_TELL = 28
#: How many members are asked at most, one after the other.
_MOST_ASKED = 64


class _Asking(NamedTuple):
    """The members that are still to be asked, and the answers of the others."""

    request: Request
    topic: str
    group: str
    members: list[Member]
    told: dict[str, dict[MessageQueue, int]]


def get_consumer_status(served: Served, request: Request) -> Outcome:
    """Asks the members one after the other. As by a broker, a member that gives no answer, or a
    wrong one, is left out. ``clientAddr`` names a single member to ask."""
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
