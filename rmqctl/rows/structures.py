"""The rows for what is in a store: records, units, index items, queues, and the store itself."""

from typing import Annotated, Literal, NotRequired, TypedDict

from rmqctl.rows.field import (
    BYTES,
    FILES,
    ITEMS,
    MESSAGES,
    MILLISECONDS,
    QUEUES,
    SECONDS,
    SLOTS,
    TOPICS,
    UNITS,
    Int32,
    Kind,
)


class MessageRow(TypedDict):
    """A record of the commit log."""

    type: Literal["message"]
    physical_offset: Annotated[int, BYTES, "where the record starts in the log"]
    total_size: Annotated[Int32, BYTES, "size of the record"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[Int32, "queue of the topic"]
    queue_offset: Annotated[
        int, MESSAGES, "number of the message in its queue; 0 for prepared and rollback messages"
    ]
    flag: Annotated[Int32, "the producer's own flag"]
    sys_flag: Annotated[
        Int32,
        "bits: 0 compressed, 1 multiple tags, 2–3 transaction type, 4 born host is IPv6, 5 "
        "store host is IPv6, 8–10 how it is compressed (0 or 3 ZLIB, 1 LZ4, 2 ZSTD)",
    ]
    body_crc: Annotated[Int32, "CRC-32 of the stored body without its top bit"]
    born_timestamp: Annotated[int, MILLISECONDS, "when the producer made it"]
    born_host: Annotated[str, "producer, `address:port`, IPv6 in brackets"]
    store_timestamp: Annotated[int, MILLISECONDS, "when the broker stored it"]
    store_host: Annotated[str, "broker, as `born_host`"]
    reconsume_times: Annotated[Int32, "how often a consumer has sent it back"]
    prepared_transaction_offset: Annotated[
        int, BYTES, "of a commit or rollback message: where its prepared message is"
    ]
    body_length: Annotated[Int32, BYTES, "size of the stored body"]
    tags_code: Annotated[int, "hash code of the tags; 0 without tags"]
    msg_id: Annotated[str, "offset message id: broker and physical offset, in hexadecimal"]
    properties: Annotated[dict[str, str], "`KEYS`, `TAGS`, `UNIQ_KEY` and all others"]
    body: NotRequired[
        Annotated[
            str | None,
            "with `--body-as`: the stored body, which may be compressed; with `--decompress` as a "
            "consumer gets it, or null where that cannot be made",
        ]
    ]
    body_encoding: NotRequired[
        Annotated[
            str | None,
            "with `--body-as`: how `body` spells the bytes: `base64`, `hex` or `utf8`; with "
            "`--body-as utf8` it is `base64` for a body that is not UTF-8",
        ]
    ]
    status: NotRequired[
        Annotated[
            str,
            "with `--body-as`: `ok`, or `body-crc-mismatch`: the body has changed since it was "
            "stored, because its CRC-32 differs from `body_crc`. The exit status is 1 then, and a "
            "note says so",
        ]
    ]
    body_compression: NotRequired[
        Annotated[
            str,
            "with `--decompress`: `none`, `zlib`, `lz4`, `zstd`, or `type N` of a compression "
            "that RocketMQ does not have",
        ]
    ]
    body_status: NotRequired[
        Annotated[
            str,
            "with `--decompress`: `stored` (it is not compressed), `decompressed`, `damaged`, "
            "`over-limit` (larger than `--decompress-limit`, or needs more memory than that to "
            "decompress), `no-codec` (nothing here reads it)",
        ]
    ]
    body_reason: NotRequired[
        Annotated[str, "with `--decompress`: why there is no body; empty when there is one"]
    ]
    found_by: NotRequired[
        Annotated[
            str,
            "by `find`: how it was found, or where the text is: `message-id`, `unique-key`, `key`, "
            "`property`, `body`; the first of these",
        ]
    ]


class BlankRow(TypedDict):
    """The end of a log file, into which the next record did not fit."""

    type: Literal["blank"]
    physical_offset: Annotated[int, BYTES, "where it starts in the log"]
    total_size: Annotated[int, BYTES, "its size, to the end of the file"]


class DamageRow(TypedDict):
    """A stretch of the log that cannot be read.

    Of several stores the row says [which](rows-on-spark.md#damage-rebuild).
    """

    type: Literal["damage"]
    physical_offset: Annotated[
        int | None,
        BYTES,
        "where it starts; null in `rebuild` for a topic that cannot be a directory",
    ]
    length: Annotated[int | None, BYTES, "how far it is to the next record"]
    reason: Annotated[str, "a [finding code](findings.md)"]
    expected: Annotated[str, "what should be there"]
    found: Annotated[str, "what does"]


class MovedRow(TypedDict):
    """A jump of the place at which `pull` or `walk commitlog` reads with `--follow`
    ([why](../how-to/follow.md#when-the-place-moves)).
    """

    type: Literal["moved"]
    reason: Annotated[
        str,
        "`end-moved-back`: what was printed from `to_offset` on is no longer there; "
        "`files-deleted`: what lay before `to_offset` has gone unread",
    ]
    from_offset: Annotated[int, "where it read: a physical offset, in `pull` a queue offset"]
    to_offset: Annotated[int, "where it continues"]


class QueueDamageRow(TypedDict):
    """A stretch of a queue that cannot be read, or was never written though later units were."""

    type: Literal["damage"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue of the topic"]
    queue_offset: Annotated[int, MESSAGES, "its first unit"]
    length: Annotated[int, UNITS, "how many"]
    reason: Annotated[
        str,
        "`units-never-written`; `file-length-mismatch`: the file is too short, or too long "
        "(`length` 0); `consumequeue-file-missing`",
    ]
    expected: Annotated[str, "what should be there"]
    found: Annotated[str, "what does"]


class UnitRow(TypedDict):
    """A unit of a consume queue, as it is stored."""

    type: Literal["unit"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[Int32, "queue of the topic"]
    queue_offset: Annotated[int, MESSAGES, "number of the unit in its queue"]
    physical_offset: Annotated[int, BYTES, "where the record starts in the log"]
    size: Annotated[Int32, BYTES, "size of the record"]
    tags_code: Annotated[
        int,
        "hash code of the tags; for a delayed message its delivery time in ms; at most "
        "-2147483649 when it is the address of an extension unit",
    ]


class BatchUnitRow(TypedDict):
    """A unit of a batch queue of 5.x, or of what is kept of a compacted topic, as it is stored."""

    type: Literal["batch_unit"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue of the topic"]
    queue_offset: Annotated[int, MESSAGES, "offset of the first message of the record"]
    batch_size: Annotated[int, MESSAGES, "how many the record holds"]
    physical_offset: Annotated[int, BYTES, "where the record starts in the log"]
    size: Annotated[int, BYTES, "size of the record"]
    tags_code: Annotated[int, "hash code of the record's tags"]
    store_timestamp: Annotated[int, MILLISECONDS, "when the broker stored it"]
    queue_type: NotRequired[
        Annotated[str, "`SparseConsumeQueue` of a compacted topic: the log is its own one"]
    ]


class AbsentRow(TypedDict):
    """One of several places that `message` was asked for, where there is no message."""

    type: Literal["absent"]
    place: Annotated[str, "the message id or physical offset, as it was given"]
    physical_offset: Annotated[int, BYTES, "place in the log"]
    reason: Annotated[str, "why there is none"]


class OffsetRow(TypedDict):
    """The message that `offset` finds for a time."""

    type: Literal["offset"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue of the topic"]
    timestamp: Annotated[int, MILLISECONDS, "the time that was asked for"]
    boundary: Annotated[str, "`nearest`, `first`, `last`, `floor` or `ceil`"]
    queue_offset: Annotated[
        int | None, MESSAGES, "the message's number in the queue; null if there is none"
    ]
    store_timestamp: Annotated[int | None, MILLISECONDS, "when it was stored"]
    physical_offset: Annotated[int | None, BYTES, "where its record starts in the log"]
    min_offset: Annotated[int, MESSAGES, "first offset of the queue"]
    max_offset: Annotated[int, MESSAGES, "offset that the next message gets"]


class IndexItemRow(TypedDict):
    """An item of an index file, as it is stored."""

    type: Literal["index_item"]
    file: Annotated[str, "name of the index file"]
    index_no: Annotated[Int32, "number of the item in its file; starts at 1"]
    key_hash: Annotated[Int32, "hash of `topic#key`"]
    physical_offset: Annotated[int, BYTES, "where the record starts in the log"]
    time_diff_seconds: Annotated[
        Int32,
        SECONDS,
        "store time of the message minus that of the file's first message; in item 1, minus that "
        "of the last message in the file before",
    ]
    prev_index_no: Annotated[Int32, "the item before it in its slot; 0 ends the chain"]
    store_timestamp: Annotated[int, MILLISECONDS, "store time by this item, to the second"]
    matches: NotRequired[
        Annotated[
            bool | None,
            "in `index query --raw`: whether the record has that topic and key; null when there "
            "is no record",
        ]
    ]


class IndexFileRow(TypedDict):
    """An index file: header and fill."""

    type: Literal["index_file"]
    file: Annotated[str, "name, the time of its creation"]
    begin_timestamp: Annotated[int, MILLISECONDS, "store time of the first message in it"]
    end_timestamp: Annotated[int, MILLISECONDS, "store time of the last"]
    begin_phy_offset: Annotated[int, BYTES, "physical offset of the first"]
    end_phy_offset: Annotated[int, BYTES, "physical offset of the last"]
    hash_slot_count: Annotated[int, SLOTS, "slots in use"]
    index_count: Annotated[int, "number that the next item gets; starts at 1"]
    items: Annotated[int, ITEMS, "items in it"]
    max_hash_slot_num: Annotated[int, SLOTS, "slots of a file (`maxHashSlotNum`)"]
    max_index_num: Annotated[int, ITEMS, "items of a file (`maxIndexNum`)"]
    is_full: Annotated[bool, "no more items fit"]


class QueueRow(TypedDict):
    """A consume queue."""

    type: Literal["queue"]
    topic: Annotated[str, "topic"]
    queue_id: Annotated[int, "queue of the topic"]
    min_offset: Annotated[
        int,
        MESSAGES,
        "offset of the oldest message within reach; equal to `max_offset` when the log has "
        "none of the queue any more (a broker then says what it said before, and 0 after a "
        "start)",
    ]
    max_offset: Annotated[int, MESSAGES, "offset that the next message gets"]
    max_physical_offset: Annotated[int, BYTES, "where the last message ends in the log"]
    messages: Annotated[int, MESSAGES, "messages within reach"]
    queue_type: NotRequired[
        Annotated[
            str,
            "`BatchCQ` of a batch queue (5.x), `SparseConsumeQueue` of what is kept of a compacted "
            "topic, with places in a log of its own; others have none, or `SimpleCQ` in a store of "
            "compacted topics",
        ]
    ]


class StoreRow(TypedDict):
    """The store at a glance."""

    type: Literal["store"]
    path: Annotated[str, "the store's directory"]
    commitlog_files: Annotated[int, FILES, "commit log files"]
    commitlog_file_size: Annotated[int, BYTES, "size of each"]
    min_physical_offset: Annotated[int, BYTES, "where the log starts"]
    max_physical_offset: Annotated[int, BYTES, "where it ends"]
    oldest_store_timestamp: Annotated[int | None, MILLISECONDS, "store time of the first record"]
    newest_store_timestamp: Annotated[int | None, MILLISECONDS, "store time of the last record"]
    damage_at: Annotated[int | None, BYTES, "where the search for the end of the log met damage"]
    topics: Annotated[int, TOPICS, "topics that have queues"]
    queues: Annotated[int, QUEUES, "consume queues"]
    consumequeue_file_size: Annotated[int, BYTES, "size of a queue file"]
    index_files: Annotated[int, FILES, "index files"]
    max_hash_slot_num: Annotated[int, SLOTS, "`maxHashSlotNum`, configured or the default"]
    max_index_num: Annotated[int, ITEMS, "`maxIndexNum`, configured or the default"]
    abort: Annotated[bool, "`abort` exists: a broker runs, or did not close the store"]
    locked: Annotated[bool, "a broker, or another rmqctl, holds the store's lock"]
    checkpoint_physic_msg_timestamp: Annotated[
        int | None, MILLISECONDS, "checkpoint: log flushed up to this store time"
    ]
    checkpoint_logics_msg_timestamp: Annotated[
        int | None, MILLISECONDS, "checkpoint: queues flushed up to this store time"
    ]
    checkpoint_index_msg_timestamp: Annotated[
        int | None, MILLISECONDS, "checkpoint: index flushed up to this store time"
    ]
    allocated_bytes: Annotated[int, BYTES, "disk space in use; holes do not count"]
    foreign: Annotated[
        list[str], "files in `commitlog/` and `index/` that are not files of the store"
    ]
    irregular: Annotated[
        list[str],
        "files of the log and of queues that have another length than the others, or are no "
        "regular files: what they lack is left out, and a broker does not start on them",
    ]
    not_understood: Annotated[list[str], "files and structures of later versions"]
    checkpoint_master_flushed_offset: NotRequired[
        Annotated[int, BYTES, "of 5.x: checkpoint: up to here the master had flushed"]
    ]
    checkpoint_confirm_phy_offset: NotRequired[
        Annotated[int, BYTES, "of 5.x: checkpoint: up to here the copies had confirmed"]
    ]
    broker_identity: NotRequired[
        Annotated[str | None, "in controller mode: cluster, broker and number; null: not readable"]
    ]
    epochs: NotRequired[
        Annotated[list[str], "in controller mode: each epoch, and the offset from which it wrote"]
    ]
    dledger_log: NotRequired[Annotated[str, "where a DLedger group keeps the log"]]
    dledger_term: NotRequired[Annotated[int | None, "the group's term, as this member knows it"]]
    dledger_end_index: NotRequired[
        Annotated[int | None, "number of the last entry when the member last wrote it down"]
    ]
    dledger_committed_index: NotRequired[
        Annotated[int | None, "number of the last entry that was committed then"]
    ]


KINDS = (
    Kind(
        "message",
        MessageRow,
        printed_by=(
            "find",
            "pull",
            "index query",
            "message",
            "walk commitlog",
            "tiered walk",
            "tiered query",
        ),
    ),
    Kind("blank", BlankRow, printed_by=("walk commitlog",)),
    Kind("damage", DamageRow, printed_by=("walk commitlog", "rebuild", "tiered walk")),
    Kind("moved", MovedRow),
    Kind("absent", AbsentRow, printed_by=("message",)),
    Kind("damage (walk queue)", QueueDamageRow, printed_by=("walk queue",)),
    Kind("unit", UnitRow, printed_by=("walk queue",)),
    Kind("batch_unit", BatchUnitRow, printed_by=("walk queue",)),
    Kind("offset", OffsetRow, printed_by=("offset",)),
    Kind("index_item", IndexItemRow, printed_by=("walk index", "index query")),
    Kind("index_file", IndexFileRow, printed_by=("index info",)),
    Kind("queue", QueueRow, printed_by=("queues",)),
    Kind("store", StoreRow, printed_by=("info",)),
)
