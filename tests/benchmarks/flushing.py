"""Measures puts a second: with SYNC_FLUSH by 1, 4 and 16 threads, beside the rate of fsync that the
disk itself allows; and with ASYNC_FLUSH.

Run it as ``python tests/benchmarks/flushing.py``; see the README beside it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig

BODY = bytes(1000)
CONFIG = replace(
    MessageStoreConfig(), mapped_file_size_commit_log=256 << 20, flush_disk_type="SYNC_FLUSH"
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=3, help="of each measurement")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--directory", type=Path, default=None)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        place = Path(name)
        kinds: dict[str, Callable[[], tuple[float, float]]] = {
            "fdatasync alone": lambda: (device(place, options.seconds), 1.0)
        }
        for threads in (1, 4, 16):
            for services in (False, True):
                label = f"sync, {threads} threads, {'service' if services else 'no service'}"
                kinds[label] = lambda t=threads, s=services: puts(  # type: ignore[misc]
                    place, CONFIG, t, options.seconds, flush=True, services=s
                )
        for label, changes in (
            ("async", {}),
            ("async, pool", {"transient_store_pool_enable": True}),
        ):
            config = replace(CONFIG, flush_disk_type="ASYNC_FLUSH", **changes)  # type: ignore[arg-type]
            kinds[f"{label}, 1 thread"] = lambda c=config: puts(  # type: ignore[misc]
                place, c, 1, options.seconds, flush=False, services=True
            )
        report(kinds, options.runs)


def report(kinds: dict[str, Callable[[], tuple[float, float]]], runs: int) -> None:
    """Prints the medians. The kinds take turns, so that a disk whose speed changes from time to
    time is as fast for one as for another."""
    found: dict[str, list[tuple[float, float]]] = {label: [] for label in kinds}
    for _ in range(runs):
        for label, measure in kinds.items():
            found[label].append(measure())
    base = statistics.median(rate for rate, _ in found["fdatasync alone"])
    print(f"{'':32}{'a second':>12}{'x fdatasync':>14}{'flushes a put':>16}")
    for label, results in found.items():
        rate = statistics.median(rate for rate, _ in results)
        flushes = statistics.median(flushes for _, flushes in results)
        print(f"{label:32}{rate:12,.0f}{rate / base:14.2f}{flushes:16.3f}")


def device(place: Path, seconds: float) -> float:
    """How often a second the disk takes the bytes of one record and an fsync."""
    path = place / "device"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, 64 << 20)
    os.fsync(descriptor)
    count = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        os.pwrite(descriptor, BODY, count * len(BODY) % (60 << 20))
        os.fdatasync(descriptor)
        count += 1
    elapsed = time.perf_counter() - begin
    os.close(descriptor)
    path.unlink()
    return count / elapsed


def puts(
    place: Path,
    config: MessageStoreConfig,
    threads: int,
    seconds: float,
    *,
    flush: bool,
    services: bool,
) -> tuple[float, float]:
    """Puts a second, and flushes of the log for each."""
    with tempfile.TemporaryDirectory(dir=place) as root:
        store = MessageStore(Path(root) / "store", config, writable=True, create=True)
        if services:
            store.start(dispatch=False)
        ends = time.perf_counter() + seconds

        def put(number: int) -> None:
            message = MessageExtBrokerInner("bench", BODY, number)
            while time.perf_counter() < ends:
                assert store.put_message(message, flush=flush).is_ok

        begin = time.perf_counter()
        workers = [threading.Thread(target=put, args=[number]) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        elapsed = time.perf_counter() - begin
        stats = store.writer.stats
        count, flushes = stats.put_message_times_total, stats.flush_times
        store.close()
    return count / elapsed, flushes / count


if __name__ == "__main__":
    main()
