"""Progress of Spark's jobs, as Spark itself counts its tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqctl.spark.session.failures import end_of_java

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

#: What a whole command counts to.
TOTAL = 1000
_SECONDS = 0.2


def _tasks(tracker: StatusTracker) -> tuple[int, int]:
    """How many tasks the running stages have, and how many of those are done."""
    total = finished = 0
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        if info is not None:
            total += info.numTasks
            finished += info.numCompletedTasks
    return total, finished


@contextmanager
def watched(spark: SparkSession, advance: Callable[[int], None]) -> Iterator[None]:
    """Calls ``advance`` with a number from 0 to :data:`TOTAL` as the tasks of the jobs that run
    within are done; on the way out jobs that still run are cancelled.

    Jobs come one after the other and nobody knows how many: a later one never takes the bar back.
    """
    context = getattr(spark, "_sc", None)
    if context is None:  # Spark Connect
        yield
        return
    done = threading.Event()
    # A context that is stopped gives none.
    tracker = context.statusTracker()

    def poll() -> None:
        reached = 0
        while not done.wait(_SECONDS):
            try:
                total, finished = _tasks(tracker)
            except end_of_java():
                return  # A bar is no reason to say so.
            if total:
                reached = max(reached, TOTAL * finished // total)
                advance(min(reached, TOTAL - 1))

    watcher = threading.Thread(target=poll, daemon=True)
    watcher.start()
    try:
        yield
    except BaseException:
        try:
            context.cancelAllJobs()
        except end_of_java():
            pass  # Its jobs have ended with it, or will soon.
        raise
    finally:
        done.set()
        watcher.join(2)
