"""The frames that RocketMQ processes send each other (`NettyDecoder`, `RemotingCommand`).

A frame is `length`, `header_word`, the header, the body; all that follows `length` is counted by
it. The top byte of `header_word` says how the header is written (`SerializeType`), the other three
how long it is. A header of type 0 is a JSON object, one of type 1 has the fields below, then the
remark and the fields of the request (`RocketMQSerializable`).
"""

from construct import Int8ub, Int16sb, Int32sb, Int32ub, Struct

from formats.declare import field

FRAME_PREFIX = Struct(
    field("length", Int32sb, "bytes of the frame that follow this field", "length"),
    field(
        "header_word",
        Int32ub,
        "how the header is written, in the top byte, and how many bytes it has",
        "headerData.length",
    ),
)
"""The first 8 bytes of a frame."""

BINARY_HEADER = Struct(
    field("code", Int16sb, "request code, or in an answer the response code", "code"),
    field("language", Int8ub, "number of the sender's language (`LanguageCode`)", "language"),
    field("version", Int16sb, "number of the sender's version (`MQVersion`)", "version"),
    field("opaque", Int32sb, "number of the request, which the answer repeats", "opaque"),
    field("flag", Int32sb, "1: an answer, 2: none is expected", "flag"),
    field("remark_length", Int32sb, "bytes of the remark; 0 or less: there is none", "remarkLen"),
)
"""The fixed-size start of a header of type 1."""
