"""``rebuild`` on Spark: tasks make the files in parallel, with the engine's own writers.

The tasks that scan the log pack units and keys into runs (:mod:`rmqctl.spark.mend.facts`). These go
to the tasks that write the files of queues (:mod:`rmqctl.spark.mend.rebuildqueues`) and of the
index (:mod:`rmqctl.spark.mend.rebuildindex`).
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rmqctl.engine.dispatch.batches import filled_bytes, without_place
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files import paths
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.record.record import Damage
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.ranges import LogPart, PartScan
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import CannotRead
from rmqctl.spark.mend.facts import Fact, Packer, gather
from rmqctl.spark.mend.rebuildindex import write_index
from rmqctl.spark.mend.rebuildjob import Job, PartNote
from rmqctl.spark.mend.rebuildqueues import write_queues
from rmqctl.spark.session.jobs import ended_on_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = "rmqctl-attempts-"


class Plan(Protocol):
    """What to build: ``operations.rebuild.RebuildPlan``."""

    @property
    def root(self) -> Path: ...
    @property
    def config(self) -> MessageStoreConfig: ...
    @property
    def queues(self) -> bool: ...
    @property
    def index(self) -> bool: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def queue_id(self) -> int | None: ...
    @property
    def commit_log_file_size(self) -> int: ...
    @property
    def consume_queue_file_size(self) -> int: ...
    @property
    def consume_queue_ext_file_size(self) -> int | None: ...


@dataclass
class Built:
    """The fields of ``operations.rebuild.RebuildSummary`` that are known after a build."""

    records: int
    units: int
    index_items: int
    queues: int
    damage: list[Damage]
    refused_topics: list[str]


def build(spark: SparkSession, plan: Plan, output: Path, part_bytes: int | None = None) -> Built:
    """Builds ``consumequeue/``, its extension and ``index/``, as planned, in ``output``. This
    directory must exist, and all nodes must see it. After an error nothing is left in it.
    """
    attempts = output / f"{_ATTEMPTS}{uuid.uuid4().hex}"
    job = Job(
        str(plan.root.absolute()),
        str(output.absolute()),
        str(attempts.absolute()),
        plan.config,
        plan.commit_log_file_size,
        plan.consume_queue_file_size,
        plan.consume_queue_ext_file_size,
        plan.queues,
        plan.index,
    )
    made = [paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT, paths.INDEX, attempts.name]
    attempts.mkdir()
    try:
        with ended_on_failure(spark):
            return _build(spark, plan, job, part_bytes)
    except BaseException:
        for name in made:
            shutil.rmtree(output / name, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(attempts, ignore_errors=True)


def _build(spark: SparkSession, plan: Plan, job: Job, part_bytes: int | None) -> Built:
    log = open_commit_log(plan.root, plan.config, plan.commit_log_file_size)
    arguments = {} if part_bytes is None else {"part_bytes": part_bytes}
    gathered = gather(spark, log, _kernel(job), **arguments)
    try:
        notes: list[PartNote] = [told[0] for told in gathered.notes]
        units = queues = 0
        if job.queues:
            units, queues = write_queues(spark, gathered, notes, job, plan.topic, plan.queue_id)
        if job.index:
            write_index(gathered, notes, job)
    finally:
        gathered.facts.unpersist()
        log.close()
    return Built(
        records=sum(note.records for note in notes),
        units=units,
        index_items=sum(note.keys for note in notes),
        queues=queues,
        damage=[damage for note in notes for damage in note.damage],
        refused_topics=list(dict.fromkeys(name for note in notes for name in note.refused_topics)),
    )


def _kernel(job: Job) -> Callable[[LogPart], Iterator[Fact]]:
    def scan(part: LogPart) -> Iterator[Fact]:
        with closing(open_log(job.root, job.config, job.log_file_size, part)) as log:
            dispatcher = Dispatcher.of_store(Path(job.root), job.config)
            scanner = Scanner(log, indexes_tags=dispatcher.indexes_tags)
            packer = Packer(
                part.number,
                dispatcher,
                scanner.topics,
                units=job.queues,
                keys=job.index,
                ext=job.writes_ext,
                units_per_file=job.units_per_file,
            )
            records, last_record, last_key = 0, -1, -1
            damage: list[Damage] = []
            entries = PartScan(scanner, part)
            for entry in entries:
                if isinstance(entry, Batch):
                    filled = filled_bytes(entry)
                    if filled:
                        yield from packer.flush_units()
                        packer.lost += filled
                    damage += without_place(entry) if job.queues else []
                    yield from packer.add(entry)
                    records += len(entry)
                    last_record = int(entry.physical_offset[-1])
                    if len(entry.key_row):
                        last_key = _last_key(entry, last_key)
                elif isinstance(entry, Damage):
                    yield from packer.flush_units()
                    packer.lost += entry.length
                    damage.append(entry)
            yield from packer.finish()
            allowed = scanner.topics.allowed_array().tolist()
            named = zip(scanner.topics.names, allowed, strict=True)
            refused = [name for name, is_allowed in named if not is_allowed]
            yield packer.note(
                PartNote(records, packer.keys, packer.lost, last_record, last_key, damage, refused)
            )
            yield packer.note(entries.bounds)

    return scan


def _last_key(batch: Batch, otherwise: int) -> int:
    """The physical offset of the last record of a batch that has an index key; else
    ``otherwise``."""
    from rmqctl.engine.dispatch.batches import key_batch

    keys = key_batch(batch)
    return int(keys.physical_offset[-1]) if len(keys.physical_offset) else otherwise


def open_log(root: str, config: MessageStoreConfig, file_size: int, part: LogPart) -> CommitLog:
    """The log as this node sees it. :raises CannotRead: the file of the part is not there."""
    log = open_commit_log(Path(root), config, file_size)
    known = {entry.file_from_offset for entry in log.files.entries}
    if log.files.index_of(part.start) < 0 and part.start not in known:
        raise CannotRead(
            path=", ".join(map(str, log_directories(Path(root), config).all)),
            reason=f"a worker of Spark does not see the file with offset {part.start}: it was "
            "removed meanwhile, or that node does not see the store under the same path",
        )
    return log
