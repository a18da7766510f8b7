"""put --batch: a stream's messages in batches, each in one log file and flushed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from formats import constants
from rmqctl.engine.record.fields import NotAMessage
from rmqctl.engine.record.form import RecordForm, room_of
from rmqctl.engine.record.message import MessageExtBrokerInner, encoded_size, longest_record
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.write.bulk import Message, PlainMessage
from rmqctl.errors import TopicNotAllowed
from rmqctl.operations.change.messagemaker import MessageMaker
from rmqctl.operations.change.put import DryPut, append_result_row
from rmqctl.operations.change.putstream import BulkPut, messages_of

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.rows.changes import AppendResultRow


def put_batches(
    store: WritableStore,
    lines: Iterable[bytes | None],
    run: BulkPut,
    *,
    size: int,
    maker: MessageMaker | None = None,
    flush: bool = True,
) -> Iterator[Iterator[AppendResultRow]]:
    """Puts lines in batches: up to ``size`` lines that follow each other with the same topic and
    queue become one batch, with one row that has all message ids. Delayed and transactional
    messages, and those that refer to a prepared one, go one by one. When a batch is refused,
    ``run.line`` is its first line.

    :raises BadInputLine: as of :func:`~rmqctl.operations.change.putstream.put_lines`.
    """
    messages = messages_of(lines, run, maker or MessageMaker())
    room = room_of(store.commit_log.file_size)
    form = store.writer.form
    longest = min(longest_record(store.config.max_message_size, form), room)
    try:
        for line, batch in _batches(messages, run, size, longest, form):
            if len(batch) > 1:
                result = store.put_batch(batch, flush=flush)
            else:
                result = store.put_message(batch[0], flush=flush)
            row = append_result_row(result.named(batch[0]))
            if not result.is_ok:
                # Others may have been read behind it, to know that it ends there.
                run.line = line
                yield iter((run.refuse(row, len(batch) if result.is_logged else 0),))
                return
            run.note_stored(len(batch))
            row["messages"] = len(batch)
            yield iter((row,))
    except (NotAMessage, TopicNotAllowed) as error:
        raise run.refusal(error) from None


def check_batches(
    dry: DryPut, lines: Iterable[bytes | None], run: BulkPut, maker: MessageMaker, *, size: int
) -> Iterator[AppendResultRow]:
    """What :func:`put_batches` would answer: a row for each batch. The first that would be refused
    is the last one; ``run.line`` is then its first line. Raises as
    :func:`~rmqctl.operations.change.putstream.check_lines`."""
    messages = messages_of(lines, run, maker)
    try:
        for line, batch in _batches(messages, run, size, dry.longest, dry.form):
            for message in batch:
                row = dry.check(message)
                if row["status"] != PutMessageStatus.PUT_OK.value:
                    run.line, run.refused = line, row
                    yield row
                    return
            row["messages"] = len(batch)
            yield row
    except (NotAMessage, TopicNotAllowed) as error:
        raise run.refusal(error) from None


def _batches(
    messages: Iterable[Message | None], run: BulkPut, size: int, longest: int, form: RecordForm
) -> Iterator[tuple[int, list[MessageExtBrokerInner]]]:
    """The first line of each batch, and its messages: at most ``longest`` bytes of records. When
    the input pauses (None) or fails, the messages that have come are a batch."""
    batch: list[MessageExtBrokerInner] = []
    length = first = 0
    try:
        for message in messages:
            one = message.full() if isinstance(message, PlainMessage) else message
            own = 0 if one is None else encoded_size(one, form)
            goes_on = one is not None and _can_follow(batch, one) and len(batch) < size
            if batch and not (goes_on and length + own <= longest):
                yield first, batch
                batch, length = [], 0
            if one is not None:
                first = first if batch else run.line
                batch.append(one)
                length += own
    except (NotAMessage, TopicNotAllowed):
        if batch:
            yield first, batch
        raise
    if batch:
        yield first, batch


def _can_follow(batch: list[MessageExtBrokerInner], one: MessageExtBrokerInner) -> bool:
    """Whether a message goes into the same batch as those before it."""
    if not batch:
        return True
    first = batch[0]
    same = (one.topic, one.queue_id) == (first.topic, first.queue_id)
    return same and not any(
        each.delay_time_level != 0
        or each.sys_flag & constants.TRANSACTION_TYPE_MASK
        or each.prepared_transaction_offset  # In a batch it would become 0.
        for each in (first, one)
    )
