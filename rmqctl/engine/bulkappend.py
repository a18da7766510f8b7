"""The append of a stream: what ``putMessage`` does, for thousands of messages at a time.

Most messages of a stream are plain: no transaction, no delay, no extra queues, room in the file.
Those are encoded in one loop and stored with one copy. Every other one, and the first of each
queue in a bulk, goes the way of a single put: that one decides about statuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from isal.isal_zlib import crc32

from formats import constants
from formats.text import hash_map_order
from rmqctl.engine.mappedfile import MappedFile
from rmqctl.engine.message import EncodedMessage, MessageExtBrokerInner, PutMessageResult
from rmqctl.engine.record import PREFIXES

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore

#: A bulk is dispatched after so many records or bytes of log, whichever comes first.
BULK_RECORDS = 8192
BULK_BYTES = 4 << 20
_RESERVE = 1 << 20
_KNOWN_SHAPES = 4096
_SPECIAL = {
    constants.PROPERTY_DELAY_TIME_LEVEL,
    constants.PROPERTY_INNER_MULTI_DISPATCH,
}


class Appended(NamedTuple):
    """One message that was stored; ``message`` is as stored, which a delay changes."""

    message: MessageExtBrokerInner
    wrote_offset: int
    wrote_bytes: int
    queue_offset: int
    store_timestamp: int


class Bulk(NamedTuple):
    """What one bulk became: the messages stored, in order, and the answer to the one that was
    refused and ended it."""

    stored: list[Appended]
    refused: PutMessageResult | None


class _Shape(NamedTuple):
    """How properties of the same names in the same order are written: a template and its values;
    None when the message needs a closer look."""

    template: str
    values: Any


def _shape(names: tuple[str, ...]) -> _Shape | None:
    if not _SPECIAL.isdisjoint(names):
        return None
    order = hash_map_order(names)
    separators = constants.NAME_VALUE_SEPARATOR, constants.PROPERTY_SEPARATOR
    entries = [f"{name.replace('%', '%%')}{separators[0]}%s" for name in order]
    return _Shape(separators[1].join(entries), itemgetter(*order) if order else None)


class BulkAppender:
    """Appends from ``source`` to a store whose put lock is held. None in the source ends a bulk."""

    def __init__(
        self, store: MessageStore, source: Iterator[MessageExtBrokerInner | None]
    ) -> None:
        self._store = store
        self._source = source
        self._shapes: dict[tuple[str, ...], _Shape | None] = {}
        self._tails: dict[tuple[str, int], bytes] = {}
        self.exhausted = False
        self.failure: Exception | None = None

    def fill(self) -> Bulk:
        """Appends one bulk. What the source raises is kept in ``failure``, after which
        everything before it is stored."""
        stored: list[Appended] = []
        refused = None
        self._tails.clear()
        limit = self._store.max_offset + BULK_BYTES
        try:
            while refused is None and len(stored) < BULK_RECORDS:
                special = self._fill_plain(stored, limit)
                if special is None:
                    break
                refused = self._put_special(special, stored)
        except Exception as error:
            self.failure = error
        return Bulk(stored, refused)

    def _put_special(
        self, message: MessageExtBrokerInner, stored: list[Appended]
    ) -> PutMessageResult | None:
        """The way of a single put, which knows every case; the result when it is refused."""
        store = self._store
        encoded = store.check(message)
        result = store.append(encoded) if isinstance(encoded, EncodedMessage) else encoded
        if not result.is_ok or result.append is None or not isinstance(encoded, EncodedMessage):
            return result
        append = result.append
        stored.append(
            Appended(
                encoded.message,
                append.wrote_offset,
                append.wrote_bytes,
                append.queue_offset,
                append.store_timestamp,
            )
        )
        if encoded.message is message:
            topic = message.topic.encode()
            self._tails[message.topic, message.queue_id] = bytes((len(topic),)) + topic
        return None

    def _fill_plain(
        self, stored: list[Appended], limit: int
    ) -> MessageExtBrokerInner | None:
        """Appends plain messages until the bulk is full, the source pauses or ends (None), or a
        message needs a closer look, which is returned."""
        store, log = self._store, self._store.commit_log
        table, clock, tails = store.topic_queue_table, store.clock, self._tails
        pack = PREFIXES[0].pack
        fixed = PREFIXES[0].size + 3
        mapped = log.files.find(log.write_offset) if log.files.entries else None
        start = offset = log.write_offset
        base = mapped.file_from_offset if mapped is not None else 0
        end = base + mapped.size - constants.END_FILE_MIN_BLANK_LENGTH if mapped else 0
        end_of_reserve = offset
        largest = store.config.max_message_size
        pieces: list[bytes] = []
        room = BULK_RECORDS - len(stored)
        timestamp = store.last_store_timestamp
        new_record, magic = tuple.__new__, constants.MESSAGE_MAGIC_CODE
        try:
            for message in self._source:
                if message is None:
                    return None
                topic, queue_id, properties = message.topic, message.queue_id, message.properties
                key = topic, queue_id
                tail = tails.get(key)
                sys_flag = message.sys_flag
                shape = self._shape_of(tuple(properties))
                if tail is None or shape is None or sys_flag or message.properties_bytes is not None:
                    return message
                try:
                    values = shape[1]
                    data = (shape[0] % values(properties)).encode() if values is not None else b""
                except UnicodeEncodeError:
                    return message
                body = message.body
                born_address, born_port = message.born_host
                store_address, store_port = message.store_host
                body_length, data_length = len(body), len(data)
                size = fixed + body_length + len(tail) - 1 + data_length
                if (
                    data_length > constants.MAX_PROPERTIES_LENGTH
                    or size > largest
                    or offset + size > end
                    or len(born_address) != 4
                    or len(store_address) != 4
                ):
                    return message
                if offset + size > end_of_reserve:
                    end_of_reserve = self._reserve(mapped, offset, size)
                    if not end_of_reserve:
                        return message
                queue_offset = table[key]
                table[key] = queue_offset + 1
                timestamp = clock()
                pieces += (
                    pack(
                        size, magic, crc32(body) & 0x7FFFFFFF, queue_id, message.flag, queue_offset,
                        offset, 0, message.born_timestamp, born_address, born_port, timestamp,
                        store_address, store_port, message.reconsume_times,
                        message.prepared_transaction_offset, body_length,
                    ),
                    body,
                    tail,
                    data_length.to_bytes(2, "big"),
                    data,
                )  # fmt: skip
                stored.append(
                    new_record(Appended, (message, offset, size, queue_offset, timestamp))
                )
                offset += size
                room -= 1
                if not room or offset >= limit:
                    return None
            self.exhausted = True
            return None
        finally:
            if pieces and mapped is not None:
                mapped.write(start - base, b"".join(pieces))
                log.write_offset = offset
                store.last_store_timestamp = timestamp

    def _shape_of(self, names: tuple[str, ...]) -> _Shape | None:
        try:
            return self._shapes[names]
        except KeyError:
            if len(self._shapes) >= _KNOWN_SHAPES:
                self._shapes.clear()
            shape = self._shapes[names] = _shape(names)
            return shape

    @staticmethod
    def _reserve(mapped: MappedFile | None, offset: int, size: int) -> int:
        """Makes sure of disk space for the next records; the offset up to which there is some, 0
        when it is not to be had."""
        if mapped is None:
            return 0
        position = offset - mapped.file_from_offset
        length = min(max(size, _RESERVE), mapped.size - position)
        try:
            mapped.reserve(position, length)
        except OSError:
            return 0
        return offset + length
