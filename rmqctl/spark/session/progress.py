"""The progress of Spark's jobs, by Spark's own counts of tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqctl.spark.session.failures import end_of_java

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

#: The count at the end of a command.
TOTAL = 1000
_SECONDS = 0.2


def _tasks(tracker: StatusTracker) -> tuple[int, int]:
    """How many tasks the running stages have, and how many of these are done."""
    total = finished = 0
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        if info is not None:
            total += info.numTasks
            finished += info.numCompletedTasks
    return total, finished


@contextmanager
def watched(spark: SparkSession, advance: Callable[[int], None]) -> Iterator[None]:
    """Calls ``advance`` with a number from 0 to :data:`TOTAL` as tasks of the jobs in the context
    are done. When the context is left, jobs that still run are cancelled.

    The number of jobs is not known beforehand. The count never goes back when another job begins.
    """
    context = getattr(spark, "_sc", None)
    if context is None:  # Spark Connect
        yield
        return
    done = threading.Event()
    # A stopped context has no tracker.
    tracker = context.statusTracker()

    def poll() -> None:
        reached = 0
        while not done.wait(_SECONDS):
            try:
                total, finished = _tasks(tracker)
            except end_of_java():
                return  # The error is not worth a message: only the progress bar needs the counts.
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
            pass  # The jobs have ended with the session, or will soon.
        raise
    finally:
        done.set()
        watcher.join(2)
