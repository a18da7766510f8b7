"""Lines of a bulk input as they arrive: read in blocks, bounded in length.

None among the lines says that the input pauses: the lines before it are to be handled now, and not
to wait for a full bulk. Ctrl-C and SIGTERM end the input where they arrive, so that what was read
is still stored and answered.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from types import FrameType
from typing import BinaryIO

from rmqctl.cli.signals import stop_signals
from rmqctl.errors import CannotRead, UsageError
from rmqctl.operations.change.putstream import LineTooLong

#: Bytes that are read at once.
_BLOCK = 1 << 18
#: Most bytes of a line: a longer one cannot be a message that a store takes.
_LONGEST_LINE = 64 << 20
#: Why there is no standard input (`<&-`).
CLOSED = "it is closed"
#: How long the input may pause before the lines that have come are handled.
_PAUSE_SECONDS = 0.005


def standard_input() -> bytes | None:
    """All of standard input; None when it is a terminal, or closed.

    :raises UsageError: it does not end where a body must.
    """
    if sys.stdin is None or os.isatty(0):
        return None
    with open(0, "rb", closefd=False) as file:
        return bounded(file, "standard input")


def bounded(file: BinaryIO, name: str) -> bytes:
    """All of a file. :raises UsageError: it is longer than any body. :raises CannotRead: the
    system refused."""
    try:
        data = file.read(_LONGEST_LINE + 1)
    except OSError as error:
        raise CannotRead(path=name, reason=error.strerror) from error
    if len(data) > _LONGEST_LINE:
        raise UsageError(reason=f"{name} is longer than {_LONGEST_LINE} bytes: no body is.")
    return data


class LineSource:
    """The lines of a file, or of standard input for ``-``. ``interrupted`` is true when a signal
    has ended them early. Use it as a context manager: only inside it handles signals."""

    def __init__(self, path: str, content: str = "NDJSON") -> None:
        """:param content: what the lines are. :raises UsageError: the file cannot be opened."""
        self.name = "standard input" if path == "-" else path
        self.interrupted = False
        self._reading = False
        self._signals = stop_signals(self._stop)
        try:
            if path == "-" and sys.stdin is None:
                raise OSError(errno.EBADF, CLOSED)
            self._descriptor = 0 if path == "-" else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if stat.S_ISDIR(os.fstat(self._descriptor).st_mode):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        except OSError as error:
            raise UsageError(
                reason=f"cannot read {self.name}: {error.strerror}. "
                f"Give a file of {content}, or - for standard input."
            ) from error

    def __enter__(self) -> LineSource:
        self._signals.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.__exit__(None, None, None)
        self.close()

    def close(self) -> None:
        """Closes the file. For a source that was not entered as a context manager: it has no signal
        handlers to restore."""
        if self._descriptor:
            os.close(self._descriptor)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        if self._reading:
            raise KeyboardInterrupt

    def _read(self) -> bytes:
        try:
            self._reading = True
            return b"" if self.interrupted else os.read(self._descriptor, _BLOCK)
        except KeyboardInterrupt:
            if not self.interrupted:
                raise
            return b""
        except OSError as error:
            raise CannotRead(path=self.name, reason=error.strerror) from error
        finally:
            self._reading = False

    def _waits(self) -> bool:
        """Whether a read would have to wait now."""
        try:
            return not select.select([self._descriptor], [], [], _PAUSE_SECONDS)[0]
        except (OSError, ValueError):
            return False

    def __iter__(self) -> Iterator[bytes | None]:
        """The lines; :raises LineTooLong: one has no end."""
        for block in self.blocks():
            if block is None:
                yield None
            else:
                yield from block.removesuffix(b"\n").split(b"\n")

    def blocks(self) -> Iterator[bytes | None]:
        """The same in blocks of whole lines with their newlines. A byte order mark before the first
        line is removed. Errors are those of :meth:`__iter__`."""
        mark = BOM_UTF8
        # The pieces of a long line are joined once, when its newline has come.
        pieces: list[bytes] = []
        length = 0
        while block := self._read():
            end = block.rfind(b"\n") + 1
            if end:
                pieces.append(block[:end])
                yield b"".join(pieces).removeprefix(mark)
                mark, pieces, length = b"", [], 0
            pieces.append(block[end:])
            length += len(block) - end
            if length > _LONGEST_LINE:
                raise LineTooLong(f"it is longer than {_LONGEST_LINE} bytes")
            if self._waits():
                yield None
        if length and not self.interrupted:
            yield b"".join(pieces).removeprefix(mark)
