"""stdout as bytes, written in blocks, and the base class of the formats that write to it."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import IO, TYPE_CHECKING

from rmqctl.cli import pager
from rmqctl.engine.files.paths import FileGone
from rmqctl.errors import CannotWrite

if TYPE_CHECKING:
    from rmqctl.engine.read.lines import Lines
    from rmqctl.rows import Row


#: Bytes that are gathered before stdout gets them.
_BUFFER_BYTES = 1 << 16
#: Bytes that a pipe takes either whole or not at all.
_PIECE_BYTES = select.PIPE_BUF
#: How long an interrupted command waits for its reader.
_PATIENCE_SECONDS = 1.0
#: Whether the running command has handed anything to its reader; and whether it may begin anew as
#: long as it has not (:mod:`rmqctl.cli.again`).
_WRITTEN = ContextVar("written", default=False)
_ANEW = ContextVar("anew", default=False)


class Sink:
    """stdout as bytes, written in blocks; on a terminal each piece is written at once.

    :param paged: on a terminal the output goes through a pager.
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
        """From now on a reader that does not read is not waited for: the rest of the output may be
        lost, and the command ends."""
        self._is_interrupted = True

    def flush(self) -> None:
        """Hands everything to the reader. After a call another writer may print to the same
        terminal.

        :raises BrokenPipeError: the reader has gone. :raises CannotWrite: the disk is full.
        """
        if self.before_output is not None and self.is_terminal:
            self.before_output()
        if self._paged and self.is_terminal and self._pieces:
            pager.start()
        if self._pieces:
            _WRITTEN.set(True)
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


def begins(*, anew: bool) -> None:
    """To be called before a command begins. ``anew``: where a file has gone that it was about to
    read it begins anew, if it has written nothing."""
    _WRITTEN.set(False)
    _ANEW.set(anew)


def begins_anew(error: type[BaseException]) -> bool:
    """Whether the command begins anew that such an error ends. What it has not written yet must
    then be dropped."""
    return _ANEW.get() and not _WRITTEN.get() and issubclass(error, FileGone)


def _is_pipe(out: IO[bytes]) -> bool:
    """Whether a write may wait for a reader: stdout is a pipe or a socket."""
    try:
        mode = os.fstat(out.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _write_to_reader(out: IO[bytes], data: bytes | memoryview) -> None:
    """Writes as long as the reader reads, and drops the rest. A pipe that poll or select calls
    writable takes a piece of that size without waiting."""
    for start in range(0, len(data), _PIECE_BYTES):
        if not select.select([], [out], [], _PATIENCE_SECONDS)[1]:
            silence_stdout()
            return
        out.write(data[start : start + _PIECE_BYTES])
        out.flush()


def silence_stdout() -> None:
    """Drops what stdout cannot take, also what Python would still write at exit."""
    _silence(sys.stdout)


def let_stderr_go() -> None:
    """Drops what stderr has not taken. To be called before the process ends: Python would try to
    write it again, and end with an exit code of its own."""
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
    """Whether the reader of stdout has gone. A BrokenPipeError alone does not say so: it may be of
    another pipe."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # Poll always tells when the other side is closed.
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True  # A stream without a descriptor, which has raised the error itself.


class Shape:
    """Base of the formats.

    A format writes rows to a :class:`Sink`.
    """

    #: The format of lines that it takes in place of rows of its main type; empty: it takes none.
    form = ""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def row(self, row: Row) -> None:
        pass

    def many(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.row(row)

    def lines(self, lines: Lines) -> None:
        """Takes rows that are already lines of its :attr:`form`."""
        raise AssertionError(f"{type(self).__name__} takes no lines")

    def summary(self, row: Row) -> None:
        self.row(row)

    def remark(self, text: str) -> None:
        """Prints a line for the reader of a table; other formats have its content as a field."""

    def command(self, text: str) -> None:
        """Prints a command line for the reader of a table, unbroken however long it is."""

    def columns(self, names: list[str]) -> None:
        """The fields that a row would have, where none has come."""

    def whole(self) -> None:
        """Told when all rows have come, and nothing has ended them before."""

    def flush(self) -> None:
        """Gives the sink the rows that are held back until more come."""

    def close(self) -> None:
        pass


class Nothing(Shape):
    """The format that prints nothing. It takes lines, which are made sooner than rows."""

    form = "ndjson"

    def lines(self, lines: Lines) -> None:
        pass

    def many(self, rows: Iterable[Row]) -> None:
        """Takes no row: rows that nobody sees need not be made."""
