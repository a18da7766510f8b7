"""Measures the commands as whole processes, beside a plain read of the same files.

Run it as ``python tests/benchmarks/bench.py``; see the README beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

RMQCTL = [sys.executable, "-m", "rmqctl"]
# Compiled modules are kept, as those of an installed rmqctl are. Where the environment forbids that
# (PYTHONDONTWRITEBYTECODE), each command would compile all modules that it imports, and the fast
# ones would take twice as long.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
BLOCK = 1 << 20
TOPICS = 4
QUEUES = 4


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=500_000)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--directory", type=Path, default=None)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        for body_size in (1000, 100):
            bulk(Path(place), body_size, options.messages, options.runs)
        start_up(Path(place), max(options.runs, 11))


def bulk(place: Path, body_size: int, count: int, runs: int) -> None:
    """Measures put --from, walk, verify, rebuild and pull on one store."""
    lines = place / "messages.ndjson"
    write_messages(lines, body_size, count)
    store = place / "store"

    def put() -> None:
        shutil.rmtree(store, ignore_errors=True)
        run("put", "--store", str(store), "--create", "--from", str(lines), "--format", "ndjson")

    def put_async() -> None:
        shutil.rmtree(store, ignore_errors=True)
        run(
            "put", "--store", str(store), "--create", "--from", str(lines), "-q", "--flush", "async"
        )

    def rebuild() -> None:
        shutil.rmtree(place / "rebuilt", ignore_errors=True)
        run("rebuild", "all", "--store", str(store), "--output", str(place / "rebuilt"))

    def pull(*options: str) -> Callable[[], None]:
        maximum = str(count // (TOPICS * QUEUES))
        where = ("--topic", "bench-0", "--queue-id", "0", "--offset", "0")
        line = ("pull", "--store", str(store), *where, "--max-messages", maximum, *options)
        return lambda: run(*line, "--format", "ndjson")

    put_times = timed(put, runs), timed(put_async, runs)
    size = log_bytes(store)
    read = timed(lambda: read_log(store, size), runs)
    print(f"\n{count:,} messages with bodies of {body_size} bytes, {size / 2**20:,.0f} MiB of log")
    print(f"{'':24}{'seconds':>9}{'messages/s':>14}{'MiB/s':>9}{'x plain read':>14}")
    report("plain read", read, count, size, read)
    report("put --from, sync", put_times[0], count, size, read)
    report("put --from, async, -q", put_times[1], count, size, read)
    walk = ("walk", "commitlog", "--store", str(store), "--format", "ndjson")
    report("walk commitlog", timed(lambda: run(*walk), runs), count, size, read)
    verify = timed(lambda: run("verify", "--store", str(store)), runs)
    report("verify (with CRC)", verify, count, size, read)
    report("rebuild all", timed(rebuild, runs), count, size, read)
    share = TOPICS * QUEUES
    kinds = {
        "pull one queue": (),
        "pull, with bodies": ("--body-as", "utf8", "--decompress"),
        "pull, SQL filter": ("--filter", "KEYS IS NOT NULL AND NOT (TAGS IN ('x', 'y') OR a > 5)"),
    }
    for name, options in kinds.items():
        pulled = timed(pull(*options), runs)
        report(name, pulled, count // share, size // share, read / share)
    shutil.rmtree(store)
    shutil.rmtree(place / "rebuilt")


def start_up(place: Path, runs: int) -> None:
    """Measures commands that do one small thing, beside a Python that does nothing."""
    store = place / "single"
    put = ("put", "--store", str(store), "--topic", "orders", "--keys", "k1", "--body", "hello")
    run(*put, "--create")
    commands = {
        "--version": ("--version",),
        "put": put,
        "pull": ("pull", "--store", str(store), "--topic", "orders", "--queue-id", "0"),
        "index query": (
            "index",
            "query",
            "--store",
            str(store),
            "--topic",
            "orders",
            "--key",
            "k1",
        ),
    }
    bare = timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), runs)
    print(f"\nStart-up: median of {runs} whole processes")
    print(f"{'':24}{'ms':>9}{'x bare python':>15}")
    print(f"{'bare python':24}{bare * 1000:9.1f}{1:15.1f}")
    commands["put, 200 GiB of log"] = large_store(place, 200, 1 << 30)
    for name, command in commands.items():
        seconds = timed(partial(run, *command), runs)
        print(f"{name:24}{seconds * 1000:9.1f}{seconds / bare:15.1f}")


def large_store(place: Path, files: int, size: int) -> tuple[str, ...]:
    """The command line of a put into a store of many full log files and one that is being written;
    the files are sparse."""
    store = place / "large"
    log = store / "commitlog"
    log.mkdir(parents=True)
    last = (files - 1) * size
    with (log / f"{last:020d}").open("wb") as file:
        file.truncate(size)
    put = ("put", "--store", str(store), "--topic", "orders", "--body", "hello", "--flush", "async")
    run(*put)  # Makes the queue's first unit, by which later starts know where the log ends.
    for number in range(files - 1):
        with (log / f"{number * size:020d}").open("wb") as file:
            file.write(struct.pack(">iI", size, 0xCBD43194))
            file.truncate(size)
    return put


def write_messages(path: Path, body_size: int, count: int) -> None:
    source = random.Random(7)
    bodies = ["".join(source.choices("abcdefghij", k=body_size)) for _ in range(64)]
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            message = {
                "topic": f"bench-{number % TOPICS}",
                "queue_id": number // TOPICS % QUEUES,
                "tags": f"tag{number % 5}",
                "keys": f"order{number}",
                "properties": {"UNIQ_KEY": f"{number * 7919:032X}"},
                "body": bodies[number % 64],
            }
            file.write(json.dumps(message) + "\n")


def run(*arguments: str) -> None:
    done = subprocess.run([*RMQCTL, *arguments], stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"rmqctl {' '.join(arguments)} ended with {done.returncode}")


def timed(action: Callable[[], object], runs: int) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def log_bytes(store: Path) -> int:
    done = subprocess.run(
        [*RMQCTL, "info", "--store", str(store), "--json"], capture_output=True, check=True
    )
    row = json.loads(done.stdout)[0]
    return int(row["max_physical_offset"] - row["min_physical_offset"])


def read_log(store: Path, size: int) -> None:
    left = size
    for path in sorted((store / "commitlog").iterdir()):
        with path.open("rb", buffering=0) as file:
            buffer = bytearray(BLOCK)
            while left > 0 and (count := file.readinto(buffer)):
                left -= count


def report(name: str, seconds: float, count: int, size: int, read: float) -> None:
    rate, speed = count / seconds, size / seconds / 2**20
    print(f"{name:24}{seconds:9.2f}{rate:14,.0f}{speed:9,.0f}{seconds / read:14.1f}")


if __name__ == "__main__":
    main()
