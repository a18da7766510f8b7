"""Checks queues in RocksDB (5.x) against the log.

Their units are checked like those in files. Also checked are the store time, which only these units
have, and where the column family ``offset`` says that a queue begins and ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from formats.constants import LONG_MAX
from rmqctl.engine.dispatch.batches import UnitBatch
from rmqctl.engine.files.paths import QueueDirectory
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.queue.rocksdbqueue import RocksDBQueue, RocksDBQueueTable
from rmqctl.engine.scan.scanner import TopicTable
from rmqctl.engine.state.rocksdb import RocksDBUnreadable
from rmqctl.operations.verify.damageranges import Ranges
from rmqctl.operations.verify.findings import Finding, finding
from rmqctl.operations.verify.latercodes import ROCKSDB_ANEW
from rmqctl.operations.verify.queues import QueueChecker
from rmqctl.operations.verify.queuestate import QueueState
from rmqctl.operations.verify.snapshot import Snapshot

if TYPE_CHECKING:
    from rmqctl.engine.scan.batch import Batch


def queue_checker(
    snapshot: Snapshot, log: CommitLog, topics: TopicTable, damaged: Ranges
) -> QueueChecker:
    """The checker for the queues of a store, in files or in RocksDB."""
    make = QueueChecker if snapshot.rocksdb is None else RocksDBQueueChecker
    return make(snapshot, log, topics, damaged)


class RocksDBQueueChecker(QueueChecker):
    """:class:`QueueChecker` for queues in RocksDB. If something cannot be read, one finding after
    all others says so."""

    def __init__(
        self, snapshot: Snapshot, log: CommitLog, topics: TopicTable, damaged: Ranges
    ) -> None:
        super().__init__(snapshot, log, topics, damaged)
        assert snapshot.rocksdb is not None
        self._name = snapshot.rocksdb
        self._table = RocksDBQueueTable(
            snapshot.path / self._name,
            snapshot.queue_file_size,
            lambda: (snapshot.log_min, LONG_MAX),
        )
        self._unreadable: RocksDBUnreadable | None = None
        self._not_opened: set[tuple[str, int]] = set()

    @property
    def wants_records(self) -> bool:
        return True

    def close(self) -> None:
        super().close()
        self._table.close()

    # --- store times ---------------------------------------------------------------------

    def look_at(self, batch: Batch, units: UnitBatch) -> Iterator[Finding]:
        """The findings of units whose store time is not that of their record."""
        rows = np.searchsorted(batch.physical_offset, units.physical_offset)
        times = batch.store_timestamp[rows]
        order = np.lexsort((units.queue_offset, units.queue_id, units.topic_id))
        columns = [
            column[order].tolist()
            for column in (
                units.topic_id,
                units.queue_id,
                units.queue_offset,
                units.physical_offset,
                times,
            )
        ]
        for (topic_id, queue_id), of_queue in groupby(zip(*columns, strict=True), lambda r: r[:2]):
            topic = self._topics.names[topic_id]
            try:
                wrong = list(self._wrong_times(topic, queue_id, [row[2:] for row in of_queue]))
            except RocksDBUnreadable as error:
                self._unreadable = error
                continue
            if wrong:
                queue_offset, physical_offset, expected, found = wrong[0]
                more = "" if len(wrong) == 1 else f", and {len(wrong) - 1} more"
                yield finding(
                    "unit-store-time-mismatch",
                    path=self._name,
                    topic=topic,
                    queue_id=queue_id,
                    queue_offset=queue_offset,
                    physical_offset=physical_offset,
                    expected=expected,
                    found=f"{found}{more}",
                )

    def _wrong_times(
        self, topic: str, queue_id: int, wanted: list[tuple[int, int, int]]
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yields, for each unit with a wrong store time: queue offset, physical offset, the time
        (ms) of the record, and that of the unit. ``wanted`` has queue offset, physical offset and
        time of each record, in the order of queue offsets."""
        database = self._table.database
        for queue_offset, physical_offset, time in wanted:
            unit = database.unit(topic, queue_id, queue_offset)
            if unit is None or unit.physical_offset != physical_offset:
                continue
            if unit.store_timestamp != time:
                yield queue_offset, physical_offset, time, unit.store_timestamp

    # --- queues --------------------------------------------------------------------------

    def _queues(self) -> Iterator[tuple[str, int]]:
        for where in self._table.directories():
            yield where.topic, where.queue_id

    def _path_of(self, topic: str, queue_id: int) -> str:
        return self._name

    def _state(self, topic: str, queue_id: int) -> QueueState:
        is_new = (topic, queue_id) not in self._states
        state = super()._state(topic, queue_id)
        if is_new:
            state.advice = ROCKSDB_ANEW
            # A queue that exists, and cannot be read, is not missing.
            state.was_removed = (topic, queue_id) in self._not_opened
        return state

    def _open(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        try:
            return self._table.as_stored(QueueDirectory(topic, queue_id, self._table.directory))
        except RocksDBUnreadable as error:
            self._unreadable = error
            self._not_opened.add((topic, queue_id))
            return None

    def _unless_removed(self, state: QueueState, findings: Iterator[Finding]) -> Iterator[Finding]:
        try:
            yield from super()._unless_removed(state, findings)
        except RocksDBUnreadable as error:
            self._unreadable = error
            yield from state.release_repeated()
            state.queue, state.was_removed = None, True

    def pause(self, log_end: int) -> Iterator[Finding]:
        yield from super().pause(log_end)
        yield from self._tell()

    def finish(self, log_end: int) -> Iterator[Finding]:
        yield from super().finish(log_end)
        yield from self._tell()

    def _tell(self) -> Iterator[Finding]:
        if self._unreadable is not None:
            yield finding("rocksdb-unreadable", path=self._name, found=self._unreadable.reason)

    def _finish_queue(self, state: QueueState) -> Iterator[Finding]:
        """The findings of the queue's orphan units, and of where it begins and ends."""
        queue = state.queue
        assert isinstance(queue, RocksDBQueue)
        yield from self._check_rest(state)
        yield from self._places(state, queue)

    def _places(self, state: QueueState, queue: RocksDBQueue) -> Iterator[Finding]:
        last, unit = queue.last, queue.unit(queue.last.queue_offset)
        is_expired = last.physical_offset < self._snapshot.log_min
        if not is_expired and (unit is None or unit.physical_offset != last.physical_offset):
            found = "no unit" if unit is None else f"a unit of offset {unit.physical_offset}"
            yield state.finding(
                "queue-end-contradicted",
                queue_offset=last.queue_offset,
                physical_offset=last.physical_offset,
                expected=f"a unit of offset {last.physical_offset}",
                found=found,
            )
        first = queue.first_stored
        if queue.min_offset != first and not (is_expired and queue.min_offset >= first):
            yield state.finding(
                "queue-begin-contradicted",
                queue_offset=queue.min_offset,
                expected=f"queue offset {first}, where the first unit of the log's records stands",
                found=f"queue offset {queue.min_offset}",
            )
