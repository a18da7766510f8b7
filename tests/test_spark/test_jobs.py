"""Jobs of several threads: done at the same time, and ended with what waits for them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tests.test_spark.conftest import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")


def job_until(spark: SparkSession, sign: Path) -> int:
    """A job whose task says that it has begun, and waits until it is told to end."""

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            sign.with_suffix(".begun").touch()
            while not sign.exists():
                time.sleep(0.02)
            yield batch

    return len(spark.range(0, 1, 1, 1).mapInArrow(work, "id bigint").collect())


def test_items_are_worked_on_at_the_same_time_and_answer_in_order(spark: SparkSession) -> None:
    from rmqctl.spark.session.jobs import at_once

    meeting = Barrier(2)

    def work(number: int) -> int:
        meeting.wait(60)
        time.sleep(0.1 * (1 - number))
        return number + spark.range(5).count()

    with at_once(spark, work, [(0,), (1,)]) as begun:
        assert [one.result() for one in begun] == [5, 6]


def test_what_fails_ends_all_jobs(spark: SparkSession, tmp_path: Path) -> None:
    from rmqctl.spark.session.jobs import at_once

    work = [(spark, tmp_path / str(number)) for number in range(10)]
    with pytest.raises(KeyboardInterrupt), at_once(spark, job_until, work) as begun:
        # Any of them: the jobs that come first keep all cores.
        wait_until(lambda: any(tmp_path.glob("*.begun")))
        raise KeyboardInterrupt
    assert all(one.cancelled() or one.exception() for one in begun)
    assert spark.range(5).count() == 5


def test_a_failure_ends_no_other_threads_jobs(spark: SparkSession, tmp_path: Path) -> None:
    from rmqctl.spark.session.jobs import ended_on_failure

    with ThreadPoolExecutor() as pool:
        other = pool.submit(job_until, spark, tmp_path / "other")
        wait_until((tmp_path / "other.begun").exists)
        with pytest.raises(OSError), ended_on_failure(spark):
            spark.range(5).count()
            raise OSError
        (tmp_path / "other").touch()
        assert other.result(60) == 1
    assert not spark.getTags()


class _Ends:
    """As much of a session as :func:`watched` needs, whose calls fail."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._sc = self

    def _fail(self, *_: object) -> NoReturn:
        raise self._error

    def statusTracker(self) -> _Ends:
        return self

    getActiveStageIds = cancelAllJobs = interruptTag = removeTag = _fail

    def addTag(self, _: str) -> None:
        pass


def test_only_the_end_of_java_is_passed_over() -> None:
    """What its end makes of a call says nothing new; a bug of ours must be seen."""
    from py4j.protocol import Py4JNetworkError
    from pyspark.errors import PySparkException

    from rmqctl.spark.session.jobs import ended_on_failure
    from rmqctl.spark.session.progress import watched

    def left(error: Exception) -> Iterator[BaseException]:
        ended: Any = _Ends(error)
        for context in (watched(ended, lambda _: None), ended_on_failure(ended)):
            with pytest.raises((KeyboardInterrupt, Exception)) as raised, context:
                raise KeyboardInterrupt
            yield raised.value

    for error in (Py4JNetworkError(), PySparkException("stopped"), ConnectionRefusedError()):
        assert [type(one) for one in left(error)] == [KeyboardInterrupt] * 2
    bug = AttributeError("ours")
    assert list(left(bug)) == [bug, bug]
