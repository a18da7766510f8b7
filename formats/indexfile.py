"""The parts of an index file: a header, hash slots, and items chained from the slots.

A file is a hash table from a message's key to its record, laid out as header, slots, items
(`IndexFile`, `IndexHeader`). A slot holds the number of its newest item, and each item the number
of the one before it. Where the parts lie depends on the `Geometry`.
"""

from construct import Int32sb, Int64sb, Struct

from formats.declare import field
from formats.geometry import Geometry

__all__ = ["HEADER", "ITEM", "SLOT", "Geometry"]

HEADER = Struct(
    field(
        "begin_timestamp",
        Int64sb,
        "store time of the first message indexed here, in epoch milliseconds; in a new file still"
        " the previous file's end",
        "beginTimestamp",
    ),
    field(
        "end_timestamp",
        Int64sb,
        "store time of the last message indexed here, in epoch milliseconds",
        "endTimestamp",
    ),
    field(
        "begin_phy_offset",
        Int64sb,
        "physical offset of the first message indexed here",
        "beginPhyOffset",
    ),
    field(
        "end_phy_offset",
        Int64sb,
        "physical offset of the last message indexed here",
        "endPhyOffset",
    ),
    field("hash_slot_count", Int32sb, "number of slots in use", "hashSlotCount"),
    field("index_count", Int32sb, "number that the next item gets; starts at 1", "indexCount"),
)
"""The first 40 bytes."""

SLOT = Struct(
    field(
        "index_no", Int32sb, "number of the newest item of this slot; 0 without one", "slotValue"
    ),
)
"""One hash slot of 4 bytes."""

ITEM = Struct(
    field("key_hash", Int32sb, "hash of `topic#key`, never negative", "keyHash"),
    field("physical_offset", Int64sb, "where the record starts in the commit log", "phyOffset"),
    field(
        "time_diff_seconds",
        Int32sb,
        "store time minus the header's begin_timestamp as it was then, in whole seconds",
        "timeDiff",
    ),
    field(
        "prev_index_no",
        Int32sb,
        "number of the item that was this slot's newest before; 0 ends the chain",
        "slotValue",
        "prevIndexRead",
    ),
)
"""One index item of 20 bytes."""
