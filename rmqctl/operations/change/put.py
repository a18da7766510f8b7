"""put: one message into a store, and the row that says what became of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqctl.engine.record.message import MessageExtBrokerInner, PutMessageResult
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.start.nearend import check_before

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows.changes import AppendResultRow


def put_one(
    store: MessageStore, message: MessageExtBrokerInner, *, flush: bool = True
) -> AppendResultRow:
    """Puts one message; the row says what became of it."""
    return append_result_row(_named(store.put_message(message, flush=flush), message))


def check_place(store: MessageStore) -> None:
    """Whether something can be put to a store that is open for reading.

    :raises DamagedStore: not behind what stands before the log's end.
    """
    check_before(store.commit_log, store.max_offset)


def check_one(store: MessageStore, message: MessageExtBrokerInner) -> AppendResultRow:
    """What a put of one message would answer, of a store that is open for reading: its offsets are
    None."""
    checked = store.check_message(message)
    if isinstance(checked, PutMessageResult):
        return append_result_row(_named(checked, message))
    sent = checked.message
    return append_result_row(
        PutMessageResult(PutMessageStatus.PUT_OK, None, sent.topic, sent.queue_id)
    )


def _named(result: PutMessageResult, message: MessageExtBrokerInner) -> PutMessageResult:
    """The result with the message's topic and queue, where it was refused before it had any."""
    if result.topic:
        return result
    return replace(result, topic=message.topic, queue_id=message.queue_id)


def append_result_row(result: PutMessageResult) -> AppendResultRow:
    """What became of a put; offsets are None when nothing was stored."""
    append = result.stored
    row: AppendResultRow = {
        "type": "append_result",
        "status": result.status.value,
        "msg_id": append.msg_id if append else None,
        "topic": result.topic,
        "queue_id": result.queue_id,
        "wrote_offset": append.wrote_offset if append else None,
        "wrote_bytes": append.wrote_bytes if append else None,
        "queue_offset": append.queue_offset if append else None,
        "store_timestamp": append.store_timestamp if append else None,
    }
    if result.reason:
        row["reason"] = result.reason
    return row
