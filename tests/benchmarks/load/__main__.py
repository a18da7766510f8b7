"""Measures ``serve`` beside a broker of 4.9.3, on one machine, with the same Java clients.

    python -m tests.benchmarks.load [--seconds N] [--runs N] [--directory DIR] [--only TEXT]

Each line has what a client measures of both servers: messages a second, milliseconds of a send, and
serve's figure as a multiple of the broker's. They are medians of the runs, in which the servers
take turns. All is measured with SYNC_FLUSH, and again with ASYNC_FLUSH, a broker's default.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rmqctl.engine.messagestore import MessageStore
from tests.interop.engine import Engine, Row, build
from tests.interop.stores import conf_text, config_of

TOPIC, QUEUES = "orders", 4
VALUES: Row = {
    "mappedFileSizeCommitLog": 1 << 26,
    "maxHashSlotNum": 500_000,
    "maxIndexNum": 2_000_000,
}


class Line(NamedTuple):
    """One measurement; ``batch`` is the messages of a send, and 0 when each is sent by itself."""

    name: str
    producers: int
    size: int
    batch: int = 0


FLUSHES = ("SYNC_FLUSH", "ASYNC_FLUSH")
LINES = (
    Line("send, 1 producer, 100 bytes", 1, 100),
    Line("send, 1 producer, 1,000 bytes", 1, 1000),
    Line("send, 16 producers, 100 bytes", 16, 100),
    Line("send, 16 producers, 1,000 bytes", 16, 1000),
    Line("send, batches of 32, 100 bytes", 1, 100, 32),
)


#: Messages that are consumed, the same number from both servers: a Java client is half as fast with
#: the first messages as with the last, so that a server which has fewer would look slower.
CONSUMED = 100_000


def make_store(root: Path) -> Path:
    MessageStore(root, config_of(VALUES), writable=True, create=True).close()
    topic = {
        "topicName": TOPIC, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
    }  # fmt: skip
    (root / "config").mkdir()
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: topic}}))
    return root


@contextmanager
def broker(directory: Path, flush: str) -> Iterator[str]:
    engine = Engine("4.9.3", directory / "broker.log")
    try:
        root = make_store(directory / "store")
        engine.ask("broker", root=str(root), config=VALUES | {"flushDiskType": flush})
        yield engine.ask("address")
    finally:
        engine.kill()


@contextmanager
def served(directory: Path, flush: str) -> Iterator[tuple[str, int]]:
    root, conf = make_store(directory / "store"), directory / "broker.conf"
    conf.write_text(conf_text(VALUES | {"flushDiskType": flush}))
    command = [sys.executable, "-m", "rmqctl", "serve", "--listen", "127.0.0.1:0"]
    command += ["--store", str(root), "--broker-conf", str(conf), "--format", "ndjson"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"], process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def measure(client: Engine, address: str, seconds: float, only: str) -> dict[str, Row]:
    """What a client measures of one server: each line of sends, and then the consuming of what it
    has sent."""
    found: dict[str, Row] = {}
    client.ask("loadSend", address=address, topic=TOPIC, producers=2, size=100, batch=0, seconds=2)

    def send(line: Line) -> Row:
        asked = line._asdict() | {"topic": TOPIC, "seconds": seconds, "address": address}
        return client.ask("loadSend", **asked)  # type: ignore[no-any-return]

    for line in LINES:
        if only in line.name:
            found[line.name] = send(line)
    if only in "push consumption":
        # These messages are consumed below, so they are sent even if their line is not asked for.
        sent = sum(row["messages"] for row in found.values())
        while sent < CONSUMED:
            sent += send(LINES[-1])["messages"]
        found["push consumption"] = client.ask(
            "loadConsume", address=address, topic=TOPIC, count=CONSUMED
        )
    return found


def middle(rows: list[Row]) -> dict[str, float]:
    rates = [row["messages"] / row["seconds"] for row in rows]
    found = {"rate": statistics.median(rates)}
    for name in ("p50", "p99"):
        if name in rows[0]:
            found[name] = statistics.median(row[name] for row in rows)
    return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.load")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--only", default="")
    asked = parser.parse_args(arguments)
    build()
    everything: dict[str, dict[str, list[Row]]] = {}
    peak = 0
    for _ in range(asked.runs):
        for flush, who in itertools.product(FLUSHES, ("broker", "serve")):
            name = f"{who}, {flush}"
            with tempfile.TemporaryDirectory(dir=asked.directory) as directory:
                place = Path(directory)
                client = Engine("4.9.3", place / "client.log")
                if who == "serve":
                    with served(place, flush) as (address, pid):
                        found = measure(client, address, asked.seconds, asked.only)
                        status = Path(f"/proc/{pid}/status").read_text()
                        peak = max(peak, int(status.partition("VmHWM:")[2].split()[0]) >> 10)
                else:
                    with broker(place, flush) as address:
                        found = measure(client, address, asked.seconds, asked.only)
                client.close()
            for line, row in found.items():
                everything.setdefault(line, {}).setdefault(name, []).append(row)
    show(everything)
    print(f"\nmemory of serve, at its peak: {peak} MiB")


def show(everything: dict[str, dict[str, list[Row]]]) -> None:
    print("| | broker, SYNC_FLUSH | serve | x | broker, ASYNC_FLUSH | serve | x |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for line, by_server in everything.items():
        found: dict[str, Any] = {name: middle(rows) for name, rows in by_server.items()}
        cells = []
        for flush in FLUSHES:
            theirs, ours = (found[f"{who}, {flush}"] for who in ("broker", "serve"))
            cells += [text(theirs), text(ours), f"{ours['rate'] / theirs['rate']:.2f}"]
        print(f"| {line} | {' | '.join(cells)} |")


def text(found: dict[str, float]) -> str:
    times = [f"{found[name]:.2f}" for name in ("p50", "p99") if name in found]
    return f"{found['rate']:,.0f}/s" + (f", {' and '.join(times)} ms" if times else "")


if __name__ == "__main__":
    main(sys.argv[1:])
