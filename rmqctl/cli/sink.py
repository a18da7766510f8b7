"""Where rows go: stdout as bytes, in blocks; and what a format is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING

from rmqctl.cli import pager
from rmqctl.errors import CannotWrite

if TYPE_CHECKING:
    from rmqctl.engine.read.lines import Lines
    from rmqctl.rows import Row


#: Bytes that are gathered before stdout gets them.
_BUFFER_BYTES = 1 << 16


class Sink:
    """stdout as bytes, written in blocks; a terminal gets each piece at once.

    :param paged: what a terminal gets goes through a pager.
    """

    def __init__(self, *, paged: bool = False) -> None:
        self.is_terminal = pager.is_running() or sys.stdout.isatty()
        self._paged = paged
        sys.stdout.flush()
        self._out: IO[bytes] = sys.stdout.buffer
        self._pieces: list[bytes] = []
        self._size = 0
        #: Called before anything is printed on a terminal.
        self.before_output: Callable[[], None] | None = None

    def write(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= _BUFFER_BYTES or self.is_terminal:
            self.flush()

    def line(self, text: str) -> None:
        self.write(text.encode("utf-8", "backslashreplace") + b"\n")

    def flush(self) -> None:
        """Hands everything to the reader. What another writer prints to the same terminal may
        follow a call.

        :raises BrokenPipeError: the reader has gone. :raises CannotWrite: the disk is full.
        """
        if self.before_output is not None and self.is_terminal:
            self.before_output()
        if self._paged and self.is_terminal and self._pieces:
            pager.start()
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        try:
            self._out.write(data)
            self._out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            silence_stdout()
            raise CannotWrite(path="standard output", reason=error.strerror) from error


def silence_stdout() -> None:
    """Lets go what stdout cannot take: what is still buffered goes nowhere, also at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass


class Shape:
    """A format."""

    #: The form of lines that it takes in place of rows of its main type; empty: of none.
    form = ""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def row(self, row: Row) -> None:
        pass

    def many(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.row(row)

    def lines(self, lines: Lines) -> None:
        """Rows that are lines of its :attr:`form` already."""
        raise AssertionError(f"{type(self).__name__} takes no lines")

    def summary(self, row: Row) -> None:
        self.row(row)

    def remark(self, text: str) -> None:
        """A line for the reader of a table; the other formats have it as a field."""

    def command(self, text: str) -> None:
        """A command line for the reader of a table, in one piece however long it is."""

    def flush(self) -> None:
        """Gives the sink what waits for more rows."""

    def close(self) -> None:
        pass


class Nothing(Shape):
    """The format that prints nothing."""

    def many(self, rows: Iterable[Row]) -> None:
        """Rows that nobody sees are not made."""
