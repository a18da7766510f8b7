"""Keeps queues and index up with the log: after each append, and after a stop that was not clean.

What a kill or a full disk left undone is done from the log again. Where that begins after
a stop that was not clean is said by :mod:`rmqctl.engine.start.plan`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmqctl.engine.derive.writer import DerivedWriter, PlainRecord, PlainRun
from rmqctl.engine.index.indexwriter import IndexServiceWriter
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.log.progress import Progress
from rmqctl.engine.queue.queuetablewriter import ConsumeQueueTableWriter
from rmqctl.engine.record.record import Record

if TYPE_CHECKING:
    from rmqctl.engine.scan.scanner import Scanner

#: What one bulk of appends leaves undispatched at most, but for its last record.
BULK_BYTES = 4 << 20
#: So few are not worth the import of the scanner.
_FEW_RECORDS = 64
_FEW_BYTES = 64 << 10
#: Of log that is looked at at once.
_WINDOW_BYTES = 16 << 20


class CatchUp:
    """The undispatched tail of a log that is open for writing.

    ``done`` is the offset up to which the log is dispatched (``reputFromOffset``). ``failed`` says
    that a dispatch was begun and did not end: what queues and index know of themselves may then not
    be what was stored.
    """

    def __init__(
        self,
        log: CommitLogWriter,
        queues: ConsumeQueueTableWriter,
        index: IndexServiceWriter,
        derived: DerivedWriter,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._derived = derived
        self._scanner: Scanner | None = None
        self._progress: Progress = lambda done, total: None
        self.done = log.write_offset
        self.failed = False
        #: Whether :meth:`recover` is still to come: until then nothing is dispatched, and the store
        #: is not in order.
        self.is_due = False
        #: Whether the store is another's now: a fork's parent has it.
        self.is_let_go = False

    def recover(
        self, start: int, *, unclean: bool, progress: Progress = lambda done, total: None
    ) -> None:
        """Dispatches from ``start`` on, which is a record's or the log's end. After a stop that was
        not clean units are completed of which only a part was stored.

        :raises OSError, CannotWrite: the disk is full; :meth:`complete` goes on with it.
        """
        self.done, self.is_due = start, False
        self.failed = unclean and start < self._log.read_offset
        self._progress = progress
        try:
            self.complete()
        finally:
            self._progress = lambda done, total: None

    def appended(self, start: int, count: int) -> None:
        """Dispatches the ``count`` records appended from ``start`` on, and what an error before
        them has left. :raises OSError, CannotWrite: the disk is full; :meth:`complete` does it
        again."""
        self.failed = True
        end = self._log.read_offset
        if count == 1 and start == self.done:
            self._derived.dispatch(self._log.record_at(start))
        elif count <= _FEW_RECORDS:
            self._dispatch_few(min(start, self.done), end)
        else:
            self._dispatch_range(min(start, self.done), end)
        self.done, self.failed = end, False

    def appended_plain(self, record: PlainRecord) -> None:
        """:meth:`appended` for the one record that was, when all before it is dispatched."""
        self.failed = True
        self._derived.dispatch_plain(record)
        self.done, self.failed = record.physical_offset + record.size, False

    def appended_runs(self, start: int, runs: Iterable[PlainRun]) -> None:
        """:meth:`appended` for what was appended from ``start`` on, when something is known of
        most of it: the log is asked for what lies between."""
        self.failed = True
        at = min(start, self.done)
        for run in runs:
            self._dispatch(at, run.start, restoring=False)
            if not self._derived.dispatch_run(run):
                self._dispatch(run.start, run.end, restoring=False)
            at = run.end
        end = self._log.read_offset
        self._dispatch(at, end, restoring=False)
        self.done, self.failed = end, False

    def complete(self) -> None:
        """Dispatches what was not yet, also what a full disk, or an interrupt, has kept from it.

        :raises OSError, CannotWrite: it cannot be done; doing it again completes it.
        """
        was_failed, self.failed = self.failed, True
        if was_failed:
            # Queues that lack what a buffer still has would give its offsets away again.
            self._log.commit_all()
        end = self._log.read_offset
        if was_failed:
            self._derived.flush()
            self._queues.close()
            self._index.close()
            # It may be half done: what is there of it is completed.
            self._index.recover(self._store_timestamp_at)
        self._dispatch(self.done, end, restoring=was_failed)
        self.done, self.failed = end, False

    def doubt(self) -> bool:
        """Told when an append did not end, by an error or an interrupt: whether the log may have a
        message that nobody has counted. :meth:`complete` does then what is left to do."""
        if self.is_let_go:
            return False
        self._log.clear_behind()
        if self.done != self._log.write_offset and not self.is_due:
            self.failed = True
        return self.failed

    def _store_timestamp_at(self, physical_offset: int) -> int | None:
        record = self._log.find_record(physical_offset)
        return None if record is None else record.store_timestamp

    def _dispatch(self, start: int, end: int, *, restoring: bool) -> None:
        if 0 < end - start <= _FEW_BYTES:
            self._dispatch_few(start, end, restoring=restoring)
        elif end > start:
            self._dispatch_range(start, end, restoring=restoring)

    def _dispatch_few(self, start: int, end: int, *, restoring: bool = False) -> None:
        for entry in self._log.walk(start, end):
            if isinstance(entry, Record):
                self._derived.dispatch(entry, restoring=restoring)

    def _dispatch_range(self, start: int, end: int, *, restoring: bool = False) -> None:
        from rmqctl.engine.scan.batch import Batch
        from rmqctl.engine.scan.scanner import Scanner
        from rmqctl.engine.scan.tuning import ScanTuning

        # A bulk as one batch, that is: each queue and the index are written to once.
        tuning = ScanTuning(window_bytes=(_WINDOW_BYTES, _WINDOW_BYTES), first_records=1 << 14)
        # One for all bulks: it knows the topics that it has seen.
        if self._scanner is None:
            self._scanner = Scanner(self._log, tuning=tuning)
        for entry in self._scanner.scan(start, end):
            if isinstance(entry, Batch):
                self._derived.dispatch_batch(entry, restoring=restoring)
                self._progress(entry.end_offset - start, end - start)
