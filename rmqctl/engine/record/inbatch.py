"""The messages in a batch, as a client puts them together (``MessageDecoder#encodeMessages``)."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from formats import layouts

_HEAD = Struct(layouts.BATCH_MESSAGE_HEAD.format)
_PROPERTIES_HEAD = Struct(layouts.BATCH_MESSAGE_PROPERTIES_HEAD.format)


class BadBatch(ValueError):
    """Bytes that are no batch."""


def in_batch(data: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """CRC, flag, body and properties of each message of a batch, in order. Size and magic code are
    ignored.

    :raises BadBatch: one is cut off.
    """
    at = 0
    while at < len(data):
        if len(data) - at < _HEAD.size:
            raise BadBatch("a message of the batch is cut off")
        _, _, body_crc, flag, length = _HEAD.unpack_from(data, at)
        start = at + _HEAD.size
        at = _end_of(data, start, length)
        if len(data) - at < _PROPERTIES_HEAD.size:
            raise BadBatch("a message of the batch is cut off")
        body = data[start:at]
        (length,) = _PROPERTIES_HEAD.unpack_from(data, at)
        start = at + _PROPERTIES_HEAD.size
        at = _end_of(data, start, length)
        yield body_crc, flag, body, data[start:at]


def _end_of(data: bytes, start: int, length: int) -> int:
    if not 0 <= length <= len(data) - start:
        raise BadBatch(f"a message of the batch claims {length} bytes")
    return start + length
