"""A consumer's reply to a message whose producer waits for it: it is pushed to that producer, and
stored (``ReplyMessageProcessor``)."""

from __future__ import annotations

from formats import constants
from formats.remotingcodes import RequestCode, ResponseCode
from formats.text import decode_properties, encode_properties, encode_utf8
from rmqctl.engine.record.message import MessageExtBrokerInner, PutMessageResult
from rmqctl.serve.processors.put import Put
from rmqctl.serve.processors.request import Call, Outcome, Request, Served, host_of
from rmqctl.serve.processors.send import (
    ANSWER_FIELDS,
    STORED_STATUSES,
    Refused,
    SendHeader,
    checked_topic,
    header_of,
    queue_id_of,
)
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.fields import BadRequest

_REPLY_TO_CLIENT, _PUSH_REPLY_TIME = "REPLY_TO_CLIENT", "PUSH_REPLY_TIME"
#: How long (ms) the producer may take to accept it (``Broker2Client#callClient``).
_PUSH_TIMEOUT = 10_000


def send_reply(served: Served, request: Request) -> Outcome:
    """``processReplyMessageRequest``."""
    try:
        header = header_of(request)
        queue_id = queue_id_of(served, header, checked_topic(served, header))
    except Refused as refused:
        return request.command.answer(refused.code, str(refused), ANSWER_FIELDS)
    except BadRequest as error:
        return request.command.answer(ResponseCode.SYSTEM_ERROR, str(error), ANSWER_FIELDS)
    message = _message(served, request, header, queue_id)

    def pushed(problem: str) -> Put:
        """Stores the reply, whether or not the push succeeded. The answer tells of the push."""

        def answer(results: list[PutMessageResult], now: int) -> Outcome:
            return _answer(served, request.command, problem, results[0], queue_id)

        served.save_topic(message)
        return Put([message], False, answer)

    target = message.properties.get(_REPLY_TO_CLIENT)
    if target is None:
        return pushed(f"reply message properties[{_REPLY_TO_CLIENT}] is null")
    member = served.clients.find_producer(target)
    if member is None:
        return pushed(f"push reply message fail, channel of <{target[:255]}> not found.")

    def then(answer: RemotingCommand | None, now: int) -> Outcome:
        is_taken = answer is not None and answer.code == ResponseCode.SUCCESS
        return pushed("" if is_taken else f"push reply message to {target[:255]}fail.")

    command = served.request_to(
        member.channel,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        _fields(served, request, header, message),
        message.body,
    )
    return Call(member.channel, command, _PUSH_TIMEOUT, then)


def _message(
    served: Served, request: Request, header: SendHeader, queue_id: int
) -> MessageExtBrokerInner:
    """The reply as it is stored: with its properties as they came, without the request's flags. A
    broker stores any text in place of properties; here only the properties in it are stored."""
    data = encode_utf8(header.properties)
    read = encode_properties(decode_properties(data))
    end = constants.PROPERTY_SEPARATOR.encode()
    if len(data.removesuffix(end)) != len(read.removesuffix(end)):
        data = read
    return MessageExtBrokerInner(
        header.topic,
        request.command.body,
        queue_id,
        header.flag,
        0,
        decode_properties(data),
        data,
        header.born_timestamp,
        host_of(request.channel.peer),
        served.store_host(request.channel),
        header.reconsume_times,
    )


def _fields(
    served: Served, request: Request, header: SendHeader, message: MessageExtBrokerInner
) -> dict[str, object]:
    """The ``ReplyMessageRequestHeader``, with addresses as ``InetSocketAddress#toString`` writes
    them."""
    properties = message.properties | {_PUSH_REPLY_TIME: str(served.now())}
    text = encode_properties(properties).decode("utf-8", "replace")
    fields: dict[str, object] = {
        "producerGroup": header.producer_group,
        "topic": header.topic,
        "defaultTopic": header.default_topic,
        "defaultTopicQueueNums": header.default_topic_queue_nums,
        "queueId": header.queue_id,
        "sysFlag": header.sys_flag,
        "bornTimestamp": header.born_timestamp,
        "flag": header.flag,
        "properties": text,
        "reconsumeTimes": header.reconsume_times,
        "unitMode": False,
        "bornHost": f"/{request.channel.peer}",
        "storeHost": f"/{served.address_for(request.channel)}",
        "storeTimestamp": served.now(),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _answer(
    served: Served, command: RemotingCommand, problem: str, result: PutMessageResult, queue_id: int
) -> RemotingCommand:
    """The answer: the result of the push, and the message's place where it was stored."""
    fields: dict[str, object] = dict(ANSWER_FIELDS)
    append = result.append
    if result.status in STORED_STATUSES and append is not None:
        served.statistics.count_put(result.topic, append.msg_num, append.wrote_bytes)
        fields |= {"msgId": append.msg_id, "queueId": queue_id}
        fields["queueOffset"] = append.queue_offset
    elif not problem:
        fields |= {"msgId": "0", "queueId": queue_id, "queueOffset": 0}
    code = ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS
    return command.answer(code, problem or None, fields)
