"""``TransactionalMessageService``: half messages, and the records that end a transaction.

A producer's transactional message first stands as a half message in ``RMQ_SYS_TRANS_HALF_TOPIC``.
Its commit puts the message into its real queue and then an op message; its rollback only the op
message. An op message, in ``RMQ_SYS_TRANS_OP_HALF_TOPIC`` with tag ``d``, holds the queue offset of
the half that it ends.

The broker's check (``TransactionalMessageServiceImpl#check``) goes through both queues and keeps
its progress as the consumer group ``CID_RMQ_SYS_TRANS``. When it asks the producer about a half, it
puts the half again at the end of its queue, and the progress passes the old one. So a half without
an op message before the progress is not pending, but its copy is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from formats import constants
from formats.text import encode_properties, java_int, java_long, java_long_value
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.state import brokerjson

HALF_TOPIC = constants.RMQ_SYS_TRANS_HALF_TOPIC
OP_TOPIC = constants.RMQ_SYS_TRANS_OP_HALF_TOPIC
#: ``MixAll.CID_SYS_RMQ_TRANS``, the group of the broker's check.
CHECK_GROUP = "CID_RMQ_SYS_TRANS"
REMOVE_TAG = "d"
PROPERTY_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PROPERTY_ORIGINAL_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_LARGEST_OP_BODY = 1 << 20


class CheckProgress(NamedTuple):
    """How far the broker's check has come: queue offsets of the half and of the op queue."""

    half: int
    op: int


def check_progress(store: MessageStore, queue_id: int) -> CheckProgress:
    """The progress in ``config/consumerOffset.json``. A queue without an entry begins at its first
    message (``TransactionalMessageBridge#fetchConsumeOffset``).

    :raises ConfigFileUnreadable: the file and its ``.bak`` are broken.
    """
    offsets = brokerjson.consumer_offsets(Path(store.root), store.config.told_lmq)
    found = []
    for topic in (HALF_TOPIC, OP_TOPIC):
        queue = store.consume_queue(topic, queue_id)
        low = queue.min_offset if queue is not None else 0
        offset = offsets.get((topic, CHECK_GROUP), {}).get(queue_id, -1)
        found.append(max(offset, low))
    return CheckProgress(*found)


def half_queue_ids(store: MessageStore) -> list[int]:
    """Queue ids of the half topic; a broker of 4.9.3 has only 0."""
    return [where.queue_id for where in store.queues.directories_of(HALF_TOPIC)]


class Op(NamedTuple):
    """One op message, and the queue offsets of halves that it ends; none if it is not one."""

    record: Record
    ends: tuple[int, ...]


def op_messages(store: MessageStore, queue_id: int, start: int) -> Iterator[Op]:
    """Op messages from a queue offset on (``fillOpRemoveMap``). As in the engine, unreadable ones
    are left out: their halves count as pending then."""
    for _, record in records_of(store, OP_TOPIC, queue_id, start):
        ends: tuple[int, ...] = ()
        tags = record.properties.get(constants.PROPERTY_TAGS)
        if tags == REMOVE_TAG and record.body_length <= _LARGEST_OP_BODY:
            # In 5.x one op message may end several halves, separated by commas.
            texts = store.body(record).decode("ascii", "replace").split(",")
            ends = tuple(number for text in texts if (number := java_long(text)) is not None)
        yield Op(record, ends)


def records_of(
    store: MessageStore, topic: str, queue_id: int, start: int
) -> Iterator[tuple[int, Record]]:
    """``(queue offset, record)`` of a queue from queue offset ``start`` on; places without a record
    are left out."""
    queue = store.consume_queue(topic, queue_id)
    if queue is None:
        return
    for queue_offset, unit in queue.units(max(start, queue.min_offset), queue.max_offset):
        record = store.commit_log.find_record(unit.physical_offset)
        if record is not None and record.total_size == unit.size:
            yield queue_offset, record


def ended_halves(store: MessageStore, queue_id: int, start: int) -> dict[int, int]:
    """Queue offset of each half ended by an op message from ``start`` on → physical offset of that
    op message."""
    return {
        half: op.record.physical_offset
        for op in op_messages(store, queue_id, start)
        for half in op.ends
    }


def time_out_of(properties: dict[str, str], transaction_time_out: int) -> int:
    """Milliseconds before the broker asks about a half (``getImmunityTime``)."""
    text = properties.get(PROPERTY_IMMUNITY_SECONDS)
    if text is None:
        return transaction_time_out
    seconds = java_long(text)
    return transaction_time_out if seconds in (None, -1) else java_long_value(seconds * 1000)


def check_times(properties: dict[str, str]) -> int:
    """How often the broker has asked about a half (``needDiscard``)."""
    text = properties.get(PROPERTY_CHECK_TIMES)
    if text is None:
        return 0
    times = java_int(text)
    return -1 if times is None else times


def original_queue_offset(properties: dict[str, str]) -> int | None:
    """For a half that was put again before the broker asked about it: the queue offset of the first
    copy, which an op message may name instead (``checkPrepareQueueOffset``); else None."""
    text = properties.get(PROPERTY_ORIGINAL_QUEUE_OFFSET, "")
    return java_long(text)


# --- what ends a transaction ---------------------------------------------------------------------


def half_problem(half: Record) -> str | None:
    """Why a record is not a half message that can be ended; None when it is
    (``EndTransactionProcessor#checkPrepareMessage``, which does not check the topic)."""
    if half.topic != HALF_TOPIC:
        return f"it is a message of {half.topic}, not of {HALF_TOPIC}"
    if constants.PROPERTY_PRODUCER_GROUP not in half.properties:
        return "the property PGROUP is not there, and a broker refuses a half without one"
    return None


def commit_problem(half: Record) -> str | None:
    """Why a half message cannot be committed to its real queue; None when it can."""
    properties = half.properties
    topic = properties.get(constants.PROPERTY_REAL_TOPIC)
    queue_id = properties.get(constants.PROPERTY_REAL_QUEUE_ID, "")
    if topic is None:
        return "the property REAL_TOPIC is not there"
    problem = topic_directory_problem(topic)
    if problem is not None:
        return f"REAL_TOPIC {topic!r}: {problem}"
    number = java_int(queue_id)
    if number is None or number < 0:
        return f"REAL_QID is {queue_id!r}"
    return None


def commit_message(half: Record, body: bytes) -> MessageExtBrokerInner:
    """The final message (``EndTransactionProcessor#endMessageTransaction``) of a half that passed
    :func:`commit_problem`.

    Properties are encoded before REAL_TOPIC, REAL_QID and TRAN_MSG are cleared, so these stay in
    the stored bytes.
    """
    properties = half.properties
    data = encode_properties(properties)
    topic = properties.pop(constants.PROPERTY_REAL_TOPIC)
    queue_id = int(properties.pop(constants.PROPERTY_REAL_QUEUE_ID))
    properties.pop(constants.PROPERTY_TRANSACTION_PREPARED, None)
    return MessageExtBrokerInner(
        topic,
        body,
        queue_id,
        half.flag,
        half.sys_flag & ~constants.TRANSACTION_TYPE_MASK | constants.TRANSACTION_COMMIT_TYPE,
        properties,
        data,
        half.born_timestamp,
        (half.born_address, half.born_port),
        (half.store_address, half.store_port),
        half.reconsume_times,
        half.physical_offset,
    )


def op_message(half: Record, now: int) -> MessageExtBrokerInner:
    """The op message that ends a half (``TransactionalMessageBridge#addRemoveTagInTransactionOp``,
    ``makeOpMessageInner``).

    Both hosts are the broker's own, which is the store host of the half. UNIQ_KEY is set after the
    properties are encoded, so it is not stored.
    """
    properties = {
        constants.PROPERTY_TAGS: REMOVE_TAG,
        constants.PROPERTY_WAIT_STORE_MSG_OK: "true",
    }
    host = half.store_address, half.store_port
    return MessageExtBrokerInner(
        OP_TOPIC,
        str(half.queue_offset).encode(),
        half.queue_id,
        properties=properties,
        born_timestamp=now,
        born_host=host,
        store_host=host,
    )
