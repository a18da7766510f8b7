"""The rows of ``dump``, ``verify``, ``flush``, ``clean``, ``du`` and ``config``, and the plan of
``rebuild``."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from rmqctl.rows.field import BYTES, FILES, ITEMS, MESSAGES, MILLISECONDS, SLOTS, Kind


class FieldRow(TypedDict):
    """A field of a structure."""

    type: Literal["field"]
    offset: Annotated[int, BYTES, "where it starts in the structure"]
    size: Annotated[int, BYTES, "its size"]
    bytes: Annotated[str, "its bytes in hexadecimal"]
    name: Annotated[str, "its name in the [format](formats/README.md)"]
    value: Annotated[Any, "its value; null for a body that is no UTF-8"]
    meaning: Annotated[str, "its meaning in the format"]


class BodyRow(TypedDict):
    """The body of a record as a consumer gets it, with `--decompress`."""

    type: Literal["body"]
    size: Annotated[int | None, BYTES, "its size; null where it could not be made"]
    bytes: Annotated[str | None, "its bytes in hexadecimal"]
    value: Annotated[str | None, "its text; null when it is no UTF-8"]
    body_compression: Annotated[str, "as in [message](#message)"]
    body_status: Annotated[str, "as in [message](#message)"]
    body_reason: Annotated[str, "as in [message](#message)"]


class FindingRow(TypedDict):
    """Something that is wrong, or worth knowing.

    Neighbouring findings of one kind are one row. Of several stores the row says
    [which](rows-on-spark.md#finding-verify).
    """

    type: Literal["finding"]
    code: Annotated[str, "what is wrong: [all codes](findings.md)"]
    severity: Annotated[str, "`error`, `warning` or `info`"]
    structure: Annotated[str, "`commitlog`, `queue`, `index`, `checkpoint`, `directory` or `store`"]
    path: Annotated[str | None, "file or directory, relative to the store"]
    physical_offset: Annotated[int | None, BYTES, "place in the log"]
    position: Annotated[int | None, BYTES, "place in the file"]
    topic: Annotated[str | None, "topic"]
    queue_id: Annotated[int | None, "queue of the topic"]
    queue_offset: Annotated[int | None, MESSAGES, "first message concerned"]
    expected: Annotated[str | None, "what should be there"]
    found: Annotated[str | None, "what does"]
    advice: Annotated[str, "the next step"]
    command: Annotated[
        str | None, "the command line for it, quoted for a shell; null where there is none"
    ]


class FlushRow(TypedDict):
    """A structure that was flushed."""

    type: Literal["flush"]
    structure: Annotated[str, "`commitlog`, `queues` or `index`"]
    from_offset: Annotated[
        int, BYTES, "place in the log up to which it was known to be on disk before"
    ]
    to_offset: Annotated[int, BYTES, "place in the log up to which it is now"]


class CheckpointRow(TypedDict):
    """The checkpoint after a flush."""

    type: Literal["checkpoint"]
    physic_msg_timestamp: Annotated[int, MILLISECONDS, "log flushed up to this store time"]
    logics_msg_timestamp: Annotated[int, MILLISECONDS, "queues flushed up to this store time"]
    index_msg_timestamp: Annotated[int, MILLISECONDS, "index flushed up to this store time"]
    master_flushed_offset: Annotated[int, BYTES, "of 5.x, kept as it was"]
    confirm_phy_offset: Annotated[int, BYTES, "of 5.x, kept as it was"]


class PlanRow(TypedDict):
    """What a rebuild would do."""

    type: Literal["plan"]
    store: Annotated[str, "the store's directory"]
    output: Annotated[str, "where to: a directory, or `in place`"]
    structures: Annotated[list[str], "`consumequeue`, `consumequeue_ext`, `index`"]
    topic: Annotated[str | None, "only this topic"]
    queue_id: Annotated[int | None, "only this queue"]
    log_min_offset: Annotated[int, BYTES, "where the log starts"]
    log_bytes: Annotated[int, BYTES, "how much log is read"]
    consume_queue_file_size: Annotated[int, BYTES, "size of the new queue files"]
    max_hash_slot_num: Annotated[int, SLOTS, "slots of the new index files"]
    max_index_num: Annotated[int, ITEMS, "items of the new index files"]
    overruled: Annotated[
        list[str],
        "those of `enableMultiDispatch` and `enableLmq` that the existing queues contradict: the "
        "new queues are made like these, and not as broker.conf says",
    ]
    unexplained: Annotated[
        list[str],
        "`topic/queue_id` of queues for which the rebuild is refused: they would be left "
        "out, or lose units",
    ]
    purges: Annotated[list[str], "directories that `--purge` would remove"]


class FileRow(TypedDict):
    """A file that retention deletes."""

    type: Literal["file"]
    structure: Annotated[str, "`commitlog`, `consumequeue`, `consumequeue_ext` or `index`"]
    path: Annotated[str, "the file, relative to the store"]
    reason: Annotated[
        str,
        "`expired`; `forced` (younger, but a disk is full); `before-log` (the log has deleted all "
        "of its messages)",
    ]
    size: Annotated[int, BYTES, "its length"]
    allocated_bytes: Annotated[int, BYTES, "disk space that it takes"]
    modified_timestamp: Annotated[int, MILLISECONDS, "when it was last modified"]


class ProgressRow(TypedDict):
    """How far a queue is read: by a consumer group, or by the delivery of a delay level."""

    type: Literal["progress"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue of the topic"]
    group: Annotated[str | None, "consumer group; null for the delivery of delayed messages"]
    consumer_offset: Annotated[int, MESSAGES, "the message that it reads next"]
    min_offset: Annotated[int, MESSAGES, "first message of the queue"]
    new_min_offset: Annotated[int, MESSAGES, "first message after the deletion"]
    max_offset: Annotated[int, MESSAGES, "offset that the next message gets"]
    lag: Annotated[int, MESSAGES, "what it has not read"]
    lost: Annotated[int, MESSAGES, "what of that is deleted"]


class UsageRow(TypedDict):
    """Messages and bytes of one group."""

    type: Literal["usage"]
    topic: NotRequired[Annotated[str, "with `--by topic`"]]
    queue_id: NotRequired[Annotated[int, "with `--by queue`"]]
    tag: NotRequired[Annotated[str | None, "with `--by tag`; null: messages without tags"]]
    producer_host: NotRequired[Annotated[str, "with `--by producer-host`: its address"]]
    day: NotRequired[
        Annotated[
            str | None,
            "with `--by day`: local day of storing, `2024-05-01`; null: a time that no calendar "
            "has",
        ]
    ]
    messages: Annotated[int, MESSAGES, "messages of the group"]
    bytes: Annotated[int, BYTES, "size of their records"]


class DiskRow(TypedDict):
    """The files of one directory of a store."""

    type: Literal["disk"]
    structure: Annotated[
        str, "`commitlog`, `consumequeue`, `consumequeue_ext`, `index`, `config`, or `other`"
    ]
    files: Annotated[int, FILES, "files in it"]
    size: Annotated[int, BYTES, "their lengths"]
    allocated_bytes: Annotated[int, BYTES, "disk space that they take: holes take none"]


class NamedStoreRow(TypedDict):
    """A store that has a name of its own: `--store @name`."""

    type: Literal["named_store"]
    name: Annotated[str, "its name, without the `@`"]
    store: Annotated[str | None, "directory, pattern or URL; null where broker.conf names none"]
    broker_conf: Annotated[str | None, "its broker.conf"]
    problem: Annotated[str | None, "why it cannot be used; null where nothing is wrong"]


KINDS = (
    Kind(
        "field",
        FieldRow,
        printed_by=(
            "dump record",
            "dump unit",
            "dump index-header",
            "dump index-item",
            "dump checkpoint",
        ),
    ),
    Kind("body", BodyRow, printed_by=("dump record",)),
    Kind("finding", FindingRow, printed_by=("verify", "lint", "config check", "tiered verify")),
    Kind("flush", FlushRow, printed_by=("flush",)),
    Kind("checkpoint", CheckpointRow, printed_by=("flush",)),
    Kind("plan", PlanRow, printed_by=("rebuild --dry-run",)),
    Kind("file", FileRow, printed_by=("clean",)),
    Kind("progress", ProgressRow, printed_by=("clean",)),
    Kind("usage", UsageRow, printed_by=("du",)),
    Kind("disk", DiskRow, printed_by=("du", "du --disk")),
    Kind("named_store", NamedStoreRow, printed_by=("config stores",)),
)
