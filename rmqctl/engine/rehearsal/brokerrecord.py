"""``CommitLog#checkMessageAndReturnSize`` exactly as in the engine.

It checks less than :mod:`rmqctl.engine.record.record`, and not PHYSICALOFFSET: so it accepts old
records that were left behind, and refuses whole ones of a version that it does not know. Only
irregular places come here; the scanner reads all others.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from isal.isal_zlib import crc32

from formats import constants
from formats.text import decode_properties, decode_utf8
from rmqctl.engine.dispatch.rules import has_bad_delay
from rmqctl.engine.files.mappedfile import MappedFile

_CHUNK = 1 << 20
_INT, _LONG, _SHORT, _BYTE = Struct(">i"), Struct(">q"), Struct(">h"), Struct(">b")
_V4_HOST, _V6_HOST = 8, 20


class Request(NamedTuple):
    """``DispatchRequest``: the fields of a message for its dispatch, as its record claims them.
    ``properties`` is None without any."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    sys_flag: int
    store_timestamp: int
    properties: dict[str, str] | None


class Checked(NamedTuple):
    """The result for a place: a message with its ``request``, the end of a file (``size`` 0), or a
    failure and ``why``. For a failure ``size`` is how far the engine goes on (-1: it does not).
    ``position`` is the position of its buffer."""

    is_success: bool
    size: int
    position: int
    request: Request | None = None
    why: str = ""


class _Underflow(Exception):
    """A read behind the end of the buffer, or of more bytes than its array holds."""


class _Buffer:
    """A ``ByteBuffer`` over a file, up to a limit."""

    def __init__(self, mapped: MappedFile, position: int, limit: int) -> None:
        self.mapped, self.position, self.limit = mapped, position, limit
        self.room = 1 << 62

    def take(self, size: int) -> bytes:
        """:raises _Underflow: there are fewer bytes, or the array is too small for them."""
        if size < 0 or size > self.room or self.position + size > self.limit:
            raise _Underflow
        data = self.mapped.read(self.position, size)
        self.position += size
        return data

    def skip(self, size: int) -> None:
        if self.position + size > self.limit:
            raise _Underflow
        self.position += size

    def number(self, kind: Struct) -> int:
        if self.position + kind.size > self.limit:
            raise _Underflow
        (value,) = kind.unpack(self.mapped.read(self.position, kind.size))
        self.position += kind.size
        return int(value)


def check_message(
    mapped: MappedFile, position: int, limit: int, *, with_body: bool, as_5: bool
) -> Checked:
    """Checks a place of a file.

    :param with_body: reads the body and compares its CRC, as a recovery does; the dispatch does
        not.
    """
    buffer = _Buffer(mapped, position, limit)
    try:
        return _checked(buffer, position, with_body=with_body, as_5=as_5)
    except _Underflow:
        return Checked(False, -1, buffer.position, why="a message that does not end in its file")


def _checked(buffer: _Buffer, start: int, *, with_body: bool, as_5: bool) -> Checked:
    def fails(why: str, size: int = -1) -> Checked:
        return Checked(False, size, buffer.position, why=why)

    total_size = buffer.number(_INT)
    if as_5 and (buffer.limit - start <= _INT.size or buffer.limit - start < total_size):
        return fails("a size beyond the end of the file")
    magic_code = buffer.number(_INT) & 0xFFFFFFFF
    if magic_code == constants.BLANK_MAGIC_CODE & 0xFFFFFFFF:
        return Checked(True, 0, buffer.position)
    known = [constants.MESSAGE_MAGIC_CODE, *([constants.MESSAGE_MAGIC_CODE_V2] if as_5 else [])]
    if magic_code not in [code & 0xFFFFFFFF for code in known]:
        if not total_size and not magic_code:
            return fails("nothing was written there")
        return fails(f"illegal magic code {magic_code:#010x}")
    if total_size < 0:
        return fails("a negative size")
    buffer.room = total_size
    is_v2 = magic_code == constants.MESSAGE_MAGIC_CODE_V2 & 0xFFFFFFFF
    body_crc, queue_id, _ = (buffer.number(_INT) for _ in range(3))
    queue_offset, physical_offset = buffer.number(_LONG), buffer.number(_LONG)
    sys_flag, _ = buffer.number(_INT), buffer.number(_LONG)
    buffer.take(_V6_HOST if sys_flag & constants.BORNHOST_V6_FLAG else _V4_HOST)
    store_timestamp = buffer.number(_LONG)
    buffer.take(_V6_HOST if sys_flag & constants.STOREHOSTADDRESS_V6_FLAG else _V4_HOST)
    buffer.number(_INT)
    buffer.number(_LONG)
    body_length = buffer.number(_INT)
    if body_length > 0 and not _body_is_sound(buffer, body_length, body_crc, with_body):
        return fails("the body is not what its CRC says")
    topic = decode_utf8(buffer.take(buffer.number(_SHORT if is_v2 else _BYTE)))
    properties_length = buffer.number(_SHORT)
    properties = None
    if properties_length > 0:
        properties = decode_properties(buffer.take(properties_length))
        if has_bad_delay(topic, properties):
            return fails("a delayed message whose level is no number")
    if buffer.position - start != total_size:
        return fails("lengths that do not add up to the size", total_size)
    request = Request(
        topic,
        queue_id,
        queue_offset,
        physical_offset,
        total_size,
        sys_flag,
        store_timestamp,
        properties,
    )
    return Checked(True, total_size, buffer.position, request)


def _body_is_sound(buffer: _Buffer, length: int, body_crc: int, with_body: bool) -> bool:
    """Passes over a body in small pieces, whatever length it claims."""
    if not with_body:
        buffer.skip(length)
        return True
    if length > buffer.room or buffer.position + length > buffer.limit:
        raise _Underflow
    crc, end = 0, buffer.position + length
    while buffer.position < end:
        crc = crc32(buffer.take(min(_CHUNK, end - buffer.position)), crc)
    return crc & 0x7FFFFFFF == body_crc
