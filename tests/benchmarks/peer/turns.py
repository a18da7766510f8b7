"""Rounds of the same work by several sides, in turns, and the real engine as one of them.

A machine's speed changes from minute to minute, but hardly within one turn. Two sides are therefore
compared by the median of the turns' ratios, and not by the ratio of two medians.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

#: An engine rests when it used less than the part ``IDLE`` of a processor during ``REST`` seconds;
#: this is waited for, for ``REST_AT_MOST`` seconds.
IDLE, REST, REST_AT_MOST = 0.1, 0.05, 10.0

#: Does one round, and gives the seconds of the part of it that is timed.
Side = Callable[[], float]


def in_turns(sides: Mapping[str, Side], turns: int) -> dict[str, list[float]]:
    """The seconds of so many rounds of each side. In each turn every side does one round."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            seconds[name].append(side())
    return seconds


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Our rate as a multiple of theirs, from the seconds of both in the same turns. When one side
    has taken more turns than the other, its further turns do not count."""
    return statistics.median(their / our for their, our in zip(theirs, ours, strict=False))


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


class EngineProcess:
    """A process of the real engine (``Bench.java``), which does a round when it is asked to, and
    waits between rounds. As a context manager it ends the process."""

    def __init__(
        self, command: Sequence[str], request: Mapping[str, Any], least: int, log: Path
    ) -> None:
        """A round that does fewer than ``least`` things has failed. ``log`` gets the process's
        error output."""
        self._what, self._least, self._log = request["what"], least, log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, json.dumps(request)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, problem: type[BaseException] | None, *_: object) -> None:
        self._process.communicate()
        if self._process.returncode and problem is None:
            self._fail()

    def round(self) -> float:
        """Has the process do a round; gives the seconds that it measured itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        answer = json.loads(line) if line else {"done": 0}
        if answer["done"] < self._least:
            self._fail()
        return float(answer["seconds"])

    def rest(self) -> None:
        """Waits until the process is idle. For some tenths of a second after a round, Java still
        compiles code and collects garbage, which would slow the side that comes next."""
        clock = ~self._process.pid << 3 | 2  # as clock_getcpuclockid(3) makes it
        ends = time.monotonic() + REST_AT_MOST
        used = time.clock_gettime(clock)
        while time.monotonic() < ends:
            time.sleep(REST)
            before, used = used, time.clock_gettime(clock)
            if used - before < REST * IDLE:
                return

    def _fail(self) -> NoReturn:
        said = self._log.read_text("utf-8", "replace")[-2000:]
        sys.exit(f"peer: the engine's {self._what} failed:\n{said}")
