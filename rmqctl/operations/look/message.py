"""message: messages by their offset message ids, their physical offsets, or a unique key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from formats.constants import LONG_MAX, PROPERTY_UNIQ_KEY
from rmqctl.engine.services.anyqueue import queue_directories
from rmqctl.errors import NoRecordAt, UsageError
from rmqctl.operations.look.recordstarts import require_record
from rmqctl.operations.look.rows import bodies_counted, message_row_with_body

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.rows.structures import AbsentRow, MessageRow
    from rmqctl.rows.summaries import MessageSummary


#: An offset message id: a host with 4 or 16 bytes of address, and a physical offset. The unique key
#: that clients and consoles call a message id has as many digits.
_MESSAGE_ID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{56}")


class NoRecordOfId(NoRecordAt):
    """There is no record at the offset in a message id, which may be a unique key."""

    template = (
        "there is no record at physical offset {physical_offset}, which message id {message_id} "
        "has in it: {reason}. If the id is a client's UNIQ_KEY, `rmqctl message --unique-key "
        "{message_id}` finds the message."
    )


def parse_physical_offset(text: str) -> int:
    """The physical offset in an offset message id, or the offset itself.

    :raises UsageError: the text is neither.
    """
    offset = -1
    if _MESSAGE_ID.fullmatch(text):
        offset = int(text[-16:], 16)
    elif re.fullmatch(r"[0-9]{1,19}", text):
        offset = int(text)
    if 0 <= offset <= LONG_MAX:
        return offset
    raise UsageError(
        reason=f"{text[:80]!r} is no message id (32 or 56 hexadecimal digits) and no physical "
        "offset. A UNIQ_KEY is found with `rmqctl message --unique-key KEY`."
    )


def look_message(
    store: MessageStore, text: str, body: str = "none", decompress_limit: int | None = None
) -> MessageRow:
    """The message that a message id or a physical offset names.

    :raises NoRecordAt: there is no record.
    :raises UsageError: the text is neither.
    """
    try:
        record = require_record(store, parse_physical_offset(text))
    except NoRecordAt as error:
        if not _MESSAGE_ID.fullmatch(text):
            raise
        raise NoRecordOfId(message_id=text, **error.values) from error
    return message_row_with_body(store, record, body, decompress_limit)


@bodies_counted
def look_messages(
    store: MessageStore, texts: Sequence[str], body: str = "none", limit: int | None = None
) -> Iterator[MessageRow | AbsentRow | MessageSummary]:
    """Rows ``message`` of message ids and physical offsets in their order, with a row ``absent``
    for each without a message; then ``summary``. ``limit`` is the ``decompress_limit`` of
    :func:`look_message`.

    :raises UsageError: a text is neither. This is raised before any row.
    """
    offsets = [parse_physical_offset(text) for text in texts]
    absent = 0
    for text, offset in zip(texts, offsets, strict=True):
        try:
            record = require_record(store, offset)
        except NoRecordAt as error:
            absent += 1
            yield {
                "type": "absent",
                "place": text,
                "physical_offset": offset,
                "reason": str(error.values["reason"]),
            }
        else:
            yield message_row_with_body(store, record, body, limit)
    yield {"type": "summary", "messages": len(texts) - absent, "absent": absent}


@bodies_counted
def messages_by_unique_key(
    store: MessageStore,
    key: str,
    topic: str | None = None,
    body: str = "none",
    decompress_limit: int | None = None,
) -> Iterator[MessageRow | MessageSummary]:
    """Rows ``message`` whose UNIQ_KEY is ``key``, found in the index, newest first in each topic,
    then ``summary``.

    The index goes by topic and key together, so without ``topic`` every topic that has a queue is
    looked up. Several messages have the same key if one was sent again.
    """
    if topic is None:
        topics = dict.fromkeys(where.topic for where in queue_directories(store))
    else:
        topics = {topic: None}
    messages = 0
    for name in topics:
        for match in store.query_message(name, key):
            record = match.record
            if record is None or not match.matches:
                continue
            if record.properties.get(PROPERTY_UNIQ_KEY) == key:
                messages += 1
                yield message_row_with_body(store, record, body, decompress_limit)
    yield {"type": "summary", "topics": len(topics), "messages": messages}
