"""rebuild: queues and index from the log, byte for byte what RocketMQ would have written.

Everything is built in a staging directory and renamed; what stood there before is kept until it
is purged. A gap that damage left in a queue is filled with pre-blank units, so that the messages
behind it keep their queue offsets and consumers their progress.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from formats.constants import MIN_RECORD_SIZE
from rmqctl.engine.derive.writer import DerivedWriter, bulk_units
from rmqctl.engine.dispatch.batches import filled_bytes
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.files.newdirectory import new_directory
from rmqctl.engine.files.unfinished import check_not_amid_repair
from rmqctl.engine.index.indexwriter import IndexServiceWriter
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.queue.batchqueue import BatchQueueTableWriter
from rmqctl.engine.queue.queuetablewriter import ConsumeQueueTableWriter
from rmqctl.engine.record.record import Damage, End
from rmqctl.engine.settings.logdirectories import dledger_logs
from rmqctl.engine.state.laterversions import batch_topics, check_understood
from rmqctl.errors import (
    CannotWrite,
    CommitLogMissing,
    DamagedStore,
    FileLengthContradiction,
    FileLengthUnproven,
)
from rmqctl.operations.mend.endedqueues import keep_ended_queues
from rmqctl.operations.mend.rebuildplan import (
    RebuildPlan,
    ask_consent,
    check_explained,
    plan_rebuild,
    plan_row,
)
from rmqctl.operations.mend.rebuildrows import damage_rows, summary_row
from rmqctl.operations.mend.recovery import bring_in_order
from rmqctl.operations.mend.swap import kept_directories, kept_name, purge, refuse_links, swap
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.dispatch.batches import KeyBatch, UnitBatch
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.plain import Plain
    from rmqctl.engine.scan.scanner import ScanEntry, Scanner

__all__ = [
    "Build",
    "RebuildPlan",
    "RebuildSummary",
    "ask_consent",
    "check_explained",
    "damage_rows",
    "kept_directories",
    "one_pass",
    "plan_rebuild",
    "plan_row",
    "purge",
    "rebuild_in_place",
    "rebuild_to",
    "summary_row",
]

#: Units of zeros that a gap in a queue is filled with at most: 320 MiB of queue, more than the loss
#: of some log files of small messages leaves open.
MOST_FILLED = 1 << 24
_STAGING = "rmqctl-new"


@dataclass(slots=True)
class RebuildSummary:
    """What a rebuild did; ``damage`` are the stretches of the log that it had to leave out."""

    records: int = 0
    units: int = 0
    index_items: int = 0
    queues: int = 0
    damage: list[Damage] = field(default_factory=list)
    refused_topics: list[str] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    #: Why a store that was not closed cleanly is not in order now; empty: it is.
    not_in_order: str = ""


#: Builds the structures of a plan below a directory.
Build = Callable[[RebuildPlan, Path, Progress | None], RebuildSummary]


#: Of a DLedger member's store: only its broker ends what a crash has left.
_AFTER_A_CRASH = (
    "its broker's next start throws away index files that are newer than the checkpoint. Start and "
    "stop it once before you rebuild the index."
)


def rebuild_to(
    plan: RebuildPlan,
    output: Path,
    progress: Progress | None = None,
    build: Build | None = None,
    *,
    jobs: int = 1,
) -> RebuildSummary:
    """Builds ``consumequeue/`` and ``index/`` in the new directory ``output``, which appears when
    they are whole; the store is only read.

    ``build`` does it in another way than one pass in this process, by ``jobs`` threads.

    :raises OutputExists: ``output`` holds something. :raises OutputInUse: another one builds it.
    :raises CannotWrite: the disk is full.
    :raises QueuesUnexplained: queues that are there would not be built.
    """
    check_explained(plan)
    with new_directory(output) as building:
        return (build or one_pass(jobs))(plan, building, progress)


def one_pass(jobs: int) -> Build:
    """One pass in this process, by so many threads; the directory is there, and empty."""

    def build(plan: RebuildPlan, output: Path, progress: Progress | None) -> RebuildSummary:
        summary = _Builder(plan, output, jobs).run(progress)
        summary.queues += keep_ended_queues(plan, output)
        return summary

    return build


def rebuild_in_place(
    plan: RebuildPlan,
    progress: Progress | None = None,
    build: Build | None = None,
    *,
    jobs: int = 1,
) -> RebuildSummary:
    """Builds aside under the store's lock, then swaps (:mod:`rmqctl.operations.mend.swap`). A
    store that was not closed cleanly is then brought in order as by a start, which would throw a
    new index away; where that is refused the summary says why, and the store stays as a crash left
    it.

    The former files are kept in ``rmqctl-old-<time>/`` (see :func:`purge`). A killed run leaves
    each directory old or new, and the next one removes what it had built; a failed one does itself.

    :raises StoreInUse: a broker, or another rmqctl, holds the lock; nothing was changed.
    :raises CommitLogMissing: the log is not there; nothing was changed.
    :raises QueuesUnexplained: queues that are there would not be built; nothing was changed.
    :raises SymbolicLinkRefused: what would be replaced, or the place to build in, is a link.
    """
    summary = _replace(plan, progress, build or one_pass(jobs))
    if dledger_logs(plan.root):
        if (plan.root / paths.ABORT).exists():
            summary.not_in_order = _AFTER_A_CRASH
        return summary
    try:
        bring_in_order(plan.root, plan.config)
    except (DamagedStore, FileLengthContradiction, FileLengthUnproven) as error:
        summary.not_in_order = str(error)
    return summary


def _replace(plan: RebuildPlan, progress: Progress | None, build: Build) -> RebuildSummary:
    """:func:`rebuild_in_place` itself."""
    root = plan.root
    check_not_amid_repair(root)
    check_understood(root, plan.config, log_stays=True)
    if not plan.log_bytes and any(paths.queue_directories(root / paths.CONSUME_QUEUE)):
        raise CommitLogMissing(path=str(root / paths.COMMIT_LOG))
    lock = StoreLock(root)
    staging = root / _STAGING
    try:
        for name in (*plan.structures, _STAGING):
            refuse_links(root, Path(name))
        check_explained(plan)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        summary = build(plan, staging, progress)
        kept = root / kept_name()
        for relative in _swapped(plan, staging):
            swap(root, staging, kept, relative)
        if kept.exists():
            summary.kept.append(kept)
        return summary
    except OSError as error:
        raise CannotWrite(path=str(root), reason=str(error.strerror)) from error
    finally:
        if not staging.is_symlink():
            shutil.rmtree(staging, ignore_errors=True)
        lock.release()


def _swapped(plan: RebuildPlan, staging: Path) -> list[Path]:
    """Directories that change places: whole ones, or the queues that were asked for."""
    if plan.topic is None and plan.queue_id is None:
        return [Path(name) for name in plan.structures]
    queues = {
        where.path.relative_to(base)
        for base in (staging, plan.root)
        for name in plan.structures
        for where in paths.queue_directories(base / name)
        if plan.includes(where.topic, where.queue_id)
    }
    return sorted(queues)


class _Builder:
    """One pass over the log into new queues and index."""

    def __init__(self, plan: RebuildPlan, output: Path, jobs: int) -> None:
        self._plan = plan
        self._jobs = jobs
        self._output = output
        self._summary = RebuildSummary()
        self._log = open_commit_log(plan.root, plan.config, plan.commit_log_file_size)
        self._dispatcher = Dispatcher(plan.config, batch_topics(plan.root))
        queues = index = None
        if plan.queues:
            queues = ConsumeQueueTableWriter(
                output / paths.CONSUME_QUEUE,
                plan.consume_queue_file_size,
                output,
                ext_directory=output / paths.CONSUME_QUEUE_EXT,
                ext_file_size=plan.consume_queue_ext_file_size,
                is_new=True,
            )
        if plan.index:
            index = IndexServiceWriter(
                output / paths.INDEX, plan.config.index_geometry, output, is_new=True
            )
        self._queues, self._index = queues, index
        self._batch_queues = batch_queues_of(plan, output)
        self._derived = DerivedWriter(self._dispatcher, queues, index)
        self._pending: list[UnitBatch | Plain] = []
        self._pending_ext: list[NDArray[np.int64]] = []
        self._pending_units = 0
        self._queue_count = 0
        #: Units that damage so far may have swallowed.
        self._max_gap = plan.spare_gap

    def run(self, progress: Progress | None) -> RebuildSummary:
        from rmqctl.engine.scan.batch import Batch
        from rmqctl.engine.scan.plain import Plain
        from rmqctl.engine.scan.scanner import Scanner
        from rmqctl.engine.scan.tuning import ScanTuning

        scanner = Scanner(self._log, tuning=ScanTuning(threads=self._jobs))
        entries, lost = self._entries(scanner), 0
        try:
            for entry in entries:
                if isinstance(entry, Plain):
                    self._plain(entry, scanner)
                elif isinstance(entry, Batch):
                    lost += filled_bytes(entry)
                    self._max_gap = self._gap_of(lost)
                    self._batch(entry, scanner)
                elif isinstance(entry, Damage):
                    self._put_pending(scanner)
                    self._summary.damage.append(entry)
                    lost += entry.length
                    # A file's name may claim a gap of any size: no disk holds such a queue.
                    self._max_gap = self._gap_of(lost)
                if progress is not None and not isinstance(entry, End):
                    if isinstance(entry, Batch | Plain):
                        done = entry.end_offset
                    else:
                        done = entry.physical_offset
                    progress(done - self._plan.log_min_offset)
            if self._batch_queues is not None:
                self._summary.queues += self._batch_queues.finish()
            self._derived.finish(
                lambda: self._put_pending(scanner),
                lambda: paths.sync_directories(self._output),
                self._jobs,
            )
        finally:
            entries.close()
            self._derived.close()
            self._log.close()
        return self._finish(scanner)

    def _entries(self, scanner: Scanner) -> Generator[ScanEntry | Plain]:
        """The whole log; plain records in full where units are chosen among, or get their store
        times, too."""
        from rmqctl.engine.scan.plain import PlainWanted

        if self._plan.topic is not None or self._plan.queue_id is not None:
            return scanner.scan()
        if self._queues is not None and self._queues.writes_ext:
            return scanner.scan()
        if self._dispatcher.batch_topics:
            return scanner.scan()
        wanted = PlainWanted(units=self._queues is not None, keys=self._index is not None)
        return scanner.scan_plain(wanted)

    def _gap_of(self, lost: int) -> int:
        """How many units so many bytes may have been."""
        return max(min(lost // MIN_RECORD_SIZE, MOST_FILLED), self._plan.spare_gap)

    def _batch(self, batch: Batch, scanner: Scanner) -> None:
        from rmqctl.engine.dispatch.batches import key_batch, unit_batch

        self._summary.records += len(batch)
        if self._queues is not None:
            units = self._wanted(unit_batch(batch, self._dispatcher), scanner)
            self._pending.append(units)
            ext_timestamps = self._derived.ext_timestamps(batch, units)
            if ext_timestamps is not None:
                self._pending_ext.append(ext_timestamps)
            self._note_pending(len(units.size), scanner)
            self._put_batch_units(batch)
        if self._index is not None:
            self._put_keys(key_batch(batch), int(batch.physical_offset[-1]))

    def _put_batch_units(self, batch: Batch) -> None:
        """Units of batch queues."""
        from rmqctl.engine.dispatch.batches import batch_queue_units

        if self._batch_queues is None:
            return
        for (topic, queue_id), stored in batch_queue_units(batch, self._dispatcher).items():
            if self._plan.includes(topic, queue_id):
                self._summary.units += self._batch_queues.put(topic, queue_id, stored)

    def _plain(self, plain: Plain, scanner: Scanner) -> None:
        from rmqctl.engine.dispatch.batches import key_batch

        self._summary.records += plain.records
        if self._index is not None:
            self._put_keys(key_batch(plain), plain.last_offset)
        if self._queues is not None:
            self._pending.append(plain.without_keys())
            self._note_pending(plain.units, scanner)

    def _note_pending(self, count: int, scanner: Scanner) -> None:
        """So many more units are to be put, which they are when there are enough of them."""
        self._pending_units += count
        if self._pending_units >= bulk_units(self._queue_count):
            self._put_pending(scanner)

    def _put_keys(self, keys: KeyBatch, last_record: int) -> None:
        self._derived.put_keys(keys, last_record)
        self._summary.index_items += len(keys.key_hash)

    def _wanted(self, units: UnitBatch, scanner: Scanner) -> UnitBatch:
        """The units of the queues that were asked for."""
        import numpy as np

        plan = self._plan
        if plan.topic is None and plan.queue_id is None and plan.only is None:
            return units
        keep = np.ones(len(units.size), bool)
        if plan.only is not None:
            names = [(scanner.topics.id_of(topic) << 32) + number for topic, number in plan.only]
            keep &= np.isin((units.topic_id.astype(np.int64) << 32) + units.queue_id, names)
        if plan.topic is not None:
            keep &= units.topic_id == scanner.topics.id_of(plan.topic)
        if plan.queue_id is not None:
            keep &= units.queue_id == plan.queue_id
        return type(units)(*(column[keep] for column in units))

    def _put_pending(self, scanner: Scanner) -> None:
        import numpy as np

        if not self._pending:
            return
        pending, count = self._pending, self._pending_units
        ext = np.concatenate(self._pending_ext) if self._pending_ext else None
        self._pending, self._pending_ext, self._pending_units = [], [], 0
        self._queue_count = self._derived.put_units(
            pending, scanner.topics, ext, max_gap=self._max_gap
        )
        self._summary.units += count

    def _finish(self, scanner: Scanner) -> RebuildSummary:
        allowed = scanner.topics.allowed_array()
        names = scanner.topics.names
        self._summary.refused_topics = [n for n, ok in zip(names, allowed, strict=True) if not ok]
        if self._queues is not None:
            self._summary.queues += sum(1 for _ in self._queues.directories())
        return self._summary


def batch_queues_of(plan: RebuildPlan, output: Path) -> BatchQueueTableWriter | None:
    """Who writes the batch queues; None: there are none."""
    size = plan.batch_queue_file_size
    if size is None or not plan.queues:
        return None
    return BatchQueueTableWriter(output / paths.BATCH_CONSUME_QUEUE, size, output)
