"""``spark.readStream.format("rocketmq")``: follows the commit logs of live stores.

A stream's offset is a physical offset for each store, always a record's start or the end of a
file. What lies between two offsets never changes, so a batch that is repeated after a failure has
the same rows: exactly once with a sink that knows its batches. A record is read when it is whole:
its CRC is checked while it is the last one. A log that expired before it was read gives a row of
damage.

Options besides the reader's: ``maxBytesPerTrigger`` (such as ``64m``: bytes of log a batch, all
stores together; the last record of each may reach over), ``startingOffsets`` (``earliest`` or
``latest``: where a new stream starts; a store that joins later is read from its beginning).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record, crc_matches
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.errors import RmqctlError
from rmqctl.spark.remote.stores import expand
from rmqctl.spark.source import split, splits
from rmqctl.spark.source.logsplit import meet, open_log
from rmqctl.spark.source.pushdown import Bounds
from rmqctl.spark.source.schema import batch_schema

Offsets = dict[str, int]
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream. Its offsets are of the stores that have a log when they are asked
    for: one that comes later joins in, one that is gone keeps its offset. An empty log has no
    offset, for it need not begin at 0: retention, or a master, may say otherwise."""

    def __init__(
        self,
        settings: split.ReadSettings,
        schema: StructType,
        *,
        path: str,
        max_bytes: int = 0,
        starting: str = "earliest",
    ) -> None:
        if settings.structure != "commitlog":
            raise ValueError(f"a stream follows the commitlog, not structure {settings.structure}")
        if starting not in ("earliest", "latest"):
            raise ValueError(f"startingOffsets is earliest or latest, not {starting!r}")
        self._settings = settings
        self._schema = batch_schema(settings.structure, schema)
        self._path = path
        self._max_bytes = max_bytes
        self._starting = starting
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:
        if self._starting == "latest":
            return self._ends()
        return {store: log.min_offset for store, log in self._logs()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._max_bytes) if self._max_bytes > 0 else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def reportLatestOffset(self) -> Offsets:
        return self._ends()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """How far the next batch goes: to the end of each log, or as far as the limit allows."""
        ends = self._target if self._target is not None else self._ends()
        room = limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0
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
        if room > 0:
            for number, (store, begin, end) in enumerate(waiting):
                # What one store leaves over the next ones may use.
                share = max(room // (len(waiting) - number), 1)
                result[store] = self._place_near(store, begin, min(begin + share, end), end)
                room = max(room - (result[store] - begin), 1)
        return result

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        found: list[InputPartition] = []
        for store, stop in end.items():
            with self._log(store) as log:
                found += self._splits(log, store, start.get(store, log.min_offset), stop)
        return found

    def _splits(
        self, log: CommitLog, store: str, begin: int, stop: int
    ) -> Iterator[InputPartition]:
        """What is read of one store between two of its offsets."""
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
        assert isinstance(partition, split.Split)
        yield from splits.read(partition, self._settings, Bounds(), self._schema)

    def commit(self, end: Offsets) -> None:
        """Nothing is kept for batches that are done."""

    def stop(self) -> None:
        """Nothing is held open between batches."""

    def _logs(self) -> Iterator[tuple[str, CommitLog]]:
        """The stores that have files of a log."""
        for store in expand(self._path):
            with self._log(store) as log:
                if log.files.entries:
                    yield store, log

    def _log(self, store: str) -> closing[CommitLog]:
        """A log, for as long as the context: a stream looks at it for days."""
        return closing(open_log(store, self._settings.config))

    def _ends(self) -> Offsets:
        return {store: whole_end(store, self._settings) for store, _ in self._logs()}

    def _place_near(self, store: str, begin: int, wanted: int, end: int) -> int:
        """The first record's start, or end of a file, at or after a place."""
        if wanted >= end:
            return end
        with self._log(store) as log:
            place = meet(log, wanted, self._settings.config)
        return min(max(place, begin), end)


def whole_end(store: str, settings: split.ReadSettings) -> int:
    """Where the last whole record of a log ends, damage before it or not.

    :raises RmqctlError: the store cannot be read.
    """
    try:
        with MessageStore(store, settings.config) as opened:
            found = opened.obstacle
            if found.obstacle is None:
                return opened.max_offset
            return _end_behind(opened.commit_log, found.obstacle.physical_offset, opened)
    except FileNotFoundError as error:
        # A file expired while it was being looked at.
        raise RmqctlError(reason=f"{store}: {error}") from error


def _end_behind(log: CommitLog, place: int, store: MessageStore) -> int:
    """The end of the log behind damage: after its last record that is whole."""
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


def parse_bytes(text: str) -> int:
    """``64m`` and the like; 0 is no limit. :raises ValueError: it is none."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text.strip().lower())
    if match is None:
        raise ValueError(f"maxBytesPerTrigger is a number of bytes such as 64m, not {text!r}")
    return int(match[1]) * _UNITS[match[2]]
