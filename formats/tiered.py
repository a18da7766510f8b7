"""What tiered storage of 5.x keeps in files: its index in two forms, the coda of old segments.

Records stand in a log of each queue as in any commit log, with its own addresses, and units in its
consume queue as in any other (`formats.commitlog`, `formats.consumequeue`). The index is of all
queues: a file is written in the store, items chained from slots (`IndexStoreFile#putKey`), and when
it is full uploaded with the items of a slot side by side (`IndexStoreFile#compactToNewFile`).
"""

from construct import Default, Int32sb, Int32ub, Int64sb, Struct

from formats.constants import BLANK_MAGIC_CODE, TIERED_CODA_SIZE
from formats.declare import field

CODA = Struct(
    field("size", Default(Int32sb, TIERED_CODA_SIZE), "16", "COMMIT_LOG_CODA_SIZE"),
    field("magic_code", Default(Int32ub, BLANK_MAGIC_CODE), "that of a blank", "BLANK_MAGIC_CODE"),
    field(
        "store_timestamp",
        Int64sb,
        "store time of the newest record in the segment, in epoch milliseconds",
        "maxTimestamp",
    ),
)
"""The 16 bytes with which earlier versions close a segment of a log."""

INDEX_HEADER = Struct(
    field(
        "magic_code",
        Int32ub,
        "0xBCC50289 while items are put in, 0xBCC50285 once it is full or compacted",
        "BEGIN_MAGIC_CODE",
        "END_MAGIC_CODE",
    ),
    field(
        "begin_timestamp",
        Int64sb,
        "when the file was made, in epoch milliseconds; its name, too",
        "beginTimestamp",
    ),
    field(
        "end_timestamp",
        Int64sb,
        "store time of the newest message indexed here, in epoch milliseconds",
        "endTimestamp",
    ),
    field("hash_slot_count", Int32sb, "number of slots in use", "hashSlotCount"),
    field("item_count", Int32sb, "number of items", "indexItemCount"),
)
"""The first 28 bytes of either form."""

INDEX_SLOT = Struct(
    field("item_no", Int32sb, "number of the newest item of this slot; 0 without one", "slotValue"),
    field("reserved", Int32sb, "0"),
)
"""One slot of 8 bytes, before the file is compacted."""

COMPACTED_INDEX_SLOT = Struct(
    field(
        "position", Int32sb, "where in the file its items begin, the newest first", "indexPosition"
    ),
    field("length", Int32sb, "bytes that they take; 0 without one", "indexTotalSize"),
)
"""One slot of 8 bytes of a compacted file."""


def _item(*link: object) -> Struct:
    return Struct(
        field("key_hash", Int32sb, "hash of `topic#key`, never negative", "hashCode"),
        field("topic_id", Int32sb, "number of the topic in the metadata", "topicId"),
        field("queue_id", Int32sb, "queue of the message", "queueId"),
        field("physical_offset", Int64sb, "where the record starts in its queue's log", "offset"),
        field("size", Int32sb, "size of the record", "size"),
        field(
            "time_diff_seconds",
            Int32sb,
            "store time minus the header's begin_timestamp, in whole seconds towards zero",
            "timeDiff",
        ),
        *link,
    )


INDEX_ITEM = _item(
    field(
        "prev_item_no",
        Int32sb,
        "number of the item that was this slot's newest before; 0 ends the chain",
        "itemIndex",
    )
)
"""One item of 32 bytes; the first has the number 1, and the place of number 0 is empty."""

COMPACTED_INDEX_ITEM = _item()
"""One item of 28 bytes of a compacted file."""
