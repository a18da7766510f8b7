"""What a salvage prints: the gaps of a log, and what became of the messages in them."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import BYTES, MESSAGES, Kind


class GapRow(TypedDict):
    """A stretch of the log that cannot be read."""

    type: Literal["gap"]
    physical_offset: Annotated[int, BYTES, "where it starts"]
    length: Annotated[int, BYTES, "its length"]
    reason: Annotated[str, "a [finding code](findings.md); of neighbouring stretches the first"]
    restored_bytes: Annotated[int, BYTES, "how much of it is again what it was"]


class RestoredRow(TypedDict):
    """A message whose record was put right, or neighbouring ones from the other store."""

    type: Literal["restored"]
    physical_offset: Annotated[int, BYTES, "where the first of them is; of several that of the gap"]
    length: Annotated[int, BYTES, "size of the record; of several that of the gap"]
    messages: Annotated[int, MESSAGES, "how many"]
    topic: Annotated[str | None, "topic, of a record that was put right by its queue unit"]
    queue_id: Annotated[int | None, "queue of the topic, likewise"]
    queue_offset: Annotated[int | None, MESSAGES, "its number in the queue, likewise"]
    source: Annotated[
        str, "`header`: the record's own bytes, with the wrong fields put right; else the store"
    ]


class LostRow(TypedDict):
    """A message, or neighbouring ones of a queue, that cannot be read."""

    type: Literal["lost"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue of the topic"]
    queue_offset: Annotated[int, MESSAGES, "the first of them in the queue"]
    messages: Annotated[int, MESSAGES, "how many"]
    physical_offset: Annotated[
        int | None,
        BYTES,
        "where the record of the first was; null where only the numbers of their neighbours tell",
    ]
    has_placeholder: Annotated[bool, "whether marked messages take their places"]


KINDS = (
    Kind("gap", GapRow, printed_by=("salvage",)),
    Kind("restored", RestoredRow, printed_by=("salvage",)),
    Kind("lost", LostRow, printed_by=("salvage",)),
)
