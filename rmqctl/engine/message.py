"""``MessageExtBrokerInner``: a message on its way into the log, and how it is encoded.

Properties are encoded in the order of Java's hash map, as a broker does. Bytes given as
``properties_bytes`` are stored as they are, as long as the store adds nothing to them.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace
from struct import Struct

from isal.isal_zlib import crc32

from formats import constants
from formats.text import encode_properties, encode_utf8
from rmqctl.engine.record import PREFIXES, offset_msg_id
from rmqctl.engine.status import AppendMessageStatus, PutMessageStatus

_TOPIC_LENGTH = Struct("B")
_PROPERTIES_LENGTH = Struct(">h")

Host = tuple[bytes, int]
LOCALHOST: Host = (bytes((127, 0, 0, 1)), 0)


@dataclass(slots=True)
class MessageExtBrokerInner:
    """One message to be put. Hosts are ``(address of 4 or 16 bytes, port)``.

    ``properties`` are in the order in which they were set. A delay level is the property DELAY,
    tags are TAGS, keys are KEYS, as everywhere in RocketMQ.
    """

    topic: str
    body: bytes
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    properties_bytes: bytes | None = None
    born_timestamp: int = 0
    born_host: Host = LOCALHOST
    store_host: Host = LOCALHOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def delay_time_level(self) -> int:
        """``Message#getDelayTimeLevel``; 0 without, or when it is no number."""
        text = self.properties.get(constants.PROPERTY_DELAY_TIME_LEVEL, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0

    def properties_data(self) -> bytes:
        """The properties as they are stored."""
        if self.properties_bytes is not None:
            return self.properties_bytes
        return encode_properties(self.properties)


@dataclass(slots=True)
class AppendMessageResult:
    """What an append did; ``queue_offset`` is the first message's (Java: logicsOffset)."""

    status: AppendMessageStatus
    wrote_offset: int = 0
    wrote_bytes: int = 0
    msg_id: str = ""
    store_timestamp: int = 0
    queue_offset: int = 0


@dataclass(slots=True)
class PutMessageResult:
    """What a put did. ``reason`` says more when the status is not PUT_OK; ``topic`` and
    ``queue_id`` are where the message went, which a delay changes."""

    status: PutMessageStatus
    append: AppendMessageResult | None = None
    topic: str = ""
    queue_id: int = 0
    reason: str = ""

    @property
    def is_ok(self) -> bool:
        return self.status is PutMessageStatus.PUT_OK


def parse_host(text: str) -> Host:
    """``1.2.3.4:5`` or ``[::1]:5``; :raises ValueError: it is neither."""
    address, separator, port = text.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 0x7FFFFFFF:
        raise ValueError(f"{text!r} is not ADDRESS:PORT")
    if address.startswith("[") and address.endswith("]"):
        return ipaddress.IPv6Address(address[1:-1]).packed, int(port)
    return ipaddress.IPv4Address(address).packed, int(port)


def host_flags(message: MessageExtBrokerInner) -> int:
    """The sys flag bits that the hosts' lengths ask for."""
    flags = constants.BORNHOST_V6_FLAG if len(message.born_host[0]) == 16 else 0
    return flags | (constants.STOREHOSTADDRESS_V6_FLAG if len(message.store_host[0]) == 16 else 0)


@dataclass(slots=True)
class EncodedMessage:
    """A checked message: everything but the fields that only the lock decides."""

    message: MessageExtBrokerInner
    sys_flag: int
    body_crc: int
    tail: bytes
    size: int

    def record(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytes:
        """The record's bytes (``MessageExtEncoder#encode`` and ``doAppend``)."""
        message = self.message
        prefix = PREFIXES[self.sys_flag & constants.HOST_V6_MASK].pack(
            self.size,
            constants.MESSAGE_MAGIC_CODE,
            self.body_crc,
            message.queue_id,
            message.flag,
            queue_offset,
            physical_offset,
            self.sys_flag,
            message.born_timestamp,
            *message.born_host,
            store_timestamp,
            *message.store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            len(message.body),
        )
        return prefix + self.tail

    def msg_id(self, physical_offset: int) -> str:
        return offset_msg_id(*self.message.store_host, physical_offset)


def encode(
    message: MessageExtBrokerInner, max_message_size: int
) -> EncodedMessage | PutMessageResult:
    """Checks lengths and encodes what does not depend on the place; a result when it is refused
    (``DefaultMessageStore#checkMessage``, ``MessageExtEncoder#encode``)."""
    topic = encode_utf8(message.topic)
    properties = message.properties_data()
    if not topic or len(topic) > constants.MAX_TOPIC_LENGTH:
        reason = f"the topic has {len(topic)} bytes, 1 to {constants.MAX_TOPIC_LENGTH} are possible"
        return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, reason=reason)
    if len(properties) > constants.MAX_PROPERTIES_LENGTH:
        # The engine counts characters first, and answers that with the other status.
        characters = len(properties.decode("utf-8", "replace"))
        too_long = characters > constants.MAX_PROPERTIES_LENGTH
        return PutMessageResult(
            PutMessageStatus.MESSAGE_ILLEGAL
            if too_long
            else PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
            reason=f"the properties have {len(properties)} bytes, at most "
            f"{constants.MAX_PROPERTIES_LENGTH} are possible",
        )
    sys_flag = message.sys_flag | host_flags(message)
    tail = b"".join(
        (
            message.body,
            _TOPIC_LENGTH.pack(len(topic)),
            topic,
            _PROPERTIES_LENGTH.pack(len(properties)),
            properties,
        )
    )
    size = PREFIXES[sys_flag & constants.HOST_V6_MASK].size + len(tail)
    if size > max_message_size:
        reason = f"the record would have {size} bytes, at most {max_message_size} are allowed"
        return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, reason=reason)
    return EncodedMessage(message, sys_flag, crc32(message.body) & 0x7FFFFFFF, tail, size)


def delay_rewritten(message: MessageExtBrokerInner, max_level: int) -> MessageExtBrokerInner:
    """The message as it goes to the schedule topic: level capped, real topic and queue kept in
    properties (``CommitLog#asyncPutMessage``)."""
    level = min(message.delay_time_level, max_level)
    properties = dict(message.properties)
    properties[constants.PROPERTY_DELAY_TIME_LEVEL] = str(level)
    properties[constants.PROPERTY_REAL_TOPIC] = message.topic
    properties[constants.PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    return replace(
        message,
        topic=constants.RMQ_SYS_SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=properties,
        properties_bytes=None,
    )
