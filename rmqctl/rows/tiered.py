"""The rows of ``tiered``: what a broker of 5.x has uploaded to files."""

from typing import Annotated, Literal, TypedDict

from rmqctl.rows.field import (
    BYTES,
    FILES,
    ITEMS,
    MESSAGES,
    MILLISECONDS,
    QUEUES,
    SLOTS,
    UNITS,
    Kind,
)


class TieredQueueRow(TypedDict):
    """The uploaded part of a queue."""

    type: Literal["tiered_queue"]
    cluster: Annotated[str | None, "cluster of the broker; null: none of its files is there"]
    broker: Annotated[str, "name of the broker"]
    topic: Annotated[str, "topic"]
    topic_id: Annotated[int | None, "its number in the index; null: the metadata has none"]
    queue_id: Annotated[int, "queue"]
    min_offset: Annotated[int | None, MESSAGES, "queue offset of the first unit; null: no unit"]
    max_offset: Annotated[int | None, MESSAGES, "queue offset after the last unit"]
    messages: Annotated[int, MESSAGES, "units that are there"]
    log_bytes: Annotated[int, BYTES, "records that are there"]
    segments: Annotated[int, FILES, "segments of its log and queue"]
    begin_timestamp: Annotated[
        int | None, MILLISECONDS, "store time of the oldest message, by the metadata"
    ]
    end_timestamp: Annotated[int | None, MILLISECONDS, "store time of the newest message"]


class TieredSegmentRow(TypedDict):
    """A segment: a file, an entry of `config/tieredStoreMetadata.json`, or both."""

    type: Literal["tiered_segment"]
    topic: Annotated[str, "topic; `rmq_sys_INDEX` has the index of all"]
    queue_id: Annotated[int, "queue"]
    kind: Annotated[str, "`COMMIT_LOG`, `CONSUME_QUEUE` or `INDEX`"]
    base_offset: Annotated[int, BYTES, "address of its first byte"]
    size: Annotated[int | None, BYTES, "bytes by the metadata; null: it does not name the segment"]
    file_size: Annotated[int | None, BYTES, "bytes of the file; null: there is none"]
    state: Annotated[
        str,
        "`ok`; `missing`: no file; `short`, `long`: the file has less or more bytes than the "
        "metadata says; `unknown`: the metadata does not name it, and a broker does not read it",
    ]
    status: Annotated[int | None, "the metadata's: 0 new, 1 sealed, 2 deleted"]
    create_timestamp: Annotated[int | None, MILLISECONDS, "when it was made"]
    begin_timestamp: Annotated[int | None, MILLISECONDS, "store time of its oldest message"]
    end_timestamp: Annotated[int | None, MILLISECONDS, "store time of its newest message"]
    path: Annotated[str | None, "file, relative to the directory of uploaded files"]


class TieredIndexFileRow(TypedDict):
    """A file of the index, uploaded or not."""

    type: Literal["tiered_index_file"]
    state: Annotated[str, "`uploaded`; `local`: it is in `tiered_index_file/` of the store"]
    begin_timestamp: Annotated[int, MILLISECONDS, "when it was made"]
    end_timestamp: Annotated[int, MILLISECONDS, "store time of the newest message in it"]
    slots: Annotated[int | None, SLOTS, "slots; null: the file does not tell"]
    slots_used: Annotated[int, SLOTS, "slots with an item"]
    items: Annotated[int, ITEMS, "items"]
    file_size: Annotated[int, BYTES, "bytes of the file"]
    path: Annotated[str, "file"]


class TieredLsSummary(TypedDict):
    """Of all that was chosen."""

    type: Literal["summary"]
    directory: Annotated[str | None, "where the uploaded files are; null: it is not known"]
    queues: Annotated[int, QUEUES, "queues"]
    messages: Annotated[int, MESSAGES, "units that are there"]
    segments: Annotated[int, FILES, "segments"]
    bytes: Annotated[int, BYTES, "the length of their files"]
    not_ok: Annotated[int, FILES, "segments whose state is not `ok`"]
    index_files: Annotated[int, FILES, "files of the index"]
    index_items: Annotated[int, ITEMS, "items in them"]


class TieredWalkSummary(TypedDict):
    """What was walked over."""

    type: Literal["summary"]
    queues: Annotated[int, QUEUES, "queues"]
    messages: Annotated[int, MESSAGES, "rows of type message"]
    blanks: Annotated[int, "rows of type blank"]
    damages: Annotated[int, "rows of type damage"]
    residue: Annotated[int, BYTES, "bytes after the ends of logs that are not a record"]


class TieredQuerySummary(TypedDict):
    """What the index led to."""

    type: Literal["summary"]
    messages: Annotated[int, MESSAGES, "rows of type message"]
    collisions: Annotated[int, ITEMS, "items with the hash, of another topic or key"]
    lost: Annotated[int, ITEMS, "items with the hash whose record is missing"]
    index_files: Annotated[int, FILES, "files of the index that were searched"]
    unreadable: Annotated[int, FILES, "of these, files that contradict themselves"]


class TieredVerifySummary(TypedDict):
    """What was looked at, and how much was found."""

    type: Literal["summary"]
    queues: Annotated[int, QUEUES, "queues"]
    segments: Annotated[int, FILES, "segments"]
    units: Annotated[int, UNITS, "units"]
    log_bytes: Annotated[int, BYTES, "of the logs"]
    index_files: Annotated[int, FILES, "files of the index"]
    index_items: Annotated[int, ITEMS, "items in them"]
    errors: Annotated[int, "findings of severity error"]
    warnings: Annotated[int, "findings of severity warning"]
    infos: Annotated[int, "findings of severity info"]


KINDS = (
    Kind("tiered_queue", TieredQueueRow, printed_by=("tiered ls",)),
    Kind("tiered_segment", TieredSegmentRow, printed_by=("tiered ls",)),
    Kind("tiered_index_file", TieredIndexFileRow, printed_by=("tiered ls",)),
    Kind("summary (tiered ls)", TieredLsSummary),
    Kind("summary (tiered walk)", TieredWalkSummary),
    Kind("summary (tiered query)", TieredQuerySummary),
    Kind("summary (tiered verify)", TieredVerifySummary),
)
