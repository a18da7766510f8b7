"""message: one message by its offset message id or physical offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import UsageError
from rmqctl.operations.places import require_record
from rmqctl.operations.rows import Row, body_text, message_row

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore

_ID_LENGTHS = (32, 56)
_OFFSET_DIGITS = 16
_LONG_MAX = 0x7FFFFFFFFFFFFFFF


def parse_place(text: str) -> int:
    """The physical offset in an offset message id, or the offset itself.

    :raises UsageError: the text is neither.
    """
    if len(text) in _ID_LENGTHS and all(char in "0123456789abcdefABCDEF" for char in text):
        offset = int(text[-_OFFSET_DIGITS:], 16)
        if offset <= _LONG_MAX:
            return offset
    elif text.isascii() and text.isdigit() and int(text) <= _LONG_MAX:
        return int(text)
    raise UsageError(
        reason=f"{text!r} is no message id (32 or 56 hexadecimal digits) and no physical offset. "
        "A UNIQ_KEY is found with `rmqctl index query --topic TOPIC --key KEY`."
    )


def look_message(store: MessageStore, place: str, body: str = "none") -> Row:
    """The message at a place; :raises NoRecordAt: there is none."""
    record = require_record(store, parse_place(place))
    row = message_row(record)
    if body != "none":
        row["body"] = body_text(store.body(record), body)
    return row
