"""pull: messages of one queue from an offset, as a broker answers a consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.engine.filters.tags import TagFilter
from rmqctl.engine.read.getmessage import GetMessageResult, TransferLimits
from rmqctl.engine.record.status import GetMessageStatus
from rmqctl.errors import UsageError
from rmqctl.operations.look.rows import bodies_counted, message_row_with_body

if TYPE_CHECKING:
    from rmqctl.engine.filters.tags import MessageFilter
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.consumequeue import ConsumeQueue
    from rmqctl.engine.read.lines import Lines, LinesOfPulls
    from rmqctl.engine.record.record import Record
    from rmqctl.rows.structures import MessageRow
    from rmqctl.rows.summaries import PullSummary

#: The most messages in one answer of a broker (``maxMsgNums`` of a consumer's pull).
ONE_PULL = 32
_GO_ON = (
    GetMessageStatus.FOUND,
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
    GetMessageStatus.OFFSET_FOUND_NULL,
)


def make_filter(tag: str, sql: str | None) -> MessageFilter:
    """The filter of a tag expression, or of a SQL92 expression.

    :raises UsageError: both are given.
    :raises FilterSyntaxError: the SQL expression is invalid.
    """
    if sql is None:
        return TagFilter(tag)
    if tag != "*":
        raise UsageError(reason="tags and a filter exclude each other: a consumer has one of them.")
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

    Up to 32 messages are one answer of the broker, with its status and next offset. For more, pulls
    are repeated until there are enough or the queue ends. The status is then FOUND if anything was
    found, or else that of the last answer.

    :param message_filter: used in place of ``tag``. The summary then counts the messages on which
        it failed.
    :param physical_memory: bytes of the broker's memory; None: of this machine's. It decides which
        messages a broker takes for being on disk, of which it gives fewer.
    """
    asked = _Asked(store, topic, queue_id, max_messages, physical_memory)
    rows = asked.rows_of(body, decompress_limit)
    wanted = _by_tags(TagFilter(tag)) if message_filter is None else message_filter
    yield from _pulled(asked, offset, wanted, message_filter, rows, None)


@bodies_counted
def pull_lines(
    store: MessageStore,
    topic: str,
    queue_id: int,
    offset: int | None = None,
    *,
    form: str,
    max_messages: int = ONE_PULL,
    tag: str = "*",
    body: str = "none",
    decompress_limit: int | None = None,
    physical_memory: int | None = None,
) -> Iterator[Lines | MessageRow | PullSummary]:
    """:func:`pull`, with lines of ``form`` (``ndjson``, ``csv``) in place of most rows ``message``
    where the kernel makes them."""
    from rmqctl.engine.read.lines import LinesOfPulls, line_maker
    from rmqctl.operations.look.lines import wanted_lines

    asked = _Asked(store, topic, queue_id, max_messages, physical_memory)
    rows = asked.rows_of(body, decompress_limit)
    wanted = wanted_lines(form, body, decompress_limit)
    maker = line_maker(wanted)
    lines, tags = None, TagFilter(tag)
    # A tag that is no UTF-8 reads as that character: then the records have to be read, too.
    if maker is not None and "\ufffd" not in tag:
        limits = TransferLimits(store.config, ONE_PULL, physical_memory)
        lines = LinesOfPulls(maker, wanted, store, limits, tags)
    yield from _pulled(asked, offset, _by_tags(tags), None, rows, lines)


def _by_tags(tags: TagFilter) -> TagFilter | None:
    """The filter that a pull by tags needs; None if it wants every message."""
    return None if tags.codes is None else tags


class _Asked(NamedTuple):
    """The parameters of a pull."""

    store: MessageStore
    topic: str
    queue_id: int
    max_messages: int
    physical_memory: int | None

    @property
    def is_of_batches(self) -> bool:
        """Whether its queue is a batch queue (5.x)."""
        return self.topic in self.store.dispatcher.batch_topics

    def queue(self) -> ConsumeQueue | None:
        """The queue; None where there is none, for a batch queue, and for a compacted topic."""
        if self.is_of_batches or self.is_of_compacted:
            return None
        return self.store.consume_queue(self.topic, self.queue_id)

    def first_offset(self) -> int:
        """The queue offset of the oldest message; 0 without a queue."""
        queue = self.queue()
        if queue is not None:
            return queue.min_offset
        if (kept := self.store.compacted_queue(self.topic, self.queue_id)) is not None:
            with closing(kept):
                return max(kept.ends()[0], 0)
        if (batches := self.store.batch_queue(self.topic, self.queue_id)) is None:
            return 0
        with closing(batches):
            return batches.min_offset

    @property
    def is_of_compacted(self) -> bool:
        """Whether its queue is the kept queue of a compacted topic (5.x)."""
        return self.topic in self.store.compacted_topics

    def rows_of(self, spelling: str, limit: int | None) -> Callable[[Record], Iterator[MessageRow]]:
        """The maker of rows from the records of an answer."""
        if self.is_of_batches:
            from rmqctl.operations.look.batchqueues import message_rows

            return lambda record: message_rows(self.store, record, spelling, limit)
        kept = self.store.compacted_queue(self.topic, self.queue_id)
        if kept is not None:
            return lambda record: iter((message_row_with_body(kept.log, record, spelling, limit),))
        return lambda record: iter((message_row_with_body(self.store, record, spelling, limit),))

    def answer(
        self, offset: int, wanted: int, message_filter: MessageFilter | None
    ) -> GetMessageResult:
        if self.is_of_compacted:
            return self._answer_of_compacted(offset, wanted)
        return self.store.get_message(
            self.topic,
            self.queue_id,
            offset,
            wanted,
            message_filter,
            physical_memory=self.physical_memory,
        )

    def _answer_of_compacted(self, offset: int, wanted: int) -> GetMessageResult:
        """An answer from the kept queue of a compacted topic. A broker applies no filter there."""
        from rmqctl.engine.read.getcompacted import get_compacted_message

        kept = self.store.compacted_queue(self.topic, self.queue_id)
        if kept is None:
            return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        memory = self.physical_memory
        with closing(kept):
            return get_compacted_message(
                self.store.config, kept, offset, wanted, physical_memory=memory
            )


def _pulled(
    asked: _Asked,
    offset: int | None,
    message_filter: MessageFilter | None,
    counted: MessageFilter | None,
    rows_of: Callable[[Record], Iterator[MessageRow]],
    lines: LinesOfPulls | None,
) -> Iterator[Any]:
    """The messages, answer by answer, as rows or lines; then the summary, with the errors of the
    filter ``counted``."""
    found = passed_over = 0
    max_messages = asked.max_messages
    if offset is None:
        offset = asked.first_offset()
    while True:
        queue = None if lines is None else asked.queue()
        if lines is not None and queue is not None:
            made = lines(queue, offset, max_messages - found)
            if made is not None:
                yield made
                found += made.messages
                offset = made.end_offset
                continue
        answer = asked.answer(offset, min(max_messages - found, ONE_PULL), message_filter)
        made = None if lines is None or queue is None else lines.of_answer(answer)
        if made is not None:
            yield made
            found += made.messages
        else:
            for record in answer.records:
                for row in rows_of(record):
                    found += 1
                    yield row
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
    if counted is not None:
        summary["filter_errors"] = counted.errors
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
