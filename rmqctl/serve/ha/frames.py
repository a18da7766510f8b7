"""Reads frames of a master and reports of a slave, without sockets and clocks.

The protocol has neither a handshake nor a magic number, so every peer has to be taken for a slave
or a master; the bounds here limit what it can claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from formats import layouts

REPORT = Struct(layouts.HA_REPORT.format)
FRAME = Struct(layouts.HA_FRAME.format)
#: Most bytes of log in a frame. A longer one does not fit into the read buffer of a slave
#: (``HAClient``), which would wait for it for ever.
MAX_FRAME_SIZE = (4 << 20) - FRAME.size


class ReportReader:
    """Reads the reports of one slave. Of reports that come together only the last counts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The last offset that is complete with these bytes; None: none is."""
        data = self._rest + data
        whole = len(data) // REPORT.size * REPORT.size
        self._rest = data[whole:]
        offset: int
        if not whole:
            return None
        (offset,) = REPORT.unpack_from(data, whole - REPORT.size)
        return offset


class FramePart(NamedTuple):
    """Bytes of log that have come: of a whole frame or a part. A heartbeat has none."""

    physical_offset: int
    data: bytes


class BadFrame(Exception):
    """The bytes are no frame that can come next; the text says why."""


class FrameReader:
    """Reads a master's frames, and gives the bytes of log in them with their places.

    It holds no more than the head of one frame: data is given as it comes, not when a frame is
    complete.

    :param expected: physical offset of the first byte that has to come.
    :param file_size: bytes of a file of the log: no frame crosses the end of one.
    """

    def __init__(self, expected: int, file_size: int) -> None:
        self.expected = expected
        self._file_size = file_size
        self._head = b""
        #: Bytes of the current frame that have not come yet.
        self._missing = 0

    def feed(self, data: bytes) -> Iterator[FramePart]:
        """The log in these bytes, in order. The iterator has to be read to its end.

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
