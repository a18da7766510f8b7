"""Transcripts in the documentation: command lines that are run in a terminal, with their output.

A block of ```console has lines that begin with ``$``, each followed by its output. All blocks of a
page are one session of bash in a new directory. The tests compare the outputs.
``python -m tests.transcripts PAGE…`` writes them again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from tests import processes
from tests.terminals import OnTerminal

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100
_BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
#: What differs in each run. It is replaced by a placeholder.
_CHANGING = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}([+-]\d\d:\d\d)?)?"), "<time>"),
    (re.compile(r"\b127\.0\.0\.1:[1-9]\d{4}\b"), "<address>"),
    (re.compile(r"rmqctl-(old|backup)-\d{20}"), "<kept>"),
    (re.compile(r"\b20\d{15}\b"), "<index file>"),
    (re.compile(r"\b1\d{12}\b"), "<ms>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"\b[0-9a-f]{12}, which is not named"), "<id>, which is not named"),
    # A backup stores a file up to its last byte that is not zero. In a checkpoint that is a byte of
    # a time, which is 0 once in 256 times.
    (re.compile(r"\b(data|stored)_bytes=\d+"), r"\1_bytes=<bytes>"),
    (re.compile(r"^(other +\d+ +)\d+( +)\d+$", re.MULTILINE), r"\1<bytes>\2<bytes>"),
    (
        re.compile(r"^(\S+\.tar\.zst +<time> +\d+ +)\d+( +)\d+", re.MULTILINE),
        r"\1<bytes>\2<bytes>",
    ),
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


#: The ``rmqctl`` of a session. A command that is ended by a signal needs its own process.
_COMMAND = """\
#!/bin/sh
case $1 in
    serve) exec {python} -m rmqctl "$@" ;;
    *) exec {python} -IS {client} "$@" ;;
esac
"""
#: For all other commands: lets the server below run the command in a fork, and ends in the same
#: way. It imports nothing that takes time.
_CLIENT = """\
import _socket, os, sys
link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
link.connect({address!r})
words = [os.getcwdb(), *map(os.fsencode, sys.argv[1:]), b""]
words += [b"=".join(one) for one in os.environb.items()]
standard = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
link.sendmsg([b"\\0".join(words)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, standard)])
sys.exit(int(link.recv(100)))
"""
#: The most bytes of a request: words and environment.
_LONGEST = 1 << 17
_NUMBERS = itertools.count()


@contextlib.contextmanager
def _forks() -> Iterator[bytes]:
    """The address of a server that has imported everything, and forks for each command."""
    address = f"\0rmqctl-transcripts-{os.getpid()}-{next(_NUMBERS)}"
    server = processes.Process("tests.transcripts", "--forks", address[1:])
    assert server.stdout.readline() == b"ready\n", server.stderr.read()
    try:
        yield address.encode()
    finally:
        server.kill()
        server.wait()


def _serve_forks(name: str) -> NoReturn:
    """Runs that server."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(b"\0" + name.encode())
    listening.listen()
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The children that send exit codes end unreaped.
    while True:
        link, _ = listening.accept()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            _do(link)
        link.close()


def _do(link: socket.socket) -> NoReturn:
    """Runs a command in a child, and sends its exit code."""
    data, descriptors, _, _ = socket.recv_fds(link, _LONGEST, 3)
    child = os.fork()
    if child:
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        link.send(str(code if code >= 0 else 128 - code).encode())  # For a signal, as in a shell.
        os._exit(0)
    link.close()
    directory, *words = data.split(b"\0")
    end = words.index(b"")
    os.environb.clear()
    for word in words[end + 1 :]:
        name, _, value = word.partition(b"=")
        os.environb[name] = value
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    # On a terminal lines are written one by one.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    arguments = [os.fsdecode(word) for word in words[:end]]
    request = {"module": "rmqctl", "arguments": arguments, "cwd": os.fsdecode(directory)}
    processes.become(request, descriptors[1:])


def session(commands: list[str], directory: Path) -> list[tuple[int, str]]:
    """Runs command lines one after the other in one shell on a terminal. Returns the exit status
    and the output of each."""
    with _forks() as address:
        return _session(commands, directory, address)


def _session(commands: list[str], directory: Path, address: bytes) -> list[tuple[int, str]]:
    tools = directory / ".bin"
    tools.mkdir()
    client = tools / "client.py"
    client.write_text(_CLIENT.format(address=address))
    (tools / "rmqctl").write_text(_COMMAND.format(python=sys.executable, client=client))
    (tools / "rmqctl").chmod(0o755)
    mark = "\x1e"
    script = "\n".join(
        f"{command}\nstatus=$?; printf '{mark}%s{mark}' $status; (exit $status)"
        for command in commands
    )
    environment = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        # Without colours and progress bars.
        "TERM": "dumb",
        "COLUMNS": str(WIDTH),
        "LINES": "40",
    }
    environment.pop("RMQCTL_STORE", None)
    shell = OnTerminal(["bash", "-c", script], stdin=True, cwd=directory, env=environment)
    _, shown = shell.ended()
    parts = re.sub(r" *\n", "\n", shown).split(mark)
    return [(int(status), output) for output, status in zip(parts[::2], parts[1::2], strict=False)]


def renewed(page: str) -> str:
    """A page with its outputs written again."""
    with tempfile.TemporaryDirectory() as directory:
        ran = iter(session([step.command for step in steps(page)], Path(directory)))

    def block(match: re.Match[str]) -> str:
        commands = re.findall(r"^\$ .*\n", match.group(), re.MULTILINE)
        return "".join(command + next(ran)[1] for command in commands)

    return _BLOCK.sub(block, page)


if __name__ == "__main__":
    if sys.argv[1] == "--forks":
        _serve_forks(sys.argv[2])
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(renewed(path.read_text()))
