"""Verifies, rebuilds and counts a store of many queues on Spark, one of which has most messages.

Run it as ``python tests/benchmarks/manyqueues.py``; see the README beside it. What is asked is what
the driver holds: nothing there may grow with messages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

from pyspark.sql import SparkSession

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.spark import store

ROOT = Path(__file__).resolve().parents[2]
CONF = "mappedFileSizeCommitLog=268435456\nmappedFileSizeConsumeQueue=6000000\n"
QUEUES_A_TOPIC = 1000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--queues", type=int, default=100_000)
    arguments.add_argument("--messages", type=int, nargs="+", default=[1_000_000, 10_000_000])
    arguments.add_argument("--share", type=float, default=0.9, help="of messages, in one queue")
    arguments.add_argument("--directory", type=Path, default=None, help="where stores are made")
    options = arguments.parse_args()
    # The workers use this Python, and this checkout.
    os.environ["PYSPARK_PYTHON"], os.environ["PYTHONPATH"] = sys.executable, str(ROOT)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    print(f"{'messages':>12} {'':10}{'seconds':>9}{'python MiB':>12}{'java MiB':>10}")
    for messages in options.messages:
        with tempfile.TemporaryDirectory(dir=options.directory) as place:
            measure(spark, Path(place), messages, options.queues, options.share)
    spark.stop()


def measure(spark: SparkSession, place: Path, count: int, queues: int, share: float) -> None:
    root, built = place / "store", place / "built"

    def report(name: str, action: Callable[[], object]) -> None:
        # The peak begins anew: proc(5), clear_refs.
        Path("/proc/self/clear_refs").write_text("5")
        begin = time.perf_counter()
        action()
        seconds = time.perf_counter() - begin
        memory = f"{peak_mib():12,.0f}{heap_mib(spark):10,.0f}"
        print(f"{count:12,} {name:10}{seconds:9.1f}{memory}", flush=True)

    # In a process of its own: what it holds is none of the driver's.
    maker = get_context("spawn").Process(target=make, args=(root, count, queues, share))
    maker.start()
    maker.join()
    assert maker.exitcode == 0
    held = store(str(root), spark=spark, broker_conf=CONF)

    def verify() -> None:
        summaries = held.verify().summaries
        assert summaries[str(root)].is_clean, summaries

    report("(nothing)", lambda: None)
    report("verify", verify)
    report("rebuild", lambda: held.rebuild("queues", output=str(built)))
    shutil.rmtree(built)
    report("stats", lambda: held.stats(limit=5))


def peak_mib() -> float:
    """What this process has had in memory at the most since the peak began anew."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kib) / 1024


def heap_mib(spark: SparkSession) -> float:
    """What Java's heap has in use after a collection."""
    assert spark._jvm is not None
    spark._jvm.java.lang.System.gc()
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def make(root: Path, count: int, queues: int, share: float) -> None:
    """A store of which one queue has a share of the messages, and the others the rest in turn."""

    def messages() -> Iterator[MessageExtBrokerInner]:
        others, large = max(queues - 1, 1), 0
        for number in range(count):
            if large <= number * share:
                large += 1
                yield MessageExtBrokerInner("large", b"x" * 40, 0)
                continue
            topic, queue_id = divmod((number - large) % others, QUEUES_A_TOPIC)
            yield MessageExtBrokerInner(f"t{topic}", b"x" * 40, queue_id)

    with MessageStore(root, parse_broker_conf(CONF), writable=True, create=True) as made:
        for bulk in made.append_stream(messages(), flush=False):
            assert bulk.refused is None


if __name__ == "__main__":
    main()
