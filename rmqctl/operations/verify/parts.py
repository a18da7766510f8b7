"""A verification in parts: the same rules over parts of a log, single queues and the index.

:class:`LogSide` takes what parts of the log show, :class:`QueueSide` the units of some queues and
:class:`IndexSide` the keys, each in log order, and :class:`StoreSide` puts the findings together as
:func:`rmqctl.operations.verify.verify` gives them. Nothing here knows who runs the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rmqctl.engine import paths
from rmqctl.engine.commitlog import CommitLog
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.dispatch import KeyBatch, UnitBatch
from rmqctl.engine.indexservice import IndexService
from rmqctl.engine.multipath import open_commit_log
from rmqctl.engine.record import Blank, Damage, End
from rmqctl.engine.scanner import Batch, TopicTable
from rmqctl.engine.versions import is_of_5, queues_not_understood
from rmqctl.operations.verify.findings import Finding, finding
from rmqctl.operations.verify.index import IndexChecker
from rmqctl.operations.verify.places import Ranges
from rmqctl.operations.verify.queues import QueueChecker
from rmqctl.operations.verify.run import Summary, _Verification

__all__ = ["IndexSide", "LogSide", "PartFindings", "QueueSide", "Sizes", "StoreSide", "Waits"]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a store's files and how far its queues are; plain values."""

    root: str
    config: MessageStoreConfig
    log: int
    queue: int
    unclean: bool
    dispatched_to: int
    waiting_from: int | None


@dataclass
class PartFindings:
    """What one part of the log shows. ``suspect`` is its last record with a wrong CRC when nothing
    follows it in the part, ``end`` the log's end when it lies in the part."""

    findings: list[Finding] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    records: int = 0
    blanks: int = 0
    newest_timestamp: int = 0
    suspect: Finding | None = None
    end: End | None = None


@dataclass
class Waits:
    """What queues can only say together: queues without files, and records not yet dispatched."""

    missing: list[tuple[str, int, str, int, int]] = field(default_factory=list)
    behind: int = 0
    behind_first: int = 0


class LogSide(_Verification):
    """The checks of log records, for one part of the log."""

    def __init__(self, sizes: Sizes, log: CommitLog) -> None:
        self._root = Path(sizes.root)
        self._config = sizes.config
        self._progress = None
        self.summary = Summary()
        self._log_size = sizes.log
        self._queue_size = sizes.queue
        self._unclean = sizes.unclean
        self._is_of_5 = is_of_5(self._root)
        self._log = log
        self._damaged = Ranges()
        self._newest_timestamp = 0
        self._dispatched_to = sizes.dispatched_to
        self._suspect: Finding | None = None
        self.part = PartFindings()

    def add(self, entry: Batch | Blank | Damage | End) -> None:
        """Takes an entry; its findings go to :attr:`part`."""
        if isinstance(entry, End):
            self.part.end = entry
        elif isinstance(entry, Batch):
            self.part.findings += self._batch(entry)
        else:
            self.part.findings += self._entry(entry)
            if isinstance(entry, Damage):
                self.part.damage.append(entry)

    def finish(self) -> PartFindings:
        """After the last entry."""
        part = self.part
        part.records, part.blanks = self.summary.records, self.summary.blanks
        part.newest_timestamp, part.suspect = self._newest_timestamp, self._suspect
        return part


class StoreSide(_Verification):
    """What is looked at once a store: directories, the end of the log, the checkpoint."""

    @property
    def sizes(self) -> Sizes:
        return Sizes(
            str(self._root.absolute()),
            self._config,
            self._log_size,
            self._queue_size,
            self._unclean,
            self._dispatched_to,
            self._waiting_from(),
        )

    @property
    def log(self) -> CommitLog:
        return self._log

    def join(self, parts: Iterable[PartFindings]) -> Iterator[Finding]:
        """Puts the parts of the log together, in order."""
        for part in parts:
            if part.records or part.blanks or part.damage:
                yield from self._release_suspect()
            yield from part.findings
            self.summary.records += part.records
            self.summary.blanks += part.blanks
            self._newest_timestamp = max(self._newest_timestamp, part.newest_timestamp)
            self._suspect = part.suspect or self._suspect
            if part.end is not None:
                yield from self._end(part.end)
                self._suspect = None

    def together(self, waits: Iterable[Waits]) -> Iterator[Finding]:
        """What the queues can only say together."""
        every = list(waits)
        missing = sorted(queue for wait in every for queue in wait.missing)
        if missing and self._waiting_from() is None:
            yield finding(
                "consumequeue-missing",
                path=paths.CONSUME_QUEUE,
                expected=f"{len(missing)} queues",
                found=f"{sum(queue[3] for queue in missing)} records without a unit",
                physical_offset=min(queue[4] for queue in missing),
            )
        else:
            for topic, queue_id, path, records, first in missing:
                yield finding(
                    "queue-missing",
                    path=path,
                    topic=topic,
                    queue_id=queue_id,
                    physical_offset=first,
                    found=f"{records} records without a unit",
                )
        behind = [wait for wait in every if wait.behind]
        if behind:
            yield finding(
                "dispatch-behind",
                physical_offset=min(wait.behind_first for wait in behind),
                found=f"{sum(wait.behind for wait in behind)} records",
            )

    def after(self) -> Iterator[Finding]:
        """After everything: the checkpoint."""
        yield from self._checkpoint()


def ranges(damage: Iterable[Damage]) -> Ranges:
    """Damage, in order, as ranges."""
    found = Ranges()
    for one in damage:
        found.add(one)
    return found


class QueueSide(QueueChecker):
    """Checks queues one after the other."""

    def __init__(self, sizes: Sizes, damage: Iterable[Damage], log_end: int) -> None:
        root = Path(sizes.root)
        self._table = TopicTable()
        super().__init__(
            root,
            partial(open_commit_log, root, sizes.config, sizes.log),
            sizes.queue,
            self._table,
            sizes.waiting_from,
            ranges(damage),
            queues_not_understood(root),
        )
        self._end.reached(log_end)

    def number(self, topic: str) -> int:
        """The number that stands for a topic in :class:`UnitBatch`."""
        return self._table.id_of(topic)

    def check(self, topic: str, queue_id: int, units: Iterable[UnitBatch]) -> Iterator[Finding]:
        """One queue: its units as the log asks for them, in log order, then its files."""
        if self._unread(topic):
            return
        for batch in units:
            yield from self.add(batch)
        yield from self._check_pending()
        state = self._state(topic, queue_id)
        if state.queue is not None:
            yield from self._finish_queue(state)

    def waits(self) -> Waits:
        """After the last queue."""
        missing = [
            (s.topic, s.queue_id, s.path, s.missing, s.first_missing)
            for s in self._states.values()
            if s.missing
        ]
        self._log.close()
        return Waits(missing, self._behind, self._behind_first)


class IndexSide(IndexChecker):
    """Checks the index against all keys in log order."""

    def __init__(self, sizes: Sizes, damage: Iterable[Damage], log_min: int, log_end: int) -> None:
        root = Path(sizes.root)
        self._log_end = log_end
        super().__init__(
            root,
            IndexService(root / paths.INDEX, sizes.config.index_geometry),
            log_min,
            ranges(damage),
            partial(open_commit_log, root, sizes.config, sizes.log),
            unclean=sizes.unclean,
            waiting_from=sizes.waiting_from,
        )

    def check(self, keys: Iterable[KeyBatch]) -> Iterator[Finding]:
        try:
            for batch in keys:
                yield from self.add(batch)
            yield from self.finish(self._log_end)
        finally:
            self.close()
