"""The rows of ``salvage``: gaps of the log, and which messages in them were restored or lost."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import BYTES, ITEMS, MESSAGES, QUEUES, UNITS, Kind


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


class SalvageSummary(TypedDict):
    type: Literal["summary"]
    output: Annotated[str, "the new store"]
    dry_run: Annotated[bool, "nothing was written"]
    records: Annotated[int, "records of the log that can be read"]
    gaps: Annotated[int, "stretches between them"]
    gap_bytes: Annotated[int, BYTES, "their length"]
    restored: Annotated[int, MESSAGES, "messages that were put right, or came from the other store"]
    lost: Annotated[int, MESSAGES, "lost messages, as far as a queue has units of them"]
    placeholders: Annotated[int, MESSAGES, "marked messages in the places of lost ones"]
    fillers: Annotated[int, "records that fill gaps, which no consumer gets"]
    passed_over: Annotated[
        int | None,
        MESSAGES,
        "sound messages that a consumer may skip after an empty number, because a broker continues "
        "in the log's second file there; null with `--dry-run`, as the next three",
    ]
    queues: Annotated[int | None, QUEUES, "queues of the new store"]
    units: Annotated[int | None, UNITS, "units in them"]
    index_items: Annotated[int | None, ITEMS, "items of its index"]


KINDS = (
    Kind("gap", GapRow, printed_by=("salvage",)),
    Kind("restored", RestoredRow, printed_by=("salvage",)),
    Kind("lost", LostRow, printed_by=("salvage",)),
    Kind("summary (salvage)", SalvageSummary),
)
