"""Where rows go: stdout as bytes, in blocks; and what a format is."""

from __future__ import annotations

import os
import select
import stat
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
#: What a pipe takes at once or not at all.
_PIECE_BYTES = select.PIPE_BUF
#: How long an interrupted command waits for who reads.
_PATIENCE_SECONDS = 1.0


class Sink:
    """stdout as bytes, written in blocks; a terminal gets each piece at once.

    :param paged: what a terminal gets goes through a pager.
    """

    def __init__(self, *, paged: bool = False) -> None:
        self.is_terminal = pager.is_running() or sys.stdout.isatty()
        self._paged = paged
        sys.stdout.flush()
        self._out: IO[bytes] = sys.stdout.buffer
        self._pieces: list[bytes | memoryview] = []
        self._size = 0
        self._is_interrupted = False
        self._is_waited_for = not self.is_terminal and _is_pipe(self._out)
        #: Called before anything is printed on a terminal.
        self.before_output: Callable[[], None] | None = None

    def write(self, data: bytes | memoryview) -> None:
        if not data:
            return
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= _BUFFER_BYTES or self.is_terminal:
            self.flush()

    def line(self, text: str) -> None:
        self.write(text.encode("utf-8", "backslashreplace") + b"\n")

    def interrupted(self) -> None:
        """From now on nobody is waited for who does not read: what is still to be said may be
        lost, and the command ends."""
        self._is_interrupted = True

    def flush(self) -> None:
        """Hands everything to the reader. What another writer prints to the same terminal may
        follow a call.

        :raises BrokenPipeError: the reader has gone. :raises CannotWrite: the disk is full.
        """
        if self.before_output is not None and self.is_terminal:
            self.before_output()
        if self._paged and self.is_terminal and self._pieces:
            pager.start()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        try:
            if self._is_interrupted and self._is_waited_for:
                _write_to_reader(self._out, data)
            else:
                self._out.write(data)
                self._out.flush()
        except KeyboardInterrupt:
            if self._is_waited_for:
                silence_stdout()  # Nobody knows how much of the block was written.
            raise
        except BrokenPipeError:
            raise
        except OSError as error:
            silence_stdout()
            raise CannotWrite(path="standard output", reason=error.strerror) from error


def _is_pipe(out: IO[bytes]) -> bool:
    """Whether writing may wait for who reads."""
    try:
        mode = os.fstat(out.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _write_to_reader(out: IO[bytes], data: bytes | memoryview) -> None:
    """Writes as long as somebody reads; the rest goes nowhere. A pipe that can be written to takes
    a piece without waiting."""
    for start in range(0, len(data), _PIECE_BYTES):
        if not select.select([], [out], [], _PATIENCE_SECONDS)[1]:
            silence_stdout()
            return
        out.write(data[start : start + _PIECE_BYTES])
        out.flush()


def silence_stdout() -> None:
    """Lets go what stdout cannot take: what is still buffered goes nowhere, also at exit."""
    _silence(sys.stdout)


def let_stderr_go() -> None:
    """Before the end: what stderr has not taken by now goes nowhere. Python would try again, and
    end with a code of its own."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        _silence(sys.stderr)


def _silence(stream: IO[str]) -> None:
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        pass


def has_reader_gone() -> bool:
    """Whether nobody reads stdout any more: a broken pipe may be another one."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # An end of the other side is told in any case.
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True  # Somebody's own stream, which has said so.


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
