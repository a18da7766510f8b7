"""One commit log entry, read at one place: record, blank, damage or the end.

This is the reference for what counts as a record. The batch scanner reads records in bulk and
hands every irregular place to :func:`read_entry`, so damage has one definition (RocketMQ:
``CommitLog#checkMessageAndReturnSize``, and one more check: PHYSICALOFFSET must name the record's
own place).
"""

from __future__ import annotations

import functools
import ipaddress
import mmap
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from isal.isal_zlib import crc32

from formats import layouts
from formats.constants import (
    BLANK_MAGIC_CODE,
    END_FILE_MIN_BLANK_LENGTH,
    HOST_V6_MASK,
    IPV4_SIZE,
    MESSAGE_MAGIC_CODE,
    MIN_RECORD_SIZE,
    PROPERTY_TAGS,
    TRANSACTION_TYPE_MASK,
)
from formats.layouts import RecordPrefix
from formats.text import decode_properties, decode_utf8, tags_code
from rmqctl.engine.files.holes import Aside, is_whole, whole
from rmqctl.engine.files.mappedfile import MappedFile

Buffer = mmap.mmap | bytes


class Tail(NamedTuple):
    """The two length fields behind a record's body, and the largest value of each
    (:data:`formats.layouts.TAIL`). ``size`` is the bytes of both fields."""

    topic_length: Struct
    longest_topic: int
    properties_length: Struct
    longest_properties: int
    size: int


def _tail(tail: layouts.Tail) -> Tail:
    topic, properties = (
        # One byte is read without a sign, so messages show a value over the limit as it is.
        Struct(f">{length.code.upper() if length.code == 'b' else length.code}")
        for length in (tail.topic_length, tail.properties_length)
    )
    return Tail(
        topic,
        tail.topic_length.limit,
        properties,
        tail.properties_length.limit,
        topic.size + properties.size,
    )


PREFIXES = {flags: Struct(layout.format) for flags, layout in layouts.RECORD_PREFIX.items()}
#: By magic code. Only entries with these magic codes are records.
TAILS = {magic_code: _tail(tail) for magic_code, tail in layouts.TAIL.items()}
BLANK = Struct(layouts.BLANK.format)
#: The most bytes of the fields before the body, and of topic and properties with their lengths.
LONGEST_PREFIX = max(prefix.size for prefix in PREFIXES.values())
LONGEST_TAIL = max(
    tail.size + tail.longest_topic + tail.longest_properties for tail in TAILS.values()
)
_MAGIC_CODE_AT = layouts.RECORD_MAGIC_CODE.offset
_PHYSICAL_OFFSET = Struct(f">{layouts.RECORD_PHYSICAL_OFFSET.code}")
_PHYSICAL_OFFSET_AT = layouts.RECORD_PHYSICAL_OFFSET.offset
_SYS_FLAG = Struct(f">{layouts.RECORD_SYS_FLAG.code}")
_SYS_FLAG_AT = layouts.RECORD_SYS_FLAG.offset
_BLANK_BYTES = BLANK_MAGIC_CODE.to_bytes(layouts.RECORD_MAGIC_CODE.size, "big")


class Record(NamedTuple):
    """A commit log record as stored. ``body_position`` lies in the file's buffer: the body itself
    is not copied."""

    physical_offset: int
    total_size: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_timestamp: int
    born_address: bytes
    born_port: int
    store_timestamp: int
    store_address: bytes
    store_port: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_position: int
    body_length: int
    topic_bytes: bytes
    properties_bytes: bytes

    @property
    def topic(self) -> str:
        return decode_utf8(self.topic_bytes)

    @property
    def properties(self) -> dict[str, str]:
        """The properties as RocketMQ's decoder sees them."""
        return decode_properties(self.properties_bytes)

    @property
    def born_host(self) -> str:
        return host_text(self.born_address, self.born_port)

    @property
    def store_host(self) -> str:
        return host_text(self.store_address, self.store_port)

    @property
    def transaction_type(self) -> int:
        return self.sys_flag & TRANSACTION_TYPE_MASK

    @property
    def msg_id(self) -> str:
        """The offset message id (``MessageDecoder#createMessageId``)."""
        return offset_msg_id(self.store_address, self.store_port, self.physical_offset)

    @property
    def tags_code(self) -> int:
        """``hashCode`` of the tags; 0 without. Never a delayed message's delivery time."""
        tags = self.properties.get(PROPERTY_TAGS)
        return tags_code(tags) if tags else 0


class Blank(NamedTuple):
    """The filler at the end of a full file."""

    physical_offset: int
    total_size: int


class Damage(NamedTuple):
    """A stretch of the log that is no record: ``reason`` is a finding code."""

    physical_offset: int
    length: int
    reason: str
    expected: str
    found: str


class End(NamedTuple):
    """Where the written log ends. ``residue`` bytes after it are not zero: a crashed append, or
    what a truncation by the engine left behind; ``reason`` says what stands there."""

    physical_offset: int
    residue: int = 0
    reason: str = ""
    expected: str = ""
    found: str = ""


Entry = Record | Blank | Damage | End

#: Index of these fields in :class:`~formats.layouts.RecordPrefix`.
_BODY_LENGTH = RecordPrefix._fields.index("body_length")
_PLACE = RecordPrefix._fields.index("physical_offset")
#: Takes the first fields of a :class:`Record`, before ``body_position``, from a ``RecordPrefix``.
_FIRST_FIELDS = itemgetter(
    *map(RecordPrefix._fields.index, Record._fields[: Record._fields.index("body_position")])
)
#: An offset message id (``MessageDecoder#createMessageId``).
_PORT_AND_OFFSET = Struct(">iq")


@functools.lru_cache(maxsize=1024)
def host_text(address: bytes, port: int) -> str:
    """``address:port``, an IPv6 address in brackets."""
    # Cached: a log names few hosts many times, and two texts a row take a tenth of a walk.
    if len(address) == IPV4_SIZE:
        return f"{'.'.join(map(str, address))}:{port}"
    return f"[{ipaddress.IPv6Address(address)}]:{port}"


def offset_msg_id(address: bytes, port: int, physical_offset: int) -> str:
    """32 or 56 upper-case hexadecimal digits: address, port, physical offset."""
    return (address + _PORT_AND_OFFSET.pack(port, physical_offset)).hex().upper()


def read_entry(buffer: Buffer, position: int, limit: int, physical_offset: int) -> Entry:
    """Reads what stands at ``position``; never raises, whatever the bytes.

    ``limit`` is the end of the file in the buffer, ``physical_offset`` the offset of the place.
    Damage has the length that the entry claims if that is plausible, else 0: then the caller looks
    for the next record. Eight zero bytes are an ``End``.
    """
    if limit - position < END_FILE_MIN_BLANK_LENGTH:
        # The writer always leaves room for a blank, so nothing is written here.
        return End(physical_offset)
    total_size, magic_code = BLANK.unpack_from(buffer, position)
    if magic_code == BLANK_MAGIC_CODE:
        if total_size == limit - position:
            return Blank(physical_offset, total_size)
        # The engine ignores a blank's size: it takes the rest of the file as the blank.
        return Damage(
            physical_offset,
            limit - position,
            "blank-size-mismatch",
            str(limit - position),
            str(total_size),
        )
    if magic_code not in TAILS:
        if total_size == 0 and magic_code == 0:
            return End(physical_offset)
        return Damage(
            physical_offset, 0, "bad-magic", f"{MESSAGE_MAGIC_CODE:#010x}", f"{magic_code:#010x}"
        )
    return _read_record(buffer, position, limit, physical_offset, total_size, magic_code)


def _read_record(
    buffer: Buffer,
    position: int,
    limit: int,
    physical_offset: int,
    total_size: int,
    magic_code: int,
) -> Record | Damage:
    def damage(length: int, reason: str, expected: object, found: object) -> Damage:
        return Damage(physical_offset, length, reason, str(expected), str(found))

    room = limit - position
    if room < MIN_RECORD_SIZE:
        return damage(0, "total-size-out-of-range", f"at most {room}", total_size)
    (sys_flag,) = _SYS_FLAG.unpack_from(buffer, position + _SYS_FLAG_AT)
    prefix = PREFIXES[sys_flag & HOST_V6_MASK]
    if prefix.size > room:
        return damage(0, "total-size-out-of-range", f"at most {room}", total_size)
    values = prefix.unpack_from(buffer, position)
    tail = TAILS[magic_code]
    # A negative length counts as 0 in the engine's own walk.
    body_length = max(values[_BODY_LENGTH], 0)
    at = position + prefix.size + body_length
    if at + tail.size > limit:
        most = limit - position - prefix.size
        return damage(0, "body-length-out-of-range", f"at most {most}", values[_BODY_LENGTH])
    (topic_length,) = tail.topic_length.unpack_from(buffer, at)
    at += tail.topic_length.size
    longest = tail.longest_topic
    if not 0 < topic_length <= longest or at + topic_length + tail.properties_length.size > limit:
        return damage(0, "topic-length-out-of-range", f"1 to {longest}", topic_length)
    topic = buffer[at : at + topic_length]
    at += topic_length
    (properties_length,) = tail.properties_length.unpack_from(buffer, at)
    at += tail.properties_length.size
    end = at + max(properties_length, 0)
    if end > limit or properties_length > tail.longest_properties:
        most = min(limit - at, tail.longest_properties)
        return damage(0, "properties-length-out-of-range", f"at most {most}", properties_length)
    found = values[_PLACE]
    if found != physical_offset:
        return damage(end - position, "physical-offset-mismatch", physical_offset, found)
    if end - position != total_size:
        return damage(0, "total-size-mismatch", end - position, total_size)
    rest = (position + prefix.size, body_length, topic, buffer[at:end])
    return Record._make(_FIRST_FIELDS(values) + rest)


def prefix_at(buffer: Buffer, position: int, limit: int) -> RecordPrefix | None:
    """The fixed-size fields of the record at ``position``, whatever they say; None when they do not
    end before ``limit``, the end of the file in the buffer."""
    if position + PREFIXES[0].size > limit:
        return None
    (sys_flag,) = _SYS_FLAG.unpack_from(buffer, position + _SYS_FLAG_AT)
    prefix = PREFIXES[sys_flag & HOST_V6_MASK]
    if position + prefix.size > limit:
        return None
    return RecordPrefix._make(prefix.unpack_from(buffer, position))


def tail_position(buffer: Buffer, position: int, limit: int) -> int | None:
    """Position of the topic's length field, as the record at ``position`` claims: it may lie
    behind ``limit``. None when the fixed-size fields do not end before ``limit``."""
    values = prefix_at(buffer, position, limit)
    if values is None:
        return None
    return position + PREFIXES[values.sys_flag & HOST_V6_MASK].size + max(values.body_length, 0)


def read_entry_of(mapped: MappedFile, position: int) -> Entry:
    """:func:`read_entry` for a file. Never reads its holes."""
    if mapped.framed:
        from rmqctl.engine.record.entries import read_framed_entry_of

        return read_framed_entry_of(mapped, position)
    return read_plain_entry_of(mapped, position)


def read_plain_entry_of(mapped: MappedFile, position: int) -> Entry:
    """:func:`read_entry_of` for a place without an entry's header before the record."""
    mapped.load_entry(position)
    physical_offset = mapped.file_from_offset + position
    if not mapped.whole[0] <= position < mapped.whole[1]:
        is_whole(mapped, position, position + 1)
    low, high = mapped.whole
    if low <= position < high:
        # A record or an end before the hole is final. Anything else may need bytes behind it.
        entry = read_entry(mapped.buffer, position, min(high, mapped.size), physical_offset)
        is_end = isinstance(entry, End) and high - position >= END_FILE_MIN_BLANK_LENGTH
        if isinstance(entry, Record) or is_end or high >= mapped.size:
            return entry
    aside = _fields_aside(mapped, position)
    return read_entry(aside.buffer, position, mapped.size, physical_offset)


def _fields_aside(mapped: MappedFile, position: int) -> MappedFile:
    """A copy of all bytes that :func:`read_entry` may look at."""
    aside = Aside(mapped, position, min(position + LONGEST_PREFIX, mapped.size))
    tail = tail_position(aside.buffer, position, mapped.size)
    if tail is not None:
        aside.add(mapped, min(tail, mapped.size), min(tail + LONGEST_TAIL, mapped.size))
    return aside


def body_crc_of(buffer: Buffer | memoryview, record: Record) -> int:
    """CRC-32 of the stored body & 0x7FFFFFFF (``UtilAll#crc32``)."""
    body = memoryview(buffer)[record.body_position : record.body_position + record.body_length]
    try:
        return crc32(body) & 0x7FFFFFFF
    finally:
        body.release()


def body_seen(mapped: MappedFile, record: Record) -> Buffer:
    """A buffer with the body of a file's record, at ``body_position``."""
    end = record.body_position + record.body_length
    return whole(mapped, record.body_position, end).buffer


def crc_matches(buffer: Buffer, record: Record) -> bool:
    """Whether the body matches its CRC. An empty one is not checked, as in the engine."""
    return record.body_length == 0 or body_crc_of(buffer, record) == record.body_crc


def find_next(mapped: MappedFile, position: int) -> int:
    """Position of the next record or blank at or after ``position``; the file's size when none.

    A record is found by its magic code and by a PHYSICALOFFSET that names its own place, whatever
    its size field says; a blank by a size that reaches exactly to the end of the file. Holes are
    skipped. Only a size field may begin in one, with its leading zeros.
    """
    if mapped.framed:
        from rmqctl.engine.record.entries import find_next_framed

        return find_next_framed(mapped, position)
    for data, high in mapped.extents(position, mapped.size):
        # Behind the log's end zeros may be allocated, and no magic code begins with one.
        first = mapped.first_nonzero(data, high)
        low = max(first - _MAGIC_CODE_AT, position)
        record = _find_record(mapped, low, high)
        at = _find_blank(mapped, low, record)
        if at < high:
            return at
    return mapped.size


def find_next_record(mapped: MappedFile, position: int) -> int:
    """:func:`find_next` for records only, without blanks and headers of entries."""
    for data, high in mapped.extents(position, mapped.size):
        at = _find_record(mapped, max(data - _MAGIC_CODE_AT, position), high)
        if at < high:
            return at
    return mapped.size


def _find_record(mapped: MappedFile, low: int, high: int) -> int:
    for at in mapped.occurrences(layouts.RECORD_MAGIC_HEAD, low + _MAGIC_CODE_AT, high):
        start = at - _MAGIC_CODE_AT
        if start + MIN_RECORD_SIZE > mapped.size:
            break
        head = mapped.read_aside(start, _PHYSICAL_OFFSET_AT + _PHYSICAL_OFFSET.size)
        _, magic_code = BLANK.unpack_from(head)
        (offset,) = _PHYSICAL_OFFSET.unpack_from(head, _PHYSICAL_OFFSET_AT)
        if magic_code in TAILS and offset == mapped.file_from_offset + start:
            return start
    return high


def _find_blank(mapped: MappedFile, low: int, high: int) -> int:
    for at in mapped.occurrences(_BLANK_BYTES, low + _MAGIC_CODE_AT, high):
        start = at - _MAGIC_CODE_AT
        total_size, _ = BLANK.unpack(mapped.read_aside(start, BLANK.size))
        if total_size == mapped.size - start:
            return start
    return high
