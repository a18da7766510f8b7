"""A unit of a batch queue of 5.x: where a record lies that holds one message or several.

Topics with the attribute `queue.type=BatchCQ` have their queues in `batchconsumequeue/`, files of
300,000 units (`mapperFileSizeBatchConsumeQueue`). A unit's place does not tell a queue offset:
`base_offset` does (`BatchConsumeQueue#putBatchMessagePositionInfo` writes it).
"""

from construct import Int16sb, Int32sb, Int64sb, Struct

from formats.declare import field

UNIT = Struct(
    field("physical_offset", Int64sb, "where the record starts in the commit log", "offset"),
    field("size", Int32sb, "size of the record; 0 in a unit never written", "size"),
    field("tags_code", Int64sb, "hash code of the record's tags", "tagsCode"),
    field(
        "store_timestamp", Int64sb, "when the broker stored it, in epoch milliseconds", "storeTime"
    ),
    field(
        "base_offset", Int64sb, "queue offset of the first message in the record", "msgBaseOffset"
    ),
    field("batch_size", Int16sb, "how many messages the record holds", "batchSize"),
    field("compacted_offset", Int32sb, "-1", "compactedOffset"),
    field("reserved", Int32sb, "0"),
)
"""One unit of 46 bytes."""
