"""The rows of ``index query --keys-from`` other than messages."""

from typing import Annotated, Literal, NotRequired, TypedDict

from rmqctl.rows.field import FILES, ITEMS, MESSAGES, Kind


class AbsentKeyRow(TypedDict):
    """One of several keys that `index query` was asked for, of which there is no message."""

    type: Literal["absent_key"]
    topic: Annotated[str, "topic"]
    key: Annotated[str, "the key, as it was given"]
    collisions: Annotated[int, ITEMS, "hits of another topic or key with the same hash"]
    missing: Annotated[int, ITEMS, "hits whose record is not in the log"]


class IndexKeysSummary(TypedDict):
    type: Literal["summary"]
    keys: Annotated[int, "keys that were asked for"]
    absent_keys: Annotated[int, "keys without a message"]
    messages: Annotated[int, MESSAGES, "messages printed"]
    collisions: Annotated[int, ITEMS, "hits of another topic or key with the same hash"]
    missing: Annotated[int, ITEMS, "hits whose record is not in the log"]
    index_files: Annotated[int, FILES, "index files of the store"]
    body_crc_mismatches: NotRequired[
        Annotated[int, MESSAGES, "messages whose body, as shown, does not match its CRC"]
    ]


KINDS = (
    Kind("absent_key", AbsentKeyRow, printed_by=("index query",)),
    Kind("summary (index query --keys-from)", IndexKeysSummary),
)
