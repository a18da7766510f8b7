"""Measures rmqctl beside the real engine: the same data, the same machine, in turns.

Run it as ``python tests/benchmarks/peer``; see the README in the folder above.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from rmqctl import kernel
from tests.benchmarks.peer.jobs import LARGE_FILES, Job, jobs_of_store, opening, remove, run
from tests.benchmarks.peer.turns import EngineProcess, Side, in_turns, ratio, timed
from tests.interop.engine import DRIVER, MODULES, NotAvailable, build

JAVA = [
    "java",
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    # A full disk of the machine is not what is measured.
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
    "-Drocketmq.client.logUseSlf4j=true",
]
#: Turns of warm processes that are not counted: so many, or, where each makes everything anew,
#: fewer that do so many things.
WARM_UP, WARMED = 4, 800_000
#: GiB of the engine's heap, and bytes in it of a message that waits to be put.
HEAP, HEAP_BYTES = 2, 2500
#: With ``--warm-up``, of what takes milliseconds with a store that stays open, there are more turns
#: than ``--runs``: until the engine's rounds come to so many seconds, and at most so many. rmqctl's
#: pure engine, which is shown beside, has no part in them where there is the compiled one.
ENOUGH_SECONDS, MOST_TURNS = 1.0, 50
#: The side that is not rmqctl's.
ENGINE = "engine"

#: The seconds of each side's rounds.
Seconds = dict[str, list[float]]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=100_000)
    arguments.add_argument("--runs", type=int, default=5, help="counted turns, at least")
    arguments.add_argument(
        "--warm-up", type=float, default=0, help="seconds of the engine's rounds before the turns"
    )
    arguments.add_argument("--only", help="lines whose name has this in it, or one of A|B|…")
    arguments.add_argument("--version", choices=list(MODULES), default="4.9.3")
    arguments.add_argument("--directory", type=Path, default=None)
    arguments.add_argument("--results", type=Path, help="a file for the figures, for ../check")
    options = arguments.parse_args()
    try:
        build()
    except NotAvailable as problem:
        sys.exit(f"peer: {problem}")
    print(f"rmqctl beside RocketMQ {options.version}: things a second, and rmqctl's as a multiple")
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        peer = Peer(options, Path(place) / "engine.log")
        for body_size in (100, 1000):
            title(f"{options.messages:,} messages with bodies of {body_size} bytes")
            for job in jobs_of_store(Path(place) / str(body_size), body_size, options.messages):
                peer.measure(job, body_size)
        title(f"A store of {LARGE_FILES} GiB")
        peer.measure(opening(Path(place)), 0)
    if options.results is not None:
        told = {"version": options.version, "messages": options.messages, "runs": options.runs}
        options.results.write_text(json.dumps(told | {"lines": peer.lines}, indent=1))


class Peer:
    """The engine of a version, and rmqctl, at the same job."""

    def __init__(self, options: argparse.Namespace, log: Path) -> None:
        version = options.version
        target = DRIVER / MODULES[version] / "target"
        path = f"{target / 'classes'}:{(target / 'classpath.txt').read_text().strip()}"
        number = MODULES[version][-1]
        heap = HEAP + (options.messages * HEAP_BYTES >> 30)
        self._java = [
            *JAVA,
            f"-Xmx{heap}g",
            f"-Dinterop.engine={number}",
            "-cp",
            path,
            "interop.Bench",
        ]
        self._runs, self._warm_up = options.runs, options.warm_up
        self._only, self._log = (options.only or "").split("|"), log
        #: rmqctl's own engines, the one first that has more turns: it is next to the real one.
        self._own = ["compiled", "pure"] if kernel.usable().module is not None else ["pure"]
        self.lines: list[dict[str, Any]] = []

    def measure(self, job: Job, body_size: int) -> None:
        """Prints things a second as a whole process and warm, of either side, and the ratios of
        both: a line for each of rmqctl's own engines."""
        if not any(part in job.name for part in self._only):
            return
        processes = None if job.command is None else self._processes(job)
        warm = self._warm(job)
        for number, own in enumerate(reversed(self._own)):
            ratios = [
                None if seconds is None else ratio(seconds[ENGINE], seconds[own])
                for seconds in (processes, warm)
            ]
            rates = [
                None if seconds is None else times / statistics.median(seconds[side])
                for side in (ENGINE, own)
                for seconds, times in ((processes, job.once), (warm, job.often))
            ]
            cells = "".join(f"{shown(rate):>12}" for rate in rates)
            multiples = "".join(f"{'-' if r is None else f'{r:.2f}':>10}" for r in ratios)
            print(f"{'' if number else job.name:20}{own:9}{cells}{multiples}", flush=True)
            self.lines.append(
                {
                    "line": job.name,
                    "body": body_size,
                    "engine": own,
                    "process": ratios[0],
                    "warm": ratios[1],
                    "warm_rate": rates[-1],
                }
            )

    def _processes(self, job: Job) -> Seconds:
        """Whole processes of each side, from start to end."""

        def process(own: str | None) -> float:
            for directory in job.cleared:
                remove(directory)
            if own is None:
                return timed(lambda: self._engine_once(job))
            os.environ[kernel.VARIABLE] = own
            return timed(lambda: run(*job.command or ()))

        sides: dict[str, Side] = {ENGINE: lambda: process(None)}
        sides |= {own: partial(process, own) for own in self._own}
        return in_turns(sides, self._runs)

    def _engine_once(self, job: Job) -> None:
        with self._engine(job.engine | job.engine_once, job.once) as engine:
            engine.round()

    def _warm(self, job: Job) -> Seconds:
        """Rounds of processes that have done it before: the engine's, and this one's."""
        with ExitStack() as stack:
            sides: dict[str, Side] = {own: self._own_side(job, own, stack) for own in self._own}
            engine = stack.enter_context(self._engine(job.engine, job.often))
            sides = {ENGINE: partial(engine_side, engine, job), **sides}
            started = time.monotonic()
            while time.monotonic() < started + self._warm_up:
                engine.round()
            uncounted = WARM_UP if job.warm.is_kept else math.ceil(WARMED / job.often)
            in_turns(sides, min(WARM_UP, uncounted))
            seconds = in_turns(sides, self._runs)
            if not (self._warm_up and job.warm.is_kept):
                return seconds
            enough = math.ceil(ENOUGH_SECONDS / statistics.median(seconds[ENGINE]))
            compared = {side: sides[side] for side in (ENGINE, self._own[0])}
            more = in_turns(compared, min(enough, MOST_TURNS) - self._runs)
            return seconds | {side: seconds[side] + more[side] for side in compared}

    def _own_side(self, job: Job, own: str, stack: ExitStack) -> Side:
        """What a store that is opened here does, and what is opened for a round, is ``own``'s."""
        os.environ[kernel.VARIABLE] = own
        kept = stack.enter_context(job.warm.round()) if job.warm.is_kept else None

        def side() -> float:
            os.environ[kernel.VARIABLE] = own
            if kept is not None:
                kept()
                return timed(kept)
            with job.warm.round() as action:
                return timed(action)

        return side

    def _engine(self, request: dict[str, Any], least: int) -> EngineProcess:
        return EngineProcess(self._java, {"config": {}, **request}, least, self._log)


def engine_side(engine: EngineProcess, job: Job) -> float:
    """A turn of the engine: of what is read its second round counts, as rmqctl's does, when the
    caches have what it reads. The next side begins when the engine rests."""
    if job.warm.is_kept:
        engine.round()
    seconds = engine.round()
    engine.rest()
    return seconds


def title(text: str) -> None:
    print(f"\n{text}")
    print(f"{'':29}{'engine':>24}{'rmqctl':>24}{'rmqctl / engine':>20}")
    heads = f"{'process':>12}{'warm':>12}" * 2
    print(f"{'':29}{heads}{'process':>10}{'warm':>10}")


def shown(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.2f}"


if __name__ == "__main__":
    main()
