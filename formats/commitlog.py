"""The two kinds of entries in a commit log file: records, and the blank that closes it.

A record is one stored message, laid out as `CommitLog#calMsgLength` counts it. It has a prefix of
fixed-size fields up to the length of the body; where those lie depends only on two sys flags, which
say whether the born host and the store host are IPv6. Body, topic and properties follow, each
behind its own length.

Guaranteed when parsing a `RECORD`: no length is followed that its surroundings do not allow, and
`total_size` is exactly the sum of the parts. Not checked: the CRC of the body, the meaning of the
values, and that `physical_offset` is where the record was found.

When building, the lengths may be left out; given ones are written as they are, right or wrong.
"""

from typing import NamedTuple

from construct import (
    Bytes,
    Construct,
    Default,
    Int8sb,
    Int16sb,
    Int32sb,
    Int32ub,
    Int64sb,
    Struct,
)

from formats.constants import (
    BLANK_MAGIC_CODE,
    BORNHOST_V6_FLAG,
    IPV4_SIZE,
    IPV6_SIZE,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    STOREHOSTADDRESS_V6_FLAG,
)
from formats.declare import Chosen, Content, Context, Field, bound, bytes_left, field


class Version(NamedTuple):
    """The length fields of topic and properties in records with one magic code.

    The longest values, in bytes, are those that a reader accepts; a writer may allow less. `what`
    says how such a record differs from one of 4.9.3 ("a record with a ..."), and `since` is the
    first RocketMQ version that writes it.
    """

    topic_length: Construct
    longest_topic: int
    properties_length: Construct
    longest_properties: int
    what: str = ""
    since: str = ""


# A new version of the record is one more line here and its magic code in `formats.constants`; run
# `python -m formats.generate`. Then `RecordForm` (rmqctl/engine/record/form.py) says which
# messages are written in it, and `record_form` (rmqctl/engine/state/laterversions.py) to which
# stores. Everything else follows: `tests/test_engine/new_version.py` adds one and proves it.
VERSIONS: dict[int, Version] = {
    MESSAGE_MAGIC_CODE: Version(Int8sb, MAX_TOPIC_LENGTH, Int16sb, MAX_PROPERTIES_LENGTH),
    MESSAGE_MAGIC_CODE_V2: Version(
        Int16sb, 0x7FFF, Int16sb, MAX_PROPERTIES_LENGTH, "two-byte topic length", "5.1"
    ),
}
"""By magic code, the oldest first."""


def _host(
    address: str, port: str, flag: int, whose: str, java: tuple[str, ...]
) -> tuple[Field, Field]:
    def address_size(context: Context) -> int:
        return IPV6_SIZE if context.sys_flag & flag else IPV4_SIZE

    return (
        field(
            address, Bytes(address_size), f"IP address of {whose}: 4 bytes, or 16 of IPv6", *java
        ),
        field(port, Int32sb, f"port of {whose}", *java),
    )


def _version(context: Context) -> Version:
    """Return the version of a record; with an unknown magic code that of 4.9.3."""
    # When building, total_size comes before a magic code that was left out to get its default.
    return VERSIONS.get(context.get("magic_code"), VERSIONS[MESSAGE_MAGIC_CODE])


def _topic_length(context: Context) -> Construct:
    return _version(context).topic_length


def _properties_length(context: Context) -> Construct:
    return _version(context).properties_length


def _prefix_size(context: Context) -> int:
    sizes = (part.sizeof(sys_flag=context.sys_flag) for part in RECORD_PREFIX.subcons)
    return int(sum(sizes))


def _fixed_size(context: Context) -> int:
    """Return the size of a record without its body, topic and properties."""
    version = _version(context)
    lengths = version.topic_length.sizeof() + version.properties_length.sizeof()
    return _prefix_size(context) + int(lengths)


def _record_size(context: Context) -> int:
    return _fixed_size(context) + len(context.body) + len(context.topic) + len(context.properties)


def _stored_length(length_type: Construct, name: str) -> Default:
    """Return a length field; if it is not given when building, it is the length of field `name`."""
    return Default(length_type, lambda context: len(context[name]))


def _magic_limits(context: Context) -> tuple[int, int]:
    known = context.magic_code in VERSIONS
    return (context.magic_code if known else MESSAGE_MAGIC_CODE,) * 2


def _largest_size(context: Context) -> int:
    """Return the size of a record that reaches to the end of the stream."""
    return _prefix_size(context) + bytes_left(context)


def _room(context: Context, used: int) -> int:
    """Return how many bytes the record's size leaves for its next part, behind `used` others."""
    return int(context.total_size - _fixed_size(context) - used)


RECORD_PREFIX = Struct(
    field(
        "total_size",
        # Where no body is at hand (the prefix alone is being built), the size has to be given.
        Default(Int32sb, _record_size),
        "size of the whole record in bytes",
        "TOTALSIZE",
        "storeSize",
        "msgLen",
    ),
    field(
        "magic_code",
        Default(Int32ub, MESSAGE_MAGIC_CODE),
        "0xDAA320A7 for a record; 0xDAA320AB (5.1.0 and later) for one with a two-byte topic"
        " length",
        "MAGICCODE",
        "MESSAGE_MAGIC_CODE",
    ),
    field(
        "body_crc",
        Int32sb,
        "CRC-32 of the stored body without its top bit; 0 for an empty body",
        "BODYCRC",
        "bodyCRC",
    ),
    field("queue_id", Int32sb, "queue of the topic", "QUEUEID", "queueId"),
    field("flag", Int32sb, "the producer's own flag; the store only keeps it", "FLAG"),
    field(
        "queue_offset",
        Int64sb,
        "number of the message in its queue; 0 for prepared and rollback messages",
        "QUEUEOFFSET",
        "queueOffset",
        "consumeQueueOffset",
        "logicsOffset",
    ),
    field(
        "physical_offset",
        Int64sb,
        "the record's own address in the commit log",
        "PHYSICALOFFSET",
        "phyOffset",
        "commitLogOffset",
    ),
    field(
        "sys_flag",
        Int32sb,
        "bit 0 compressed, 1 multiple tags, 2-3 transaction type (0 none, 1 prepared, 2 commit,"
        " 3 rollback), 4 born host is IPv6, 5 store host is IPv6",
        "SYSFLAG",
        "sysFlag",
    ),
    field(
        "born_timestamp",
        Int64sb,
        "when the producer made the message, in epoch milliseconds",
        "BORNTIMESTAMP",
        "bornTimeStamp",
    ),
    *_host("born_address", "born_port", BORNHOST_V6_FLAG, "the producer", ("BORNHOST", "bornHost")),
    field(
        "store_timestamp",
        Int64sb,
        "when the broker stored the message, in epoch milliseconds",
        "STORETIMESTAMP",
        "storeTimestamp",
    ),
    *_host(
        "store_address",
        "store_port",
        STOREHOSTADDRESS_V6_FLAG,
        "the broker",
        ("STOREHOST", "STOREHOSTADDRESS", "storeHost"),
    ),
    field(
        "reconsume_times",
        Int32sb,
        "how often a consumer has sent the message back",
        "RECONSUMETIMES",
        "reconsumeTimes",
    ),
    field(
        "prepared_transaction_offset",
        Int64sb,
        "of a commit message: physical offset of its half message",
        "Prepared Transaction Offset",
        "preparedTransactionOffset",
    ),
    field(
        "body_length",
        _stored_length(Int32sb, "body"),
        "size of the body as stored, which may be compressed",
        "bodyLen",
        "bodyLength",
    ),
)
"""The fixed-size start of a record; parses any bytes."""

RECORD = Struct(
    *RECORD_PREFIX.subcons,
    bound("magic_code", _magic_limits, show=hex),
    # The prefix has been read; what the stream still holds bounds the rest.
    bound("total_size", lambda context: (_fixed_size(context), _largest_size(context))),
    bound("body_length", lambda context: (0, _room(context, 0))),
    field("body", Content("body_length"), "the body as stored", "BODY"),
    field(
        "topic_length",
        _stored_length(
            Chosen(_topic_length, lambda: [v.topic_length for v in VERSIONS.values()]), "topic"
        ),
        "size of the topic in bytes; takes two bytes with the second magic code",
        "topicLen",
        "topicLength",
    ),
    bound("topic_length", lambda context: (0, _room(context, context.body_length))),
    field("topic", Content("topic_length"), "the topic in UTF-8", "TOPIC"),
    field(
        "properties_length",
        _stored_length(
            Chosen(_properties_length, lambda: [v.properties_length for v in VERSIONS.values()]),
            "properties",
        ),
        "size of the properties in bytes",
        "propertiesLength",
    ),
    bound(
        "properties_length",
        lambda context: (0, _room(context, context.body_length + context.topic_length)),
    ),
    field(
        "properties",
        Content("properties_length"),
        "the properties in their stored form, see the page on properties",
        "PROPERTIES",
        "propertiesString",
    ),
    bound("total_size", lambda context: (_record_size(context),) * 2),
)
"""One whole record, checked for consistency when parsed."""

BLANK = Struct(
    field(
        "total_size",
        Int32sb,
        "bytes from here to the end of the file; what follows these 8 bytes is left as it was",
        "TOTALSIZE",
        "maxBlank",
    ),
    field(
        "magic_code",
        Default(Int32ub, BLANK_MAGIC_CODE),
        "0xCBD43194",
        "MAGICCODE",
        "BLANK_MAGIC_CODE",
    ),
)
"""The blank that closes a file whose next record did not fit."""
