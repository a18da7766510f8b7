"""A unit of the consume queue extension (`ConsumeQueueExt.CqExtUnit`).

Written only with `enableConsumeQueueExt`, for server-side filtering by expression. The tags code of
the queue unit then holds this unit's address. Files end with a size of -1 in a 4-byte blank.
"""

from construct import Default, Int16sb, Int64sb, Struct

from formats.constants import MAX_EXT_UNIT_SIZE, MIN_EXT_UNIT_SIZE
from formats.declare import Content, bound, field

EXT_UNIT_PREFIX = Struct(
    field(
        "size",
        Default(Int16sb, lambda context: MIN_EXT_UNIT_SIZE + len(context.bit_map)),
        "size of the whole unit; -1 closes a file",
        "size",
    ),
    field("tags_code", Int64sb, "hash code of the message's tags", "tagsCode"),
    field(
        "msg_store_time",
        Int64sb,
        "when the broker stored the message, in epoch milliseconds",
        "msgStoreTime",
    ),
    field(
        "bit_map_size",
        Default(Int16sb, lambda context: len(context.bit_map)),
        "size of the bit map in bytes; 0 without one",
        "bitMapSize",
    ),
)
"""The fixed-size start of a unit; parses any bytes."""

EXT_UNIT = Struct(
    *EXT_UNIT_PREFIX.subcons,
    bound("size", lambda context: (MIN_EXT_UNIT_SIZE, MAX_EXT_UNIT_SIZE)),
    bound("bit_map_size", lambda context: (context.size - MIN_EXT_UNIT_SIZE,) * 2),
    field(
        "bit_map",
        Content("bit_map_size"),
        "Bloom filter of the consumer groups whose expression the message meets",
        "filterBitMap",
    ),
)
"""One whole unit, checked for consistency when parsed."""
