"""Messages that a consumer could not process, and sends back
(``SendMessageProcessor#asyncConsumerSendMsgBack``).

They come again later, or go to the dead letters of the group.
"""

from __future__ import annotations

from formats import constants
from formats.remotingcodes import ResponseCode
from formats.text import encode_properties
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.record.message import MessageExtBrokerInner, PutMessageResult
from rmqctl.engine.record.record import Record
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.serve.processors.look import record_with_body
from rmqctl.serve.processors.put import Put
from rmqctl.serve.processors.request import Later, Outcome, Request, Served
from rmqctl.serve.processors.send import VERSION_MAX_RECONSUME_TIMES

_RETRY_TOPIC, _ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
#: The delay level of a first retry is the number of retries so far plus this.
_FIRST_DELAY_LEVEL = 3


def send_message_back(served: Served, request: Request) -> Outcome:
    """Looks the record up, and stores it again under another topic. This needs the permission to
    write to the group's retry topic, which is checked first."""
    fields, command = request.fields, request.command
    group = served.groups.find(fields.group("group", served.groups))
    if group.retry_queue_nums <= 0:
        return command.answer(ResponseCode.SUCCESS)
    offset, delay_level = fields.int64("offset"), fields.int32("delayLevel")
    is_later = command.version >= VERSION_MAX_RECONSUME_TIMES
    asked = fields.find_int32("maxReconsumeTimes") if is_later else None
    most = group.retry_max_times if asked is None else asked
    retry_topic = constants.RETRY_GROUP_TOPIC_PREFIX + group.name
    if not _takes(served, retry_topic, group.retry_queue_nums):
        remark = f"the topic[{retry_topic}] sending message is forbidden"
        return command.answer(ResponseCode.NO_PERMISSION, remark)
    origin: list[str] = []

    def then(found: tuple[Record, bytes] | None, now: int) -> Outcome:
        if found is None:
            remark = f"look message by offset failed, {offset}"
            return command.answer(ResponseCode.SYSTEM_ERROR, remark)
        record, body = found
        origin.append(record.properties.get(_RETRY_TOPIC, record.topic))
        if served.accounts is not None and fields.find("originTopic") != origin[0]:
            # Else an account that may read one topic could have messages of others sent to it.
            remark = f"the message at {offset} is of another topic"
            return command.answer(ResponseCode.SYSTEM_ERROR, remark)
        is_dead = record.reconsume_times >= most or delay_level < 0
        topic = constants.DLQ_GROUP_TOPIC_PREFIX + group.name if is_dead else retry_topic
        if topic_directory_problem(topic) is not None:
            # A group may have a longer name than a directory can have. No file is to name it.
            status = PutMessageStatus.MESSAGE_ILLEGAL.value
            return command.answer(ResponseCode.SYSTEM_ERROR, status)
        queues = 1 if is_dead else group.retry_queue_nums
        served.topics.enter(topic, queues)
        level = 0 if is_dead else delay_level or _FIRST_DELAY_LEVEL + record.reconsume_times
        message = _again(record, body, topic, served.turn(queues), level)
        served.save_topic(message)
        return Put([message], False, answer)

    def answer(results: list[PutMessageResult], now: int) -> Outcome:
        append = results[0].append
        if results[0].is_ok and append is not None:
            where = results[0].topic
            served.statistics.count_sent_back(group.name, origin[0], where, append.wrote_bytes)
            return command.answer(ResponseCode.SUCCESS)
        return command.answer(ResponseCode.SYSTEM_ERROR, results[0].status.value)

    return Later(lambda: record_with_body(served.store, offset), then)


def _takes(served: Served, retry_topic: str, queues: int) -> bool:
    """Whether a group's retry topic may be written to; a missing one is made. The retry topic also
    decides for dead letters; the permissions of their own topic do not count."""
    served.topics.enter(retry_topic, queues)
    found = served.topics.find(retry_topic)
    return found is not None and found.is_writable


def _again(
    record: Record, body: bytes, topic: str, queue_id: int, delay_level: int
) -> MessageExtBrokerInner:
    """The record as a new message. Hosts, times and body stay, and WAIT is stored."""
    properties = record.properties
    properties.setdefault(_RETRY_TOPIC, record.topic)
    properties[constants.PROPERTY_WAIT_STORE_MSG_OK] = "false"
    properties[constants.PROPERTY_DELAY_TIME_LEVEL] = str(delay_level)
    if not properties.get(_ORIGIN_MESSAGE_ID, "").strip():
        properties[_ORIGIN_MESSAGE_ID] = record.msg_id
    return MessageExtBrokerInner(
        topic,
        body,
        queue_id,
        record.flag,
        record.sys_flag,
        properties,
        encode_properties(properties),
        record.born_timestamp,
        (record.born_address, record.born_port),
        (record.store_address, record.store_port),
        record.reconsume_times + 1,
    )
