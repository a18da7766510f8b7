"""Messages of producers, singly and in batches (``SendMessageProcessor``).

Checks, defaults, statuses and the stored bytes are those of 4.9.3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

from formats import constants
from formats.constants import RETRY_GROUP_TOPIC_PREFIX, RMQ_SYS_SCHEDULE_TOPIC
from formats.remotingcodes import RequestCode, ResponseCode
from formats.text import decode_properties, encode_properties, encode_utf8
from rmqctl.engine.dispatch.rules import NO_UNIT
from rmqctl.engine.record.inbatch import BadBatch, in_batch
from rmqctl.engine.record.message import MessageExtBrokerInner, PutMessageResult, longest_record
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.write.bulk import Message, PlainMessage
from rmqctl.serve.processors.put import Put
from rmqctl.serve.processors.request import Outcome, Request, Served, host_of
from rmqctl.serve.state.topics import ServedTopic
from rmqctl.serve.telling import without_places
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.fields import BadRequest, Fields, checked_topic_to_send

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore

PROPERTY_CLUSTER = "CLUSTER"
#: Fields of every answer to a send: a producer in Java looks for them even in an error.
ANSWER_FIELDS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": True}
#: The first version whose requests say how often a message may be consumed (``V3_4_9``).
VERSION_MAX_RECONSUME_TIMES = 121
_MULTI_TAG = "MULTI_TAG"
#: The fields of ``SendMessageRequestHeaderV2``, by their names in the first version.
_V2 = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d",
    "queueId": "e", "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i",
    "reconsumeTimes": "j", "unitMode": "k", "maxReconsumeTimes": "l", "batch": "m",
}  # fmt: skip
_STRICT = frozenset((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
_LONG_NAMES = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE))
_CODES = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}
_SENT = frozenset(ResponseCode(code) for code in (0, 10, 11, 12))
#: Statuses of puts after which the message is in the log.
STORED_STATUSES = frozenset(status for status, code in _CODES.items() if code in _SENT)


class SendHeader(NamedTuple):
    """``SendMessageRequestHeader``. The group is only passed on with a reply, and the defaults are
    only for a topic that is to be made."""

    producer_group: str | None
    topic: str
    default_topic: str | None
    default_topic_queue_nums: int | None
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int | None
    is_batch: bool


class Refused(Exception):
    """A message that a check refuses, with the code of the answer."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


def send_message(served: Served, request: Request) -> Outcome:
    """``asyncSendMessage`` or ``asyncSendBatchMessage``, as the field ``batch`` says."""
    try:
        header = header_of(request)
        topic = checked_topic(served, header)
        if header.is_batch:
            return _batch(served, request, header, topic)
        return _single(served, request, header, topic)
    except Refused as refused:
        return request.command.answer(refused.code, str(refused), ANSWER_FIELDS)
    except BadRequest as error:
        return request.command.answer(ResponseCode.SYSTEM_ERROR, str(error), ANSWER_FIELDS)


def header_of(request: Request) -> SendHeader:
    """Reads the fields of a message.

    A message with the short names of the second version is read strictly
    (``decodeSendMessageHeaderV2``): all but the last five fields must be there, and each number
    must be one. Any other is read as all requests are (:mod:`~rmqctl.serve.wire.fields`).

    :raises BadRequest: it lacks a field.
    """
    given, code = request.command.ext_fields, request.command.code
    if code not in _LONG_NAMES:
        given = {name: given[short] for name, short in _V2.items() if short in given}
    fields = Fields(given)
    if code in _STRICT:
        for name in ("producerGroup", "defaultTopic", "defaultTopicQueueNums"):
            fields.text(name)
        for name in ("defaultTopicQueueNums", "reconsumeTimes", "maxReconsumeTimes"):
            if fields.find(name) is not None:
                fields.int32(name)
    return SendHeader(
        fields.find("producerGroup"),
        checked_topic_to_send("topic", fields.text("topic")),
        fields.find("defaultTopic"),
        fields.find_int32("defaultTopicQueueNums"),
        fields.int32("queueId"),
        fields.int32("sysFlag"),
        fields.int64("bornTimestamp"),
        fields.int32("flag"),
        fields.find("properties") or "",
        fields.find_int32("reconsumeTimes") or 0,
        fields.find_int32("maxReconsumeTimes"),
        fields.boolean("batch"),
    )


def checked_topic(served: Served, header: SendHeader) -> ServedTopic:
    """``msgCheck``: the topic of a message. A missing topic is made where that is allowed."""
    if header.topic == RMQ_SYS_SCHEDULE_TOPIC:
        remark = f"Sending message to topic[{header.topic}] is forbidden."
        raise Refused(ResponseCode.NO_PERMISSION, remark)
    topic = served.topics.find(header.topic)
    if topic is None:
        default, queues = header.default_topic, header.default_topic_queue_nums
        if default is None or queues is None:
            raise BadRequest("the field defaultTopic or defaultTopicQueueNums is missing")
        topic = served.topics.create(header.topic, default, queues)
    if topic is None and header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        served.topics.enter(header.topic, 1)
        topic = served.topics.find(header.topic)
    if topic is None:
        remark = f"topic[{header.topic}] not exist, apply first please!"
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
    queues = max(topic.write_queue_nums, topic.read_queue_nums)
    if header.queue_id >= queues:
        raise BadRequest(f"request queueId[{header.queue_id}] is illegal, {header.topic}: {queues}")
    return topic


def queue_id_of(served: Served, header: SendHeader, topic: ServedTopic) -> int:
    """The number of the queue that a message goes to. The request may leave the choice to the
    broker (``randomQueueId``).

    :raises BadRequest: the topic has no queue to write to. A broker then fails with a division by
        zero, but takes a queue that the request names.
    """
    if header.queue_id >= 0:
        return header.queue_id
    if topic.write_queue_nums <= 0:
        remark = "java.lang.ArithmeticException: / by zero, the topic has no queue to write to"
        raise BadRequest(f"{remark}: {header.topic}")
    return served.turn(topic.write_queue_nums)


def _message(
    served: Served, request: Request, header: SendHeader, topic: ServedTopic
) -> MessageExtBrokerInner:
    """A message with the fields that all messages of a request share, and the request's
    properties."""
    queue_id = queue_id_of(served, header, topic)
    multi = constants.MULTI_TAGS_FLAG if topic.topic_filter_type == _MULTI_TAG else 0
    properties = decode_properties(encode_utf8(header.properties))
    properties[PROPERTY_CLUSTER] = served.names.cluster
    return MessageExtBrokerInner(
        header.topic,
        request.command.body,
        queue_id,
        header.flag,
        header.sys_flag | multi,
        properties,
        born_timestamp=header.born_timestamp,
        born_host=host_of(request.channel.peer),
        store_host=served.store_host(request.channel),
        reconsume_times=header.reconsume_times,
    )


def _level_of(message: MessageExtBrokerInner) -> int:
    """The delay level of a message. :raises BadRequest: the property is no number."""
    level = message.delay_time_level
    if level is None:
        text = message.properties[constants.PROPERTY_DELAY_TIME_LEVEL]
        raise BadRequest(f"DELAY is no number: {text!r}")
    return level


def _single(served: Served, request: Request, header: SendHeader, topic: ServedTopic) -> Put:
    message = _message(served, request, header, topic)
    wait = message.properties.pop(constants.PROPERTY_WAIT_STORE_MSG_OK, None)
    if wait is not None:
        # A broker takes the property out and puts it back. It is then the last one of the map,
        # which shows in the stored bytes of delayed messages and halves.
        message.properties[constants.PROPERTY_WAIT_STORE_MSG_OK] = wait
    asked_for = message.queue_id
    if header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        message = _retried(served, request, header, message)
    properties = message.properties
    if properties.get(constants.PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        message = _half(message)
    else:
        # WAIT says whether to wait, and is not stored; but the map keeps its capacity.
        unsaid = dict.fromkeys(properties.keys() & {constants.PROPERTY_WAIT_STORE_MSG_OK})
        message.properties_bytes = encode_properties({**properties, **unsaid})
    if message.sys_flag & constants.TRANSACTION_TYPE_MASK not in NO_UNIT:
        _level_of(message)

    def answer(results: list[PutMessageResult], now: int) -> Outcome:
        return _answer(served, request.command, results[0], asked_for)

    served.save_topic(message)
    return Put([message], False, answer)


def _retried(
    served: Served, request: Request, header: SendHeader, message: MessageExtBrokerInner
) -> MessageExtBrokerInner:
    """``handleRetryAndDLQ``: a message that was consumed too often goes to the dead letters."""
    group = header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
    config = served.groups.known(group)
    if config is None:
        remark = f"subscription group not exist, {group}"
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    most = config.retry_max_times
    is_later = request.command.version >= VERSION_MAX_RECONSUME_TIMES
    if is_later and header.max_reconsume_times is not None:
        most = header.max_reconsume_times
    if header.reconsume_times < most:
        return message
    served.topics.enter(constants.DLQ_GROUP_TOPIC_PREFIX + group, 1)
    return replace(message, topic=constants.DLQ_GROUP_TOPIC_PREFIX + group, queue_id=0)


def _half(message: MessageExtBrokerInner) -> MessageExtBrokerInner:
    """``TransactionalMessageBridge#parseHalfMessageInner``."""
    properties = message.properties | {
        constants.PROPERTY_REAL_TOPIC: message.topic,
        constants.PROPERTY_REAL_QUEUE_ID: str(message.queue_id),
    }
    return replace(
        message,
        topic=constants.RMQ_SYS_TRANS_HALF_TOPIC,
        queue_id=0,
        sys_flag=message.sys_flag & ~constants.TRANSACTION_TYPE_MASK,
        properties=properties,
    )


def _batch(served: Served, request: Request, header: SendHeader, topic: ServedTopic) -> Put:
    common = _message(served, request, header, topic)
    if common.sys_flag & constants.TRANSACTION_TYPE_MASK or _level_of(common) > 0:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch is neither delayed nor transactional")
    most = served.store.config.max_message_size
    if len(common.body) > most:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the batch has {len(common.body)} bytes")
    form = cast("WritableStore", served.store).writer.form
    try:
        messages = _messages_of(common, longest_record(most, form))
    except BadBatch as error:
        raise BadRequest(str(error)) from None

    def answer(results: list[PutMessageResult], now: int) -> Outcome:
        return _answer(served, request.command, results[0], common.queue_id)

    served.save_topic(common)
    return Put(messages, True, answer)


def _messages_of(common: MessageExtBrokerInner, most: int) -> list[Message]:
    """The messages of a batch (``MessageDecoder#decodeMessages``), each with the batch's properties
    behind its own. The CRC in the batch is ignored.

    :raises BadBatch: a message is cut off.
    :raises BadRequest: the batch is empty, or its records have more than ``most`` bytes. The store
        would refuse them, too, but only after all messages were made: without bodies, a request can
        have five times as many as the store takes.
    """
    shared = encode_properties(common.properties)
    behind = constants.PROPERTY_SEPARATOR.encode() + shared
    messages: list[Message] = []
    least = constants.MIN_RECORD_SIZE + len(encode_utf8(common.topic))
    total = 0
    for _, flag, body, own in in_batch(common.body):
        joins = own and shared and not own.endswith(behind[:1])
        data = own + behind if joins else own + shared
        total += least + len(body) + len(data)
        if total > most:
            raise BadRequest(f"the records of the batch have more than {most} bytes")
        message = PlainMessage(
            common.topic,
            common.queue_id,
            body,
            data,
            flag,
            common.born_timestamp,
            common.born_host,
            common.store_host,
            common.reconsume_times,
            0,
        )
        # The store itself finds out whether a single message is more than a plain one.
        if common.sys_flag:
            messages.append(
                replace(message.full(), sys_flag=common.sys_flag, properties_bytes=data)
            )
        else:
            messages.append(message)
    if not messages:
        raise BadRequest("the batch holds no message")
    return messages


def _answer(
    served: Served, command: RemotingCommand, result: PutMessageResult, queue_id: int
) -> RemotingCommand:
    """``handlePutMessageResult``. The answer names the queue that was asked for, even where a delay
    or a transaction put the message into another one."""
    code = _CODES.get(result.status, ResponseCode.SYSTEM_ERROR)
    append = result.append
    if code not in _SENT or append is None:
        served.statistics.put_failed += 1
        reason = without_places(result.reason, served.store)
        remark = f"{result.status.value}: {reason}" if reason else result.status.value
        if result.status is PutMessageStatus.OS_PAGECACHE_BUSY:
            remark = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
        return command.answer(code, remark, ANSWER_FIELDS)
    served.statistics.count_put(result.topic, append.msg_num, append.wrote_bytes)
    fields = {"msgId": append.msg_id, "queueId": queue_id, "queueOffset": append.queue_offset}
    return command.answer(code, None, ANSWER_FIELDS | fields)
