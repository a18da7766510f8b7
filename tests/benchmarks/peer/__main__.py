"""Measures rmqctl beside the real engine: both do the same work with the same data, in turns.

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
    # A machine whose disk is rather full shall not make the engine refuse messages, or clean up.
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
    "-Drocketmq.client.logUseSlf4j=true",
]
#: The first turns of warm processes are not counted: the first of these numbers, or, for jobs that
#: make their store anew in each turn, fewer turns, if they do the second number of things together.
WARM_UP, WARMED = 4, 800_000
#: The engine's heap: GiB at least, and bytes for each message that waits in it to be put.
HEAP, HEAP_BYTES = 2, 2500
#: With ``--warm-up``, jobs that read a store which stays open get more turns than ``--runs``, for a
#: turn may take milliseconds only: until the engine's rounds come to so many seconds together, and
#: at most so many turns. Where rmqctl has its compiled kernel, its pure engine takes no part in
#: these further turns.
ENOUGH_SECONDS, MOST_TURNS = 1.0, 50
#: The name of the real engine's side.
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
    if options.directory is not None:
        options.directory.mkdir(parents=True, exist_ok=True)
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
    """Measures the real engine of one version and rmqctl, both with the same jobs."""

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
        #: rmqctl's own engines. The first gets the further turns, and its rounds come right after
        #: those of the real engine.
        self._own = ["compiled", "pure"] if kernel.usable().module is not None else ["pure"]
        self.lines: list[dict[str, Any]] = []

    def measure(self, job: Job, body_size: int) -> None:
        """Prints what each side does a second, as a whole process and warm, and the ratios: a line
        for each of rmqctl's own engines."""
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
        """Seconds of each side's whole processes, from start to end."""

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
        """Seconds of each side's rounds in a process that has done the job before: the engine's
        process, and for rmqctl this one."""
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
        """Rounds of rmqctl with its engine ``own``, which is chosen when a store is opened, here or
        for a round."""
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
    """A turn of the engine. For a job that reads, it does two rounds and the second counts, when
    what it reads is in the caches; rmqctl does the same. The turn ends when the engine rests."""
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
