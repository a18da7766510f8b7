"""Runs the checks of ``verify``, in their order."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from formats.geometry import Geometry
from rmqctl.engine.dispatch.batches import marked_key_batch, unit_batch
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files import paths
from rmqctl.engine.files.shown import shown
from rmqctl.engine.files.unfinished import REPAIR, is_amid_repair
from rmqctl.engine.index.indexservice import is_index_name
from rmqctl.engine.record.record import Blank, Damage, End, Record
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.plain import Plain, PlainWanted
from rmqctl.engine.scan.scanner import ScanEntry, Scanner
from rmqctl.engine.scan.tuning import ScanTuning
from rmqctl.engine.services.multiqueues import as_written
from rmqctl.engine.settings.filesizes import unproven_log_file
from rmqctl.engine.settings.logdirectories import log_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.laterversions import not_understood, rocksdb_of_queues
from rmqctl.engine.tiered.metadata import tiered_storage
from rmqctl.errors import CannotRead
from rmqctl.operations.progress import Progress
from rmqctl.operations.verify.checkpoint import CheckpointChecker
from rmqctl.operations.verify.compaction import check_compaction
from rmqctl.operations.verify.controller import copy_checkers
from rmqctl.operations.verify.damageranges import Ranges
from rmqctl.operations.verify.directories import check_access, check_directories
from rmqctl.operations.verify.findings import Adviser, Finding, Tally, finding
from rmqctl.operations.verify.index import IndexChecker
from rmqctl.operations.verify.laterstart import check_later_start
from rmqctl.operations.verify.log import LogChecker
from rmqctl.operations.verify.queueext import check_ext_directory
from rmqctl.operations.verify.queues import QueueChecker
from rmqctl.operations.verify.resuming import Resumed, resume
from rmqctl.operations.verify.rocksdbqueues import queue_checker
from rmqctl.operations.verify.snapshot import Snapshot
from rmqctl.operations.verify.stretch import STRUCTURES, VerifyPlan
from rmqctl.operations.verify.timer import check_timer

_QUEUE_FILES = paths.CONSUME_QUEUE + "/"


@dataclass(slots=True)
class Summary(Tally):
    """How much was checked, and how many findings of each severity there are."""

    records: int = 0
    blanks: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_items: int = 0
    min_offset: int = 0
    max_offset: int = 0
    #: The physical offset from which to resume, if the time was over before the end of the log.
    next_offset: int | None = None
    #: The latest store time of the records, epoch milliseconds; None without records.
    newest_timestamp: int | None = None

    def row(self) -> dict[str, object]:
        """The summary's fields."""
        return {
            "records": self.records,
            "blanks": self.blanks,
            "queues": self.queues,
            "units": self.units,
            "index_files": self.index_files,
            "index_items": self.index_items,
            "min_offset": self.min_offset,
            "max_offset": self.max_offset,
            **({} if self.next_offset is None else {"next_offset": self.next_offset}),
            **self.counts(),
        }

    def look_at(self, snapshot: Snapshot, only: Collection[str]) -> None:
        """Counts the queues and index files that will be checked."""
        if "queues" in only and snapshot.compares_files:
            for name in (paths.CONSUME_QUEUE, paths.BATCH_CONSUME_QUEUE):
                is_batch = name == paths.BATCH_CONSUME_QUEUE
                for where in paths.queue_directories(snapshot.path / name):
                    self.queues += (where.topic in snapshot.batch_topics) == is_batch
        if snapshot.config.message_index_enable and "index" in only:
            self.index_files = sum(
                map(is_index_name, paths.scan_names(snapshot.path / paths.INDEX))
            )


def verify(
    root: Path,
    config: MessageStoreConfig,
    progress: Progress | None = None,
    *,
    jobs: int = 1,
    only: Collection[str] = (),
    resume_from: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[Finding | Summary]:
    """Yields the findings of the whole store, then one :class:`Summary`.

    ``jobs`` threads read the log. Their number changes neither the findings nor their order.
    ``progress`` is called with the bytes of log that were checked so far. It may raise to end the
    check.

    With ``only`` (names in :data:`STRUCTURES`) other structures are not checked, and have no
    findings. The log is read in any case; bodies are read only if ``only`` has ``commitlog``.

    A log can be checked in stretches. ``is_over`` is called often. Once it returns True, the
    stretch ends between two records, and ``next_offset`` of the summary is the ``resume_from`` of
    the next stretch. Together the stretches find what one check of all finds. Neighbouring units or
    items of one damage are two findings where a stretch ends, and each counts what is missing in
    its own part. A queue's file that the disk does not read is told by each that goes without it.
    What needs no read of the log (names and lengths of files, an unclean shutdown) is told by the
    first stretch, and what needs its end (units and items that point behind it, the checkpoint) by
    the last one.

    :raises StoreNotFound, NotAStore: there is no store at ``root``.
    :raises FileLengthContradiction: a ``broker.conf`` contradicts the lengths of the files.
    :raises GoesOnNowhere: no record or blank starts at ``resume_from``.
    :raises CannotRead, PermissionError: the system refuses what the check needs. First come
        findings of all directories that it refuses.
    """
    paths.check_store(root)
    summary = Summary()
    plan = VerifyPlan(jobs, frozenset(only) or frozenset(STRUCTURES), resume_from, is_over)
    advised = Adviser(root, config)
    for found in _with_refused(
        root, config, _run(root, config, summary, progress or (lambda done: None), plan)
    ):
        summary.severities[found.severity] += 1
        yield advised(found)
    yield summary


def _with_refused(
    root: Path, config: MessageStoreConfig, findings: Iterator[Finding]
) -> Iterator[Finding]:
    """``findings``. If the system refuses what the check needs, the findings of all directories
    that it refuses come before the error."""
    try:
        yield from findings
    except (CannotRead, PermissionError):
        of_log: tuple[Path, ...] = (root / paths.COMMIT_LOG,)
        with suppress(CannotRead):
            of_log = log_directories(root, config).all
        yield from check_access(root, of_log)
        raise


def check_before(snapshot: Snapshot) -> Iterator[Finding]:
    """The findings that need no read of the log: of directories, and of what a start sees first."""
    root, config = snapshot.path, snapshot.config
    database = rocksdb_of_queues(root)
    for found in check_directories(
        root,
        snapshot.log_file_size,
        snapshot.queue_file_size,
        config.index_geometry.file_size,
        log_directories(root, config).all,
        snapshot.batch_queue_file_size,
    ):
        # RocksDB names its own files: their names and lengths are not checked.
        if database != paths.CONSUME_QUEUE or not _is_of_database(snapshot, found):
            yield found
    yield from check_later_start(root)
    if snapshot.unreadable is None:
        yield from check_timer(root, config)
    yield from check_compaction(root, config)
    if (unproven := unproven_log_file(root, config)) is not None:
        path, size = unproven
        yield finding("file-length-unproven", path=shown(root, path), found=f"{size} bytes")
    if snapshot.is_index_unusual:
        yield finding(
            "index-sizes-unusual",
            path=paths.INDEX,
            expected=_named(Geometry()),
            found=_named(config.index_geometry),
        )
    yield from check_ext_directory(root, config)
    for name, what in not_understood(root):
        if name != snapshot.rocksdb and not (snapshot.not_compared and name == database):
            yield finding("not-understood", path=name, found=what)
    if snapshot.unreadable is not None:
        yield finding("rocksdb-unreadable", path=database, found=snapshot.unreadable)
    elif snapshot.not_compared is not None:
        yield finding("rocksdb-not-compared", path=database, found=snapshot.not_compared)
    if (uploaded := tiered_storage(root)) is not None:
        yield finding("tiered-storage", path=uploaded)
    if config.overruled:
        yield finding(
            "multi-dispatch-contradicted",
            path=paths.CONSUME_QUEUE,
            found=f"written with the opposite of its {' and '.join(config.overruled_names)}",
        )
    if is_amid_repair(root):
        yield finding("repair-unfinished", path=REPAIR)
    if snapshot.unclean:
        yield finding("unclean-shutdown", path=paths.ABORT)
    if not snapshot.has_log:
        if snapshot.dispatched_to >= 0:
            yield finding(
                "commitlog-missing",
                path=paths.COMMIT_LOG,
                physical_offset=0,
                expected=f"a log up to {snapshot.dispatched_to}, as the units of the queues say",
                found="no file",
            )
    elif snapshot.log_min:
        yield finding("log-starts-late", physical_offset=snapshot.log_min)


def _is_of_database(snapshot: Snapshot, found: Finding) -> bool:
    """Whether a finding of names and lengths is of a file of RocksDB, in a ``consumequeue/`` that
    is its database. If the queues in it count, everything there is RocksDB's. Else the directories
    there are those of topics."""
    path = found.path or ""
    if not path.startswith(_QUEUE_FILES):
        return False
    is_read = snapshot.rocksdb is not None or snapshot.not_compared is not None
    return is_read or not (snapshot.path / "/".join(path.split("/")[:2])).is_dir()


def _named(geometry: Geometry) -> str:
    """A geometry in the words of ``broker.conf``."""
    return f"maxHashSlotNum={geometry.hash_slot_num}, maxIndexNum={geometry.index_num}"


def _run(
    root: Path, config: MessageStoreConfig, summary: Summary, progress: Progress, plan: VerifyPlan
) -> Iterator[Finding]:
    snapshot = Snapshot.of(root, config := as_written(root, config), reads_rocksdb=True)
    summary.look_at(snapshot, plan.only)
    checkpoint = CheckpointChecker(root)
    # Before the first finding, so that a wrong ``resume_from`` gives an error and nothing else.
    begin = plan.begin(snapshot)
    if begin is None:
        yield from filter(plan.tells, check_before(snapshot))
    log, dispatcher, damaged = snapshot.open_log(), snapshot.dispatcher(), Ranges()
    snapshot = snapshot.begun(log)
    tuning = ScanTuning(threads=plan.jobs)
    checks = "commitlog" in plan.only
    scanner = Scanner(log, check=checks, indexes_tags=dispatcher.indexes_tags, tuning=tuning)
    records = LogChecker(snapshot, log, damaged)
    records.listeners = copy_checkers(snapshot, log)
    queues = queue_checker(snapshot, log, scanner.topics, damaged)
    index = IndexChecker(snapshot, damaged)
    summary.min_offset = log.min_offset
    checks_index = config.message_index_enable and "index" in plan.only
    checkers = _Checkers(records, queues, index if checks_index else None, checkpoint)

    done = 0
    # With many queues there are long times in which no byte of the log is read.
    queues.step = lambda: progress(done)

    def log_begins() -> None:
        records.log = scanner.log = snapshot.open_log()
        queues.log_begins(scanner.log, scanner.log.min_offset)
        index.log_begins(scanner.log.min_offset)

    try:
        wanted = PlainWanted("queues" in plan.only, checks_index)
        if begin is not None:
            stretch = Resumed(records, queues, checkers.keys, damaged)
            resume(begin, snapshot, scanner, wanted, stretch, looks_at_queues=plan.needs_queues)
        # Checkers that look at each record need batches.
        plain = None if records.listeners or queues.wants_records else wanted
        for entry in _entries(records, scanner, log_begins, begin, plain):
            if isinstance(entry, Finding):
                yield entry
                continue
            yield from _of_entry(plan, entry, checkers, dispatcher)
            done = _end_of(entry) - summary.min_offset
            progress(done)
            if isinstance(entry, End):
                summary.max_offset = records.start_end(entry).physical_offset
            elif isinstance(entry, Batch | Plain) and plan.is_over() and _goes_on(scanner, entry):
                summary.max_offset = summary.next_offset = _end_of(entry)
                break
        yield from _finished(plan, summary, checkers)
    finally:
        summary.records, summary.blanks = records.records, records.blanks
        summary.units, summary.index_items = queues.units, index.items
        if snapshot.rocksdb is not None:
            summary.queues = queues.checked
        index.close()
        queues.close()
        scanner.log.close()


def _of_queues(
    queues: QueueChecker, entry: Batch | Plain, dispatcher: Dispatcher
) -> Iterator[Finding]:
    """Checks the units that the records of an entry ask for."""
    if isinstance(entry, Plain):
        yield from queues.add(entry)
        return
    units = unit_batch(entry, dispatcher)
    yield from queues.add(units)
    yield from queues.look_at(entry, units)


class _Checkers(NamedTuple):
    """The checkers of one run. ``keys`` is None if the index is not checked."""

    records: LogChecker
    queues: QueueChecker
    keys: IndexChecker | None
    checkpoint: CheckpointChecker


def _of_entry(
    plan: VerifyPlan, entry: ScanEntry | Plain, checkers: _Checkers, dispatcher: Dispatcher
) -> Iterator[Finding]:
    """The findings of the next entry of the log."""
    records, queues, index, _ = checkers
    for found in records.add(entry):
        if "commitlog" in plan.only:
            yield found
    if not isinstance(entry, Batch | Plain):
        return
    if "queues" in plan.only:
        yield from _of_queues(queues, entry, dispatcher)
    if index is not None:
        yield from index.add(marked_key_batch(entry))


def _finished(plan: VerifyPlan, summary: Summary, checkers: _Checkers) -> Iterator[Finding]:
    """The findings after the last record, at the end of the log or of a stretch of it."""
    records, queues, index, checkpoint = checkers
    paused, end = summary.next_offset is not None, summary.max_offset
    has_records = records.records or records.newest_timestamp
    summary.newest_timestamp = records.newest_timestamp if has_records else None
    if paused and "commitlog" in plan.only:
        yield from records.pause()
    if "queues" in plan.only:
        yield from queues.pause(end) if paused else queues.finish(end)
    if index is not None:
        yield from index.pause() if paused else index.finish(end)
    if "checkpoint" in plan.only and not paused:
        yield from checkpoint.finish(summary.newest_timestamp)


def _entries(
    records: LogChecker,
    scanner: Scanner,
    log_begins: Callable[[], None],
    start: int | None,
    wanted: PlainWanted | None,
) -> Iterator[ScanEntry | Plain | Finding]:
    """The entries of the log from ``start`` on (None: its first record), in order. With ``wanted``,
    plain records come as :class:`Plain`. If a broker's retention removes files that are yet to be
    read, ``log_begins`` is called to open the log anew, and the entries go on with its first file.
    """
    done = scanner.log.min_offset if start is None else start
    while True:
        try:
            entries: Generator[ScanEntry | Plain] = (
                scanner.scan(start) if wanted is None else scanner.scan_plain(wanted, start)
            )
            with closing(entries):
                for entry in entries:
                    yield entry
                    done = _end_of(entry)
            return
        except CannotRead as error:
            removed = Path(str(error.path))
            if os.path.lexists(removed):
                raise
            scanner.log.close()
            log_begins()
            start = scanner.log.min_offset
            if start <= done:
                raise
            path = shown(records.snapshot.path, removed)
            yield finding("file-removed-meanwhile", path=path)


def _goes_on(scanner: Scanner, batch: Batch | Plain) -> bool:
    """Whether a record or a blank follows. A stretch must not end before damage, because units that
    point into the damage are reported together with what follows it."""
    log, offset = scanner.log, batch.end_offset
    return log.files.index_of(offset) >= 0 and isinstance(log.entry_at(offset), Record | Blank)


def _end_of(entry: ScanEntry | Plain) -> int:
    if isinstance(entry, Batch | Plain):
        return entry.end_offset
    return entry.physical_offset + (entry.length if isinstance(entry, Damage) else 0)
