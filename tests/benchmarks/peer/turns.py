"""Rounds of the same work by several sides, in turns, and the real engine as one of them.

A machine whose speed changes from minute to minute is as fast for all sides of a turn: what is
told of two of them is the median of the ratios of the turns, not the ratio of two medians.
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

#: An engine rests when it uses this part of a processor in so many seconds; those waited at most.
IDLE, REST, REST_AT_MOST = 0.1, 0.05, 10.0

#: Does one round, and gives the seconds of what is timed in it.
Side = Callable[[], float]


def in_turns(sides: Mapping[str, Side], turns: int) -> dict[str, list[float]]:
    """The seconds of so many rounds of each side: one round of each, and again."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            seconds[name].append(side())
    return seconds


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Our rate as a multiple of theirs, by the seconds of both in the same turns; of a side that
    has taken more turns the first ones count."""
    return statistics.median(their / our for their, our in zip(theirs, ours, strict=False))


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


class EngineProcess:
    """A process of the real engine, which does one thing for a round when it is asked to
    (``Bench.java``), and waits meanwhile. It ends with the ``with``."""

    def __init__(
        self, command: Sequence[str], request: Mapping[str, Any], least: int, log: Path
    ) -> None:
        """``least``: so many things a round does, if it does what it was asked for. ``log`` is
        for what the process says besides."""
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
        """One round, and its seconds as the engine's process says."""
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
        """Waits until the process does next to nothing: for tenths of a second after a round Java
        compiles what it ran, and collects garbage, on the processor that others are to have."""
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
