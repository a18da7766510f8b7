"""Bodies as a consumer gets them: decompressed when the sys flag says so, within a bound.

Bit 0 of the sys flag says that a body is compressed (``MessageSysFlag``). Since 5.0 bits 8 to 10
say how; 0 is ZLIB, the only one of 4.9.3 (``CompressionType#findByValue``). LZ4 means its frame
format, ZSTD its stream; both need the extra ``rmqctl[codecs]``. Output is bounded while it is made:
a body that would exceed the bound is given up, and its memory never allocated.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from isal import isal_zlib

from formats.constants import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK
from rmqctl.engine.record.status import BodyStatus

#: A broker takes messages of up to 4 MiB compressed; bodies of ten times that are rare.
DEFAULT_LIMIT = 64 << 20
_PIECE = 1 << 16
#: Input bytes for ZSTD at once. Its decoder bounds no output, and four bytes may become 128 KiB.
_ZSTD_PIECE = 256
#: Bytes of the longest header of a ZSTD frame.
_ZSTD_HEADER = 18
#: Input bytes for LZ4 at once. What follows a frame comes back as a copy, which must stay small:
#: else many empty frames would take long.
_LZ4_PIECE = 1 << 12
#: Bytes of memory that any ZSTD frame may ask for: what the highest usual level needs.
_LEAST_WINDOW = 8 << 20
_TYPE_SHIFT = 8
_ZLIB_TYPE = 3
#: The stub of isal takes the class for an instance.
_ISAL_ERROR: type[Exception] = isal_zlib.error  # type: ignore[assignment]
_TOO_SHORT = "the compressed bytes end too early"


class Body(NamedTuple):
    """A body; ``data`` is None where it could not be decompressed, and ``reason`` says why."""

    data: bytes | None
    compression: str
    status: BodyStatus
    reason: str = ""


def is_as_stored(stored: bytes, body_crc: int) -> bool:
    """Whether a body is what was stored; an empty one is not checked, as in the engine
    (``CommitLog#checkMessageAndReturnSize``)."""
    return not stored or isal_zlib.crc32(stored) & 0x7FFFFFFF == body_crc


def undecodable(stored: bytes | memoryview, sys_flag: int) -> str:
    """Why no client can decompress a body; empty when one can, or that cannot be told here.

    ``MessageDecoder#decode`` inflates a body if the sys flag says that it is compressed, and gives
    up the message when that fails. Output beyond :data:`DEFAULT_LIMIT` is not checked.
    """
    if not sys_flag & COMPRESSED_FLAG or not stored:
        return ""
    number = (sys_flag & COMPRESSION_TYPE_MASK) >> _TYPE_SHIFT
    if number in (0, _ZLIB_TYPE) and _inflates(stored):
        return ""
    body = decompress(bytes(stored), sys_flag)
    if body.status is BodyStatus.DAMAGED or number not in _CODECS:
        return body.reason
    return ""


def body_problem(body: bytes, sys_flag: int) -> str:
    """Why a new message cannot have this body; empty when it can.

    A broker would take it unchecked, and a Java client would lose the message and all behind it in
    the same answer.
    """
    reason = undecodable(body, sys_flag)
    if not reason:
        return ""
    return f"sys_flag {sys_flag} says that the body is compressed, which it is not: {reason}"


def _inflates(stored: bytes | memoryview) -> bool:
    """Whether isal can inflate a body. It is twice as fast as zlib, which judges what isal
    refuses."""
    decoder = isal_zlib.decompressobj()
    try:
        return len(decoder.decompress(stored, DEFAULT_LIMIT)) == DEFAULT_LIMIT or decoder.eof
    except _ISAL_ERROR:
        return False


class _Damaged(Exception):
    """The bytes are not compressed ones, or some are missing."""


class _OverLimit(Exception):
    """Decompressing takes more memory than the limit allows."""


class _NoCodec(Exception):
    """The package for this compression is not installed."""


def decompress(stored: bytes, sys_flag: int, limit: int = DEFAULT_LIMIT) -> Body:
    """The body that a consumer would get, of at most ``limit`` bytes; never raises."""
    if not sys_flag & COMPRESSED_FLAG or not stored:
        return Body(stored, "none", BodyStatus.STORED)
    number = (sys_flag & COMPRESSION_TYPE_MASK) >> _TYPE_SHIFT
    if number not in _CODECS:
        reason = "RocketMQ knows no such compression"
        return Body(None, f"type {number}", BodyStatus.NO_CODEC, reason)
    name, pieces = _CODECS[number]
    found = bytearray()
    try:
        for piece in pieces(stored, limit):
            found += piece
            if len(found) > limit:
                reason = f"it has more than {limit} bytes; raise --decompress-limit to see it"
                return Body(None, name, BodyStatus.OVER_LIMIT, reason)
    except _Damaged as error:
        return Body(None, name, BodyStatus.DAMAGED, str(error))
    except _OverLimit as error:
        return Body(None, name, BodyStatus.OVER_LIMIT, str(error))
    except _NoCodec as error:
        return Body(None, name, BodyStatus.NO_CODEC, str(error))
    return Body(bytes(found), name, BodyStatus.DECOMPRESSED)


def _zlib(stored: bytes, limit: int) -> Iterator[bytes]:
    decoder = zlib.decompressobj()
    at = 0
    while not decoder.eof:
        # The input that it did not take comes back as a copy, so it gets little at once.
        given = decoder.unconsumed_tail or stored[at : at + _PIECE]
        if not decoder.unconsumed_tail:
            at += len(given)
        try:
            piece = decoder.decompress(given, _PIECE)
        except zlib.error as error:
            raise _Damaged(str(error)) from error
        if not piece and not given:
            raise _Damaged(_TOO_SHORT)
        yield piece


def _no_codec(compression: str, package: str) -> _NoCodec:
    from rmqctl.installed import install_command

    return _NoCodec(f"{compression} needs the package {package}: `{install_command('codecs')}`")


def _lz4(stored: bytes, limit: int) -> Iterator[bytes]:
    try:
        from lz4.frame import LZ4FrameDecompressor
    except ImportError as error:
        raise _no_codec("LZ4", "lz4") from error
    decoder = LZ4FrameDecompressor()
    at = 0
    while at < len(stored) or not decoder.eof:
        if decoder.eof:  # Frames may follow each other.
            decoder = LZ4FrameDecompressor()
        given = stored[at : at + _LZ4_PIECE] if decoder.needs_input else b""
        try:
            piece = decoder.decompress(given, max_length=_PIECE)
        except (RuntimeError, EOFError, ValueError) as error:
            raise _Damaged(str(error)) from error
        at += len(given)
        if decoder.eof:
            at -= len(decoder.unused_data or b"")
        elif not piece and not given and (at == len(stored) or not decoder.needs_input):
            raise _Damaged(_TOO_SHORT)
        yield piece


def _zstd(stored: bytes, limit: int) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError as error:
        raise _no_codec("ZSTD", "zstandard") from error
    window = max(limit, _LEAST_WINDOW)
    context = zstandard.ZstdDecompressor(max_window_size=window)
    decoder = context.decompressobj()
    at = frame = 0
    while at < len(stored):
        if decoder.eof:  # Frames may follow each other.
            decoder, frame = context.decompressobj(), at
        given = stored[at : at + _ZSTD_PIECE]
        try:
            piece = decoder.decompress(given)
        except zstandard.ZstdError as error:
            asked = _zstd_window(stored[frame : frame + _ZSTD_HEADER])
            if asked > window:
                raise _OverLimit(
                    f"its frame asks for a window of {asked} bytes, more than {window}; raise "
                    "--decompress-limit to see it"
                ) from error
            raise _Damaged(str(error)) from error
        at += len(given) - len(decoder.unused_data)
        yield piece
    if not decoder.eof:
        raise _Damaged(_TOO_SHORT)


def _zstd_window(header: bytes) -> int:
    """Bytes of the window that a frame with this header asks for; 0 when it is no frame header."""
    import zstandard

    try:
        return int(zstandard.get_frame_parameters(header).window_size)
    except zstandard.ZstdError:
        return 0


_CODECS: dict[int, tuple[str, Callable[[bytes, int], Iterator[bytes]]]] = {
    0: ("zlib", _zlib),
    1: ("lz4", _lz4),
    2: ("zstd", _zstd),
    _ZLIB_TYPE: ("zlib", _zlib),
}
