"""Frames of a master, reports of a slave: bytes in, what they say out. No socket, no clock.

There is no handshake and no magic: whatever connects is believed as far as its bytes go, and no
further than the bounds here say.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from formats import layouts

REPORT = Struct(layouts.HA_REPORT.format)
FRAME = Struct(layouts.HA_FRAME.format)
#: Bytes of log in a frame that the read buffer of a slave takes (``HAClient``): what is longer
#: would have it wait forever.
MAX_FRAME_SIZE = (4 << 20) - FRAME.size


class ReportReader:
    """The reports of one slave. Of those that come together only the last one counts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The newest offset that is whole with these bytes; None: none is."""
        data = self._rest + data
        whole = len(data) // REPORT.size * REPORT.size
        self._rest = data[whole:]
        offset: int
        if not whole:
            return None
        (offset,) = REPORT.unpack_from(data, whole - REPORT.size)
        return offset


class FramePart(NamedTuple):
    """Bytes of log as they have come, of one frame or a part of it; of a sign of life none."""

    physical_offset: int
    data: bytes


class BadFrame(Exception):
    """What came is no frame that can be followed; the text says why."""


class FrameReader:
    """Makes bytes of log of a master's frames, each at its place.

    It holds the start of one frame: what a frame claims to have is never waited for as a whole.

    :param expected: place of the first byte of the log that has to come.
    :param file_size: bytes of a file of the log: no frame crosses the end of one.
    """

    def __init__(self, expected: int, file_size: int) -> None:
        self.expected = expected
        self._file_size = file_size
        self._head = b""
        #: Bytes of the frame at hand that have not come.
        self._missing = 0

    def feed(self, data: bytes) -> Iterator[FramePart]:
        """What is there with these bytes, in order; read it to its end.

        :raises BadFrame: a frame is for another place, or too large.
        """
        at = 0
        while at < len(data):
            if self._missing:
                part = data[at : at + self._missing]
                at += len(part)
                self._missing -= len(part)
                yield FramePart(self.expected, part)
                self.expected += len(part)
                continue
            piece = data[at : at + FRAME.size - len(self._head)]
            at += len(piece)
            self._head += piece
            if len(self._head) == FRAME.size:
                self._missing = self._size_of(self._head)
                self._head = b""
                if not self._missing:
                    yield FramePart(self.expected, b"")

    def _size_of(self, head: bytes) -> int:
        offset, size = FRAME.unpack(head)
        if offset != self.expected:
            raise BadFrame(f"a frame for {offset} came where {self.expected} had to")
        most = min(MAX_FRAME_SIZE, self._file_size - offset % self._file_size)
        if not 0 <= size <= most:
            raise BadFrame(f"a frame of {size} bytes at {offset}, where at most {most} may be")
        return int(size)
