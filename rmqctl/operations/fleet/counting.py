"""Counts what a log holds. Parts of a log can be counted apart, and their counts added."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from formats.constants import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.onward import onward
from rmqctl.engine.record.record import Blank, Damage, End, Record
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import ScanEntry, Scanner


@dataclass(slots=True)
class Count:
    """The counts of a log, or of a part of it. They take the same memory for any log."""

    records: int = 0
    record_bytes: int = 0
    retries: int = 0
    dead_letters: int = 0
    damages: int = 0
    damaged_bytes: int = 0
    blank_bytes: int = 0
    #: Store times, epoch milliseconds: of the first record, and the latest one.
    first: int | None = None
    last: int | None = None
    #: Where the log ends; None where it does not end in this part.
    end_offset: int | None = None
    #: The blank or damage right before that end, if there is one.
    before_end: Blank | Damage | None = None
    _last: Blank | Damage | None = None

    def add(self, entry: ScanEntry) -> None:
        """Adds an entry of the scanner; entries come in the log's order."""
        if isinstance(entry, End):
            self.end_offset, self.before_end = entry.physical_offset, self._last
            return
        self._last = entry if isinstance(entry, Blank | Damage) else None
        if isinstance(entry, Batch):
            self._add_batch(entry)
        elif isinstance(entry, Blank):
            self.blank_bytes += entry.total_size
        else:
            self.damages += 1
            self.damaged_bytes += entry.length

    def _add_batch(self, batch: Batch) -> None:
        if not len(batch):
            return
        self.records += len(batch)
        self.record_bytes += int(batch.total_size.sum())
        for number, messages in enumerate(np.bincount(batch.topic_id).tolist()):
            if messages:
                name = batch.topics.names[number]
                self.retries += messages * name.startswith(RETRY_GROUP_TOPIC_PREFIX)
                self.dead_letters += messages * name.startswith(DLQ_GROUP_TOPIC_PREFIX)
        if self.first is None:
            self.first = int(batch.store_timestamp[0])
        last = int(batch.store_timestamp.max())
        self.last = last if self.last is None else max(last, self.last)

    def join(self, later: Count) -> None:
        """Adds the part of the log that follows."""
        for name in (
            "records",
            "record_bytes",
            "retries",
            "dead_letters",
            "damages",
            "damaged_bytes",
            "blank_bytes",
        ):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.first = later.first if self.first is None else self.first
        lasts = [last for last in (self.last, later.last) if last is not None]
        self.last = max(lasts, default=None)
        if self.end_offset is None:
            self.end_offset, self.before_end = later.end_offset, later.before_end


def counted(log: CommitLog) -> Count:
    """The counts of a whole log."""
    return gathered(onward(log, Scanner(log, properties=False).scan))


def gathered(entries: Iterable[ScanEntry]) -> Count:
    count = Count()
    for entry in entries:
        count.add(entry)
    return count


def first_timestamp(log: CommitLog) -> int | None:
    """The store time of the first record (ms); None where the log does not begin with a record."""
    if log.files.find(log.min_offset) is None:
        return None  # There is no file, or the first one is empty.
    entry = log.entry_at(log.min_offset)
    return entry.store_timestamp if isinstance(entry, Record) else None
