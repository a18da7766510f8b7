"""Measures time and memory of single commands on stores of many queues with one message each.

Run it as ``python tests/benchmarks/queues.py``; see the README beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

COUNTS = (10, 1_000, 10_000, 100_000)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--queues", type=int, nargs="*", default=list(COUNTS))
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--directory", type=Path, default=None, help="where stores are kept")
    arguments.add_argument(
        "--checkout", type=Path, nargs="*", default=[Path(__file__).parents[2]], help="what to run"
    )
    arguments.add_argument("--commands", nargs="*", default=None)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = (options.directory or Path(temporary)).resolve()
        place.mkdir(parents=True, exist_ok=True)
        for count in options.queues:
            store = made(place, count)
            for name, command in commands(store, count).items():
                if options.commands is None or name in options.commands:
                    for checkout in options.checkout:
                        report(count, name, command, checkout, options.runs)


def commands(store: Path, count: int) -> dict[str, list[str]]:
    """The commands by name; each works on a store that was closed properly."""
    where = ["--store", str(store)]
    topic = topic_of(count // 2)
    return {
        "--version": ["--version"],
        "info": ["info", *where],
        "queues": ["queues", *where, "--format", "ndjson"],
        "message": ["message", *where, "0"],
        "pull": ["pull", *where, "--topic", topic, "--queue-id", "0"],
        "put": ["put", *where, "--topic", topic, "--queue-id", "0", "--body", "x"],
        "verify": ["verify", *where],
    }


def topic_of(number: int) -> str:
    """The topic of a queue: each queue has one of its own, as light queues do."""
    return f"%LMQ%client-{number:06d}"


def made(place: Path, count: int) -> Path:
    """A store of so many queues; it is made if it is not there yet."""
    store = place / f"queues-{count}"
    if not (store / "checkpoint").exists():
        put = [sys.executable, "-m", "rmqctl", "put", "--store", str(store), "--create"]
        put += ["--from", "-", "--flush", "async", "-q"]
        text = "".join(lines(count))
        subprocess.run(put, input=text.encode(), check=True, stdout=subprocess.DEVNULL)
    return store


def lines(count: int) -> Iterator[str]:
    for number in range(count):
        row = {"topic": topic_of(number), "queue_id": 0, "body": f"message {number}", "keys": "k"}
        yield json.dumps(row) + "\n"


def report(count: int, name: str, command: list[str], checkout: Path, runs: int) -> None:
    timed = [measure(command, checkout) for _ in range(runs)]
    seconds, processor, memory = (statistics.median(one) for one in zip(*timed, strict=True))
    print(
        f"{count:>8} queues  {name:<10} {seconds:8.2f} s {processor:8.2f} s of processor "
        f"{memory:6.0f} MB  {checkout.resolve().name}",
        flush=True,
    )


def measure(command: list[str], checkout: Path) -> tuple[float, float, float]:
    """Of a whole process: its seconds, its processor time, and its peak of resident memory in
    MB."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "rmqctl", *command],
        cwd=checkout,  # Python looks there first for what it imports.
        env=environment,
        stdout=subprocess.DEVNULL,
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    if process.returncode not in (0, 1):
        raise SystemExit(f"rmqctl {' '.join(command)}: exit status {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main()
