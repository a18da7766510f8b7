"""The bytes between a master and its slave (`HAConnection`, `HAClient`): no handshake, no text.

A slave tells how far its log goes, eight bytes each time. A master sends frames: these fields, then
`size` bytes of the log that stand at `physical_offset`, which need neither begin nor end with a
record and lie in one file. A frame of no bytes is a sign of life, and says what comes next.
"""

from construct import Int32sb, Int64sb, Struct

from formats.declare import field

REPORT = Struct(
    field("max_offset", Int64sb, "up to where the slave has the log", "slaveMaxOffset"),
)
"""All that a slave ever sends."""

FRAME_PREFIX = Struct(
    field("physical_offset", Int64sb, "place of the bytes in the log", "masterPhyOffset"),
    field("size", Int32sb, "bytes of the log that follow; 0: a sign of life", "bodySize"),
)
"""The first 12 bytes of a frame."""
