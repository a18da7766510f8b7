"""One pass over the log by this process, into new queues and a new index."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.derive.writer import DerivedWriter, bulk_units, units_lost_in
from rmqctl.engine.dispatch.batches import filled_bytes
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files import paths
from rmqctl.engine.files.behind import Behind
from rmqctl.engine.files.newnames import NewNames
from rmqctl.engine.index.indexwriter import IndexServiceWriter
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.queue.batchqueue import BatchQueueTableWriter
from rmqctl.engine.queue.outofplace import OutOfPlace
from rmqctl.engine.queue.queuetablewriter import ConsumeQueueTableWriter
from rmqctl.engine.record.record import Damage, End
from rmqctl.operations.mend.endedqueues import keep_ended_queues
from rmqctl.operations.mend.filetimes import date_queue_files
from rmqctl.operations.mend.rebuildplan import RebuildPlan
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.dispatch.batches import KeyBatch, UnitBatch
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.plain import Plain
    from rmqctl.engine.scan.scanner import ScanEntry, Scanner
    from rmqctl.engine.start.model import StartPlan

#: As many as a broker makes of a topic (``BrokerConfig#defaultTopicQueueNums``).
_QUEUES_OF_TOPIC = 8


@dataclass(slots=True)
class RebuildSummary:
    """What a rebuild did. ``damage`` are the stretches of the log that it had to leave out."""

    records: int = 0
    units: int = 0
    index_items: int = 0
    queues: int = 0
    damage: list[Damage] = field(default_factory=list)
    refused_topics: list[str] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    #: Records that are not in their queues where they name it; None: they were not counted.
    out_of_place: OutOfPlace | None = field(default=None, compare=False)
    #: What a start would have done to the store and was done behind the rebuild; None: nothing.
    recovered: StartPlan | None = None
    #: Why the store could not be brought in order; empty: it is in order.
    not_in_order: str = ""


#: Builds the structures of a plan below a directory.
Build = Callable[[RebuildPlan, Path, Progress | None], RebuildSummary]


def one_pass(jobs: int) -> Build:
    """Builds a plan's structures in one pass, by ``jobs`` threads of this process. The directory
    exists and is empty."""

    def build(plan: RebuildPlan, output: Path, progress: Progress | None) -> RebuildSummary:
        summary = _Builder(plan, output, jobs).run(progress)
        summary.queues += keep_ended_queues(plan, output)
        date_queue_files(plan, output)
        return summary

    return build


class _Builder:
    """One pass over the log into new queues and index."""

    def __init__(self, plan: RebuildPlan, output: Path, jobs: int) -> None:
        self._plan = plan
        self._jobs = jobs
        self._summary = RebuildSummary()
        self._log = open_commit_log(plan.root, plan.config, plan.commit_log_file_size)
        self._dispatcher = Dispatcher.of_store(plan.root, plan.config)
        queues = index = None
        if plan.queues:
            has_ext = plan.consume_queue_ext_file_size is not None
            ext = output / paths.CONSUME_QUEUE_EXT if has_ext else None
            queues = ConsumeQueueTableWriter(
                output / paths.CONSUME_QUEUE,
                plan.consume_queue_file_size,
                output,
                ext_directory=ext,
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
        #: The thread that puts units, one bulk after the other, while the index gets its items.
        self._units = Behind("units", is_threaded=jobs > 1)
        self._names = NewNames(output, is_ahead=jobs > 1)
        self._pending: list[UnitBatch | Plain] = []
        self._pending_ext: list[NDArray[np.int64]] = []
        self._pending_units = 0
        self._queue_count = 0
        #: How many units may have been lost to the damage met so far.
        self._max_gap = plan.spare_gap

    def run(self, progress: Progress | None) -> RebuildSummary:
        from rmqctl.engine.scan.batch import Batch
        from rmqctl.engine.scan.plain import Plain
        from rmqctl.engine.scan.scanner import Scanner
        from rmqctl.engine.scan.tuning import ScanTuning

        scanner = Scanner(
            self._log,
            indexes_tags=self._dispatcher.indexes_tags,
            tuning=ScanTuning(threads=self._jobs),
        )
        entries, lost = self._entries(scanner), 0
        try:
            for entry in entries:
                if isinstance(entry, Plain):
                    self._plain(entry, scanner)
                elif isinstance(entry, Batch):
                    lost = self._note_filled(entry, lost, scanner)
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
            self._derived.finish(lambda: self._put_last(scanner), self._names.finish, self._jobs)
        finally:
            entries.close()
            self._units.close()
            self._names.close()
            self._derived.close()
            self._log.close()
        return self._finish(scanner)

    def _entries(self, scanner: Scanner) -> Generator[ScanEntry | Plain]:
        """The entries of the whole log. Plain records come in full where only some units are
        wanted, or where units need their store times."""
        from rmqctl.engine.scan.plain import PlainWanted

        if self._plan.is_of_some:
            return scanner.scan()
        if self._queues is not None and self._queues.writes_ext:
            return scanner.scan()
        if self._dispatcher.batch_topics:
            return scanner.scan()
        wanted = PlainWanted(units=self._queues is not None, keys=self._index is not None)
        return scanner.scan_plain(wanted)

    def _note_filled(self, batch: Batch, lost: int, scanner: Scanner) -> int:
        """Adds the bytes of a batch's fillers to ``lost``.

        Units in front of a filler have gaps for other reasons. They are put before, so that the
        allowed length of a gap never depends on how many units wait, or on the number of threads.
        """
        filled = filled_bytes(batch)
        if filled:
            self._put_pending(scanner)
            self._max_gap = self._gap_of(lost + filled)
        return lost + filled

    def _gap_of(self, lost: int) -> int:
        """How many units so many bytes may have been."""
        return max(units_lost_in(lost), self._plan.spare_gap)

    def _batch(self, batch: Batch, scanner: Scanner) -> None:
        from rmqctl.engine.dispatch.batches import key_batch, unit_batch, without_place

        self._summary.records += len(batch)
        if self._queues is not None:
            self._summary.damage += without_place(batch)
            units = _wanted(self._plan, unit_batch(batch, self._dispatcher), scanner)
            self._pending.append(units)
            ext_timestamps = self._derived.ext_timestamps(batch, units)
            if ext_timestamps is not None:
                self._pending_ext.append(ext_timestamps)
            self._note_pending(len(units.size), scanner)
            self._put_batch_units(batch)
        if self._index is not None:
            self._put_keys(key_batch(batch), int(batch.physical_offset[-1]))

    def _put_batch_units(self, batch: Batch) -> None:
        """Puts the units of batch queues."""
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
        """Notes that ``count`` more units wait, and has them put when there are enough of them."""
        self._pending_units += count
        # A bulk opens each of its queues. Their number is only known after the first bulk.
        queues = self._queue_count or _QUEUES_OF_TOPIC * len(scanner.topics.names)
        if self._pending_units >= bulk_units(queues, is_first=not self._summary.units):
            self._put_pending(scanner)

    def _put_keys(self, keys: KeyBatch, last_record: int) -> None:
        self._derived.put_keys(keys, last_record)
        self._summary.index_items += len(keys.key_hash)

    def _put_pending(self, scanner: Scanner, *, is_last: bool = False) -> None:
        """Has the waiting units put. Unless they are the last ones, the names of their queues are
        then being forced to disk."""
        import numpy as np

        if not self._pending:
            return
        pending, max_gap = self._pending, self._max_gap
        ext = np.concatenate(self._pending_ext) if self._pending_ext else None
        self._summary.units += self._pending_units
        self._pending, self._pending_ext, self._pending_units = [], [], 0

        def put() -> None:
            self._queue_count = self._derived.put_units(
                pending, scanner.topics, ext, max_gap=max_gap
            )
            if not is_last:
                self._names.begin()

        self._units.do(put)

    def _put_last(self, scanner: Scanner) -> None:
        self._put_pending(scanner, is_last=True)
        self._units.wait()

    def _finish(self, scanner: Scanner) -> RebuildSummary:
        allowed = scanner.topics.allowed_array()
        names = scanner.topics.names
        self._summary.refused_topics = [n for n, ok in zip(names, allowed, strict=True) if not ok]
        if self._queues is not None:
            self._summary.out_of_place = self._queues.out_of_place
            self._summary.units -= self._queues.out_of_place.without_unit
            self._summary.queues += sum(1 for _ in self._queues.directories())
        return self._summary


def _wanted(plan: RebuildPlan, units: UnitBatch, scanner: Scanner) -> UnitBatch:
    """Those of the units whose queues were asked for."""
    import numpy as np

    if not plan.is_of_some:
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


def finds_queue(plan: RebuildPlan) -> bool:
    """Whether one of the queues that were asked for exists: in the store, or else in the log, which
    is read up to the first message of one.

    :raises CannotRead: the system refuses a file of the log.
    """
    for name in (paths.CONSUME_QUEUE, paths.BATCH_CONSUME_QUEUE):
        there = paths.queue_directories(plan.root / name)
        if any(plan.includes(where.topic, where.queue_id) for where in there):
            return True
    from rmqctl.engine.dispatch.batches import batch_queue_units, unit_batch
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import Scanner

    dispatcher = Dispatcher.of_store(plan.root, plan.config)
    with closing(open_commit_log(plan.root, plan.config, plan.commit_log_file_size)) as log:
        scanner = Scanner(log)
        with closing(scanner.scan()) as entries:
            for entry in entries:
                if not isinstance(entry, Batch):
                    continue
                if len(_wanted(plan, unit_batch(entry, dispatcher), scanner).size):
                    return True
                if any(plan.includes(*queue) for queue in batch_queue_units(entry, dispatcher)):
                    return True
    return False


def batch_queues_of(plan: RebuildPlan, output: Path) -> BatchQueueTableWriter | None:
    """The writer of a plan's batch queues; None where there are none."""
    size = plan.batch_queue_file_size
    if size is None or not plan.queues:
        return None
    return BatchQueueTableWriter(output / paths.BATCH_CONSUME_QUEUE, size, output)
