"""The readable parts of a log: runs of whole records, and the gaps between them.

Only what a broker reads too counts as readable. Besides damage, two kinds of records are left out:
a record whose body does not agree with its CRC, at which a recovery ends (``checkCRCOnRecover``),
and a delayed message whose level is no number, at which any reading ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from formats.constants import END_FILE_MIN_BLANK_LENGTH
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.record.record import Blank, Damage, End, Record
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig


class Run(NamedTuple):
    """A run of records and blanks without a gap, by its physical offsets."""

    start: int
    end: int


class Gap(NamedTuple):
    """A stretch of log that cannot be read, between two records or at either end of the log.

    ``before`` is the physical offset of the last record in front of it, None where there is none.
    ``store_timestamp`` is that of this record, or else of the first record behind the gap.
    ``reason`` is a finding code: the first one where several kinds of damage follow each other.
    """

    start: int
    end: int
    reason: str
    before: int | None
    store_timestamp: int
    #: Where the last blank in it starts, that may be its file's own.
    blank_at: int | None = None

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(slots=True)
class Reading:
    """A log as it was read. ``gaps`` and ``runs`` alternate up to ``end``, where the log ends."""

    start: int
    end: int
    records: int = 0
    runs: list[Run] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


def read_log(
    log: CommitLog,
    start: int | None = None,
    end: int | None = None,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
    listener: Callable[[Batch], None] | None = None,
) -> Reading:
    """Reads a log, or the part of it from the start of a record on. Memory grows with the number of
    gaps alone.

    :param listener: gets every batch, including the records that are left out of the runs.
    """
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import Scanner
    from rmqctl.engine.scan.tuning import ScanTuning

    scanner = Scanner(log, check=True, tuning=ScanTuning(threads=jobs))
    reader = _Reader(log.file_size, log.min_offset if start is None else start)
    for entry in scanner.scan(start, end):
        if isinstance(entry, Batch):
            reader.batch(entry)
            if listener is not None:
                listener(entry)
            if progress is not None:
                progress(entry.end_offset - log.min_offset)
        elif isinstance(entry, Damage):
            at = entry.physical_offset
            reader.lose(at, at + entry.length, entry.reason)
        elif isinstance(entry, End):
            reader.reading.end = max(entry.physical_offset, reader.at)
        else:
            reader.blank(entry.physical_offset, entry.physical_offset + entry.total_size)
    return reader.reading


def goes_on(root: Path, config: MessageStoreConfig, file_size: int, end: int) -> bool:
    """Whether an entry stands by now where the end of a log was read: somebody appends to it."""
    log = open_commit_log(root, config, file_size)
    try:
        return isinstance(next(log.walk(end), None), Record | Blank)
    finally:
        log.close()


def give_up(reading: Reading, start: int, end: int, reason: str, before: int | None) -> None:
    """Makes a record that lies in a run a gap of its own."""
    at = bisect_right(reading.runs, start, key=lambda run: run.start) - 1
    if at < 0 or not reading.runs[at].start <= start < end <= reading.runs[at].end:
        return
    run = reading.runs[at]
    parts = [Run(run.start, start), Run(end, run.end)]
    reading.runs[at : at + 1] = [part for part in parts if part.start < part.end]
    number = bisect_right(reading.gaps, start, key=lambda gap: gap.start)
    reading.gaps.insert(number, Gap(start, end, reason, before, 0))
    reading.records -= 1


class _Reader:
    """Joins what a scan yields into runs and gaps; the next entry is expected at ``at``."""

    def __init__(self, file_size: int, start: int) -> None:
        self.reading = Reading(start, start)
        self.at = start
        self._file_size = file_size
        self._before: int | None = None
        self._store_timestamp = 0

    def batch(self, batch: Batch) -> None:

        bad = self._bad_rows(batch)
        row = 0
        for at in [*sorted(bad), len(batch)]:
            if at > row:
                self._records(batch, row, at)
            if at < len(batch):
                low = int(batch.physical_offset[at])
                self.lose(low, low + int(batch.total_size[at]), bad[at])
            row = at + 1

    def _bad_rows(self, batch: Batch) -> dict[int, str]:
        """The rows of records that no broker reads, of those that it would dispatch out of
        ``consumequeue/``, and of records that leave no room for the blank behind them: no broker
        writes those. Each with the reason, the worst one of several."""
        import numpy as np

        from rmqctl.engine.dispatch.batches import bad_delay_rows

        def of(rows: NDArray[np.bool_], reason: str) -> dict[int, str]:
            return dict.fromkeys(np.flatnonzero(rows).tolist(), reason)

        ends = batch.physical_offset % self._file_size + batch.total_size
        bad = of(ends + END_FILE_MIN_BLANK_LENGTH > self._file_size, "total-size-out-of-range")
        bad |= dict.fromkeys(bad_delay_rows(batch), "delay-not-a-number")
        bad |= of(~batch.topics.allowed_array()[batch.topic_id], "topic-not-allowed")
        bad |= of(~batch.crc_matches, "body-crc-mismatch")
        return bad

    def _records(self, batch: Batch, first: int, end: int) -> None:
        offsets, sizes = batch.physical_offset, batch.total_size
        if self._before is None and self.reading.gaps:
            # Nothing before it says when: what comes behind does.
            at = int(batch.store_timestamp[first])
            gaps = self.reading.gaps
            gaps[:] = [gap._replace(store_timestamp=at) for gap in gaps]
        self.keep(int(offsets[first]), int(offsets[end - 1] + sizes[end - 1]))
        self._before = int(offsets[end - 1])
        self._store_timestamp = int(batch.store_timestamp[end - 1])
        self.reading.records += end - first

    def keep(self, start: int, end: int) -> None:
        runs = self.reading.runs
        if runs and runs[-1].end == start:
            runs[-1] = Run(runs[-1].start, end)
        else:
            runs.append(Run(start, end))
        self.at = end

    def blank(self, start: int, end: int) -> None:
        """Behind a gap a blank may be another file's, with records of this one below it."""
        gaps = self.reading.gaps
        if gaps and gaps[-1].end == start:
            gaps[-1] = gaps[-1]._replace(end=end, blank_at=start)
            self.at = end
        else:
            self.keep(start, end)

    def lose(self, start: int, end: int, reason: str) -> None:
        gaps = self.reading.gaps
        if gaps and gaps[-1].end == start:
            gaps[-1] = gaps[-1]._replace(end=end)
        else:
            gaps.append(Gap(start, end, reason, self._before, self._store_timestamp))
        self.at = end
