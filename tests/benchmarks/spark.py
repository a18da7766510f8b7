"""Measures the Spark data source beside the in-process scanner, Parquet and a UDF pipeline.

Run it as ``python tests/benchmarks/spark.py STORE…``. Every line is a median of one run on this
machine. Its ratios are times divided by another time:

- ``x scanner`` by that of the in-process scanner on the same cores (one process for each core, each
  reading one file of the log at a time);
- ``x like`` by that of the same query on a Parquet copy of the same rows; for a write, by that of
  writing the same rows from Spark's memory to Parquet, in turns; and for a count of all columns but
  bodies, by that of a count of one column.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.rows.columns import STRUCTURES
from rmqctl.spark import scan
from rmqctl.spark import store as store_of
from rmqctl.spark.source.datasource import NAME
from rmqctl.spark.source.logsplit import open_log

CORES = 2
ROOT = Path(__file__).resolve().parents[2]
SIX = ["physical_offset", "total_size", "topic", "queue_id", "queue_offset", "store_time"]
ALL = [column.name for column in STRUCTURES["commitlog"]]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("stores", nargs="+", type=Path)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--repeat", type=int, default=1, help="read each store so many times")
    arguments.add_argument("--driver-memory", default="10g", help="all columns are kept in it")
    arguments.add_argument("--directory", type=Path, default=None, help="where copies are made")
    options = arguments.parse_args()
    # The workers use this Python, and this checkout.
    os.environ["PYSPARK_PYTHON"], os.environ["PYTHONPATH"] = sys.executable, str(ROOT)
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.log.level", "OFF").config(
        "spark.driver.memory", options.driver_memory
    )
    session = spark.getOrCreate()
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        for store in options.stores:
            measure(session, store, options.repeat, options.runs, Path(place))
    session.stop()


def measure(spark: SparkSession, store: Path, repeat: int, runs: int, place: Path) -> None:
    path = ",".join([str(store)] * repeat)
    rows, size = 0, 0

    log = open_log(str(store), MessageStoreConfig())
    files = [(store, e.file_from_offset, e.file_from_offset + e.size) for e in log.files.entries]
    log.close()

    def in_process(cores: int) -> None:
        nonlocal rows, size
        with get_context("spawn").Pool(cores) as pool:
            pool.map(scan_file, files[:1])  # Has the processes start before time is taken.
            begin = time.perf_counter()
            counted = pool.map(scan_file, files * repeat, chunksize=1)
            scans.append(time.perf_counter() - begin)
        rows, size = (sum(column) for column in zip(*counted, strict=True))

    def scanned(cores: int) -> float:
        scans.clear()
        for _ in range(runs):
            in_process(cores)
        return statistics.median(scans)

    scans: list[float] = []
    single, base = scanned(1), scanned(CORES)
    print(f"\n{store}: {rows:,} rows, {size / 2**20:,.0f} MiB, medians of {runs} runs")
    print(f"{'':32}{'seconds':>9}{'M rows/s':>10}{'MiB/s':>8}{'x scanner':>11}{'x like':>11}")

    def line(name: str, seconds: float, ratio: float | None = None) -> None:
        told = f"{ratio:11.2f}" if ratio else ""
        print(
            f"{name:32}{seconds:9.2f}{rows / seconds / 1e6:10.2f}{size / seconds / 2**20:8,.0f}"
            f"{seconds / base:11.2f}{told}",
            flush=True,
        )

    def report(name: str, action: Callable[[], object], like: float | None = None) -> float:
        action()  # The first time it also starts the workers.
        seconds = statistics.median(timed(action) for _ in range(runs))
        line(name, seconds, seconds / like if like else None)
        return seconds

    def report_in_turns(
        name: str, action: Callable[[], object], like_name: str, like: Callable[[], object]
    ) -> None:
        """Measures in turns what takes long, as the machine's speed changes meanwhile."""
        like(), action()
        turns = [(timed(like), timed(action)) for _ in range(runs)]
        line(like_name, statistics.median(theirs for theirs, _ in turns))
        ratio = statistics.median(ours / theirs for theirs, ours in turns)
        line(name, statistics.median(ours for _, ours in turns), ratio)

    for name, seconds in (("one core", single), (f"{CORES} cores", base)):
        line(f"in-process scanner, {name}", seconds)
    copy, again = str(place / "copy"), str(place / "again")
    scan(spark, path, columns=SIX).write.mode("overwrite").parquet(copy)
    parquet = spark.read.parquet(copy)
    count = report("Parquet copy: count", parquet.count)
    group = report("Parquet copy: group by topic", lambda: by_topic(parquet))
    one = report("count of 1 column", lambda: scan(spark, path, columns=[]).count(), count)
    report("scan(path).count()", lambda: scan(spark, path).count(), one)
    if repeat == 1:  # (the same store given twice would be read only once)
        report("store(path).query(… .count())", lambda: counted(spark, path), one)
    report("load(path).count()", lambda: spark.read.format(NAME).load(path).count(), one)
    report("group by topic", lambda: by_topic(scan(spark, path, columns=["topic"])), group)
    for few, columns in (("6", SIX), ("all", ALL)):
        # Rows that do not fit into the driver's memory come back from disk, in Spark's own format.
        cached = scan(spark, path, columns=columns).persist(StorageLevel.MEMORY_AND_DISK)
        cached.count()
        # A plan that differs from the cached one, or Spark would read the rows from memory.
        direct = scan(spark, path, columns=columns, minPartitions="1")
        report_in_turns(
            f"{few} columns to Parquet",
            partial(save, direct, again),
            f"{few} columns in memory to Parquet",
            partial(save, cached, again),
        )
        cached.unpersist()
    binary = spark.read.format("binaryFile").load([f"{store}/commitlog"] * repeat)
    if max(end - start for _, start, end in files) < 2**30:
        report("binaryFile + UDF: group by topic", lambda: by_topic(with_udf(binary)), group)
    else:
        print("binaryFile + UDF cannot read the store: a row holds less than 1 GiB")


def scan_file(file: tuple[Path, int, int]) -> tuple[int, int]:
    """Number and bytes of the records of one file of a log."""
    store, start, end = file
    rows = size = 0
    log = open_log(str(store), MessageStoreConfig())
    for entry in Scanner(log, properties=False).scan(start, end):
        if isinstance(entry, Batch):
            rows += len(entry)
            size += int(entry.total_size.sum())
    log.close()
    return rows, size


def counted(spark: SparkSession, path: str) -> Any:
    return store_of(path, spark=spark).query(lambda messages: messages.groupBy().count()).collect()


def by_topic(frame: Any) -> Any:
    return frame.groupBy("topic").count().collect()


def save(frame: Any, path: str) -> None:
    frame.write.mode("overwrite").parquet(path)


def with_udf(files: Any) -> Any:
    """The topics as one gets them without this data source: a loop in Python over whole files."""

    def topics(batches: Iterator[Any]) -> Iterator[Any]:
        from struct import Struct

        import pandas

        head = Struct(">iI")
        for frame in batches:
            for data in frame["content"]:
                found, at = [], 0
                while at + 91 <= len(data):
                    size, magic = head.unpack_from(data, at)
                    if magic != 0xDAA320A7 or size <= 0:
                        break
                    body = int.from_bytes(data[at + 84 : at + 88], "big")
                    place = at + 88 + body
                    found.append(data[place + 1 : place + 1 + data[place]].decode())
                    at += size
                yield pandas.DataFrame({"topic": found})

    return files.select("content").mapInPandas(topics, "topic string")


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
