"""Spark's ``pyspark.daemon``, which has imported what its workers need before it forks them, and
whose workers look for garbage only among what is new.

A worker whose task fails ends, and the next one imported pandas, pyarrow and rmqctl anew. And after
each task a worker of Spark collects garbage: 46 ms of processor time for the 90,000 objects of
these, most of what a task of the tests takes. What a collection leaves is passed over by the next
one here, as it is there for as long as the process.
"""

from __future__ import annotations

import gc
import importlib
import os

from pyspark import daemon

#: What workers import when they have something to do.
_NEEDED = (
    "pandas",
    "pyspark.worker",
    "rmqctl.spark.mend.rebuildjob",
    "rmqctl.spark.mend.verify",
    "rmqctl.spark.sink.writer",
    "rmqctl.spark.source.splits",
)


class _Collector:
    """What ``pyspark.daemon`` knows as the module ``gc``."""

    @staticmethod
    def collect() -> None:
        gc.collect()
        gc.freeze()

    def __getattr__(self, name: str) -> object:
        return getattr(gc, name)


def _import_ahead() -> None:
    """No thread may be started by it: what is forked has only the one that forks."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    for name in _NEEDED:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "an import has started a thread"
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    vars(daemon)["gc"] = _Collector()
    _import_ahead()
    daemon.manager()
