"""A message in a batch (`MessageDecoder#encodeMessage`): of several that a producer sends as one,
and of those in the body of a record of 5.x that holds several.

They stand one behind the other. Each is `HEAD`, the body, `PROPERTIES_HEAD`, the properties.
"""

from construct import Int16sb, Int32sb, Struct

from formats.declare import field

HEAD = Struct(
    field("total_size", Int32sb, "size of the whole message in bytes; not looked at", "storeSize"),
    field("magic_code", Int32sb, "0", "magicCode"),
    field("body_crc", Int32sb, "0", "bodyCRC"),
    field("flag", Int32sb, "the producer's own flag", "flag"),
    field("body_length", Int32sb, "size of the body in bytes", "bodyLength"),
)
"""The 20 bytes before the body."""

PROPERTIES_HEAD = Struct(
    field("properties_length", Int16sb, "size of the properties in bytes", "propertiesLength"),
)
"""What stands between body and properties."""
