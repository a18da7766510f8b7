"""Makes a new store in parallel.

1. Each task encodes its rows, and writes them as a run (:mod:`rmqctl.engine.write.assemble`).
2. The driver computes the offsets from sizes and counts. Each file of the log is written
   separately.
3. Queues and index are built from the log.

:func:`write_store` does all three steps on Spark, unless the log is small. The data source's writer
cannot start a job itself: it does the second step with threads, and the third one in one process.
Until then the runs are in the directory of the new store, which every node must see.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from rmqctl.engine.derive.writer import DerivedWriter
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files import paths, writing
from rmqctl.engine.files.durable import sync_directories, sync_directory
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.index.indexwriter import IndexServiceWriter
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.queue.queuetablewriter import ConsumeQueueTableWriter
from rmqctl.engine.record.record import Damage
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.filesizes import check_queue_file_size
from rmqctl.engine.settings.logdirectories import is_spread
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.checkpoint import Checkpoint, write_checkpoint
from rmqctl.engine.write.assemble import (
    Run,
    RunWriter,
    cut_into_files,
    first_offsets,
    settle_multi,
    write_log_file,
)
from rmqctl.errors import InternalError, RmqctlError
from rmqctl.spark.session.jobs import SMALL, ended_on_failure
from rmqctl.spark.session.staging import NotShared, in_new_directory, is_remote
from rmqctl.spark.sink.encode import EncodeSettings, RowEncoder, RowRefused
from rmqctl.spark.sink.messagecolumns import COLUMNS, REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ASIDE = "rmqctl-runs"
T = TypeVar("T")
R = TypeVar("R")
#: A function that calls another one for each item, several at a time, and returns the results in
#: order.
Each = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


class WriteRefused(RmqctlError):
    template = "cannot make the store {path}: {reason}. Nothing was written."


class AppendRefused(WriteRefused):
    template = "cannot append to the store {path}: {reason}. Nothing of this job was written."


class SetAside(NamedTuple):
    """The result of one task: a run, or why one of its rows is not a message."""

    run: Run | None
    refused: str = ""


@dataclass(frozen=True)
class NewStore:
    """A new store that is being made in ``root``, an existing directory. It is sent to the tasks.

    ``name`` is its name in error messages.
    """

    root: str
    name: str
    settings: EncodeSettings

    @property
    def _root(self) -> Path:
        return Path(self.root)

    @property
    def _aside(self) -> Path:
        return self._root / _ASIDE

    @property
    def _config(self) -> MessageStoreConfig:
        return self.settings.config

    def begin(self) -> None:
        """Makes the directories to which tasks write. The tasks themselves never make them, so that
        a late one does not make them again."""
        self._aside.mkdir()
        (self._root / paths.COMMIT_LOG).mkdir()

    def set_aside(self, batches: Iterable[pa.RecordBatch], name: str) -> SetAside:
        """Writes the rows of one task. That a row is not a message is returned and not raised,
        because Spark would retry the task. :raises CannotWrite: the disk is full. :raises
        NotShared: this node does not see the directory of the store."""
        encoder = RowEncoder(self.settings)
        path = self._aside / name
        try:
            with closing(RunWriter(str(path))) as writer:
                for batch in batches:
                    if batch.num_rows:
                        writer.add(*encoder.encode(batch))
        except RowRefused as error:
            return SetAside(None, str(error))
        except FileNotFoundError as error:
            raise NotShared(path=self.name) from error
        except OSError as error:
            raise writing.writing_error(path, error) from error
        queues, counts = tuple(encoder.queues), tuple(encoder.counts)
        return SetAside(Run(writer.path, queues, counts, writer.records, writer.has_multi))

    def write_log(self, told: Iterable[SetAside], each: Each) -> int:
        """Writes the files of the log from the results of the tasks, in the order of their rows.
        Returns the number of records. :raises WriteRefused: a row was not a message."""
        runs: list[Run] = []
        for one in told:
            if one.run is None:
                raise WriteRefused(path=self.name, reason=one.refused)
            runs.append(one.run)
        firsts = first_offsets(runs)
        if any(run.has_multi for run in runs):
            settle = partial(_settle, dispatcher=Dispatcher(self._config))
            runs = each(settle, list(zip(runs, firsts, strict=True)))
        file_size = self._config.mapped_file_size_commit_log
        files = list(cut_into_files((run.rows()["size"] for run in runs), file_size))
        each(
            partial(write_log_file, self._root, self._aside, file_size, runs=runs, firsts=firsts),
            files,
        )
        sync_directory(self._root / paths.COMMIT_LOG)
        return sum(run.records for run in runs)

    def is_small(self, told: Iterable[SetAside]) -> bool:
        """Whether the driver makes the store sooner by itself than with further jobs."""
        return sum(one.run.size for one in told if one.run) < SMALL

    def dispatch(self, records: int) -> None:
        """Builds queues and index in this process. :raises InternalError: the log has not so many
        records."""
        root, config = self._root, self._config
        log = CommitLog(root / paths.COMMIT_LOG, config.mapped_file_size_commit_log)
        dispatcher = Dispatcher(config)
        derived = DerivedWriter(
            dispatcher,
            ConsumeQueueTableWriter(
                root / paths.CONSUME_QUEUE,
                config.mapped_file_size_consume_queue,
                root,
                ext_directory=root / paths.CONSUME_QUEUE_EXT,
                ext_file_size=(
                    config.mapped_file_size_consume_queue_ext
                    if config.enable_consume_queue_ext
                    else None
                ),
            ),
            IndexServiceWriter(root / paths.INDEX, config.index_geometry, root)
            if config.message_index_enable
            else None,
        )
        found = 0
        damage: list[Damage] = []
        try:
            for entry in Scanner(log).scan():
                if isinstance(entry, Batch):
                    derived.dispatch_batch(entry)
                    found += len(entry)
                elif isinstance(entry, Damage):
                    damage.append(entry)
            derived.flush()
        finally:
            derived.close()
            log.close()
        _check_built(records, found, damage)

    def complete(self, told: Iterable[SetAside]) -> int:
        """Makes the store from the results of the tasks, in this process. Returns the number of
        records. :raises WriteRefused: a row was not a message."""
        if records := self.write_log(told, with_threads):
            self.dispatch(records)
        self.finish()
        return records

    def finish(self) -> None:
        """Writes what else a cleanly closed store has."""
        shutil.rmtree(self._aside)
        if any((self._root / paths.COMMIT_LOG).iterdir()):
            now = self.settings.timestamp
            stamps = Checkpoint(now, now, now if self._has_full_index_file() else 0)
            write_checkpoint(self._root, self._root / paths.CHECKPOINT, stamps)
        # Opening the store checks that queues and index end where the log does.
        MessageStore(self._root, self._config, writable=True, create=True).close()
        sync_directories(self._root)

    def _has_full_index_file(self) -> bool:
        """Whether a file of the index is full, so that a broker would have set the checkpoint's
        time for the index. All records have the same store time."""
        names = paths.scan_names(self._root / paths.INDEX)
        if not names:
            return False
        service = IndexService(self._root / paths.INDEX, self._config.index_geometry)
        first = service.open(self._root / paths.INDEX / names[0])
        try:
            return first.is_full
        finally:
            first.close()


def _settle(run: tuple[Run, Any], dispatcher: Dispatcher) -> Run:
    try:
        return settle_multi(*run, dispatcher)
    except OSError as error:
        raise writing.writing_error(run[0].path, error) from error


def with_threads(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Calls a function for each item with threads: it copies and uses numpy, which release the
    GIL."""
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(cancel_futures=True)


def write_store(
    rows: DataFrame,
    path: str,
    config: MessageStoreConfig | None = None,
    *,
    as_stored: bool = False,
    clock: Callable[[], int] = system_clock,
) -> int:
    """Makes a store from the rows of a DataFrame, in the order of its partitions, on Spark. Returns
    how many messages it has. The store appears complete, or not at all.

    The columns are those of :data:`rmqctl.spark.sink.messagecolumns.COLUMNS`. ``path`` must be new
    or empty, and all nodes must see it. With ``as_stored`` the rows are records of another store,
    and stay as they were: a DELAY property delays nothing. The store time of all is the time of the
    call.

    :raises OutputExists: ``path`` is not empty. :raises WriteRefused: a row is not a message, or a
        column cannot be one of messages.
    """
    from rmqctl.spark.mend.rebuild import build

    spark, config = rows.sparkSession, config or MessageStoreConfig()
    check_new_store(path, config)
    check_columns(path, rows.schema)
    with in_new_directory(path) as place, ended_on_failure(spark):
        new = NewStore(place, path, EncodeSettings(config, clock(), as_stored))
        new.begin()
        told = _set_aside(rows, new)
        is_small = new.is_small(told)
        records = new.write_log(told, with_threads if is_small else partial(_on_spark, spark))
        if records and is_small:
            new.dispatch(records)
        elif records:
            built = build(spark, _Plan(Path(place), config), Path(place))
            _check_built(records, built.records, built.damage)
        new.finish()
    return records


def _check_built(records: int, found: int, damage: Sequence[Damage]) -> None:
    """:raises InternalError: what was written cannot all be read."""
    if found != records or damage:
        read = f"{found} records, damage at {damage[:3]}"
        raise InternalError(reason=f"of {records} records written it reads {read}")


def write_batches(
    batches: Iterable[pa.RecordBatch], path: str, config: MessageStoreConfig, *, as_stored: bool
) -> int:
    """As :func:`write_store`, of batches of rows with such columns, in this process."""
    check_new_store(path, config)
    with in_new_directory(path) as place:
        new = NewStore(place, path, EncodeSettings(config, system_clock(), as_stored))
        new.begin()
        return new.complete([new.set_aside(batches, "0")])


def check_new_store(path: str, config: MessageStoreConfig) -> None:
    """Checks that a new store can be made.

    :raises WriteRefused: the path is a URL, or the configuration puts the log elsewhere.
    :raises QueueFilesTooSmall: no broker would start on the store.
    """
    check_queue_file_size(config.mapped_file_size_consume_queue)
    if is_spread(config):
        reason = "its log would lie in other directories: take storePathCommitLog out of its conf"
        raise WriteRefused(path=path, reason=reason)
    if is_remote(path):
        raise WriteRefused(path=path, reason="a store is files that are mapped: give a directory")


def check_columns(path: str, schema: StructType) -> None:
    """Checks the columns. :raises WriteRefused: they cannot be messages."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in REQUIRED:
        if name not in types:
            raise WriteRefused(path=path, reason=f"there is no column {name}")
    for name, kind in types.items():
        if name not in COLUMNS:
            known = ", ".join(COLUMNS)
            reason = f"column {name} is none of a message: {known}; select what is"
            raise WriteRefused(path=path, reason=reason)
        if kind not in COLUMNS[name]:
            reason = f"column {name} is {kind}, it must be {' or '.join(COLUMNS[name])}"
            raise WriteRefused(path=path, reason=reason)


@dataclass(frozen=True)
class _Plan:
    """The plan for ``rebuild.build``: everything of a store that has only a log."""

    root: Path
    config: MessageStoreConfig
    topic: str | None = None
    queue_id: int | None = None
    queues: bool = True

    @property
    def index(self) -> bool:
        return self.config.message_index_enable

    @property
    def commit_log_file_size(self) -> int:
        return self.config.mapped_file_size_commit_log

    @property
    def consume_queue_file_size(self) -> int:
        return self.config.mapped_file_size_consume_queue

    @property
    def consume_queue_ext_file_size(self) -> int | None:
        is_wanted = self.config.enable_consume_queue_ext
        return self.config.mapped_file_size_consume_queue_ext if is_wanted else None


def task() -> tuple[int, str]:
    """The number of the task's partition, and a new name for its run. Attempts of one task have
    different names, because only the names that tasks return count."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
    return number, f"{number}-{attempt}"


def _set_aside(rows: DataFrame, new: NewStore) -> list[SetAside]:
    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, name = task()
        told = pickle.dumps(new.set_aside(batches, name))
        yield pa.record_batch({"number": [number], "told": pa.array([told], pa.binary())})

    found = rows.mapInArrow(encode, "number bigint, told binary").collect()
    return [pickle.loads(row["told"]) for row in sorted(found, key=lambda row: row["number"])]


def _on_spark(spark: SparkSession, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Calls a function for each item, with a task for each."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            results = [pickle.dumps(function(items[number])) for number in numbers]
            yield pa.record_batch({"number": numbers, "result": pa.array(results, pa.binary())})

    if not items:
        return []
    tasks = spark.range(0, len(items), 1, len(items))
    found = tasks.mapInArrow(run, "number bigint, result binary").collect()
    return [pickle.loads(row["result"]) for row in sorted(found, key=lambda row: row["number"])]
