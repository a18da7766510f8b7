"""What stands around a record in the log of a DLedger group (`DLedgerEntry`, `DLedgerEntryCoder`).

The group keeps the log in entries, in `dledger-<dLegerSelfId>/data`: a header, and behind it the
record as in any commit log, whose PHYSICALOFFSET is its own place, not the entry's. A file ends
with a blank whose magic code comes first. Beside it, in `dledger-<dLegerSelfId>/index`, is an array
of units that say where each entry lies; the place in the array is the entry's index.
"""

from construct import Default, Int32sb, Int64sb, Struct

from formats.constants import DLEDGER_BLANK_MAGIC_CODE, DLEDGER_MAGIC_CODE
from formats.declare import field

ENTRY_HEADER = Struct(
    field("magic", Default(Int32sb, DLEDGER_MAGIC_CODE), "1", "magic", "CURRENT_MAGIC"),
    field("size", Int32sb, "size of the entry in bytes, this header included", "size"),
    field("index", Int64sb, "number of the entry in the group's log, from 0", "index"),
    field("term", Int64sb, "term of the leader that has taken the entry; never falls", "term"),
    field("pos", Int64sb, "the entry's own address in the log", "pos"),
    field("channel", Default(Int32sb, 0), "not used", "channel"),
    field("chain_crc", Default(Int32sb, 0), "not used", "chainCrc"),
    field("body_crc", Default(Int32sb, 0), "not used", "bodyCrc"),
    field("body_length", Int32sb, "size of the record, which follows", "bodyLength"),
)
"""The 48 bytes before each record; parses any bytes."""

BLANK = Struct(
    field(
        "magic",
        Default(Int32sb, DLEDGER_BLANK_MAGIC_CODE),
        "-1",
        "BLANK_MAGIC_CODE",
    ),
    field("size", Int32sb, "bytes from here to the end of the file", "blank"),
)
"""What closes a file whose next entry did not fit."""

INDEX_UNIT = Struct(
    field("magic", Default(Int32sb, DLEDGER_MAGIC_CODE), "that of the entry", "magic"),
    field("pos", Int64sb, "where the entry starts in the log", "pos"),
    field("size", Int32sb, "size of the entry", "size"),
    field("index", Int64sb, "number of the entry", "index"),
    field("term", Int64sb, "term of the entry", "term"),
)
"""One unit of 32 bytes."""
