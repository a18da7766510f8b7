"""The reference page of tiered storage's files, for `formats.pages`."""

from collections.abc import Callable, Mapping
from typing import Any

from construct import Struct

from formats import tiered
from formats.constants import TIERED_INDEX_BEGIN_MAGIC_CODE
from formats.text import index_key_hash

_NEWEST = 1_746_000_000_000
_HEADER = {
    "magic_code": TIERED_INDEX_BEGIN_MAGIC_CODE,
    "begin_timestamp": _NEWEST - 60_000,
    "end_timestamp": _NEWEST,
    "hash_slot_count": 1,
    "item_count": 1,
}
_ITEM = {
    "key_hash": index_key_hash("Orders", "order-42"),
    "topic_id": 0,
    "queue_id": 3,
    "physical_offset": 1024,
    "size": 300,
    "time_diff_seconds": 60,
    "prev_item_no": 0,
}
#: Name in the JSON, type, meaning.
_SEGMENT = (
    ("path", "string", "`<broker>/<topic>/<queue id>`"),
    ("type", "integer", "0 `COMMIT_LOG`, 1 `CONSUME_QUEUE`, 2 `INDEX`"),
    ("baseOffset", "integer", "address of its first byte in its log, queue or index"),
    ("status", "integer", "0 new, 1 sealed, 2 deleted; 5.3.3 leaves it at 0"),
    ("size", "integer", "bytes that were uploaded; of the last segment a start takes the file's"),
    ("createTimestamp", "integer", "when it was made"),
    ("beginTimestamp", "integer", "store time of its oldest message; 2^63 - 1 without one"),
    ("endTimestamp", "integer", "store time of its newest message; 2^63 - 1 without one"),
    ("sealTimestamp", "integer", "when it was sealed; 0"),
)


def tiered_page(
    table: Callable[[Struct], str], example: Callable[[Struct, Mapping[str, Any]], str]
) -> str:
    """Return the page; `table` and `example` make the parts of it that follow from a schema."""
    segment = "".join(f"| `{name}` | {kind} | {text} |\n" for name, kind, text in _SEGMENT)
    return (
        "# Tiered storage in files (5.x)\n\n"
        "A broker with `TieredMessageStore` copies the messages of each queue elsewhere; with"
        " `PosixFileSegment` that is a directory, `tieredStoreFilePath`. Below it a segment is the"
        " file `<h(cluster)>_<cluster>/<broker>/<topic>/<queue id>/<kind>/<h(base)><base>`: the"
        " base in 20 digits, the kind one of `COMMIT_LOG`, `CONSUME_QUEUE` and `INDEX`, h(x) the"
        " first 8 hexadecimal digits of the MD5 of x, of the base without leading zeros. Written by"
        " `PosixFileSegment`.\n\n"
        "## Segments of a log\n\nOne log for each queue, which begins at 0: [records](record.md)"
        " one behind the other, each complete, but for `physical_offset`, which is its address"
        " here. No blank closes a segment; earlier versions write this:\n\n"
        + table(tiered.CODA)
        + "\n## Segments of a queue\n\n[Units](queue-unit.md) that point into the queue's log"
        " here. The base of the first one is 20 times the queue offset with which the upload"
        " began.\n\n"
        "## Segments of the index\n\nFor all queues: topic `rmq_sys_INDEX`, queue 0. Each is one"
        " file of the index in its compacted form. Header, slots, items:\n\n"
        + table(tiered.INDEX_HEADER)
        + "\n"
        + table(tiered.COMPACTED_INDEX_SLOT)
        + "\n"
        + table(tiered.COMPACTED_INDEX_ITEM)
        + "\nThere are as many slots as `tieredStoreIndexFileMaxHashSlotNum` says (5,000,000); the"
        " file does not say it, but its size does, since it ends with the last item.\n\n"
        "## `tiered_index_file/` in the store\n\nFiles of the index before their upload, named by"
        " the time at which they were made. The header is the same one; then come the slots, and"
        " room for `tieredStoreIndexFileMaxIndexNum` items (20,000,000), of which the one with"
        " number n lies at 28 + 8 · slots + 32 · n.\n\n"
        + table(tiered.INDEX_SLOT)
        + "\n"
        + table(tiered.INDEX_ITEM)
        + "\n## `config/tieredStoreMetadata.json`\n\n`commitLogFileSegmentTable`,"
        " `consumeQueueFileSegmentTable` and `indexFileSegmentTable` hold for each path an object"
        " of segments by their base:\n\n"
        "| field | type | meaning |\n|---|---|---|\n"
        + segment
        + "\n`topicMetadataTable` gives each topic its number (`topicId`), which the index's items"
        " have, and hours (`reserveTime`) when it has its own; `queueMetadataTable` names the"
        " queues, and its `minOffset` and `maxOffset` stay -1. Written by"
        " `DefaultMetadataStore`.\n\n"
        "## Example\n\nThe header of a file in `tiered_index_file/` with one key:\n\n"
        + example(tiered.INDEX_HEADER, _HEADER)
        + "\nIts item:\n\n"
        + example(tiered.INDEX_ITEM, _ITEM)
    )
