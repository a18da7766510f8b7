"""Beginning a command anew, where retention has deleted a file that it was about to read.

A command that only reads tells of a store at one time, or nearly so. If a file has gone between the
listing and the reading, what was found before is of the past: a look from the beginning gives the
right answer. Commands that go through the log row by row need not begin anew: they go on with what
is left (:mod:`rmqctl.engine.log.onward`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from rmqctl.cli.output import note
from rmqctl.cli.sink import begins, begins_anew
from rmqctl.engine.files.again import MOST_AGAIN, looked_again
from rmqctl.engine.files.paths import FileGone

_QUIET = {"-q", "--quiet"}


def begun_anew(command: Callable[[], object], arguments: Sequence[str]) -> object:
    """What a command that changes no store returns. It begins anew where a file has gone, unless
    some of its output is out, or it cannot read its input again.

    :raises FileGone: it cannot begin anew, or has done so too often.
    """
    times = 0

    def gone(error: FileGone) -> None:
        nonlocal times
        times += 1
        if not begins_anew(FileGone):
            raise error
        if not _QUIET & {*arguments}:
            note(f"note: {error.path} was deleted before it was read (retention). Begun anew.")
        begins(anew=times < MOST_AGAIN)

    begins(anew=all(map(_is_there_again, arguments)))
    return looked_again(command, gone)


def _is_there_again(argument: str) -> bool:
    """Whether what an argument names, if it names input, can be read a second time."""
    name = argument.partition("=")[2] if argument.startswith("--") else argument
    try:
        mode = os.stat(name).st_mode
    except (OSError, ValueError):
        return name != "-"
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
