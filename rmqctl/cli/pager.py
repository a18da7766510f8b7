"""A pager for output on a terminal, as git has one.

It starts with the first line that is printed. It gets stdout, and stderr where that is a terminal,
so that rows and notes stay in order. Commands that take a store's lock have no pager: it would hold
the lock for as long as the user reads.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from subprocess import Popen

#: A command that declares this exit code takes the lock of a store.
_IN_USE = 4
#: A command line with one of these characters is run by the shell; others are run directly.
_FOR_SHELL = r"[|&;<>()$`\"'*?\[#~=%\\\n]"
#: Variables for less and lv where the user has not set them: quit if it fits one screen, pass
#: colours through, do not clear the screen.
_OPTIONS = {"LESS": "FRX", "LV": "-c"}
#: Columns that a terminal is taken to have at least, whatever it says.
_LEAST_WIDTH = 20


class _Running:
    """A running pager. ``kept`` maps each descriptor that leads to it to a copy of the original."""

    def __init__(self, process: Popen[bytes], kept: dict[int, int], columns: int) -> None:
        self.process = process
        self.kept = kept
        self.columns = columns


_running: _Running | None = None


def is_wanted(no_pager: bool) -> bool:
    """Whether the command that is being run may have one: it only looks, and --no-pager is not
    given."""
    return not no_pager and not takes_lock()


def takes_lock() -> bool:
    """Whether the command that is being run takes the lock of a store, or plans what would."""
    context = click.get_current_context(silent=True)
    exits = getattr(context.command, "exits", {}) if context else {}
    return _IN_USE in exits


def is_running() -> bool:
    """Whether a pager has the terminal."""
    return _running is not None


def terminal_width() -> int:
    """Columns of the terminal: COLUMNS where that is set, else what it says itself."""
    if _running is not None:
        return _running.columns
    given = os.environ.get("COLUMNS", "")
    if re.fullmatch("[1-9][0-9]{0,4}", given):
        return max(int(given), _LEAST_WIDTH)
    for stream in (sys.__stdout__, sys.__stderr__):
        try:
            if stream is not None and (found := os.get_terminal_size(stream.fileno()).columns):
                return max(found, _LEAST_WIDTH)
        except (OSError, ValueError):
            continue  # Not a terminal.
    return 80


def command_line() -> list[str] | None:
    """``RMQCTL_PAGER``, ``PAGER`` or ``less`` as arguments; None where that is empty, ``cat``, or
    nothing that can be run."""
    import shlex
    import shutil

    wanted = next(
        (os.environ[name] for name in ("RMQCTL_PAGER", "PAGER") if name in os.environ), "less"
    ).strip()
    if wanted in ("", "cat"):
        return None
    if re.search(_FOR_SHELL, wanted):
        return ["/bin/sh", "-c", wanted]
    parts = shlex.split(wanted)
    return parts if shutil.which(parts[0]) else None


def start() -> bool:
    """Starts the pager, and gives it stdout and stderr; whether one runs."""
    global _running  # noqa: PLW0603
    if _running is not None:
        return True
    if os.environ.get("TERM", "dumb") in ("", "dumb") or not _is_stdout():
        return False
    command = command_line()
    if command is None:
        return False
    import subprocess

    columns = terminal_width()
    sys.stdout.flush()
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, env=_OPTIONS | dict(os.environ), close_fds=True
        )
    except OSError:
        return False  # Gone since it was looked for: printed without.
    assert process.stdin is not None
    kept = {}
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        if descriptor == 1 or stream.isatty():
            kept[descriptor] = os.dup(descriptor)
            os.dup2(process.stdin.fileno(), descriptor)
    process.stdin.close()
    _running = _Running(process, kept, columns)
    return True


def _is_stdout() -> bool:
    try:
        return sys.stdout.fileno() == 1 and sys.stderr.fileno() == 2
    except (OSError, ValueError):
        return False  # Somebody's own stream (a test's).


def finish() -> None:
    """Waits until the user leaves the pager, if one runs, and restores stdout and stderr. While it
    waits, Ctrl-C is left to the pager.
    """
    global _running
    if _running is None:
        return
    import signal

    running, _running = _running, None

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for descriptor, copy in running.kept.items():
            stream = sys.stdout if descriptor == 1 else sys.stderr
            try:
                stream.flush()
            except BrokenPipeError:
                # The user has left: what is still buffered goes nowhere.
                with open(os.devnull, "wb") as nowhere:
                    os.dup2(nowhere.fileno(), descriptor)
                stream.flush()
            os.dup2(copy, descriptor)
            os.close(copy)
        running.process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
