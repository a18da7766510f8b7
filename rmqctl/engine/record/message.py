"""``MessageExtBrokerInner``: a message on its way into the log, and how it is encoded.

Properties are encoded in the order of Java's hash map, as a broker encodes them. Bytes given as
``properties_bytes`` are stored as they are, unless the store must add a property.
"""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from isal.isal_zlib import crc32

from formats import constants
from formats.layouts import RecordPrefix
from formats.text import (
    encode_properties,
    encode_utf8,
    java_int,
    join_properties,
    split_properties,
)
from rmqctl.engine.record.form import (
    CRC32_RESERVED_LENGTH,
    CRC_DIGITS,
    CRC_HEAD,
    FORM_OF_4_9_3,
    SEPARATOR,
    RecordForm,
)
from rmqctl.engine.record.record import PREFIXES, TAILS, Tail, offset_msg_id
from rmqctl.engine.record.status import NOT_AGAIN, AppendMessageStatus, PutMessageStatus

#: Characters that no name and no value of a property may hold: the separators, which would split
#: it, and NUL, which cannot be told from damage.
NOT_IN_PROPERTIES = ("\0", constants.NAME_VALUE_SEPARATOR, constants.PROPERTY_SEPARATOR)

#: The largest port that a Java client takes (``InetSocketAddress``). At another port
#: ``MessageDecoder#decode`` gives up the message and all behind it in the same answer.
MAX_PORT = 0xFFFF

#: Kept here because they are compared after each put, and looking up an enum's member is slow.
_PUT_OK, _APPEND_OK = PutMessageStatus.PUT_OK, AppendMessageStatus.PUT_OK

Host = tuple[bytes, int]
#: Bytes that a record of 5.x may have besides the longest body.
_BESIDE_BODY = 1 << 16
LOCALHOST: Host = (bytes((127, 0, 0, 1)), 0)


@dataclass(slots=True)
class MessageExtBrokerInner:
    """One message to be put. Hosts are ``(address of 4 or 16 bytes, port)``.

    ``properties`` are in the order in which they were set. As everywhere in RocketMQ, the delay
    level is the property DELAY, tags are TAGS and keys are KEYS. ``was_stored``: it was a record of
    another store, so its delay level delays nothing here. ``cleared`` are names that were taken out
    of the properties again: Java's map has kept its size for them.
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
    was_stored: bool = False
    cleared: tuple[str, ...] = ()

    @property
    def delay_time_level(self) -> int | None:
        """``Message#getDelayTimeLevel``: 0 without one; None if it is no number, where Java
        throws."""
        text = self.properties.get(constants.PROPERTY_DELAY_TIME_LEVEL)
        return 0 if text is None else java_int(text)

    @property
    def is_wait_store_msg_ok(self) -> bool:
        """``Message#isWaitStoreMsgOK``: whether the putter waits for the flush."""
        return self.properties.get(constants.PROPERTY_WAIT_STORE_MSG_OK, "true").lower() == "true"

    def properties_data(self) -> bytes:
        """The properties as they are stored."""
        if self.properties_bytes is not None:
            return self.properties_bytes
        return encode_properties(self.properties)


@dataclass(slots=True)
class AppendMessageResult:
    """What an append did.

    For a batch ``wrote_offset`` (physical) and ``queue_offset`` (Java: logicsOffset) are those of
    the first message, ``wrote_bytes`` is the sum, and ``msg_id`` has all ids with commas between.
    ``page_cache_rt`` is how many milliseconds storing the bytes took.
    """

    status: AppendMessageStatus
    wrote_offset: int = 0
    wrote_bytes: int = 0
    msg_id: str = ""
    store_timestamp: int = 0
    queue_offset: int = 0
    page_cache_rt: int = 0
    msg_num: int = 1

    @property
    def is_ok(self) -> bool:
        return self.status is _APPEND_OK


class _Kept:
    """Holds what the compiled kernel knows about a put, until somebody reads the result: ``(topic,
    queue id)``, physical offset, size, store host, store time (ms), queue offset, milliseconds."""

    __slots__ = ("_kept",)


@dataclass(slots=True)
class PutMessageResult(_Kept):
    """What a put did.

    ``reason`` says more when the status is not PUT_OK. ``topic`` and ``queue_id`` are where the
    message went: a delay changes them. ``append`` is None if no append was tried. The compiled
    kernel sets ``status`` only; the other fields are made when they are first read.
    """

    status: PutMessageStatus
    append: AppendMessageResult | None = None
    topic: str = ""
    queue_id: int = 0
    reason: str = ""

    @property
    def is_ok(self) -> bool:
        return self.status is _PUT_OK

    @property
    def stored(self) -> AppendMessageResult | None:
        """The append, if the log has the message, even if the put failed behind that."""
        return self.append if self.append is not None and self.append.is_ok else None

    @property
    def is_logged(self) -> bool:
        """Whether the log has the message, also where its queue or index is to get it later. It
        must not be put again."""
        return self.stored is not None or self.reason.endswith(NOT_AGAIN)

    def named(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """This result, with the message's own topic and queue if it was refused before it got
        any."""
        if self.topic:
            return self
        return replace(self, topic=message.topic, queue_id=message.queue_id)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A field that is not set."""
            if name == "append":
                _, offset, size, host, timestamp, queue_offset, millis = self._kept
                msg_id = offset_msg_id(*host, offset)
                given = _APPEND_OK, offset, size, msg_id, timestamp, queue_offset, millis
                self.append = AppendMessageResult(*given)
                return self.append
            if name == "topic":
                self.topic = self._kept[0][0]
                return self.topic
            if name == "queue_id":
                self.queue_id = self._kept[0][1]
                return self.queue_id
            if name == "reason":
                self.reason = ""
                return self.reason
            raise AttributeError(name)


@functools.lru_cache(4096)  # A message in a thousand has a host that none before it had.
def parse_host(text: str) -> Host:
    """``1.2.3.4:5`` or ``[::1]:5``; :raises ValueError: it is neither."""
    address, separator, port = text.rpartition(":")
    # Python refuses to read thousands of digits.
    is_number = port.isascii() and port.isdigit() and len(port) <= 10
    if not separator or not is_number or int(port) > MAX_PORT:
        raise ValueError(f"{text[:80]!r} is not ADDRESS:PORT, with a port of at most {MAX_PORT}")
    if address.startswith("[") and address.endswith("]"):
        return ipaddress.IPv6Address(address[1:-1]).packed, int(port)
    return ipaddress.IPv4Address(address).packed, int(port)


def port_problem(message: MessageExtBrokerInner) -> str:
    """Why a host of the message has no valid port; empty when both have (:data:`MAX_PORT`)."""
    for name, (_, port) in (("born", message.born_host), ("store", message.store_host)):
        if not 0 <= port <= MAX_PORT:
            return f"the {name} host's port {port} is not within 0 to {MAX_PORT}"
    return ""


def host_flags(message: MessageExtBrokerInner) -> int:
    """The sys flag bits that the hosts' lengths ask for."""
    flags = constants.BORNHOST_V6_FLAG if _is_v6(message.born_host) else 0
    return flags | (constants.STOREHOSTADDRESS_V6_FLAG if _is_v6(message.store_host) else 0)


def _is_v6(host: Host) -> bool:
    address, _ = host
    return len(address) == constants.IPV6_SIZE


def property_crc(data: bytes | memoryview) -> bytes:
    """The last property of a record, a checksum of all bytes before it: ten digits, the lowest
    first (``MessageDecoder#createCrc32``)."""
    digits = f"{crc32(data) & 0x7FFFFFFF:0{CRC_DIGITS}d}"[::-1]
    return CRC_HEAD + digits.encode() + SEPARATOR


@dataclass(slots=True)
class EncodedMessage:
    """A checked and encoded message, without the fields that are set under the lock."""

    message: MessageExtBrokerInner
    sys_flag: int
    body_crc: int
    tail: bytes
    size: int
    magic_code: int = constants.MESSAGE_MAGIC_CODE
    has_property_crc: bool = False

    def record(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytes:
        """The record's bytes (``MessageExtEncoder#encode`` and ``doAppend``)."""
        message = self.message
        (born_address, born_port), (store_address, store_port) = (
            message.born_host,
            message.store_host,
        )
        fields = RecordPrefix(
            total_size=self.size,
            magic_code=self.magic_code,
            body_crc=self.body_crc,
            queue_id=message.queue_id,
            flag=message.flag,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            sys_flag=self.sys_flag,
            born_timestamp=message.born_timestamp,
            born_address=born_address,
            born_port=born_port,
            store_timestamp=store_timestamp,
            store_address=store_address,
            store_port=store_port,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            body_length=len(message.body),
        )
        prefix = PREFIXES[self.sys_flag & constants.HOST_V6_MASK].pack(*fields)
        if self.has_property_crc:
            data = prefix + self.tail[:-CRC32_RESERVED_LENGTH]
            return data + property_crc(data)
        return prefix + self.tail

    def has_properties(self, stored: bytes) -> bool:
        """Whether a record's properties are this message's, but for the checksum of the record."""
        end = -CRC32_RESERVED_LENGTH if self.has_property_crc else None
        own = self.tail[len(self.tail) - len(stored) :]
        return len(own) == len(stored) and own[:end] == stored[:end]

    def msg_id(self, physical_offset: int) -> str:
        return offset_msg_id(*self.message.store_host, physical_offset)


class _Strings(NamedTuple):
    """Topic and properties of a message as its record has them."""

    magic_code: int
    tail: Tail
    topic: bytes
    properties: bytes


def _strings(message: MessageExtBrokerInner, form: RecordForm) -> _Strings:
    if form.property_crc and constants.PROPERTY_CRC32 in message.properties:
        # The checksum of another record; CommitLog#asyncPutMessage takes it out as well.
        name = constants.PROPERTY_CRC32.encode()
        entries = split_properties(message.properties_data())
        data = join_properties(entry for entry in entries if entry[0] != name)
    else:
        data = message.properties_data()
    properties = form.properties(data)
    magic_code = form.magic_code(message.topic)
    return _Strings(magic_code, TAILS[magic_code], encode_utf8(message.topic), properties)


def encoded_size(message: MessageExtBrokerInner, form: RecordForm = FORM_OF_4_9_3) -> int:
    """Bytes of the record that the message becomes (``calMsgLength``)."""
    strings = _strings(message, form)
    prefix = PREFIXES[(message.sys_flag | host_flags(message)) & constants.HOST_V6_MASK].size
    texts = len(strings.topic) + len(strings.properties)
    return prefix + len(message.body) + strings.tail.size + texts


def check_lengths(
    message: MessageExtBrokerInner, form: RecordForm = FORM_OF_4_9_3
) -> PutMessageResult | None:
    """Refuses a message whose given topic or properties are too long
    (``DefaultMessageStore#checkMessage``); None when they are not. Properties are measured in
    Java's characters here, and in stored bytes by :func:`encode`."""
    longest = constants.MAX_TOPIC_LENGTH
    if form.long_topics and message.topic.startswith(constants.RETRY_GROUP_TOPIC_PREFIX):
        longest = constants.MAX_TOPIC_LENGTH_V2
    size = len(message.topic) if message.topic.isascii() else len(encode_utf8(message.topic))
    if not 0 < size <= longest:
        return illegal(f"the topic has {size} bytes, 1 to {longest} are possible")
    most = TAILS[form.magic_code(message.topic)].longest_properties
    data, properties = message.properties_bytes, message.properties
    if data is None:
        characters = sum(map(len, properties)) + sum(map(len, properties.values()))
        if 2 * (characters + len(properties)) <= most:
            return None
    data = message.properties_data() if data is None else data
    if len(data) > most:
        characters = len(data.decode("utf-8", "replace").encode("utf-16-le")) // 2
        if characters > most:
            return illegal(f"the properties have {characters} characters, {most} are possible")
    return None


def illegal(reason: str) -> PutMessageResult:
    """The answer to a message that cannot be stored as it is."""
    return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, reason=reason)


def longest_record(max_message_size: int, form: RecordForm) -> int:
    """The most bytes of a record, or of all records of a batch. ``maxMessageSize`` limits records
    in 4.9.3, and bodies in 5.x, with some room for the rest (``MessageExtEncoder``)."""
    if form == FORM_OF_4_9_3:
        return max_message_size
    return min(max_message_size + _BESIDE_BODY, constants.INT_MAX)


def encode(
    message: MessageExtBrokerInner, max_message_size: int, form: RecordForm = FORM_OF_4_9_3
) -> EncodedMessage | PutMessageResult:
    """Encodes a message that passed :func:`check_lengths`, but for what depends on its place. When
    it is refused, returns the result instead (``MessageExtEncoder#encode``)."""
    magic_code, lengths, topic, properties = _strings(message, form)
    if len(properties) > lengths.longest_properties:
        return PutMessageResult(
            PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
            reason=f"the properties have {len(properties)} bytes, at most "
            f"{lengths.longest_properties} are possible",
        )
    sys_flag = message.sys_flag | host_flags(message)
    tail = b"".join(
        (
            message.body,
            lengths.topic_length.pack(len(topic)),
            topic,
            lengths.properties_length.pack(len(properties)),
            properties,
        )
    )
    size = PREFIXES[sys_flag & constants.HOST_V6_MASK].size + len(tail)
    if len(message.body) > max_message_size:
        most = max_message_size
        return illegal(f"the body has {len(message.body)} bytes, at most {most} are allowed")
    most = longest_record(max_message_size, form)
    if size > most:
        return illegal(f"the record would have {size} bytes, at most {most} are allowed")
    body_crc = crc32(message.body) & 0x7FFFFFFF
    return EncodedMessage(message, sys_flag, body_crc, tail, size, magic_code, form.property_crc)


def delay_rewritten(message: MessageExtBrokerInner, max_level: int) -> MessageExtBrokerInner:
    """The message as it is stored in the schedule topic: its level is capped, and properties keep
    the real topic and queue (``CommitLog#asyncPutMessage``)."""
    level = message.delay_time_level or 0
    properties = dict(message.properties)
    if level > max_level:
        level = max_level
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
