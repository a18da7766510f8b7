"""The checks of :func:`rmqctl.operations.verify.verify` in parts, for several processes.

A part is a range of the log that one process scans. :class:`LogSide` checks its records.
:class:`QueueSide` checks the units of some queues, and :class:`IndexSide` the keys, each in log
order. :class:`StoreSide` puts the findings into the order that ``verify`` gives them. Nothing here
knows where the parts are processed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rmqctl.engine.dispatch.batches import KeyBatch, UnitBatch, batch_queue_units
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.record.record import Damage, End
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import ScanEntry, TopicTable
from rmqctl.engine.services.multiqueues import as_written
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.progress import Progress
from rmqctl.operations.verify import indexparts as index_parts
from rmqctl.operations.verify.batchqueues import BatchQueueChecker
from rmqctl.operations.verify.checkpoint import CheckpointChecker
from rmqctl.operations.verify.controller import ControllerChecker, copy_checkers
from rmqctl.operations.verify.damageranges import Ranges
from rmqctl.operations.verify.dledger import EntriesSeen, EntryChecker
from rmqctl.operations.verify.findings import Adviser, Finding
from rmqctl.operations.verify.index import IndexChecker
from rmqctl.operations.verify.indexparts import IndexPart, IndexStart
from rmqctl.operations.verify.log import LogChecker
from rmqctl.operations.verify.queues import QueueChecker, waits_findings
from rmqctl.operations.verify.queuestate import Waits
from rmqctl.operations.verify.run import Summary, check_before
from rmqctl.operations.verify.snapshot import Snapshot
from rmqctl.operations.verify.storedunits import LEAST_STORED, StoredUnits, UnitsLookup
from rmqctl.operations.verify.stretch import STRUCTURES
from rmqctl.operations.verify.undispatched import Undispatched

__all__ = [
    "LEAST_STORED",
    "Adviser",
    "IndexSide",
    "LogSide",
    "PartFindings",
    "QueueSide",
    "Snapshot",
    "StoreSide",
    "StoredUnits",
    "UnitsLookup",
    "Waits",
    "index_parts",
]


@dataclass
class PartFindings:
    """The findings of one part of the log, and what can only be judged together with other parts.

    ``suspect`` is the finding of the part's last record if its CRC is wrong and nothing follows it
    in the part. ``end`` is the log's end if it is in the part. ``undispatched`` has the further
    queues that records name but no dispatch fills. ``batch_units`` has the units that the records
    ask for in batch queues: bytes as they are stored, by topic and queue id. ``entries`` is what
    joins the entries of a DLedger log.
    """

    findings: list[Finding] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    records: int = 0
    blanks: int = 0
    newest_timestamp: int = 0
    suspect: Finding | None = None
    end: End | None = None
    undispatched: Undispatched = field(default_factory=Undispatched)
    batch_units: dict[tuple[str, int], bytearray] = field(default_factory=dict)
    entries: EntriesSeen | None = None


class LogSide:
    """The checks of log records, for one part of the log."""

    def __init__(self, snapshot: Snapshot, log: CommitLog) -> None:
        self._records = LogChecker(snapshot, log, Ranges())
        self._records.listeners = copy_checkers(snapshot, log)
        self._dispatcher = snapshot.dispatcher()
        self._part = PartFindings()

    def add(self, entry: ScanEntry) -> None:
        """Takes the next entry. The log's end is only noted: it is judged after all parts."""
        if isinstance(entry, End):
            self._part.end = self._records.start_end(entry)
            return
        self._part.findings += self._records.add(entry)
        if isinstance(entry, Damage):
            self._part.damage.append(entry)
        if isinstance(entry, Batch):
            for queue, units in batch_queue_units(entry, self._dispatcher).items():
                self._part.batch_units.setdefault(queue, bytearray()).extend(units)

    def finish(self) -> PartFindings:
        """The result of the part. Call this after the last entry."""
        part, records = self._part, self._records
        part.records, part.blanks = records.records, records.blanks
        part.newest_timestamp, part.suspect = records.newest_timestamp, records.suspect
        part.undispatched = records.undispatched
        for one in records.listeners:
            if isinstance(one, EntryChecker):
                part.entries = one.seen
        return part


class StoreSide:
    """The checks that are done once for a store: directories, the end of the log, batch queues,
    the checkpoint."""

    def __init__(
        self, root: Path, config: MessageStoreConfig, progress: Progress | None = None
    ) -> None:
        self.snapshot = Snapshot.of(root, as_written(root, config))
        self.log = self.snapshot.open_log()
        self.snapshot = self.snapshot.begun(self.log)
        self.summary = Summary(min_offset=self.log.min_offset)
        self.summary.look_at(self.snapshot, STRUCTURES)
        self._checkpoint = CheckpointChecker(root)
        self._records = LogChecker(self.snapshot, self.log, Ranges())
        self._records.listeners = copy_checkers(self.snapshot, self.log)
        self._damaged = Ranges()
        self._batches = BatchQueueChecker(self.snapshot, self.log, self._damaged)
        self._of_batches: list[Finding] = []

    def before(self) -> Iterator[Finding]:
        """The findings that need no read of the log."""
        return check_before(self.snapshot)

    def join(self, parts: Iterable[PartFindings]) -> Iterator[Finding]:
        """The findings of all parts of the log, which are given in order."""
        records = self._records
        for part in parts:
            if part.records or part.blanks or part.damage:
                yield from records.release_suspect()
            yield from self._of_copies(part)
            yield from part.findings
            self.summary.records += part.records
            self.summary.blanks += part.blanks
            records.newest_timestamp = max(records.newest_timestamp, part.newest_timestamp)
            records.suspect = part.suspect or records.suspect
            records.undispatched.join(part.undispatched)
            for damage in part.damage:
                self._damaged.add(damage)
            self._of_batches += self._batches.add(part.batch_units)
            if part.end is not None:
                self.summary.max_offset = part.end.physical_offset
                yield from records.add(part.end)

    def _of_copies(self, part: PartFindings) -> Iterator[Finding]:
        """Joins what the checkers of a store that is one of several copies have found in a part of
        the log."""
        for one in self._records.listeners:
            if isinstance(one, ControllerChecker):
                part.findings = list(one.join(part.findings))
            elif part.entries is not None:
                yield from one.join(part.entries)

    def together(self, waits: Iterable[Waits]) -> Iterator[Finding]:
        """The findings that need all queues, and those of batch queues."""
        try:
            yield from self._of_batches
            if self.snapshot.compares_files:
                yield from self._batches.finish(self.summary.max_offset)
        finally:
            self._batches.close()
        self.summary.units += self._batches.units
        yield from waits_findings(self.snapshot, [*waits, self._batches.waits])

    def after(self) -> Iterator[Finding]:
        """The findings of the checkpoint, after all others."""
        newest = self._records.newest_timestamp if self.summary.records else None
        self.summary.newest_timestamp = newest
        return self._checkpoint.finish(newest)


def ranges(damage: Iterable[Damage]) -> Ranges:
    """Damage, given in log order, as ranges."""
    found = Ranges()
    for one in damage:
        found.add(one)
    return found


class QueueSide:
    """Checks queues one after the other."""

    def __init__(self, snapshot: Snapshot, damage: Iterable[Damage], log_end: int) -> None:
        self._table = TopicTable()
        self._log = snapshot.open_log()
        begun = snapshot.begun(self._log)
        self._queues = QueueChecker(begun, self._log, self._table, ranges(damage))
        self._queues.log_ends(log_end)

    @property
    def units(self) -> int:
        """Units looked at so far."""
        return self._queues.units

    def number(self, topic: str) -> int:
        """The ``topic_id`` that stands for a topic in a :class:`UnitBatch`."""
        return self._table.id_of(topic)

    def check(
        self, topic: str, queue_id: int, units: Iterable[UnitBatch | StoredUnits]
    ) -> Iterator[Finding]:
        """Checks one queue. ``units`` are the units that the records of the log ask for, in log
        order. After them the rest of its files is checked."""
        for one in units:
            if isinstance(one, StoredUnits):
                yield from self._queues.add_stored(topic, queue_id, one)
            else:
                yield from self._queues.add(one)
        yield from self._queues.finish_queue(topic, queue_id)

    def waits(self) -> Waits:
        """The state of all queues, after the last one."""
        self._queues.close()
        self._log.close()
        return self._queues.waits()


class IndexSide:
    """Checks the index, or a part of its files, against keys in log order."""

    def __init__(
        self, snapshot: Snapshot, damage: Iterable[Damage], log_end: int, part: IndexPart
    ) -> None:
        self._index = IndexChecker(snapshot, ranges(damage), part)
        self._log_end = log_end
        self._part = part
        #: The premise with which the next part can begin. None before all keys are checked, for
        #: the last part, and where a key has no item yet, or an item no key.
        self.end: IndexStart | None = None

    @property
    def items(self) -> int:
        """Items looked at so far."""
        return self._index.items

    def check(self, keys: Iterable[KeyBatch]) -> Iterator[Finding]:
        """Checks all keys of the part, which are given in log order."""
        try:
            for batch in keys:
                yield from self._index.add(batch)
            if self._part.end is None:
                yield from self._index.finish(self._log_end)
            else:
                self.end = yield from self._index.finish_part()
        finally:
            self._index.close()
