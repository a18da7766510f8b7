"""A process on a terminal of its own (a pty), and what comes to that terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from collections.abc import Iterator
from typing import Any


class OnTerminal:
    """A process that has a new terminal as stdout and stderr, unless told otherwise.

    Iteration gives what comes to the terminal, in pieces, until the process has ended. The test
    keeps the process's side of the terminal open as long: were the process the last to have it,
    Linux could answer a read with EIO although there is still something to be read.
    """

    def __init__(self, line: list[Any], *, stdin: bool = False, **given: Any) -> None:
        """
        :param stdin: it has the terminal as stdin too. :param given: for ``subprocess.Popen``.
        """
        self.controller, self._terminal = pty.openpty()
        streams: dict[str, Any] = {"stdout": self._terminal, "stderr": self._terminal}
        if stdin:
            streams["stdin"] = self._terminal
        self.process = subprocess.Popen(line, **streams | given)

    def __iter__(self) -> Iterator[bytes]:
        ended = os.pidfd_open(self.process.pid)
        os.set_blocking(self.controller, False)
        goes_on = True
        try:
            while goes_on:
                ready, _, _ = select.select([self.controller, ended], [], [])
                goes_on = ended not in ready
                yield from self._what_is_there()
        finally:
            for descriptor in (ended, self.controller, self._terminal):
                os.close(descriptor)

    def _what_is_there(self) -> Iterator[bytes]:
        try:
            while True:
                yield os.read(self.controller, 1 << 16)
        except BlockingIOError:
            pass

    def ended(self) -> tuple[int, str]:
        """The exit code, and all that comes to the terminal from now on."""
        shown = b"".join(self)
        return self.process.wait(60), shown.decode().replace("\r\n", "\n")
