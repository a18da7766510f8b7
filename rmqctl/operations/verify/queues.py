"""Checks the consume queues against the log, in both directions.

Records come in log order, in batches. Each is compared with the unit at its queue offset. Then the
orphan units, for which no record has asked, are classified. Memory holds one state for each queue,
and one bulk of expected units.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from rmqctl.engine.derive.writer import bulk_units
from rmqctl.engine.dispatch.batches import UnitBatch, batch_queue_units
from rmqctl.engine.dispatch.byqueue import units_by_queue
from rmqctl.engine.files import paths
from rmqctl.engine.files.paths import queue_directories
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.engine.queue.extension import ConsumeQueueExt
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.plain import Plain
from rmqctl.engine.scan.scanner import TopicTable
from rmqctl.errors import CannotRead, FileLengthContradiction
from rmqctl.operations.verify.batchqueues import BatchQueueChecker
from rmqctl.operations.verify.damageranges import Ranges
from rmqctl.operations.verify.findings import Finding, finding, refused, until_removed
from rmqctl.operations.verify.latercodes import ROCKSDB_ANEW
from rmqctl.operations.verify.orphanunits import OrphanUnits
from rmqctl.operations.verify.queueext import check_ext_files
from rmqctl.operations.verify.queuestate import QueueState, Waits
from rmqctl.operations.verify.queueunits import UnitChecker
from rmqctl.operations.verify.resumed import Beginning, EarlierRecords
from rmqctl.operations.verify.snapshot import Snapshot
from rmqctl.operations.verify.storedunits import StoredUnits
from rmqctl.operations.verify.topics import is_deleted, known_topics
from rmqctl.rows.words import some


class QueueChecker:
    """Checks all queues. Call :meth:`add` with the batches in log order, then :meth:`finish`.

    Or check queue by queue: call :meth:`log_ends` first, then for each queue :meth:`add` with all
    of its units and :meth:`finish_queue`, and :meth:`waits` after the last queue.
    """

    def __init__(
        self, snapshot: Snapshot, log: CommitLog, topics: TopicTable, damaged: Ranges
    ) -> None:
        self._root = snapshot.path
        self._snapshot = snapshot
        self._topics = topics
        self._dispatcher = snapshot.dispatcher()
        self._batches = BatchQueueChecker(snapshot, log, damaged)
        self._orphans = OrphanUnits(snapshot, log, damaged)
        self._states: dict[tuple[str, int], QueueState] = {}
        self._pending: list[UnitBatch | Plain] = []
        self._pending_units = 0
        #: Findings of queues that could not be opened, which are still to be told.
        self._refused: list[Finding] = []
        self._waits = Waits()
        self._records = UnitChecker(self._orphans, self._waits, snapshot.waiting_from)
        #: Called before each queue. It may raise to end the check.
        self.step: Callable[[], None] = lambda: None

    @property
    def checked(self) -> int:
        """How many queues were checked so far, without those that do not exist."""
        return sum(state.queue is not None for state in self._states.values())

    @property
    def units(self) -> int:
        """How many units were checked so far."""
        return self._records.units + self._orphans.units + self._batches.units

    @property
    def wants_records(self) -> bool:
        """Whether :meth:`look_at` must be called with every record."""
        return bool(self._snapshot.batch_topics)

    def look_at(self, batch: Batch, units: UnitBatch) -> Iterator[Finding]:
        """Checks what :meth:`add` does not compare: here the units of batch queues. ``units`` are
        those that the records of ``batch`` ask for."""
        self._batches.step = self.step
        yield from self._batches.add(batch_queue_units(batch, self._dispatcher))

    def add(self, batch: UnitBatch | Plain) -> Iterator[Finding]:
        """Takes the units that records ask for, and compares them bulk by bulk."""
        self._pending.append(batch)
        self._pending_units += batch.units if isinstance(batch, Plain) else len(batch.size)
        if self._pending_units >= bulk_units(len(self._states)):
            yield from self._check_pending()

    def add_stored(self, topic: str, queue_id: int, units: StoredUnits) -> Iterator[Finding]:
        """Takes units of one queue, in log order, that are known to be in its files."""
        yield from self._check_pending()
        if not self._is_not_checked(topic):
            state = self._state(topic, queue_id)
            found = self._records.check_stored(state, self._topics.id_of(topic), units)
            yield from self._unless_removed(state, found)

    def log_ends(self, log_end: int) -> None:
        """Call this when the log was checked up to its end, ``log_end``."""
        self._orphans.end.reached(log_end)

    def log_begins(self, log: CommitLog, begin: int) -> None:
        """Call this when the log now begins at ``begin``: retention has removed files. ``log`` is
        the log opened anew."""
        self._orphans.log_begins(log, begin)
        self._batches.log_begins(log, begin)

    def beginnings(self, log: CommitLog, begin: int) -> Iterator[Beginning]:
        """Call this before the first record, if the check begins at ``begin``, not with the log.
        Yields what each queue says about where to begin."""
        self._batches.log_begins(log, begin)
        earlier = self._earlier(begin)
        for topic, queue_id in self._queues():
            if self._is_not_checked(topic):
                continue
            state = self._state(topic, queue_id)
            if state.queue is not None:
                found: list[Beginning] = []
                self.passes(self._unless_removed(state, self._look_back(state, earlier, found)))
                yield from found

    def _look_back(
        self, state: QueueState, earlier: EarlierRecords, found: list[Beginning]
    ) -> Iterator[Finding]:
        """Appends to ``found`` what a queue says. A generator because a file may be removed."""
        assert state.queue is not None
        end = self._orphans.end_of(state)
        found.append(earlier.beginning(state.queue, state.first_queue_offset, end))
        state.queue.close()
        yield from ()

    def resumes(self, begin: int) -> None:
        """Call this before the first record, if the check does not begin with the log: where that
        record is."""
        self._records.earlier = self._earlier(begin)

    def passes(self, findings: Iterator[Finding]) -> None:
        """Takes findings that the stretch before has told. It may not have come to a file that the
        disk does not read: such a finding is still to be told, as this stretch goes without the
        queue."""
        kept = [one for one in findings if one.code == "unreadable-file"]
        self._refused += kept

    def taken_again(self) -> None:
        """Call this after the last record that was taken again, before those of the stretch. What
        was counted so far, and is held back, the stretch before has told."""
        self.passes(self._check_pending())
        for state in self._states.values():
            state.spans.clear()
            state.repeated, state.missing = None, 0
        self._waits.behind = self._records.units = self._orphans.units = 0

    def pause(self, log_end: int) -> Iterator[Finding]:
        """Call this after the last record of a stretch, when the log goes on at ``log_end``. Yields
        the findings of the records up to there. Units behind the last of them are for the stretch
        that has the queue's next record."""
        yield from self._check_pending()
        yield from self._told()
        earlier = self._earlier(log_end)
        for state in self._states.values():
            if state.queue is not None and state.started:
                yield from self._unless_removed(state, self._records.pause(state, earlier))
            if state.queue is not None:
                state.queue.close()
        yield from self._batches.pause(log_end)
        yield from waits_findings(self._snapshot, [self.waits(), self._batches.waits])

    def finish(self, log_end: int) -> Iterator[Finding]:
        """Call this after the last record. Yields the findings of all orphan units, and those over
        all queues."""
        self.log_ends(log_end)
        yield from self._check_pending()
        of_batches = list(self._batches.finish(log_end)) if self._snapshot.compares_files else []
        every = [self.waits(), self._batches.waits]
        yield from missing_findings(self._snapshot, every)
        for topic, queue_id in self._queues():
            yield from self.finish_queue(topic, queue_id)
        yield from of_batches
        yield from _behind_findings(every)

    def finish_queue(self, topic: str, queue_id: int) -> Iterator[Finding]:
        """Call this after a queue's last record. Yields the findings of its orphan units."""
        if self._is_not_checked(topic):
            self._pending, self._pending_units = [], 0
            return
        yield from self._check_pending()
        state = self._state(topic, queue_id)
        yield from self._told()
        if state.queue is not None:
            yield from self._unless_removed(state, self._finish_queue(state))

    def waits(self) -> Waits:
        """What was counted so far for the findings over all queues."""
        self._waits.missing = [
            (s.topic, s.queue_id, s.path, s.missing, s.first_missing)
            for s in self._states.values()
            if s.missing
        ]
        return self._waits

    def close(self) -> None:
        self._orphans.close()
        self._batches.close()

    # --- queues --------------------------------------------------------------------------

    def _earlier(self, begin: int) -> EarlierRecords:
        log_min = self._snapshot.log_min
        return EarlierRecords(self._orphans.log, self._dispatcher, begin, log_min)

    def _is_not_checked(self, topic: str) -> bool:
        """Whether :meth:`add` does not compare the queues of a topic: they cannot be compared, or
        they are batch queues, which :meth:`look_at` checks."""
        return self._snapshot.not_compared is not None or topic in self._snapshot.batch_topics

    def _check_pending(self) -> Iterator[Finding]:
        pending, self._pending, self._pending_units = self._pending, [], 0
        for units in units_by_queue(pending):
            if self._is_not_checked(self._topics.names[units.topic_id]):
                continue
            state = self._state(self._topics.names[units.topic_id], units.queue_id)
            yield from self._unless_removed(state, self._records.check(state, units))

    def _unless_removed(self, state: QueueState, findings: Iterator[Finding]) -> Iterator[Finding]:
        """The findings of a queue. They end where a broker's retention removes a file in use, or
        the disk does not read one."""
        self.step()
        yield from self._told()
        if (yield from until_removed(self._root, findings)):
            yield from state.release_repeated()
            state.queue, state.was_removed = None, True

    def _told(self) -> Iterator[Finding]:
        """The findings of queues that could not be opened since the last call."""
        found, self._refused = self._refused, []
        yield from found

    def _state(self, topic: str, queue_id: int) -> QueueState:
        state = self._states.get((topic, queue_id))
        if state is None:
            where, is_refused = self._path_of(topic, queue_id), False
            try:
                queue = self._open(topic, queue_id)
            except CannotRead as error:  # Its units are unknown.
                queue, is_refused = None, True
                self._refused += refused(self._root, error)
            state = QueueState(queue, topic, queue_id, where, self._snapshot.queue_file_size)
            state.was_removed = is_refused
            self._states[topic, queue_id] = state
        return state

    def _queues(self) -> Iterator[tuple[str, int]]:
        """Topic and queue id of every queue that has a directory."""
        for where in queue_directories(self._root / paths.CONSUME_QUEUE):
            yield where.topic, where.queue_id

    def _path_of(self, topic: str, queue_id: int) -> str:
        return f"{paths.CONSUME_QUEUE}/{topic}/{queue_id}"

    def _open(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue as its files are; None without files, or if their lengths are wrong, which the
        check of the directories reports. :raises CannotRead: the system refuses a file."""
        where = self._root / paths.CONSUME_QUEUE / topic / str(queue_id)
        ext = self._root / paths.CONSUME_QUEUE_EXT / topic / str(queue_id)
        try:
            queue = ConsumeQueue(
                where,
                topic,
                queue_id,
                self._snapshot.queue_file_size,
                ext=ConsumeQueueExt(ext) if os.path.isdir(ext) else None,
            )
        except FileLengthContradiction:
            return None
        return queue if queue.files.entries else None

    def _check_rest(self, state: QueueState) -> Iterator[Finding]:
        """The findings of the queue's orphan units behind its last record."""
        yield from state.release()
        if not state.started:
            yield from self._records.begin(state, state.first_queue_offset)
        yield from self._orphans.check_rest(state)

    def _finish_queue(self, state: QueueState) -> Iterator[Finding]:
        """The findings of the queue's orphan units and of its extension files."""
        assert state.queue is not None
        yield from self._check_rest(state)
        yield from check_ext_files(self._root, self._snapshot.config, state.queue)
        if self._snapshot.is_of_5:
            yield from _last_file_finding(state.queue, state.path)
        state.queue.close()


def _last_file_finding(queue: ConsumeQueue, path: str) -> Iterator[Finding]:
    """A kill may leave a file that was made for a unit, and has none. 5.x reads the unit in front
    of it (``ConsumeQueue#correctMinOffset``), which is in another file: position -20 of this
    one."""
    *before, last = queue.files.entries
    if before and last.file_from_offset == queue.max_offset * UNIT_SIZE:
        yield finding(
            "queue-file-without-unit",
            path=f"{path}/{last.path.name}",
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue.max_offset,
            expected="1 unit",
            found="never written",
        )


def waits_findings(snapshot: Snapshot, waits: Iterable[Waits]) -> Iterator[Finding]:
    """The findings over all queues, when these were checked in parts."""
    every = list(waits)
    yield from missing_findings(snapshot, every)
    yield from _behind_findings(every)


def missing_findings(snapshot: Snapshot, waits: Iterable[Waits]) -> Iterator[Finding]:
    """The findings of queues that should exist but have no files: one for each queue, or one for
    all if no queue has a unit."""
    missing = sorted(queue for one in waits for queue in one.missing)
    if missing and snapshot.waiting_from is None:
        yield finding(
            "consumequeue-missing",
            path=paths.CONSUME_QUEUE,
            expected=some(len(missing), "queue"),
            found=f"{some(sum(queue[3] for queue in missing), 'record')} without a unit",
            physical_offset=min(queue[4] for queue in missing),
        )
        return
    topics = known_topics(snapshot.path) if missing else None
    advice = {} if snapshot.rocksdb is None else {"advice": ROCKSDB_ANEW}
    for topic, queue_id, path, records, first in missing:
        deleted = is_deleted(topic, topics)
        yield finding(
            "queue-of-deleted-topic" if deleted else "queue-missing",
            **({} if deleted else advice),
            path=path,
            topic=topic,
            queue_id=queue_id,
            physical_offset=first,
            found=f"{some(records, 'record')} without a unit",
        )


def _behind_findings(waits: list[Waits]) -> Iterator[Finding]:
    behind = [one for one in waits if one.behind]
    if behind:
        yield finding(
            "dispatch-behind",
            physical_offset=min(one.behind_first for one in behind),
            found=some(sum(one.behind for one in behind), "record"),
        )
