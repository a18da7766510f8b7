"""The append of a stream: what ``putMessage`` does, for thousands of messages at a time.

Most messages of a stream are plain: no transaction, no delay, no extra queues, and room in the
file. They are encoded and stored in one loop that keeps only their places. Every other message, and
the first of each queue in a bulk, is put like a single message: only there statuses are decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from isal.isal_zlib import crc32

from formats import constants
from formats.text import decode_properties, hash_map_order
from rmqctl.engine.derive.catchup import BULK_BYTES
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.log.commitlog import RECORD_HEAD
from rmqctl.engine.record.form import room_of
from rmqctl.engine.record.message import (
    EncodedMessage,
    Host,
    MessageExtBrokerInner,
    PutMessageResult,
    host_flags,
)
from rmqctl.engine.record.record import PREFIXES, TAILS
from rmqctl.engine.write.appended import Appended, Bulk, Stored, new_appended

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.engine.write.put import MessagePutter

#: A bulk is dispatched after so many records or BULK_BYTES of log, whichever comes first. A faster
#: subclass takes more.
BULK_RECORDS = 8192
_RESERVE = 1 << 20
ANY_NUMBER = constants.INT_MAX
_KNOWN_SHAPES = 4096
_MAGIC_CODE = constants.MESSAGE_MAGIC_CODE
_pack = PREFIXES[0].pack
_pack_length = TAILS[_MAGIC_CODE].properties_length.pack
#: Bytes of a record without body, topic and properties, but with the length of the properties.
_FIXED = PREFIXES[0].size + TAILS[_MAGIC_CODE].properties_length.size
#: A message with one of these properties is not plain.
SPECIAL = {
    constants.PROPERTY_DELAY_TIME_LEVEL,
    constants.PROPERTY_INNER_MULTI_DISPATCH,
}


class PlainMessage(NamedTuple):
    """A message with IPv4 hosts and encoded properties, without sys flag, delay and extra queues.
    Most messages of a stream are plain."""

    topic: str
    queue_id: int
    body: bytes
    properties_bytes: bytes
    flag: int
    born_timestamp: int
    born_host: Host
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int

    def full(self) -> MessageExtBrokerInner:
        return MessageExtBrokerInner(
            self.topic,
            self.body,
            self.queue_id,
            self.flag,
            0,
            decode_properties(self.properties_bytes),
            self.properties_bytes,
            self.born_timestamp,
            self.born_host,
            self.store_host,
            self.reconsume_times,
            self.prepared_transaction_offset,
        )


class PropertyEncoder:
    """Encodes properties. It remembers the order of the values for each set of names."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], tuple[str, Any]] = {}

    def __call__(self, properties: dict[str, str]) -> bytes:
        """``encode_properties``; :raises UnicodeEncodeError: a lone surrogate in a value."""
        names = tuple(properties)
        shape = self._shapes.get(names)
        if shape is None:
            if len(self._shapes) >= _KNOWN_SHAPES:
                self._shapes.clear()
            order = hash_map_order(names)
            entries = [
                f"{name.replace('%', '%%')}{constants.NAME_VALUE_SEPARATOR}%s" for name in order
            ]
            template = constants.PROPERTY_SEPARATOR.join(entries)
            shape = self._shapes[names] = template, itemgetter(*order) if order else None
        template, values = shape
        return (template % values(properties)).encode() if values is not None else b""


def plain(message: MessageExtBrokerInner, encode: PropertyEncoder) -> PlainMessage | None:
    """The message as a plain one; None when it is not plain."""
    data = message.properties_bytes
    properties = message.properties
    if message.sys_flag or not SPECIAL.isdisjoint(properties):
        return None
    if host_flags(message):
        return None
    try:
        data = encode(properties) if data is None else data
    except UnicodeEncodeError:
        return None
    return PlainMessage(
        message.topic,
        message.queue_id,
        message.body,
        data,
        message.flag,
        message.born_timestamp,
        message.born_host,
        message.store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
    )


Message = MessageExtBrokerInner | PlainMessage


def full(messages: Sequence[Message]) -> list[MessageExtBrokerInner]:
    """All messages in their full form."""
    return [one.full() if isinstance(one, PlainMessage) else one for one in messages]


class BulkAppender:
    """Appends the messages of ``source``, bulk by bulk. A None in the source ends a bulk."""

    def __init__(self, putter: MessagePutter, source: Iterator[Message | None]) -> None:
        self._putter = putter
        self._origin = self._source = source
        self._encode = PropertyEncoder()
        self._tails: dict[tuple[str, int], bytes] = {}
        self._unit_limits: dict[tuple[str, int], int] = {}
        self._most_records, self._most_bytes = BULK_RECORDS, BULK_BYTES
        #: Whether the source ended the last bulk: it has no message for now.
        self._pauses = False
        self.failure: Exception | None = None

    def wait(self) -> bool:
        """Waits for the source's next message, without a lock. False: there is none any more."""
        try:
            for message in self._origin:
                if message is not None:
                    self._source = chain((message,), self._origin)
                    return True
        except Exception as error:
            self.failure = error
        return False

    @property
    def goes_on(self) -> bool:
        """Whether the last bulk ended because it was full."""
        return not self._pauses and self.failure is None

    @staticmethod
    def refused(answer: PutMessageResult | None, *, logged: int = 0) -> Bulk:
        """A bulk without stored messages, and its answer."""
        return Bulk(Stored(), answer, logged)

    def fill(self) -> Bulk:
        """Appends one bulk; the put lock is held. An error of the source is kept in ``failure``;
        all messages before it are stored."""
        stored = Stored()
        refused = None
        self._pauses = False
        self._tails.clear()
        limit = self._putter.log.write_offset + self._most_bytes
        try:
            while refused is None and len(stored) < self._most_records:
                special = self._fill_plain(stored, limit)
                if special is None:
                    break
                refused = self._put_special(special, stored)
                if self._putter.queues.is_crowded:
                    break
        except Exception as error:
            self.failure = error
        return Bulk(stored, refused)

    def _put_special(self, message: Message, stored: Stored) -> PutMessageResult | None:
        """Puts a message that is not plain. Returns the result when it is refused, else None."""
        if isinstance(message, PlainMessage):
            message = message.full()
        encoded = self._putter.check(message)
        result = self._putter.append(encoded) if isinstance(encoded, EncodedMessage) else encoded
        if not result.is_ok or result.stored is None or not isinstance(encoded, EncodedMessage):
            return result.named(message)
        append = result.stored
        stored.newest.append(
            Appended(
                encoded.message.topic,
                encoded.message.queue_id,
                encoded.message.store_host,
                append.wrote_offset,
                append.wrote_bytes,
                append.queue_offset,
                append.store_timestamp,
            )
        )
        # A prepared or rolled back message reserves nothing in its queue. The loop writes only
        # records in the form of 4.9.3.
        plain_form = (
            self._putter.has_plain_form and encoded.magic_code == constants.MESSAGE_MAGIC_CODE
        )
        has_unit = not encoded.sys_flag & constants.TRANSACTION_TYPE_MASK
        if encoded.message is message and has_unit and plain_form:
            topic = message.topic.encode()
            key = message.topic, message.queue_id
            length = TAILS[encoded.magic_code].topic_length.pack(len(topic))
            self._tails[key] = length + topic
            self._unit_limits[key] = append.queue_offset + self._putter.units_reserved(
                append.queue_offset
            )
        return None

    def _fill_plain(self, stored: Stored, limit: int, most: int = ANY_NUMBER) -> Message | None:
        """Appends at most ``most`` plain messages. Returns None when the bulk is full or the source
        pauses or ends; else the first message that is not plain."""
        log, clock = self._putter.log, self._putter.clock
        table, tails, unit_limits = self._putter.topic_queue_table, self._tails, self._unit_limits
        mapped, buffer, base, end = self._room()
        start = offset = end_of_reserve = log.write_offset
        shortest, longest, largest = record_lengths(self._putter.config)
        encode, stale_end, timestamp = self._encode, log.stale_end, log.store_timestamp
        room, append = min(self._most_records - len(stored), most), stored.newest.append
        try:
            for message in self._source:
                if message is None:
                    break
                known = message if isinstance(message, PlainMessage) else plain(message, encode)
                if known is None:
                    return message
                (
                    topic, queue_id, body, data, flag, born_timestamp, (born_address, born_port),
                    store_host, reconsume_times, prepared_offset,
                ) = known  # fmt: skip
                (store_address, store_port), key = store_host, (topic, queue_id)
                if (tail := tails.get(key)) is None:
                    return message
                body_length, length = len(body), len(data)
                size = _FIXED + body_length + len(tail) + length
                if (
                    not shortest <= length <= longest
                    or size > largest
                    or not stale_end <= offset <= end - size
                    or (born_port | store_port) >> 16  # One is no valid port (MAX_PORT).
                ):
                    return message
                if offset + size > end_of_reserve:
                    end_of_reserve = reserve_room(mapped, offset, size)
                if not end_of_reserve or (queue_offset := table[key]) >= unit_limits[key]:
                    return message
                timestamp = clock()
                prefix = _pack(
                    size, _MAGIC_CODE, crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset,
                    offset, 0, born_timestamp, born_address, born_port, timestamp,
                    store_address, store_port, reconsume_times, prepared_offset, body_length,
                )  # fmt: skip
                at, position = offset - base + RECORD_HEAD, offset - base
                # Size and magic code last, as CommitLogWriter.store does.
                buffer[at : position + size] = b"".join(
                    (prefix[RECORD_HEAD:], body, tail, _pack_length(length), data)
                )
                buffer[position:at] = prefix[:RECORD_HEAD]
                table[key] = queue_offset + 1
                row = (topic, queue_id, store_host, offset, size, queue_offset, timestamp)
                append(new_appended(row))
                offset, room = offset + size, room - 1
                if not room or offset >= limit:
                    return None
            self._pauses = True
        finally:
            if mapped is not None and offset > start:
                log.advance(mapped, offset - base, timestamp, offset)
        return None

    def _room(self) -> tuple[MappedFile | None, Any, int, int]:
        """The file at the log's end, its buffer, and the physical offsets of its start and of the
        end of its room for records. Without such a file: None, b"", 0, 0."""
        log = self._putter.log
        mapped = log.files.find(log.write_offset) if log.files.entries else None
        if mapped is None:
            return None, b"", 0, 0
        base = mapped.file_from_offset
        end = base + room_of(mapped.size)
        return mapped, log.buffer_of(mapped), base, end


def record_lengths(config: MessageStoreConfig) -> tuple[int, int, int]:
    """Bytes of the shortest and the longest properties, and of the largest record."""
    # A message without properties may have to be refused (MessagePutter.check).
    shortest = int(config.enable_multi_dispatch)
    return shortest, constants.MAX_PROPERTIES_LENGTH, config.max_message_size


def reserve_room(
    mapped: MappedFile | None,
    offset: int,
    size: int,
    *,
    goes_on: bool = False,
    in_flight: int = 0,
) -> int:
    """Reserves disk space for the next records from physical ``offset`` on. Returns the offset up
    to which there is space; 0: there is none.

    :param goes_on: more will surely be stored here, so the pages are touched ahead.
    :param in_flight: bytes before ``offset`` that other threads may not have stored yet.
    """
    if mapped is None:
        return 0
    position = offset - mapped.file_from_offset
    length = min(max(size, _RESERVE), mapped.size - position)
    try:
        mapped.reserve(position, length)
    except OSError:
        return 0
    mapped.forget_behind(position - in_flight)
    if goes_on:
        mapped.touch(position, position + length)
    return offset + length
