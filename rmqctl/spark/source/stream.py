"""``spark.readStream.format("rocketmq")``: follows the commit logs of live stores.

The offset of a stream is a physical offset for each store, which is always the start of a record or
the end of a file. What is between two offsets never changes. So a batch that is repeated after a
failure has the same rows, which gives exactly-once semantics with an idempotent sink. A record is
read only when it is whole: while it is the last one, its CRC is checked. If a part of a log expires
before it is read, a row of damage says so.

The first offset of a stream notes where it starts, including queue offsets. So a restart continues
from the checkpoint, whatever the options are then. A store that joins later is read from its begin.
The last record of each store may exceed the limit of a batch's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.times import may_hold
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record, crc_matches
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.errors import RmqctlError
from rmqctl.spark.remote.stores import expand
from rmqctl.spark.source import split, splits
from rmqctl.spark.source.logsplit import meet, open_log, select
from rmqctl.spark.source.options import EARLIEST, LATEST, ONE_STORE, Following
from rmqctl.spark.source.packs import packed
from rmqctl.spark.source.pushdown import Bounds, QueueOffsets
from rmqctl.spark.source.schema import batch_schema

#: A physical offset for each store. :data:`_STARTS` has the queue offsets at which the stream
#: began, by store, and :data:`_BEGAN` the physical offsets. They are noted because later the same
#: options may mean other places: the latest offset moves, the earliest one expires, stores are
#: added, or the options change.
Offsets = dict[str, Any]
#: No store has this name: it would be a pattern.
_STARTS = "*startingOffsets"
#: Nor this one. It has the physical offsets, by store, at which the stream began.
_BEGAN = "*began"
#: A store, and the physical offsets of a stretch of its log.
_Stretch = tuple[str, int, int]


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream. Its offsets have the stores that have a log at that time. A store
    that comes later is added, and one that is gone keeps its offset. An empty log has no offset,
    because it need not begin at 0, for example after retention, or on a slave."""

    def __init__(
        self,
        settings: split.ReadSettings,
        schema: StructType,
        path: str,
        following: Following,
    ) -> None:
        if settings.structure != "commitlog":
            raise ValueError(f"a stream follows the commitlog, not structure {settings.structure}")
        self._settings = settings
        self._schema = batch_schema(settings, schema)
        self._path = path
        self._following = following
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:
        start = self._following.start
        if start == "latest":
            return _noted(self._ends())
        if isinstance(start, dict):
            return self._at_queue_offsets(start)
        if isinstance(start, int):
            places = self._logs()
            return _noted({store: self._place_in_time(store, log, start) for store, log in places})
        return _noted({store: log.min_offset for store, log in self._logs()})

    def _at_queue_offsets(self, start: QueueOffsets) -> Offsets:
        stores = expand(self._path)
        if len(stores) > 1:
            raise ValueError(ONE_STORE)
        with MessageStore(stores[0], self._settings.config) as opened:
            resolved: dict[str, dict[str, int]] = {}
            for (topic, queue_id), offset in start.items():
                queue = opened.consume_queue(topic, queue_id)
                if offset == LATEST:
                    offset = 0 if queue is None else queue.max_offset
                if offset != EARLIEST:
                    resolved.setdefault(topic, {})[str(queue_id)] = offset
            log = opened.commit_log
            first = {stores[0]: log.min_offset} if log.files.entries else {}
            return _noted(first) | {_STARTS: {stores[0]: resolved}}

    def _place_in_time(self, store: str, log: CommitLog, timestamp: int) -> int:
        place = place_in_time(log, timestamp, self._settings.clock_slack)
        return whole_end(store, self._settings) if place is None else place

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._following.max_offsets:
            return ReadMaxRows(self._following.max_offsets)
        most = self._following.max_bytes
        return ReadMaxBytes(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def reportLatestOffset(self) -> Offsets:
        return self._ends()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The end of the next batch: the end of each log, or as far as the limit allows."""
        ends = self._target if self._target is not None else self._ends()
        result = dict(start)
        waiting = []
        for store, end in ends.items():
            with self._log(store) as log:
                low = log.min_offset
            begin = max(start.get(store, low), low)
            if begin > end and self._target is None:
                raise ValueError(
                    f"{store}: the log ends at {end}, but the stream has read to {begin}: the log "
                    "was cut by a recovery, or it is another store. Start with a new checkpoint."
                )
            result[store] = max(begin, end)
            if begin < end:
                waiting.append((store, begin, end))
        if isinstance(limit, ReadMaxBytes | ReadMaxRows):
            most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._following.max_bytes
            waiting = list(self._within_bytes(waiting, most)) if most else waiting
            if isinstance(limit, ReadMaxRows):
                waiting = list(self._within_rows(waiting, limit.max_rows, start))
            result |= {store: end for store, _, end in waiting}
        return result

    def _within_bytes(self, waiting: list[_Stretch], room: int) -> Iterator[_Stretch]:
        """Cuts stretches of logs so that together they have about ``room`` bytes."""
        for number, (store, begin, end) in enumerate(waiting):
            # What one store does not use is left for the next ones.
            share = max(room // (len(waiting) - number), 1)
            end = self._place_near(store, begin, min(begin + share, end), end)
            room = max(room - (end - begin), 1)
            yield store, begin, end

    def _within_rows(
        self, waiting: list[_Stretch], room: int, offset: Offsets
    ) -> Iterator[_Stretch]:
        """Cuts them by the number of wanted messages. Each stretch gets at least one."""
        for number, (store, begin, end) in enumerate(waiting):
            left = share = max(room // (len(waiting) - number), 1)
            bounds = self._bounds(self._starts(offset, store))
            with self._log(store) as log:
                for entry in Scanner(log, properties=False).scan(begin, end):
                    chosen = select(entry, bounds) if isinstance(entry, Batch) else None
                    if chosen is not None and len(chosen) > left:
                        chosen = chosen.where(np.arange(len(chosen)) < left)
                    if chosen is None:
                        continue
                    left -= len(chosen)
                    if not left:
                        end = min(end, chosen.end_offset)
                        break
            room = max(room - (share - left), 1)
            yield store, begin, end

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        found: list[split.Split] = []
        if start.get(_BEGAN) != end.get(_BEGAN):
            # The first batch was not completed, and Spark has asked again where the stream begins.
            # Use the noted start. Old checkpoints do not have it, and use the new answer.
            start = end.get(_BEGAN, start)
        for store, stop in end.items():
            if store in (_STARTS, _BEGAN):
                continue
            with self._log(store) as log:
                splits = self._splits(log, store, start.get(store, log.min_offset), stop)
                for one in splits:
                    one.first_offsets = self._starts(end, store)
                    found.append(one)
        return packed(found, self._settings)

    def _starts(self, offset: Offsets, store: str) -> QueueOffsets:
        """The queue offsets at which the stream began to read a store, as noted in its first
        offset."""
        by_topic = offset.get(_STARTS, {}).get(store, {})
        return {
            (topic, int(queue_id)): first
            for topic, queues in by_topic.items()
            for queue_id, first in queues.items()
        }

    def _bounds(self, starts: QueueOffsets) -> Bounds:
        return replace(self._following.bounds, first_offsets=starts)

    def _splits(self, log: CommitLog, store: str, begin: int, stop: int) -> Iterator[split.Split]:
        """The splits of one store between two offsets."""
        if begin >= stop:
            return
        if not log.files.entries or log.min_offset > begin:
            gone = min(log.min_offset, stop) if log.files.entries else stop
            yield splits.expired_split(store, begin, gone)
            begin = gone
        if begin < stop:
            step = self._settings.split_bytes
            yield from splits.log_splits(log, store, step, begin, stop, log_end=stop)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for one in split.splits_of(partition):
            bounds = self._bounds(one.first_offsets)
            yield from splits.read(one, self._settings, bounds, self._schema)

    def commit(self, end: Offsets) -> None:
        """Does nothing: nothing is kept for completed batches."""

    def stop(self) -> None:
        """Does nothing: nothing is held open between batches."""

    def _logs(self) -> Iterator[tuple[str, CommitLog]]:
        """The stores that have a log with files, and their logs."""
        for store in expand(self._path):
            with self._log(store) as log:
                if log.files.entries:
                    yield store, log

    def _log(self, store: str) -> closing[CommitLog]:
        """A log, which is closed with the context: a stream runs for days."""
        return closing(open_log(store, self._settings.config))

    def _ends(self) -> Offsets:
        return {store: whole_end(store, self._settings) for store, _ in self._logs()}

    def _place_near(self, store: str, begin: int, wanted: int, end: int) -> int:
        """The first start of a record, or end of a file, at or after a physical offset."""
        if wanted >= end:
            return end
        with self._log(store) as log:
            place = meet(log, wanted, self._settings.config)
        return min(max(place, begin), end)


def _noted(first: Offsets) -> Offsets:
    """The note of where a stream begins. The end offsets of its batches have it as well."""
    return first | {_BEGAN: first}


def place_in_time(log: CommitLog, timestamp: int, clock_slack: int) -> int | None:
    """The physical offset of the first record in the log with this store time or a later one; None
    if there is none. Files that are older, by their store times, are skipped.

    ``timestamp`` is in epoch milliseconds, ``clock_slack`` in milliseconds. If the slack is
    negative, no file is skipped.
    """
    for number, entry in enumerate(log.files.entries):
        if not may_hold(log, number, timestamp, None, clock_slack):
            continue
        place = entry.file_from_offset
        for found in Scanner(log, properties=False).scan(place, place + entry.size):
            if isinstance(found, Batch):
                late = np.flatnonzero(found.store_timestamp >= timestamp)
                if len(late):
                    return int(found.physical_offset[late[0]])
    return None


def whole_end(store: str, settings: split.ReadSettings) -> int:
    """The physical offset at which the last whole record of a log ends, even if damage is before
    it.

    :raises RmqctlError: the store cannot be read.
    """
    try:
        with MessageStore(store, settings.config) as opened:
            found = opened.obstacle
            if found.obstacle is None:
                return opened.max_offset
            return _end_behind(opened.commit_log, found.obstacle.physical_offset, opened)
    except FileNotFoundError as error:
        # A file has expired while it was read.
        raise RmqctlError(reason=f"{store}: {error}") from error


def _end_behind(log: CommitLog, place: int, store: MessageStore) -> int:
    """The end of the log behind damage: where its last whole record ends."""
    end = place
    for entry in Scanner(log, properties=False).scan(place):
        if isinstance(entry, Batch):
            last: Record = entry.record(len(entry) - 1)
            end = (
                entry.end_offset
                if crc_matches(entry.mapped.buffer, last)
                else (last.physical_offset)
            )
    return end
