"""Runs jobs of Spark, several at a time, and cancels them when nobody waits for them any more."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rmqctl.spark.session.failures import end_of_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R")
#: Most bytes of log that the driver goes through by itself, without a job: half a second of one
#: core.
SMALL = 64 << 20
_AT_ONCE = 8
_SECONDS = 0.2


def run(frame: DataFrame) -> None:
    """Runs a job for its side effects."""
    frame.write.format("noop").mode("overwrite").save()


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at a time. With Spark Connect that is not known."""
    return 8 if is_connect(spark) else spark.sparkContext.defaultParallelism


def is_connect(spark: SparkSession) -> bool:
    """Whether the session uses Spark Connect."""
    return getattr(spark, "_sc", None) is None


@contextmanager
def ended_on_failure(spark: SparkSession) -> Iterator[None]:
    """When the context is left by an error, cancels the jobs that this thread has started in it, so
    that nothing is written after the clean-up. Jobs of other threads go on."""
    tag = f"rmqctl-{uuid.uuid4().hex}"
    spark.addTag(tag)
    try:
        yield
    except BaseException:
        _end(lambda: spark.interruptTag(tag))
        raise
    finally:
        _end(lambda: spark.removeTag(tag))


@contextmanager
def at_once(
    spark: SparkSession, function: Callable[..., R], items: Iterable[tuple[object, ...]]
) -> Iterator[list[Future[R]]]:
    """Calls a function with the values of each item, each in its own thread, some at a time. Spark
    prefers tasks of the jobs that were started first. So cores that would wait for the last tasks
    of one job work for the next job.

    When the context is left by an error, for example Ctrl-C, all jobs of the session are cancelled.
    """
    pool = ThreadPoolExecutor(_AT_ONCE)
    futures = [pool.submit(function, *item) for item in items]
    try:
        yield futures
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        while not all(one.done() for one in futures):
            _end(spark.interruptAll)
            # A job may begin between two checks. A future that never began counts as done, but it
            # has no job.
            wait(futures, _SECONDS)
        raise
    finally:
        pool.shutdown()


def _end(action: Callable[[], object]) -> None:
    try:
        action()
    except end_of_java():
        pass  # The tasks have ended with the session.
