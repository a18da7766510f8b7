"""Reference pages of formats of later versions and DLedger groups, for `formats.pages`."""

from collections.abc import Callable, Mapping
from typing import Any

from construct import Struct

from formats import batchconsumequeue, commitlog, dledger
from formats.text import tags_code


def batch_queue_unit_page(
    table: Callable[[Struct], str],
    example: Callable[[Struct, Mapping[str, Any]], str],
    record: Mapping[str, Any],
) -> str:
    """Return the page; `record` is the one of the examples."""
    values = {
        "physical_offset": 4096,
        "size": len(commitlog.RECORD.build(dict(record))),
        "tags_code": tags_code("TagA"),
        "store_timestamp": record["store_timestamp"],
        "base_offset": 10,
        "batch_size": 3,
        "compacted_offset": -1,
        "reserved": 0,
    }
    return (
        "# Unit of a batch queue (5.x)\n\n"
        "Topics with the attribute `queue.type=BatchCQ` have their queues in `batchconsumequeue/`."
        " One unit stands for a record, which may hold several messages: so its place does not tell"
        " a queue offset, and who looks for one searches for the greatest `base_offset` that is not"
        " larger. Written by `BatchConsumeQueue#putBatchMessagePositionInfo`; `base_offset` and"
        " `batch_size` are the record's properties `INNER_BASE` and `INNER_NUM`, and without them"
        " its queue offset and 1.\n\n"
        + table(batchconsumequeue.UNIT)
        + "\nA unit never written is all zeros. A file has 300,000 units"
        " (`mapperFileSizeBatchConsumeQueue`).\n\n## Example\n\n"
        + example(batchconsumequeue.UNIT, values)
    )


def dledger_page(
    table: Callable[[Struct], str],
    example: Callable[[Struct, Mapping[str, Any]], str],
    record: Mapping[str, Any],
) -> str:
    """Return the page; `record` is the one of the examples."""
    length = len(commitlog.RECORD.build(dict(record)))
    entry = {"size": dledger.ENTRY_HEADER.sizeof() + length, "index": 7, "term": 2, "pos": 4048}
    return (
        "# Entry of a DLedger log\n\n"
        "What a broker of a DLedger group (`enableDLegerCommitLog`) writes before each record, in"
        " `dledger-<dLegerSelfId>/data`. The [record](record.md) follows; its `physical_offset` is"
        " `pos` + 48, and so is what queues and index say. Written by `DLedgerEntryCoder#encode`."
        "\n\n"
        + table(dledger.ENTRY_HEADER)
        + "\n## Blank\n\nWhat closes a file when the next entry would not leave 8 bytes of it free;"
        " zeros follow. Written by `MmapFileList#preAppend`.\n\n"
        + table(dledger.BLANK)
        + "\n## Index\n\nEntry n has the unit at 32 · n of the files in"
        " `dledger-<dLegerSelfId>/index`.\n\n"
        + table(dledger.INDEX_UNIT)
        + "\n## Example\n\nThe header of the [record page](record.md)'s record, as entry 7:\n\n"
        + example(dledger.ENTRY_HEADER, {**entry, "body_length": length})
    )
