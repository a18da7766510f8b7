"""Where rows go: stdout as bytes, in blocks, and what every format is."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, Any

Row = dict[str, Any]

_BUFFER_BYTES = 1 << 16


class Sink:
    """stdout as bytes, written in blocks; a terminal gets each piece at once."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        sys.stdout.flush()
        self._out: IO[bytes] = sys.stdout.buffer
        self._pieces: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= _BUFFER_BYTES or self.is_terminal:
            self.flush()

    def line(self, text: str) -> None:
        self.write(text.encode("utf-8", "backslashreplace") + b"\n")

    def flush(self) -> None:
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
            self._out.write(data)
        self._out.flush()


class Shape:
    """A format; this one prints nothing."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def row(self, row: Row) -> None:
        pass

    def many(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.row(row)

    def summary(self, row: Row) -> None:
        self.row(row)

    def close(self) -> None:
        pass
