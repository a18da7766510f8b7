"""Verifies, rebuilds and counts, on Spark, a store of many queues, one of which has most messages.

Run it as ``python tests/benchmarks/manyqueues.py``; see the README beside it. It shows how much
memory the driver needs, which must not grow with the number of messages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.spark import RocketMQDataSource, store

ROOT = Path(__file__).resolve().parents[2]
CONF = "mappedFileSizeCommitLog=268435456\nmappedFileSizeConsumeQueue=6000000\n"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--queues", type=int, default=100_000)
    arguments.add_argument("--messages", type=int, nargs="+", default=[1_000_000, 10_000_000])
    arguments.add_argument("--queues-of-topic", type=int, default=1000)
    arguments.add_argument("--share", type=float, default=0.9, help="of messages, in one queue")
    arguments.add_argument("--store", type=Path, default=None, help="one that is there, instead")
    arguments.add_argument("--only", default="", help="what is measured, with commas; else all")
    arguments.add_argument("--directory", type=Path, default=None, help="where stores are made")
    options = arguments.parse_args()
    # The workers use this Python, and this checkout.
    os.environ["PYSPARK_PYTHON"], os.environ["PYTHONPATH"] = sys.executable, str(ROOT)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    print(f"{'':16}{'seconds':>9}{'processor':>11}{'python MiB':>12}{'java MiB':>10}")
    if options.store is not None:
        measure(spark, options.store.absolute(), options.only)
        options.messages = []
    wanted = options.queues, options.queues_of_topic, options.share
    for messages in options.messages:
        with tempfile.TemporaryDirectory(dir=options.directory) as place:
            made = Path(place, "store")
            # Made by a process of its own, whose memory does not count as the driver's.
            maker = get_context("spawn").Process(
                target=make, args=(made, Wanted(messages, *wanted))
            )
            maker.start()
            maker.join()
            assert maker.exitcode == 0
            measure(spark, made, options.only)
    spark.stop()


class Wanted(NamedTuple):
    """A store to make: its messages and queues, and the share of the messages in one queue."""

    messages: int
    queues: int
    queues_of_topic: int
    share: float


def measure(spark: SparkSession, root: Path, only: str) -> None:
    built = root.with_name("built")

    def report(name: str, action: Callable[[], object]) -> None:
        if only and name not in [*only.split(","), "(nothing)"]:
            return
        # Resets the peak of resident memory (proc(5), clear_refs).
        Path("/proc/self/clear_refs").write_text("5")
        begin, processor = time.perf_counter(), processor_seconds()
        action()
        seconds = f"{time.perf_counter() - begin:9.1f}{processor_seconds() - processor:11.1f}"
        print(f"{name:16}{seconds}{peak_mib():12,.0f}{heap_mib(spark):10,.0f}", flush=True)

    spark.dataSource.register(RocketMQDataSource)
    held = store(str(root), spark=spark, broker_conf=CONF)

    def verify() -> None:
        summaries = held.verify().summaries
        assert summaries[str(root)].is_clean, summaries

    report("(nothing)", lambda: spark.range(9).count())
    report("verify", verify)
    report("stats", lambda: held.stats(limit=5))
    report(
        "load",
        lambda: spark.read.format("rocketmq").option("brokerConf", CONF).load(str(root)).count(),
    )
    report("load queues", lambda: held.scan("topic", structure="queue").count())
    report("sql queues", lambda: held.sql("SELECT count(*) FROM queues").collect())
    report("rebuild", lambda: held.rebuild("queues", output=str(built)))
    shutil.rmtree(built, ignore_errors=True)


def processor_seconds() -> float:
    """Processor time of this process and of all that it has started: Java and the Python workers.
    Workers that have ended are missing, as Spark's daemon does not wait for them."""
    started, known = {os.getpid()}, dict[int, list[str]]()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            known[int(place.name)] = (place / "stat").read_text().rpartition(")")[2].split()
    while more := {pid for pid, one in known.items() if int(one[1]) in started} - started:
        started |= more
    ticks = sum(int(ticks) for pid in started for ticks in known[pid][11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_mib() -> float:
    """The peak of this process's resident memory since it was last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kib) / 1024


def heap_mib(spark: SparkSession) -> float:
    """How much of Java's heap is in use after a garbage collection."""
    assert spark._jvm is not None
    spark._jvm.java.lang.System.gc()
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 2**20


def make(root: Path, wanted: Wanted) -> None:
    """Makes the store: one queue gets its share of the messages, and the others the rest, in
    turn."""
    count, queues, of_topic, share = wanted

    def messages() -> Iterator[MessageExtBrokerInner]:
        others, large = max(queues - 1, 1), 0
        for number in range(count):
            if large <= number * share:
                large += 1
                yield MessageExtBrokerInner("large", b"x" * 40, 0)
                continue
            topic, queue_id = divmod((number - large) % others, of_topic)
            yield MessageExtBrokerInner(f"t{topic}", b"x" * 40, queue_id)

    with MessageStore(root, parse_broker_conf(CONF), writable=True, create=True) as made:
        for bulk in made.append_stream(messages(), flush=False):
            assert bulk.refused is None


if __name__ == "__main__":
    main()
