"""Runs Python modules in separate processes without starting Python each time: a server that has
imported what rmqctl needs forks a child for each.

    python -m tests.processes DESCRIPTOR

is the server. A child behaves like ``python -m MODULE ARGUMENTS``, or, for the module ``-c``, like
``python -c PROGRAM ARGUMENTS``: it has its own descriptors, can be killed, and ends with an exit
code. Only its modules are already imported. Tests of the start itself (imports, signals during the
start) must start Python.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import IO, Any, NoReturn

TOP = Path(__file__).parents[1]
#: The most bytes of a request.
_LONGEST = 1 << 16


class Process:
    """A process with pipes for its output, like ``subprocess.Popen``."""

    def __init__(self, module: str, *arguments: str, cwd: Path = TOP) -> None:
        out, err = os.pipe(), os.pipe()
        request = {"module": module, "arguments": arguments, "cwd": str(cwd)}
        self.pid: int = _server().ask(request, out[1], err[1])
        for pipe in (out, err):
            os.close(pipe[1])
        self.stdout: IO[bytes] = open(out[0], "rb")  # noqa: SIM115 (closed by wait)
        self.stderr: IO[bytes] = open(err[0], "rb")  # noqa: SIM115
        self._code: int | None = None

    def kill(self) -> None:
        # It may have ended already. Its process id is not reused before it is waited for.
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """The exit code, or the negative number of the signal that has ended it."""
        if self._code is None:
            self._code = _server().ask({"wait": self.pid})
            self.stdout.close()
            self.stderr.close()
        return self._code


def run(module: str, *arguments: str, cwd: Path = TOP) -> subprocess.CompletedProcess[str]:
    """Runs a process to its end, and returns its exit code and output."""
    # Its output goes to memory files, because of two pipes one may fill up while the other is read.
    out, err = os.memfd_create("stdout"), os.memfd_create("stderr")
    request = {"module": module, "arguments": arguments, "cwd": str(cwd)}
    code = _server().ask({"wait": _server().ask(request, out, err)})
    texts = []
    for descriptor in (out, err):
        with open(descriptor, "rb") as file:
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess([module, *arguments], code, *texts)


class _Server:
    """The server as a child process."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes", str(theirs.fileno())],
                cwd=TOP,
                # Threads of numpy (rmqctl/cli/main.py) would not exist in the children.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._lock = threading.Lock()
        atexit.register(self._close)

    def ask(self, request: dict[str, Any], *descriptors: int) -> int:
        """Sends a request. Only one thread does this at a time, also when it waits for the end of a
        process."""
        with self._lock:
            socket.send_fds(self._link, [json.dumps(request).encode()], descriptors)
            return int(self._link.recv(_LONGEST))

    def _close(self) -> None:
        self._link.close()
        self._process.wait()


_STARTING = threading.Lock()


def _server() -> _Server:
    """The server of this process."""
    with _STARTING:
        return _started()


@functools.cache
def _started() -> _Server:
    return _Server()


# --- in the server ---------------------------------------------------------------------------


def import_everything() -> None:
    """Imports what commands import when they need it, except for Spark."""
    import rmqctl.cli.commands
    import rmqctl.engine
    import rmqctl.operations

    for package in (rmqctl.engine, rmqctl.operations, rmqctl.cli.commands):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)


def _serve(link: socket.socket) -> None:
    import_everything()
    # Freeze the existing objects: garbage collection in a child would visit, and so copy, them.
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(link, _LONGEST, 2)
        if not data:
            return
        request = json.loads(data)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if not answer:
                link.close()
                become(request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
        link.send(str(answer).encode())


def become(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Does the work of a child. Its stdout and stderr are ``descriptors``."""
    code: Any = 70
    try:
        for number, descriptor in enumerate(descriptors, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(request["cwd"])
        if request["module"] == "-c":
            program, *sys.argv[1:] = request["arguments"]
            exec(program, {"__name__": "__main__"})
        else:
            sys.argv[1:] = request["arguments"]
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
