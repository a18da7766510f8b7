"""message: one message by its offset message id or physical offset."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rmqctl.errors import UsageError
from rmqctl.operations.places import require_record
from rmqctl.operations.rows import Row, message_row_with_body

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore

_LONG_MAX = 0x7FFFFFFFFFFFFFFF


def parse_place(text: str) -> int:
    """The physical offset in an offset message id, or the offset itself.

    :raises UsageError: the text is neither.
    """
    offset = -1
    if re.fullmatch(r"([0-9a-fA-F]{32}|[0-9a-fA-F]{56})", text):
        offset = int(text[-16:], 16)
    elif re.fullmatch(r"[0-9]{1,19}", text):
        offset = int(text)
    if 0 <= offset <= _LONG_MAX:
        return offset
    raise UsageError(
        reason=f"{text[:80]!r} is no message id (32 or 56 hexadecimal digits) and no physical "
        "offset. A UNIQ_KEY is found with `rmqctl index query --topic TOPIC --key KEY`."
    )


def look_message(store: MessageStore, place: str, body: str = "none") -> Row:
    """The message at a place; :raises NoRecordAt: there is none."""
    return message_row_with_body(store, require_record(store, parse_place(place)), body)
