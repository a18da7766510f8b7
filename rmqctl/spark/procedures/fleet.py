"""Many stores on Spark. A task reads many small stores. A large one is split into tasks of its own,
as by ``verify`` and ``stats``. The driver holds one row for each store.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.scan.ranges import LogPart, PartScan
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.filesizes import commit_log_file_size
from rmqctl.errors import RmqctlError
from rmqctl.operations.fleet.counting import Count, gathered
from rmqctl.operations.fleet.looking import (
    Codes,
    Task,
    failed,
    refuse_if_not_mapped,
    row,
    told_of,
    verified,
)
from rmqctl.operations.fleet.processes import Look
from rmqctl.operations.fleet.run import Planned
from rmqctl.operations.verify import inparts
from rmqctl.rows.fleets import FleetStoreRow
from rmqctl.spark.mend import facts, verify
from rmqctl.spark.mend.facts import NOTE, Fact
from rmqctl.spark.mend.rebuild import open_log
from rmqctl.spark.procedures.fleettask import looked_at
from rmqctl.spark.remote.remote import RemoteStore
from rmqctl.spark.session.failures import failures_told
from rmqctl.spark.session.jobs import at_once, parallelism

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A store with more bytes of log is split, and has its own jobs.
LARGE = 1 << 30
#: The most bytes of log, and the most stores, of one task, so that it ends within seconds.
_BIN_BYTES = 256 << 20
_BIN_STORES = 16
Found = tuple[int, FleetStoreRow]


class Packed(NamedTuple):
    """One of the small stores of a task: its number among the stores that are left, and what to do
    with it."""

    items: list[tuple[int, Task]]


def packed(left: Sequence[Planned], cores: int) -> list[list[Packed]]:
    """Packs small stores, the largest first, into bins of one task each. A job has as many bins as
    tasks run at a time, because results are kept only when a job ends."""
    small = [(at, one) for at, one in enumerate(left) if not _is_large(one)]
    stores = max(1, min(_BIN_STORES, len(small) // (2 * cores)))
    bins: list[Packed] = []
    room, count = 0, 0
    for at, one in small:
        if not bins or one.log_bytes > room or count >= stores:
            bins.append(Packed([]))
            room, count = _BIN_BYTES, 0
        bins[-1].items.append((at, one.task))
        room, count = room - one.log_bytes, count + 1
    return [bins[at : at + cores] for at in range(0, len(bins), cores)]


def _is_large(one: Planned) -> bool:
    return one.log_bytes > LARGE and one.task.reads_log


def each(spark: SparkSession, left: Sequence[Planned], look: Look = looked_at) -> Generator[Found]:
    """Yields the number of each store among those that are left, and its row, when it is done.

    :raises SparkFailed: the session has ended. If only a job fails, the rows of its stores say so.
    """
    is_left = threading.Event()

    def run(job: list[Packed] | int) -> list[Found]:
        if isinstance(job, int):
            return [(job, _large(spark, left[job].task))]
        try:
            with failures_told():
                return list(_job(spark, job, look))
        except RmqctlError as error:
            if is_left.is_set():
                raise  # Ctrl-C has ended the job.
            return _alone(spark, job, look, error)

    jobs: list[tuple[list[Packed] | int]] = [(at,) for at, one in enumerate(left) if _is_large(one)]
    jobs += [(one,) for one in packed(left, parallelism(spark))]
    with at_once(spark, run, jobs) as futures:
        try:
            for future in as_completed(futures):
                yield from future.result()
        except BaseException:
            is_left.set()
            raise


def _job(spark: SparkSession, bins: list[Packed], look: Look) -> Iterator[Found]:
    """Runs one job, with a task for each bin."""

    def work(one: Packed) -> Iterator[Fact]:
        for at, task in one.items:
            yield Fact(NOTE, at, 0, data=pickle.dumps(look(task)))

    for told in facts.on_executors(spark, bins, work).select("part", "data").collect():
        yield told["part"], pickle.loads(told["data"])


def _alone(spark: SparkSession, bins: list[Packed], look: Look, error: RmqctlError) -> list[Found]:
    """Runs the stores of a failed job one by one. A store that fails again gets a row with the
    error.

    :raises SparkFailed: the session itself has failed.
    """
    with failures_told():
        spark.range(1).collect()
    items = [item for one in bins for item in one.items]
    found: list[Found] = []
    for at, task in items:
        began = time.monotonic()
        try:
            if len(items) == 1:
                raise error
            with failures_told():
                found += _job(spark, [Packed([(at, task)])], look)
        except RmqctlError as reason:
            found.append((at, failed(task.store, task.verb, began, reason)))
    return found


def _large(spark: SparkSession, task: Task) -> FleetStoreRow:
    """The row of a large store. If it cannot be read, the row says why."""
    began = time.monotonic()
    try:
        with failures_told():
            known = _checked(spark, task) if task.verb == "verify" else _counted(spark, task)
    except Exception as error:
        if isinstance(error, RmqctlError):
            with failures_told():
                spark.range(1).collect()
        return failed(task.store, task.verb, began, error)
    return row(task.store, task.verb, began, **known)


def _checked(spark: SparkSession, task: Task) -> dict[str, object]:
    refuse_if_not_mapped(task.store, task.verb)
    root = Path(task.store.path)
    findings, summary = verify.verify(spark, root, task.config, inparts)
    codes: Codes = Counter((one.severity, one.code) for one in findings)
    return verified(root, task.config, codes, summary)


def _counted(spark: SparkSession, task: Task) -> dict[str, object]:
    remote = RemoteStore(task.store.path, task.config) if task.store.is_remote else None
    if remote is not None:
        remote.check()
        log, size = remote.log(), 0
    else:
        root = Path(task.store.path)
        paths.check_store(root)
        size = commit_log_file_size(root, task.config)
        log = open_commit_log(root, task.config, size)

    def count(part: LogPart) -> Iterator[Fact]:
        with closing(_part_log(task, size, part)) as opened:
            entries = PartScan(Scanner(opened, properties=False), part)
            found = gathered(entries)
            yield Fact(NOTE, part.number, 1, data=pickle.dumps(found))
            yield Fact(NOTE, part.number, 2, data=pickle.dumps(entries.bounds))

    with closing(log):
        told = facts.gather(spark, log, count)
        told.facts.unpersist()
        whole = Count()
        for part in told.notes:
            whole.join(part[0])
        return told_of(task, whole, log, remote)


def _part_log(task: Task, size: int, part: LogPart) -> CommitLog:
    if task.store.is_remote:
        return RemoteStore(task.store.path, task.config).log()
    return open_log(task.store.path, task.config, size, part)
