"""RocketMQ's client for Go (rocketmq-client-go v2) as a process, built once and driven by JSON.

The program is built into ``build/``, again when ``goclient/`` changes. The modules that it needs
come from Go's cache or its module proxy, and are checked against ``go.sum``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

SOURCES = Path(__file__).parent / "goclient"
_BUILT = Path(__file__).parents[2] / "build" / "goclient"
#: Building without the optimiser and without C takes half of the time, and the program runs for
#: some seconds only.
_BUILD = ("build", "-trimpath", "-ldflags=-s -w", "-gcflags=all=-N -l")


class NotAvailable(Exception):
    """Go or the modules are missing; the text says which, in one line."""


class GoError(Exception):
    """The client could not do what it was asked to; the text is what it said."""


class GaveUp(GoError):
    """A client got no answer in the three seconds that it waits, which cannot be changed. Whether
    its message was stored is unknown, so that what follows proves nothing about a broker."""


def build() -> Path:
    """The program; it is compiled, unless that was done for the same sources before.

    :raises NotAvailable: it cannot be built on this machine.
    :raises GoError: the sources do not compile.
    """
    if shutil.which("go") is None:
        raise NotAvailable("the client for Go needs go, which is not on this machine")
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.read_bytes())
    program = _BUILT / digest.hexdigest()[:16]
    _BUILT.mkdir(parents=True, exist_ok=True)
    with (_BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _get_modules()
            made = program.with_suffix(".new")
            done = _go(*_BUILD, "-o", str(made), ".")
            if done.returncode:
                raise GoError(done.stderr)
            made.rename(program)
    return program


def _get_modules() -> None:
    """:raises NotAvailable: they are not to be had."""
    try:
        done = _go("list", "-deps", ".")
    except subprocess.TimeoutExpired as problem:
        raise NotAvailable(f"Go could not get the modules of its client: {problem}") from None
    if done.returncode:
        said = done.stderr.splitlines() or [f"exit code {done.returncode}"]
        raise NotAvailable(f"Go could not get the modules of its client: {said[0]}")


def _go(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["go", *arguments],
        cwd=SOURCES,
        env=os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        timeout=600,
    )


class GoClient:
    """A process that runs clients; they write their log to ``log``."""

    def __init__(self, program: Path, log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )

    def __enter__(self) -> GoClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, what: str, **values: Any) -> Any:
        """Sends one request, and gives its answer.

        :raises GaveUp: a client did not get an answer in time.
        :raises GoError: it failed, or the process has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": what, **values}).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            said = self._log.read_text("utf-8", "replace")[-2000:]
            raise GoError(f"the process of the client for Go has ended:\n{said}")
        answer = json.loads(line)
        if "error" in answer:
            is_late = "timeout" in answer["error"] or "deadline exceeded" in answer["error"]
            raise (GaveUp if is_late else GoError)(answer["error"])
        return answer["ok"]
