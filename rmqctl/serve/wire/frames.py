"""Frames: bytes in, commands out; a command in, bytes out. No socket, no clock.

A reader holds the bytes of one unfinished frame and no more: what a peer claims is never allocated,
only what it has sent. How long a frame may take is for whoever has a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from formats import layouts
from formats.remotingcodes import FRAME_MAX_LENGTH, SerializeType
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.header import FrameError, decode_header, encode_header

PREFIX = Struct(layouts.REMOTING_FRAME.format)
_PREFIX_SIZE = PREFIX.size
#: Of the length, which does not count itself.
_LENGTH_SIZE = layouts.REMOTING_FRAME.fields[0].size
_HEADER_BITS = 24
_SERIALIZE_TYPES = frozenset(map(int, SerializeType))
_HEADER_MASK = (1 << _HEADER_BITS) - 1
#: First byte of a TLS connection, and of no frame: one would be too long.
_TLS_HANDSHAKE = 0x16
#: A header holds at most the properties of one message, 32 KiB, of which JSON may make six times
#: as much. Without a bound small fields would make a hundred times their bytes of objects. A peer
#: that stays within RocketMQ's own limits never meets it.
MAX_HEADER_LENGTH = 1 << 20


class FrameReader:
    """Makes commands of the bytes of one connection.

    :param max_length: bytes of the longest frame, its length included.
    """

    def __init__(self, max_length: int = FRAME_MAX_LENGTH) -> None:
        self._max_length = max_length
        self._buffer = bytearray()
        self._failure: str | None = None
        #: Bytes of a frame that is not whole yet, when all that came has been read.
        self.pending = 0

    def feed(self, data: bytes) -> Iterator[RemotingCommand]:
        """The commands that are whole with these bytes, in order. Nothing but the iterator takes
        bytes: read it to its end.

        :raises FrameError: the peer does not speak the protocol; also of all bytes after that.
        """
        if self._failure is not None:
            raise FrameError(self._failure)
        try:
            if not self._buffer and self._end_of_frame(data) == len(data):
                # One frame, which most bytes that come are.
                yield decode_frame(data)
                return
            self._buffer += data
            while (end := self._end_of_frame(self._buffer)) is not None:
                frame = bytes(memoryview(self._buffer)[:end])
                del self._buffer[:end]
                yield decode_frame(frame)
            self.pending = len(self._buffer)
        except FrameError as error:
            self.give_up(str(error))
            raise

    def give_up(self, reason: str) -> None:
        """Nothing more is read, and what has come is forgotten."""
        self._failure = reason
        self._buffer.clear()
        self.pending = 0

    def _end_of_frame(self, data: bytes | bytearray) -> int | None:
        """Where the first frame ends, when all of it is here. What its first eight bytes say is
        judged as soon as they are: nobody waits for 16 MiB that cannot be a frame."""
        if len(data) < _PREFIX_SIZE:
            return None
        length, word = PREFIX.unpack_from(data)
        end = length + _LENGTH_SIZE
        if data[0] == _TLS_HANDSHAKE:
            raise FrameError("it speaks TLS, which is not served")
        if not _PREFIX_SIZE <= end <= self._max_length:
            raise FrameError(f"a frame of {end} bytes, of which at most {self._max_length} may be")
        header_length = word & _HEADER_MASK
        if header_length > end - _PREFIX_SIZE or header_length > MAX_HEADER_LENGTH:
            raise FrameError(f"a header of {header_length} bytes in a frame of {end}")
        if word >> _HEADER_BITS not in _SERIALIZE_TYPES:
            raise FrameError(f"there is no header of type {word >> _HEADER_BITS}")
        return end if len(data) >= end else None


def decode_frame(frame: bytes) -> RemotingCommand:
    """The command of one whole frame, whose prefix is sound. :raises FrameError: its header is
    not."""
    _, word = PREFIX.unpack_from(frame)
    body_at = _PREFIX_SIZE + (word & _HEADER_MASK)
    return decode_header(word >> _HEADER_BITS, frame[_PREFIX_SIZE:body_at], frame[body_at:])


def encode_frame(command: RemotingCommand) -> bytes:
    """The bytes of a command."""
    header = encode_header(command)
    word = command.serialize_type << _HEADER_BITS | len(header)
    length = _PREFIX_SIZE - _LENGTH_SIZE + len(header) + len(command.body)
    return b"".join((PREFIX.pack(length, word), header, command.body))
