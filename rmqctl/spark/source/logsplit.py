"""Reads one split of a commit log: finds where it begins, and returns its records and damage as
Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqctl.arrow.arrays import damage_batch, message_batch, problem_batch
from rmqctl.engine.log.commitlog import RECORD_HEAD, CommitLog
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.record.record import Damage, End, find_next
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import RmqctlError
from rmqctl.spark.remote import remote
from rmqctl.spark.session.staging import is_remote
from rmqctl.spark.source.pushdown import Bounds

if TYPE_CHECKING:
    from rmqctl.spark.source.split import ReadSettings, Split

# How far before a split the search for its begin starts. No record that a broker takes by default
# is as long, so a record that extends over the split's start begins behind this place.
_LOOK_BACK = (4 << 20) + (1 << 16)
#: Python, pyarrow and Spark have work with each column of each batch, whatever it holds. So batches
#: are larger than those that stay in the processor's cache: a worker needs a sixth less time.
_TUNING = ScanTuning(batch_records=1 << 16, batch_bytes=1 << 24)
_BOUNDED = ("physical_offset", "queue_id", "queue_offset", "store_timestamp")


def log_batches(
    split: Split, settings: ReadSettings, bounds: Bounds, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The records and the damage that begin in a split. An error of the system is a row, too."""
    source = settings.source(split.store)
    log = None
    try:
        log = open_log(split.store, settings.config)
        number = log.first_file(split.start)
        if number < 0:
            text = f"no commit log file holds offset {split.start} on this machine"
            yield problem_batch(schema, source, text, physical_offset=split.start)
            return
        if not log.files.entries[number].size:
            entry = log.step(number, 0).entry
            if isinstance(entry, Damage):
                yield damage_batch(entry, schema, source)
            return
        yield from _Reading(log, split, settings, bounds, schema).batches()
    except (RmqctlError, OSError) as error:
        yield problem_batch(schema, source, str(error), physical_offset=split.start)
    finally:
        if log is not None:
            log.close()


def open_log(store: str, config: MessageStoreConfig) -> CommitLog:
    """The log of a store for reading, local or remote. The size of its files is taken from them."""
    if is_remote(store):
        return remote.RemoteStore(store).log()
    return open_commit_log(Path(store), config, 1)


def meet(log: CommitLog, offset: int, config: MessageStoreConfig) -> int:
    """The physical offset at which a split that was planned to begin at ``offset`` really begins:
    that of the first entry at or after it, in the same file.

    Both neighbours call this, and get the same result. It is found by a walk that starts far enough
    back, so a body that contains records, even with the right physical offsets, does not mislead
    it.
    """
    number = log.files.index_of(offset)
    if number < 0:
        return offset
    start, size = log.files.entries[number].file_from_offset, log.files.entries[number].size
    back = offset - start - _look_back(config)
    place = start if back <= 0 else start + find_next(log.files.file(number), back)
    if place >= offset:
        return place
    for entry in Scanner(log, properties=False).scan(place, offset):
        if isinstance(entry, Batch):
            place = entry.end_offset
        elif isinstance(entry, End):
            # This is the end of the log, unless it is only the end of the search. That one may be
            # in the header of a DLedger entry, at which its record begins.
            if entry.physical_offset < offset:
                place = start + size
        else:
            place = entry.physical_offset + _length(entry)
    return min(place, start + size)


def _look_back(config: MessageStoreConfig) -> int:
    return max(_LOOK_BACK, config.max_message_size + (1 << 16))


def is_empty(log: CommitLog, split: Split, config: MessageStoreConfig) -> bool:
    """Whether it is certain that nothing begins in a split, because the split, and the bytes before
    it that :func:`meet` would read, are zeros. Then the next entry begins behind the split. This
    saves two searches for that entry, each of which would read the rest of the file."""
    number = log.files.index_of(split.start)
    start, size = log.files.entries[number].file_from_offset, log.files.entries[number].size
    back = split.start - start - _look_back(config)
    if not split.meets_start or back <= 0:
        return False
    high = min(split.end - start + RECORD_HEAD, size)
    return next(log.files.file(number).extents(back, high), None) is None


def _length(entry: Any) -> int:
    length: int = entry.length if isinstance(entry, Damage) else entry.total_size
    return length


class _Reading:
    """The reading of one split."""

    def __init__(
        self,
        log: CommitLog,
        split: Split,
        settings: ReadSettings,
        bounds: Bounds,
        schema: pa.Schema,
    ) -> None:
        self._log, self._bounds, self._schema = log, bounds, schema
        self._source = settings.source(split.store)
        # When bodies are read anyway, checking them costs little more.
        is_wanted = settings.check_crc
        self._checks = "body" in schema.names if is_wanted is None else is_wanted
        self._scanner = Scanner(
            log,
            check=self._checks and "status" in schema.names,
            # Properties are parsed here, only for the columns that need them.
            properties=False,
            tuning=_TUNING,
        )
        config = settings.config
        if is_empty(log, split, config):
            self._start = self._end = split.end
            return
        self._start = meet(log, split.start, config) if split.meets_start else split.start
        self._end = meet(log, split.end, config) if split.meets_end else split.end

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._start >= self._end:
            return
        place = self._start
        for entry in self._scanner.scan(self._start, self._end):
            if isinstance(entry, Batch):
                place = entry.end_offset
                chosen = select(entry, self._bounds)
                if chosen is not None:
                    yield message_batch(chosen, self._schema, self._source, checked=self._checks)
            elif isinstance(entry, Damage):
                # The next split begins at its own start, even if this damage would end behind that.
                length = min(entry.length, self._end - entry.physical_offset)
                yield damage_batch(entry._replace(length=length), self._schema, self._source)
        if place > self._end:
            text = f"records-overlap: expected a record's start, found one from before {place}"
            yield problem_batch(self._schema, self._source, text, physical_offset=self._end)


def select(batch: Batch, bounds: Bounds) -> Batch | None:
    """The records of a batch that can match; None when none can."""
    keep = np.ones(len(batch), bool)
    if "topic" in bounds.only or bounds.topics_like is not None:
        admitted = [bounds.admits("topic", name) for name in batch.topics.names]
        keep &= np.array(admitted, bool)[batch.topic_id]
    for name in _BOUNDED:
        values = getattr(batch, name)
        if name in bounds.low:
            keep &= values >= bounds.low[name]
        if name in bounds.high:
            keep &= values <= bounds.high[name]
        if name in bounds.only:
            numbers = [v for v in bounds.only[name] if isinstance(v, int)]
            keep &= np.isin(values, np.array(numbers, np.int64))
    if bounds.first_offsets or bounds.last_offsets:
        keep &= _in_their_ranges(batch, bounds)
    if keep.all():
        return batch
    if not keep.any():
        return None
    return batch.where(keep)


def _in_their_ranges(batch: Batch, bounds: Bounds) -> NDArray[np.bool_]:
    """Which records (bool, by row) are within the first and last offsets given for their queues."""
    numbers = {name: number for number, name in enumerate(batch.topics.names)}
    ranges = sorted(
        (numbers[topic] << 32 | queue_id, low, high)
        for topic, queue_id, low, high in bounds.queue_ranges()
        if topic in numbers
    )
    if not ranges:
        return np.ones(len(batch), bool)
    queues, low, high = np.array(ranges, np.int64).T
    queue = batch.topic_id << 32 | batch.queue_id & 0xFFFFFFFF
    at = np.minimum(np.searchsorted(queues, queue), len(queues) - 1)
    is_in = (low[at] <= batch.queue_offset) & (batch.queue_offset <= high[at])
    return np.asarray(is_in | (queues[at] != queue))
