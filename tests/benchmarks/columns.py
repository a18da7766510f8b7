"""Measures counts on Spark, which need no column, and what reading each column costs.

Run it as ``python tests/benchmarks/columns.py STORE``; see the README beside it. It measures the
processor time of Java and of the Python processes, and takes the least of several rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rmqctl.rows.columns import default_names
from rmqctl.spark import scan
from rmqctl.spark import store as store_of
from rmqctl.spark.session.jobs import run
from rmqctl.spark.source.datasource import NAME
from tests.benchmarks.manyqueues import ROOT, processor_seconds

#: The way that the others are given as a multiple of.
ONE = "queue_offset"
ALL = default_names("commitlog")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("store", type=Path)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--repeat", type=int, default=4, help="read so many times for a column")
    arguments.add_argument("--columns", default="", help="left out in turn, with commas; else each")
    options = arguments.parse_args()
    # The workers use this Python, and this checkout.
    os.environ["PYSPARK_PYTHON"], os.environ["PYTHONPATH"] = sys.executable, str(ROOT)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    ways(spark, str(options.store), options.runs)
    path = ",".join([str(options.store)] * options.repeat)
    prices(spark, path, options.runs, options.columns.split(",") if options.columns else ALL)
    spark.stop()


def ways(spark: SparkSession, path: str, runs: int) -> None:
    """Measures each way to count all messages, beside a scan of one column."""

    def query() -> Any:
        held = store_of(path, spark=spark)
        return held.query(lambda messages: messages.groupBy().count()).collect()

    seconds = fastest(
        {
            f'scan(columns=["{ONE}"])': lambda: scan(spark, path, columns=[ONE]).count(),
            "scan(columns=[])": lambda: scan(spark, path, columns=[]).count(),
            "query(… .count())": query,
            "load(), all but body": lambda: spark.read.format(NAME).load(path).count(),
        },
        runs,
    )
    base = next(iter(seconds.values()))
    print(f"{'count()':32}{'processor':>11}{'x one column':>14}")
    for name, spent in seconds.items():
        print(f"{name:32}{spent:11.2f}{spent / base:14.2f}", flush=True)


def prices(spark: SparkSession, path: str, runs: int, names: list[str]) -> None:
    """Measures, for each of these columns, how much less a message costs when all columns but this
    are read."""

    def read(columns: list[str]) -> Callable[[], None]:
        return lambda: run(scan(spark, path, columns=columns))

    wanted = {"all": ALL, "one": [ONE]}
    wanted |= {name: [other for other in ALL if other != name] for name in names}
    seconds = fastest({name: read(columns) for name, columns in wanted.items()}, runs)
    messages = scan(spark, path, columns=[ONE]).count()
    whole = seconds["all"] - seconds["one"]
    print(f"\n{'column':32}{'ns a message':>14}{'share':>8}")
    print(f"{'all but ' + ONE:32}{whole / messages * 1e9:14,.0f}{1:8.0%}")
    saved = {name: seconds["all"] - seconds[name] for name in names}
    for name in sorted(names, key=saved.__getitem__, reverse=True):
        share = f"{saved[name] / whole:8.0%}"
        print(f"{name:32}{saved[name] / messages * 1e9:14,.0f}{share}", flush=True)


def fastest(actions: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """The least processor time of each action over all rounds but the first."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(runs + 1):
        for name, action in actions.items():
            before = processor_seconds()
            action()
            seconds[name].append(processor_seconds() - before)
    return {name: min(spent[1:]) for name, spent in seconds.items()}


if __name__ == "__main__":
    main()
