"""Runs rmqctl's commands, each in a process of its own, without starting Python each time: a server
process, which has imported everything, forks for every command.

    python -m tests.interop.recovery.runner

reads one request a line, and answers each with the exit code, or the negative number of the signal
that ended the command. A request may name a fault. ``kill`` ends the process at the n-th change of
a file, which is a store into a map or a system call; ``full`` refuses disk space from the n-th
request for it on; ``count`` only counts both.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.processes import import_everything

#: System calls that change files; a kill can come before or after one.
CHANGES = (
    *("rename", "replace", "link", "unlink", "remove", "rmdir", "mkdir", "ftruncate", "truncate"),
    *("posix_fallocate", "pwrite", "fdatasync", "fsync"),
)
#: System calls that ask for disk space.
ASKS = ("posix_fallocate", "ftruncate", "link", "mkdir", "pwrite")
#: Which part of a store into a map a kill lets happen: quarters of its bytes, from and to. That
#: only the end is written can happen with the C library's long copies.
PARTS = {"before": (0, 0), "half": (0, 2), "end": (2, 4), "behind": (0, 4)}
LONG_COPY = 64


@dataclass(frozen=True)
class Fault:
    """A fault of a command. ``at`` is the number of the change or request at which it strikes, from
    1; ``how`` is one of :data:`PARTS`."""

    kind: str
    at: int = 0
    how: str = "before"


@dataclass
class Outcome:
    """What a command did. ``rows`` are those that it had printed completely; ``changes`` of files
    and ``asks`` for disk space are counted for the fault ``count``."""

    code: int
    rows: list[dict[str, Any]]
    stderr: str
    changes: int = 0
    asks: int = 0


class Runner:
    """The server as a child process, which is given commands."""

    def __init__(self, directory: Path) -> None:
        """:param directory: where files with the output of commands are kept."""
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.interop.recovery.runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": "0", "RMQCTL_DEBUG": ""},
            cwd=Path(__file__).parents[3],
        )

    def run(self, arguments: list[str], fault: Fault | None = None) -> Outcome:
        out, err, counts = (self._directory / name for name in ("out", "err", "counts"))
        counts.unlink(missing_ok=True)
        request = {
            "arguments": arguments,
            "out": str(out),
            "err": str(err),
            "counts": str(counts),
            "fault": None if fault is None else asdict(fault),
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        # A kill may have cut off the last line.
        lines = [line for line in out.read_bytes().splitlines(True) if line.endswith(b"\n")]
        outcome = Outcome(code, [json.loads(line) for line in lines], err.read_text("utf-8"))
        if counts.exists():
            outcome.changes, outcome.asks = json.loads(counts.read_text())
        return outcome

    def close(self) -> None:
        self._process.communicate()


# --- in the server ---------------------------------------------------------------------------


class Faults:
    """Counts changes and requests for space, and strikes where the fault says."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self.changes = 0
        self.asks = 0

    def lie_in_wait(self) -> None:
        for name in (*CHANGES, "open"):
            setattr(os, name, self._guarded(name, getattr(os, name)))
        self._guard_maps()

    def change(self, do: Callable[[float, float], Any]) -> Any:
        """``do`` gets the part of the work that is done, as of 0 to 1."""
        self.changes += 1
        if self._fault.kind == "kill" and self.changes == self._fault.at:
            low, high = PARTS[self._fault.how]
            do(low / 4, high / 4)
            os.kill(os.getpid(), signal.SIGKILL)
        return do(0, 1)

    def _ask(self) -> None:
        self.asks += 1
        if self._fault.kind == "full" and self.asks >= self._fault.at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _guarded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any, **named: Any) -> Any:
            creates = name == "open" and arguments[1] & os.O_CREAT
            if name in ASKS or creates:
                self._ask()
            if name == "open" and not creates:
                return call(*arguments, **named)
            # A system call is done wholly or not at all, and never in part.
            return self.change(lambda low, high: call(*arguments, **named) if high > 0.5 else None)

        return guarded

    def _guard_maps(self) -> None:
        import numpy as np

        from rmqctl.engine.index.indexfilewriter import IndexFileWriter

        faults, real = self, mmap.mmap

        class Map(mmap.mmap):
            def __setitem__(self, key: Any, value: Any) -> None:
                def store(low: float, high: float) -> None:
                    if low and len(value) <= LONG_COPY:
                        return
                    start, end = (int(len(value) * part) for part in (low, high))
                    place = slice(key.start + start, key.start + end)
                    real.__setitem__(self, place, value[start:end])

                faults.change(store)

        class Slots(np.ndarray[Any, Any]):
            def __setitem__(self, key: Any, value: Any) -> None:
                # Arrays made from this one are of this class, too, and are not in the map.
                if self.dtype != np.dtype(">i4") or not isinstance(value, np.ndarray):
                    super().__setitem__(key, value)
                    return

                def store(low: float, high: float) -> None:
                    part = slice(int(len(key) * low), int(len(key) * high))
                    np.ndarray.__setitem__(self, key[part], value[part])

                faults.change(store)

        whole = IndexFileWriter.slot_view

        def slot_view(index_file: IndexFileWriter) -> Any:
            return whole(index_file).view(Slots)

        mmap.mmap = Map  # type: ignore[misc]
        IndexFileWriter.slot_view = slot_view  # type: ignore[assignment,method-assign]


def serve() -> None:
    import_everything()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            _run(request)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def _run(request: dict[str, Any]) -> None:
    """Runs the command in the forked child; does not return."""
    code = 70
    try:
        # The command must not read the requests, which come on standard input.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "out"), (2, "err")):
            descriptor = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, number)
            os.close(descriptor)
        with _faults(request):
            from rmqctl.cli.main import run

            code = run(request["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


@contextlib.contextmanager
def _faults(request: dict[str, Any]) -> Iterator[None]:
    if request["fault"] is None:
        yield
        return
    faults = Faults(Fault(**request["fault"]))
    faults.lie_in_wait()
    yield
    with open(request["counts"], "w") as counts:
        json.dump([faults.changes, faults.asks], counts)


if __name__ == "__main__":
    serve()
