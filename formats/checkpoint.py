"""The checkpoint: how far each part of the store is known to be on disk (`StoreCheckpoint`).

The file is 4096 bytes long and only its start is used. 4.9.3 reads and writes the first three
fields; the others are of 5.x and are zero in a store that only 4.9.3 has touched.
"""

from construct import Int64sb, Struct

from formats.declare import field

CHECKPOINT = Struct(
    field(
        "physic_msg_timestamp",
        Int64sb,
        "store time of the last message flushed to the commit log, in epoch milliseconds",
        "physicMsgTimestamp",
    ),
    field(
        "logics_msg_timestamp",
        Int64sb,
        "store time of the last message flushed to a consume queue, in epoch milliseconds",
        "logicsMsgTimestamp",
    ),
    field(
        "index_msg_timestamp",
        Int64sb,
        "store time of the last message in a flushed index file, in epoch milliseconds",
        "indexMsgTimestamp",
    ),
    field(
        "master_flushed_offset",
        Int64sb,
        "5.x: physical offset up to which the master has flushed",
        "masterFlushedOffset",
    ),
    field(
        "confirm_phy_offset",
        Int64sb,
        "5.x: physical offset up to which the replicas have confirmed",
        "confirmPhyOffset",
    ),
)
"""The first 40 bytes."""

LOGICS_PHYSICAL_OFFSET = Struct(
    field(
        "logics_physical_offset",
        Int64sb,
        "5.5: physical offset of the last message flushed to a consume queue; 0: not known",
        "logicsPhysicalOffset",
    ),
)
"""Behind them, in a store of 5.5 or later: from there, and not by times, an unclean start reads."""
