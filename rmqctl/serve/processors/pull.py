"""Pulls: the checks in the order of ``PullMessageProcessor``, the answer, and the wait for one."""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

from formats.constants import MESSAGE_MAGIC_CODE
from formats.remotingcodes import FRAME_MAX_LENGTH, ResponseCode
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.read.getstored import StoredMessages, get_stored
from rmqctl.engine.record.status import GetMessageStatus
from rmqctl.errors import FilterSyntaxError
from rmqctl.serve.processors.request import Later, Outcome, Request, Served
from rmqctl.serve.state.parked import Parked
from rmqctl.serve.state.subscription import TAG, CodeFilter, Subscription, parse_subscription
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.fields import BadRequest, Fields

if TYPE_CHECKING:
    from rmqctl.engine.filters.tags import MessageFilter
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.engine.record.record import Record
    from rmqctl.engine.store import Store

#: ``PullSysFlag``.
_COMMIT_OFFSET, _SUSPEND, _SUBSCRIPTION = 1, 2, 4
_BROADCASTING = "BROADCASTING"
#: ``ExpressionType#isTagType``.
_OF_TAGS = (None, "", TAG)
#: The longest wait (ms) that is granted; of RocketMQ's own clients a lite consumer waits longest,
#: 20 s.
_LONGEST_SUSPENSION = 300_000
#: Bytes of records in one answer, which leave room for its header: a client drops the connection at
#: a longer frame.
MAX_RECORDS = FRAME_MAX_LENGTH - (64 << 10)
_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class Pull(NamedTuple):
    """A pull that has passed the checks. It may wait ``suspends_for`` ms; 0: not at all."""

    request: Request
    group: str
    topic: str
    queue_id: int
    offset: int
    max_msg_nums: int
    message_filter: MessageFilter
    suspends_for: int


class Pulled(NamedTuple):
    """What the store gave for a pull."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body: bytes
    messages: int = 0
    #: Why the records cannot be sent; empty: they can.
    problem: str = ""


#: Of an offset within its queue. Only then a broker makes a list of as many messages as are asked
#: for, and fails on less than none.
_WITHIN = (
    GetMessageStatus.FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
)


class _Refused(Exception):
    """A pull that a check refuses, with the code of the answer."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


#: Fields that are the same in each pull of one queue by one consumer.
_HEAD_FIELDS = (
    "consumerGroup",
    "sysFlag",
    "topic",
    "queueId",
    "maxMsgNums",
    "suspendTimeoutMillis",
)
#: How many heads are cached. Each has two names and four numbers. Only checked ones are cached: the
#: names have at most 262 characters, the numbers 21. No field of any length may become part of it.
_MAX_HEADS = 4096


class _Head(NamedTuple):
    """The checked fields that a consumer repeats in each pull of a queue."""

    group: str
    flags: int
    topic: str
    queue_id: int
    max_msg_nums: int
    suspends_for: int


@lru_cache(_MAX_HEADS)
def _head(texts: tuple[str | None, ...]) -> _Head:
    """:func:`_read_head`, cached, for names that any store could have. To read and check these
    fields takes longer than all the rest of a pull, so valid ones are read once.

    :raises BadRequest: as there, also for a bad name that the store knows, and for a time to wait
        that is none, though no time is asked for.
    """
    _head_fields(texts).int64("suspendTimeoutMillis")
    return _read_head(texts, (), ())


def _head_fields(texts: tuple[str | None, ...]) -> Fields:
    given = zip(_HEAD_FIELDS, texts, strict=True)
    return Fields({name: text for name, text in given if text is not None})


def _read_head(
    texts: tuple[str | None, ...], topics: Container[str], groups: Container[str]
) -> _Head:
    """Reads the values of :data:`_HEAD_FIELDS`.

    :param topics: known topics, which are taken whatever their names; ``groups`` likewise.
    :raises BadRequest: a value is missing, or not of its type.
    """
    fields = _head_fields(texts)
    group, flags = fields.group("consumerGroup", groups), fields.int32("sysFlag")
    topic, queue_id = fields.topic("topic", topics), fields.int32("queueId")
    most, waits = fields.int32("maxMsgNums"), 0
    if flags & _SUSPEND:
        waits = min(max(fields.int64("suspendTimeoutMillis"), 0), _LONGEST_SUSPENSION)
    return _Head(group, flags, topic, queue_id, most, waits)


def pull_message(served: Served, request: Request) -> Outcome:
    """``processRequest``. A pull that a check refuses commits no offset."""
    fields = request.fields
    texts = tuple(map(request.command.ext_fields.get, _HEAD_FIELDS))
    try:
        head = _head(texts)
    except BadRequest:
        head = _read_head(texts, served.topics, served.groups)
    group, flags, topic, queue_id, most, waits = head
    offset = fields.int64("queueOffset")
    committed = fields.int64("commitOffset") if flags & _COMMIT_OFFSET else -1
    try:
        _check_place(served, group, topic, queue_id)
        if flags & _SUBSCRIPTION:
            subscription = _own_subscription(topic, fields)
        else:
            subscription = _group_subscription(served, group, topic, fields)
        message_filter = _filter_of(subscription, bool(flags & _SUBSCRIPTION))
    except _Refused as refused:
        return request.command.answer(refused.code, str(refused))
    if committed >= 0:
        served.offsets.commit(topic, group, queue_id, committed)
    asked = Pull(request, group, topic, queue_id, offset, most, message_filter, waits)
    return _ask(served, asked, waits)


def ask_again(served: Served, asked: Pull) -> Outcome:
    """The same pull once more, this time answered at once, with messages or without."""
    return _ask(served, asked, 0)


def _ask(served: Served, asked: Pull, waits: int) -> Later:
    queue = asked.topic, asked.queue_id
    seen = max(served.parked.end_of(queue), asked.offset)

    def answer(found: Pulled, now: int) -> Outcome:
        served.statistics.count_pull(asked.group, asked.topic, found.messages, len(found.body))
        if found.status is GetMessageStatus.FOUND:
            return _answer(asked.request.command, ResponseCode.SUCCESS, found)
        code = _CODES.get(found.status)
        if code is None:
            # A queue that does not exist, or is empty.
            is_at_start = asked.offset == 0
            code = ResponseCode.PULL_NOT_FOUND if is_at_start else ResponseCode.PULL_OFFSET_MOVED
        if code is ResponseCode.PULL_NOT_FOUND and waits and not served.parked.is_full:
            if served.parked.end_of(queue) > seen:
                # A message has come while the store was asked.
                return _ask(served, asked, waits)
            channel = asked.request.channel.number
            served.parked.park(Parked(channel, queue, asked.offset, now + waits, asked))
            return None
        return _answer(asked.request.command, code, found)

    return Later(lambda: read(served.store, asked), answer, is_brief=True)


def read(store: Store, asked: Pull) -> Pulled:
    """The records of a pull as they are in the log, one behind the other. For any thread."""
    if topic_directory_problem(asked.topic) is not None:
        # A broker has an empty queue in memory.
        return Pulled(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, b"")
    stored = _stored(store, asked) if asked.max_msg_nums >= 0 else None
    if stored is not None:
        return Pulled(
            GetMessageStatus.FOUND,
            stored.next_begin_offset,
            stored.min_offset,
            stored.max_offset,
            stored.stored,
            stored.messages,
        )
    found = store.get_message(
        asked.topic, asked.queue_id, asked.offset, asked.max_msg_nums, asked.message_filter
    )
    status, next_offset, records = found.status, found.next_begin_offset, found.records
    volatile = _not_on_disk(store, records)
    if volatile is not None:
        # If a crash took such a message away, the consumer would pass over the one in its place.
        records, next_offset = records[:volatile], records[volatile].queue_offset
        status = status if records else GetMessageStatus.OFFSET_OVERFLOW_ONE
    place = status, next_offset, found.min_offset, found.max_offset
    problem = unreadable(records)
    if asked.max_msg_nums < 0 and status in _WITHIN:
        problem = f"the field maxMsgNums is {asked.max_msg_nums}"
    if problem:
        return Pulled(*place, b"", 0, problem)
    return Pulled(*place, stored_bytes(store, records), len(records))


def _stored(store: Store, asked: Pull) -> StoredMessages | None:
    """The result in the usual case: messages by tags codes, all of them on disk and readable by
    clients."""
    wanted = asked.message_filter
    if not isinstance(wanted, CodeFilter):
        return None
    place = asked.topic, asked.queue_id, asked.offset, asked.max_msg_nums
    return get_stored(store, *place, wanted.codes, before=shown_to(store), most_bytes=MAX_RECORDS)


def shown_to(store: Store) -> int:
    """The physical offset up to which clients see the log. In a store open for writing that is what
    is on disk, or with ASYNC_FLUSH what is stored."""
    if isinstance(store.commit_log, CommitLogWriter):
        return cast("WritableStore", store).writer.flusher.shown_to
    return store.max_offset


def _not_on_disk(store: Store, records: list[Record]) -> int | None:
    """The first of the records that no client may see yet, in a store open for writing: records
    that are just being stored, and all records after the disk has failed. None: there is none."""
    if not records or not isinstance(store.commit_log, CommitLogWriter):
        return None
    end = shown_to(store)
    if records[-1].physical_offset < end:
        return None
    return next(n for n, one in enumerate(records) if one.physical_offset >= end)


def stored_bytes(store: Store, records: list[Record]) -> bytes:
    """Records as they are in the log; neighbours are read together."""
    runs: list[list[int]] = []
    for record in records:
        offset, size = record.physical_offset, record.total_size
        is_next = runs and sum(runs[-1]) == offset and offset % store.commit_log.file_size
        if is_next:
            runs[-1][1] += size
        else:
            runs.append([offset, size])
    pieces = []
    for offset, size in runs:
        mapped, position = store.commit_log.locate(offset)
        pieces.append(mapped.read(position, size))
    return b"".join(pieces)


def unreadable(records: list[Record]) -> str:
    """Why a client of 4.9.3 could not read some, or all, of these records: it would silently pass
    over them (``MessageDecoder#decodes``). Empty: it can read all."""
    size = 0
    for record in records:
        if record.magic_code != MESSAGE_MAGIC_CODE:
            return f"the message at {record.physical_offset} is of a version that clients skip"
        size += record.total_size
    return f"the messages have {size} bytes, {MAX_RECORDS} go out" if size > MAX_RECORDS else ""


def _answer(command: RemotingCommand, code: ResponseCode, found: Pulled) -> RemotingCommand:
    """The answer to a pull. A client relies on all four offsets being there, and goes on at
    ``nextBeginOffset``."""
    if found.problem:
        return command.answer(ResponseCode.SYSTEM_ERROR, found.problem)
    fields = {
        "maxOffset": str(found.max_offset),
        "minOffset": str(found.min_offset),
        "nextBeginOffset": str(found.next_begin_offset),
        "suggestWhichBrokerId": "0",
    }
    return command.answer(code, found.status.value, fields, found.body)


def _check_place(served: Served, group: str, topic: str, queue_id: int) -> None:
    config = served.groups.find(group)
    if not config.consume_enable:
        remark = f"subscription group no permission, {group}"
        raise _Refused(ResponseCode.NO_PERMISSION, remark)
    found = served.topics.find(topic)
    if found is None:
        remark = f"topic[{topic}] not exist, apply first please!"
        raise _Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
    if not found.is_readable:
        remark = f"the topic[{topic}] pulling message is forbidden"
        raise _Refused(ResponseCode.NO_PERMISSION, remark)
    if not 0 <= queue_id < found.read_queue_nums:
        raise BadRequest(
            f"queueId[{queue_id}] is illegal, topic:[{topic}] "
            f"topicConfig.readQueueNums:[{found.read_queue_nums}]"
        )


def _own_subscription(topic: str, fields: Fields) -> Subscription:
    try:
        text, kind = fields.find("subscription"), fields.find("expressionType")
        # The version is that of an expression's filter, and tags have none.
        version = 0 if kind in _OF_TAGS else fields.int64("subVersion")
        return parse_subscription(topic, text, version, kind)
    except BadRequest as error:
        remark = f"parse the consumer's subscription failed: {error}"
        raise _Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None


def _group_subscription(served: Served, group: str, topic: str, fields: Fields) -> Subscription:
    """The subscription to the topic in the group's last heartbeat."""
    online = served.clients.consumers.get(group)
    missing = ResponseCode.SUBSCRIPTION_NOT_EXIST
    if online is None:
        raise _Refused(missing, "the consumer's group info not exist")
    broadcasts = online.message_model == _BROADCASTING
    if broadcasts and not served.groups.find(group).consume_broadcast_enable:
        remark = f"the consumer group[{group}] can not consume by broadcast way"
        raise _Refused(ResponseCode.NO_PERMISSION, remark)
    subscription = online.subscriptions.get(topic)
    if subscription is None:
        raise _Refused(missing, "the consumer's subscription not exist")
    if subscription.version < fields.int64("subVersion"):
        remark = "the consumer's subscription not latest"
        raise _Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
    return subscription


def _filter_of(subscription: Subscription, is_own: bool) -> MessageFilter:
    """The filter of a pull. Where the pull's own expression is invalid, a broker takes all messages
    for matches; here it is an error. An invalid expression of a heartbeat gives no filter data."""
    try:
        return subscription.message_filter()
    except FilterSyntaxError as error:
        parse, data = ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.FILTER_DATA_NOT_EXIST
        raise _Refused(parse if is_own else data, str(error)) from None
