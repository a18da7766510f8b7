"""pull: messages of one queue from an offset, as a broker answers a consumer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqctl.engine.filters.tags import TagFilter
from rmqctl.engine.record.status import GetMessageStatus
from rmqctl.errors import UsageError
from rmqctl.operations.look.rows import bodies_counted, message_row_with_body

if TYPE_CHECKING:
    from rmqctl.engine.filters.tags import MessageFilter
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.read.getmessage import GetMessageResult
    from rmqctl.rows.structures import MessageRow
    from rmqctl.rows.summaries import PullSummary

#: Messages that one answer of a broker holds at most (``maxMsgNums`` of a consumer's pull).
ONE_PULL = 32
_GO_ON = (
    GetMessageStatus.FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
    GetMessageStatus.OFFSET_FOUND_NULL,
)


def make_filter(tag: str, sql: str | None) -> MessageFilter:
    """The filter of a tag expression, or of a SQL92 expression.

    :raises UsageError: both are given; :raises FilterSyntaxError: the SQL is none.
    """
    if sql is None:
        return TagFilter(tag)
    if tag != "*":
        raise UsageError(reason="tags and a filter exclude each other: a consumer has one of them")
    from rmqctl.engine.filters.sql import SqlFilter

    return SqlFilter(sql)


@bodies_counted
def pull(
    store: MessageStore,
    topic: str,
    queue_id: int,
    offset: int | None = None,
    *,
    max_messages: int = ONE_PULL,
    tag: str = "*",
    message_filter: MessageFilter | None = None,
    body: str = "none",
    decompress_limit: int | None = None,
    physical_memory: int | None = None,
) -> Iterator[MessageRow | PullSummary]:
    """Rows ``message`` from ``offset`` on (None: the queue's first), then ``summary``.

    Up to 32 messages are one answer of the broker, status and next offset included. More are
    pulled again and again until there are enough or the queue ends: the status is then FOUND
    when anything was found, else the last answer's.

    :param message_filter: in place of ``tag``; the summary then counts on how many messages it
        failed.
    :param physical_memory: bytes of the broker's memory, which decide what it takes for being on
        disk and gives less of; None: this machine's.
    """
    counts_errors = message_filter is not None
    message_filter = message_filter or TagFilter(tag)
    found = passed_over = 0
    if offset is None:
        queue = store.consume_queue(topic, queue_id)
        offset = 0 if queue is None else queue.min_offset
    while True:
        wanted = min(max_messages - found, ONE_PULL)
        answer = store.get_message(
            topic, queue_id, offset, wanted, message_filter, physical_memory=physical_memory
        )
        for record in answer.records:
            yield message_row_with_body(store, record, body, decompress_limit)
        found += len(answer.records)
        passed_over += answer.passed_over
        goes_on = (
            answer.status in _GO_ON
            and max_messages > ONE_PULL
            and found < max_messages
            and offset < answer.next_begin_offset < answer.max_offset
        )
        if not goes_on:
            break
        offset = answer.next_begin_offset
    summary = _summary(answer, found, passed_over)
    if counts_errors:
        summary["filter_errors"] = message_filter.errors
    yield summary


def _summary(answer: GetMessageResult, found: int, passed_over: int) -> PullSummary:
    """The summary of a pull: the last answer's offsets, and counts over all answers."""
    summary: PullSummary = {
        "type": "summary",
        "status": (GetMessageStatus.FOUND if found else answer.status).value,
        "next_begin_offset": answer.next_begin_offset,
        "min_offset": answer.min_offset,
        "max_offset": answer.max_offset,
        "messages": found,
        "suggest_pulling_from_slave": answer.suggest_pulling_from_slave,
    }
    if passed_over:
        summary["passed_over"] = passed_over
    return summary
