"""Transcripts in the documents: command lines run in a terminal, with what they print.

A block of ```console holds lines that begin with ``$``, each followed by its output. All blocks of
a page are one session of bash in a new directory. ``python -m tests.transcripts PAGE…`` writes the
outputs anew; the tests compare them.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100
_BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
#: What is another at each run, to be replaced by a sign of its own.
_CHANGING = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}([+-]\d\d:\d\d)?)?"), "<time>"),
    (re.compile(r"\b127\.0\.0\.1:[1-9]\d{4}\b"), "<address>"),
    (re.compile(r"rmqctl-(old|backup)-\d{20}"), "<kept>"),
    (re.compile(r"\b20\d{15}\b"), "<index file>"),
    (re.compile(r"\b1\d{12}\b"), "<ms>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"\b[0-9a-f]{12}, which is not named"), "<id>, which is not named"),
]


class Step(NamedTuple):
    command: str
    output: str


def steps(page: str) -> list[Step]:
    """The command lines of a page and the outputs it shows."""
    found = []
    for block in _BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Step(command, output))
    return found


def without_changing(text: str) -> str:
    for pattern, sign in _CHANGING:
        text = pattern.sub(sign, text)
    return text


def session(commands: list[str], directory: Path) -> list[tuple[int, str]]:
    """Runs command lines one after the other in one shell on a terminal; exit status and output
    of each."""
    tools = directory / ".bin"
    tools.mkdir()
    (tools / "rmqctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m rmqctl "$@"\n')
    (tools / "rmqctl").chmod(0o755)
    mark = "\x1e"
    script = "\n".join(
        f"{command}\nstatus=$?; printf '{mark}%s{mark}' $status; (exit $status)"
        for command in commands
    )
    environment = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        # No colours and no bar.
        "TERM": "dumb",
        "COLUMNS": str(WIDTH),
        "LINES": "40",
    }
    environment.pop("RMQCTL_STORE", None)
    master, slave = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "-c", script], stdin=slave, stdout=slave, stderr=slave, cwd=directory,
        env=environment,
    )  # fmt: skip
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # The terminal has lost its last process.
            break
        shown += piece
    os.close(master)
    shell.wait()
    parts = re.sub(r" *\r\n", "\n", shown.decode()).split(mark)
    return [(int(status), output) for output, status in zip(parts[::2], parts[1::2], strict=False)]


def renewed(page: str) -> str:
    """A page with the outputs as they are now."""
    with tempfile.TemporaryDirectory() as directory:
        ran = iter(session([step.command for step in steps(page)], Path(directory)))

    def block(match: re.Match[str]) -> str:
        commands = re.findall(r"^\$ .*\n", match.group(), re.MULTILINE)
        return "".join(command + next(ran)[1] for command in commands)

    return _BLOCK.sub(block, page)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(renewed(path.read_text()))
