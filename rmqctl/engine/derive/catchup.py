"""``CatchUp``: dispatches the log into queues and index, after each append and after a crash.

What a kill or a full disk has left undone is dispatched from the log again. After an unclean stop
:mod:`rmqctl.engine.start.plan` says from which offset on.
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

#: Bytes that one bulk of appends may leave undispatched, not counting its last record.
BULK_BYTES = 4 << 20
#: So few records, or bytes, are dispatched one by one: importing the scanner would take longer.
_FEW_RECORDS = 64
_FEW_BYTES = 64 << 10
#: Bytes of the scanner's windows.
_WINDOW_BYTES = 16 << 20


class CatchUp:
    """The undispatched tail of a log that is open for writing.

    ``done`` is the physical offset up to which the log is dispatched (``reputFromOffset``).
    ``failed`` is set while a dispatch runs and stays set when it ends with an error: the state of
    queues and index in memory may then differ from what was stored.
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
        #: Whether :meth:`recover` is still to be called. Until then nothing is dispatched, and the
        #: store is not consistent.
        self.is_due = False
        #: Whether this is a forked child, whose parent has the store.
        self.is_let_go = False

    def recover(
        self, start: int, *, unclean: bool, progress: Progress = lambda done, total: None
    ) -> None:
        """Dispatches the log from ``start`` on.

        :param start: physical offset of a record, or the log's end.
        :param unclean: the last stop was not clean: torn units are completed.
        :param progress: called with the bytes dispatched so far, and those to dispatch.
        :raises OSError, CannotWrite: the disk is full; :meth:`complete` goes on.
        """
        self.done, self.is_due = start, False
        self.failed = unclean and start < self._log.read_offset
        self._progress = progress
        try:
            self.complete()
        finally:
            self._progress = lambda done, total: None

    def appended(self, start: int, count: int) -> None:
        """Dispatches the ``count`` records that were appended from ``start`` on, and what an
        earlier error has left undone.

        :raises OSError, CannotWrite: the disk is full; :meth:`complete` tries again.
        """
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
        """:meth:`appended` for one record, when everything before it is dispatched."""
        self.failed = True
        self._derived.dispatch_plain(record)
        self.done, self.failed = record.physical_offset + record.size, False

    def appended_runs(self, start: int, runs: Iterable[PlainRun]) -> None:
        """:meth:`appended`, when units and keys of some runs are known. Only the records between
        the runs are read from the log."""
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
        """Dispatches everything that is not dispatched yet, also after a full disk or an interrupt.

        :raises OSError, CannotWrite: the disk is full; call it again.
        """
        was_failed, self.failed = self.failed, True
        if was_failed:
            # A queue that lacks units of records in a buffer would give their offsets out again.
            self._log.commit_all()
        end = self._log.read_offset
        if was_failed:
            self._derived.flush()
            self._queues.close()
            self._index.close()
            # The last message may have only some of its items.
            self._index.recover(self._store_timestamp_at)
        self._dispatch(self.done, end, restoring=was_failed)
        self.done, self.failed = end, False

    def doubt(self) -> bool:
        """Called when an append was cut off by an error or an interrupt. Clears torn bytes behind
        the log's end. True: the log may have a record that is not dispatched; :meth:`complete`
        dispatches it."""
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

        # With large windows a bulk is one batch: each queue, and the index, is written to once.
        tuning = ScanTuning(window_bytes=(_WINDOW_BYTES, _WINDOW_BYTES), first_records=1 << 14)
        # One scanner for all bulks: it keeps its table of topics.
        if self._scanner is None:
            indexes_tags = self._derived.dispatcher.indexes_tags
            self._scanner = Scanner(self._log, indexes_tags=indexes_tags, tuning=tuning)
        for entry in self._scanner.scan(start, end):
            if isinstance(entry, Batch):
                self._derived.dispatch_batch(entry, restoring=restoring)
                self._progress(entry.end_offset - start, end - start)
