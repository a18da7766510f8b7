"""A unit of a consume queue: where in the commit log the next message of one queue lies.

A queue's files are an array of these; the queue offset of a message is the number of its unit. A
unit of zeros has never been written (`ConsumeQueue#putMessagePositionInfo` writes it).
"""

from construct import Int32sb, Int64sb, Struct

from formats.declare import field

UNIT = Struct(
    field(
        "physical_offset",
        Int64sb,
        "where the record starts in the commit log",
        "offset",
        "offsetPy",
        "phyOffset",
    ),
    field("size", Int32sb, "size of the record; 0 in a unit never written", "size", "sizePy"),
    field(
        "tags_code",
        Int64sb,
        "hash code of the message's tags, sign-extended; for a delayed message the time of its"
        " delivery; at most -2147483649 when it is the address of an extension unit",
        "tagsCode",
    ),
)
"""One unit of 20 bytes."""
