"""Queues against the log, in both directions.

Records come in log order, in batches; each is compared with the unit at its place. What no record
has claimed is then looked at from the queue's side. Memory holds one range a queue and one bulk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from rmqctl.engine.derive.writer import bulk_units, group_by_queue
from rmqctl.engine.dispatch.batches import UnitBatch
from rmqctl.engine.files import paths
from rmqctl.engine.files.paths import queue_directories
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.queue.extension import ConsumeQueueExt
from rmqctl.engine.scan.scanner import TopicTable
from rmqctl.engine.state.laterversions import queues_not_understood
from rmqctl.errors import CannotRead, FileLengthContradiction
from rmqctl.operations.verify.damageranges import Ranges
from rmqctl.operations.verify.directories import shown
from rmqctl.operations.verify.findings import Finding, finding
from rmqctl.operations.verify.orphanunits import UnclaimedUnits
from rmqctl.operations.verify.queueext import check_ext_files
from rmqctl.operations.verify.queuestate import QueueState, Waits
from rmqctl.operations.verify.queueunits import UnitChecker, Wanted
from rmqctl.operations.verify.snapshot import Sizes
from rmqctl.operations.verify.topics import is_deleted, known_topics


class QueueChecker:
    """Checks all queues; feed :meth:`add` in log order, then :meth:`finish`.

    Or queue by queue: :meth:`log_ends` first, then :meth:`add` of all of one queue and
    :meth:`finish_queue`, and :meth:`waits` behind the last one.
    """

    def __init__(self, sizes: Sizes, log: CommitLog, topics: TopicTable, damaged: Ranges) -> None:
        self._root = sizes.path
        self._sizes = sizes
        self._topics = topics
        self._unread = queues_not_understood(sizes.path)
        self._unclaimed = UnclaimedUnits(sizes, log, damaged)
        self._states: dict[tuple[str, int], QueueState] = {}
        self._pending: list[UnitBatch] = []
        self._pending_units = 0
        self._waits = Waits()
        self._records = UnitChecker(self._unclaimed, self._waits, sizes.waiting_from)

    @property
    def units(self) -> int:
        """Units looked at so far."""
        return self._records.units + self._unclaimed.units

    def add(self, batch: UnitBatch) -> Iterator[Finding]:
        """Takes the units that a batch of records asks for."""
        self._pending.append(batch)
        self._pending_units += len(batch.size)
        if self._pending_units >= bulk_units(len(self._states)):
            yield from self._check_pending()

    def log_ends(self, log_end: int) -> None:
        """The log was checked up to there."""
        self._unclaimed.end.reached(log_end)

    def log_begins(self, log: CommitLog) -> None:
        """Older files of the log were removed meanwhile; ``log`` is as it is now."""
        self._unclaimed.log_begins(log)

    def finish(self, log_end: int) -> Iterator[Finding]:
        """After the last record: what no record claimed."""
        self.log_ends(log_end)
        yield from self._check_pending()
        waits = self.waits()
        yield from _missing_findings(self._sizes, waits.missing)
        for where in queue_directories(self._root / paths.CONSUME_QUEUE):
            yield from self.finish_queue(where.topic, where.queue_id)
        yield from _behind_findings([waits])

    def finish_queue(self, topic: str, queue_id: int) -> Iterator[Finding]:
        """After a queue's last record: what no record claimed."""
        if self._unread(topic):
            self._pending, self._pending_units = [], 0
            return
        yield from self._check_pending()
        state = self._state(topic, queue_id)
        if state.queue is not None:
            yield from self._unless_removed(state, self._finish_queue(state))

    def waits(self) -> Waits:
        """What records up to here wait for."""
        self._waits.missing = [
            (s.topic, s.queue_id, s.path, s.missing, s.first_missing)
            for s in self._states.values()
            if s.missing
        ]
        return self._waits

    def close(self) -> None:
        self._unclaimed.close()

    # --- queues --------------------------------------------------------------------------

    def _check_pending(self) -> Iterator[Finding]:
        if not self._pending:
            return
        bulk = UnitBatch(*(np.concatenate(columns) for columns in zip(*self._pending, strict=True)))
        self._pending, self._pending_units = [], 0
        for topic_id, queue_id, rows in group_by_queue(bulk.topic_id, bulk.queue_id):
            if self._unread(self._topics.names[topic_id]):
                continue
            state = self._state(self._topics.names[topic_id], queue_id)
            wanted = Wanted(
                bulk.queue_offset[rows],
                bulk.physical_offset[rows],
                bulk.size[rows],
                bulk.tags_code[rows],
            )
            yield from self._unless_removed(state, self._records.check(state, wanted))

    def _unless_removed(self, state: QueueState, findings: Iterator[Finding]) -> Iterator[Finding]:
        """Findings of a queue, up to where a broker's retention removes what is to be read."""
        try:
            yield from findings
        except CannotRead as error:
            if os.path.lexists(str(error.path)):
                raise
            yield finding("file-removed-meanwhile", path=shown(self._root, Path(str(error.path))))
            state.queue, state.was_removed = None, True

    def _state(self, topic: str, queue_id: int) -> QueueState:
        state = self._states.get((topic, queue_id))
        if state is None:
            relative = f"{paths.CONSUME_QUEUE}/{topic}/{queue_id}"
            queue = self._open(topic, queue_id)
            state = QueueState(queue, topic, queue_id, relative, self._sizes.queue)
            self._states[topic, queue_id] = state
        return state

    def _open(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue as its files are; None without files, or when their lengths are wrong (found
        elsewhere)."""
        where = self._root / paths.CONSUME_QUEUE / topic / str(queue_id)
        ext = self._root / paths.CONSUME_QUEUE_EXT / topic / str(queue_id)
        if not where.is_dir():
            return None
        try:
            queue = ConsumeQueue(
                where,
                topic,
                queue_id,
                self._sizes.queue,
                ext=ConsumeQueueExt(ext) if ext.is_dir() else None,
            )
        except (FileLengthContradiction, CannotRead):
            return None
        queue.close()
        return queue if queue.files.entries else None

    def _finish_queue(self, state: QueueState) -> Iterator[Finding]:
        """What no record of the queue claimed."""
        assert state.queue is not None
        yield from state.told()
        if not state.started:
            state.place = state.first_place
        yield from self._unclaimed.check_rest(state)
        yield from check_ext_files(self._root, self._sizes.config, state.queue)
        state.queue.close()


def waits_findings(sizes: Sizes, waits: Iterable[Waits]) -> Iterator[Finding]:
    """What queues can only say together, checked in parts."""
    every = list(waits)
    yield from _missing_findings(sizes, sorted(queue for one in every for queue in one.missing))
    yield from _behind_findings(every)


def _missing_findings(
    sizes: Sizes, missing: list[tuple[str, int, str, int, int]]
) -> Iterator[Finding]:
    if missing and sizes.waiting_from is None:
        yield finding(
            "consumequeue-missing",
            path=paths.CONSUME_QUEUE,
            expected=f"{len(missing)} queues",
            found=f"{sum(queue[3] for queue in missing)} records without a unit",
            physical_offset=min(queue[4] for queue in missing),
        )
        return
    topics = known_topics(sizes.path) if missing else None
    for topic, queue_id, path, records, first in missing:
        yield finding(
            "queue-of-deleted-topic" if is_deleted(topic, topics) else "queue-missing",
            path=path,
            topic=topic,
            queue_id=queue_id,
            physical_offset=first,
            found=f"{records} records without a unit",
        )


def _behind_findings(waits: list[Waits]) -> Iterator[Finding]:
    behind = [one for one in waits if one.behind]
    if behind:
        yield finding(
            "dispatch-behind",
            physical_offset=min(one.behind_first for one in behind),
            found=f"{sum(one.behind for one in behind)} records",
        )
