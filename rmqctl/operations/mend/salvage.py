"""salvage: a new store with every message that can be read, where it was.

Records keep their physical and queue offsets, whatever the number of places that cannot be read.
Fillers take those places, so that a broker reads on to the records behind them
(:mod:`rmqctl.engine.record.filler`). Queues and index are then written as by ``rebuild``, and the
checkpoint as by a clean stop. The damaged store and its second copy are only read.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from formats.constants import LONG_MAX
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files import durable, paths
from rmqctl.engine.files.newdirectory import free_place, new_directory
from rmqctl.engine.index.geometry import known_geometry
from rmqctl.engine.log.commitlog import RECORD_HEAD
from rmqctl.engine.log.misnamed import misnamed_files
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.queuetable import ConsumeQueueTableReader
from rmqctl.engine.record.filler import LEAST_FILLER, MOST_FILLER
from rmqctl.engine.record.record import Record
from rmqctl.engine.services.multiqueues import as_written
from rmqctl.engine.settings.filesizes import (
    batch_queue_file_size,
    commit_log_file_size,
    consume_queue_ext_file_size,
    consume_queue_file_size,
)
from rmqctl.engine.settings.logdirectories import dledger_logs, in_own_directory, log_directories
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.laterversions import batch_topics, check_understood
from rmqctl.errors import UsageError
from rmqctl.operations.mend.rebuild import RebuildSummary, plan_rebuild, rebuild_in_place
from rmqctl.operations.mend.salvagedoubts import Doubts, put_right
from rmqctl.operations.mend.salvagefiles import (
    JOURNAL,
    begin,
    copy_config,
    copy_of_controller,
    identity,
    name_batch_topics,
    read_progress,
    write_files,
)
from rmqctl.operations.mend.salvagelog import Gap, Reading, goes_on, read_log
from rmqctl.operations.mend.salvageother import OtherLog
from rmqctl.operations.mend.salvagepieces import Filling, Piece
from rmqctl.operations.mend.salvageunits import LostUnit, by_place, units_in_gaps
from rmqctl.operations.mend.timer import carry_timer
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    from rmqctl.engine.log.commitlog import CommitLog

#: The longest gap (bytes) whose units are held in memory. A longer gap is a lost file, in which no
#: record is left that could be put right.
_LONGEST_LOOKED_INTO = 64 << 20

#: How many bytes behind the end of the log are searched for a damaged last record and more.
_NEAR_END = 1 << 20

#: How many units a queue lacks where one of its records wrongly says to be of another queue.
_SPARE_GAP = 1


@dataclass(frozen=True, slots=True)
class Salvage:
    """What a salvage is asked to do. ``other`` is a second copy of the store."""

    root: Path
    config: MessageStoreConfig
    output: Path
    other: Path | None = None
    placeholders: bool = False
    jobs: int = 1


class FilledGap(NamedTuple):
    """A gap, how many of its bytes are restored, and how many of its records come from the other
    log."""

    gap: Gap
    restored_bytes: int
    from_other: int


@dataclass(slots=True)
class SalvagePlan:
    """What a salvage will write. ``pieces`` are the whole new log, in order; ``misnamed`` are whole
    files of the old one under names that are not theirs, by their first offsets: what is in them
    counts as lost. ``progress_files`` are as of :func:`read_progress`, read before the log."""

    wanted: Salvage
    config: MessageStoreConfig
    log: CommitLog
    other: OtherLog | None
    reading: Reading
    pieces: list[Piece] = field(default_factory=list)
    gaps: list[FilledGap] = field(default_factory=list)
    misnamed: dict[int, Path] = field(default_factory=dict)
    progress_files: dict[str, bytes | None] = field(default_factory=dict)

    def filled(self, physical_offset: int) -> Piece | None:
        """The piece that takes the place of a lost record."""
        at = bisect_right(self.pieces, physical_offset, key=lambda piece: piece.start) - 1
        piece = self.pieces[at] if at >= 0 else None
        return piece if piece is not None and physical_offset < piece.end else None

    def lost_units(self) -> Iterator[LostUnit]:
        """The units whose records cannot be read: of all queues, queue by queue."""
        return self.units_in(self.reading.gaps)

    def units_in(self, gaps: list[Gap]) -> Iterator[LostUnit]:
        """The units whose records lie in these gaps, or in the lost end of the log."""
        wanted, end = self.wanted, self.reading.end
        queues = _queue_table(wanted.root, wanted.config)
        grown = partial(goes_on, wanted.root, wanted.config, self.log.file_size, end)
        return units_in_gaps(queues, gaps, end, grown)

    def close(self) -> None:
        self.log.close()
        if self.other is not None:
            self.other.close()


def plan_salvage(wanted: Salvage, progress: Progress | None = None) -> SalvagePlan:
    """Reads the whole log, and decides what the new log holds at each place; changes nothing.

    :raises StoreNotFound, NotAStore: there is no store, or no second copy.
    :raises OutputExists: ``output`` holds something.
    :raises FileLengthUnproven, FileLengthContradiction: the length of the log's files is unknown.
    :raises WrittenByItsBrokers: the log is of a kind that is not read here.
    :raises NotAFile: a file of the log is a link that leads nowhere.
    """
    root = wanted.root
    paths.check_store(root)
    free_place(wanted.output)
    if dledger_logs(root):
        check_understood(root, wanted.config)
    config = as_written(root, wanted.config)
    file_size = commit_log_file_size(root, config, writes=True)
    with ExitStack() as undo:
        log = open_commit_log(root, config, file_size)
        undo.callback(log.close)
        log.files.check_regular(links_only=True)
        other = None
        if wanted.other is not None:
            if paths.resolved(wanted.other) == paths.resolved(root):
                raise UsageError(reason="the other store is this one: name another copy of it.")
            other = OtherLog(wanted.other, in_own_directory(wanted.config), log)
            undo.callback(other.close)
        dispatcher = Dispatcher.of_store(root, config)
        queues = _queue_table(root, config)
        undo.callback(queues.close)
        doubts = Doubts(queues, dispatcher)
        progress_files = read_progress(root)
        reading = read_log(log, jobs=wanted.jobs, progress=progress, listener=doubts.add)
        put_right(reading, log, doubts)
        _widen(reading, log)
        queues.close()
        plan = SalvagePlan(wanted, config_of_output(root, config, file_size), log, other, reading)
        plan.progress_files = progress_files
        plan.misnamed = misnamed_files(log_directories(root, config).all, file_size)
        _fill(plan)
        undo.pop_all()
        return plan


def config_of_output(root: Path, config: MessageStoreConfig, file_size: int) -> MessageStoreConfig:
    """The store's sizes and switches, each of them explicit, for a log in one directory."""
    geometry = known_geometry(root / paths.INDEX, config)
    has_ext = (root / paths.CONSUME_QUEUE_EXT).is_dir()
    is_said = config.is_explicit("enable_consume_queue_ext")
    sizes = {
        "mapped_file_size_commit_log": file_size,
        "mapped_file_size_consume_queue": consume_queue_file_size(root, config),
        "max_hash_slot_num": geometry.hash_slot_num,
        "max_index_num": geometry.index_num,
        "enable_consume_queue_ext": config.enable_consume_queue_ext or (has_ext and not is_said),
    }
    if batch_topics(root):
        sizes["mapper_file_size_batch_consume_queue"] = batch_queue_file_size(root, config)
    if has_ext:
        sizes["mapped_file_size_consume_queue_ext"] = consume_queue_ext_file_size(root, config)
    return replace(
        in_own_directory(config),
        **sizes,  # type: ignore[arg-type]
        explicit=config.explicit | frozenset(sizes),
    )


def _queue_table(root: Path, config: MessageStoreConfig) -> ConsumeQueueTableReader:
    size = consume_queue_file_size(root, config)
    return ConsumeQueueTableReader(root / paths.CONSUME_QUEUE, size, ext_directory=None)


def _widen(reading: Reading, log: CommitLog) -> None:
    """Gives up the record behind each gap that is too short for a filler. Every gap is then as long
    as a record can be, or goes on to the end of its file. No fault of a disk makes shorter ones."""
    gaps, runs = reading.gaps, reading.runs
    for number, gap in enumerate(gaps):
        while True:
            start = max(gap.start, gap.end // log.file_size * log.file_size)
            if gap.end % log.file_size == 0 or gap.end - start >= LEAST_FILLER:
                break
            at = bisect_left(runs, gap.end, key=lambda run: run.start)
            if at == len(runs):
                break
            entry = log.entry_at(gap.end)
            size = entry.total_size if isinstance(entry, Record) else runs[at].end - gap.end
            gap = gap._replace(end=gap.end + size)
            reading.records -= isinstance(entry, Record)
            runs[at] = runs[at]._replace(start=gap.end)
            if runs[at].start >= runs[at].end:
                del runs[at]
        gaps[number] = gap
    reading.gaps = [gap for i, gap in enumerate(gaps) if i == 0 or gap.end > gaps[i - 1].end]


def _fill(plan: SalvagePlan) -> None:
    """Lays out the new log."""
    wanted, reading = plan.wanted, plan.reading
    filling = Filling(plan.log, Dispatcher(plan.config), placeholders=wanted.placeholders)
    units = _held_units(plan, filling)
    gaps = list(reading.gaps)
    end = max([unit.end for unit in units] + [reading.end])
    if end > reading.end:
        gaps += _behind_the_end(plan, end, filling)
    pieces = [Piece(run.start, run.end, "kept") for run in reading.runs]
    afters = [run.start for run in reading.runs]
    places = [unit.physical_offset for unit in units]
    for gap in gaps:
        at = bisect_right(afters, gap.start)
        after = afters[at] if at < len(afters) else None
        low, high = bisect_left(places, gap.start), bisect_left(places, gap.end)
        inside = [unit for unit in units[low:high] if unit.end <= gap.end]
        before = 0 if plan.other is None else plan.other.records
        others = [] if plan.other is None else plan.other.runs(gap, after, inside)
        made = list(filling.pieces(gap, others, inside, is_last=after is None))
        pieces += made
        restored = sum(one.length for one in made if one.kind in ("other", "header", "blank"))
        from_other = 0 if plan.other is None else plan.other.records - before
        plan.gaps.append(FilledGap(gap, restored, from_other))
    plan.pieces = sorted(pieces, key=lambda piece: piece.start)


def _held_units(plan: SalvagePlan, filling: Filling) -> list[LostUnit]:
    """The units that may help to fill a gap: one for each physical offset, in log order."""
    every, end = plan.wanted.placeholders or plan.other is not None, plan.reading.end
    gaps = [g for g in plan.reading.gaps if every or g.length <= _LONGEST_LOOKED_INTO]
    near = LONG_MAX if every else end + _NEAR_END
    found = [one for one in plan.units_in(gaps) if one.physical_offset < near]
    held = by_place(found)
    if not every:
        return list(_but_what_is_gone(held, end, filling))
    for number, unit in enumerate(held):
        # What stands further behind what is known is a damaged unit, and no message.
        if unit.physical_offset >= end:
            if unit.physical_offset - end > min(MOST_FILLER, plan.log.file_size):
                return held[:number]
            end = unit.end
    return held


def _but_what_is_gone(held: list[LostUnit], end: int, filling: Filling) -> Iterator[LostUnit]:
    """The units up to the end of the log, and those of the records right behind it that can be put
    right one after the other. A last record whose header is damaged lies behind the end of the log,
    for no whole record follows it."""
    for unit in held:
        if unit.physical_offset >= end:
            if unit.physical_offset != end or not filling.is_put_right(unit):
                return
            end = unit.end
        yield unit


def _behind_the_end(plan: SalvagePlan, end: int, filling: Filling) -> Iterator[Gap]:
    """The lost end of the log as the queues tell of it."""
    reading = plan.reading
    last = reading.gaps[-1] if reading.gaps else None
    before, timestamp = None, 0 if last is None else last.store_timestamp
    if reading.runs:
        before, timestamp = _last_record(plan.log, reading.runs[-1].start, reading.runs[-1].end)
    is_there = any(filling.stored(reading.end, RECORD_HEAD) or b"")
    reason = "torn-tail" if is_there else "commitlog-file-missing"
    yield Gap(reading.end, end, reason, before, timestamp)


def _last_record(log: CommitLog, start: int, end: int) -> tuple[int | None, int]:
    """Where the last record of a run starts, and its store time. Reads the run's last file only."""
    first = max(start, (end - 1) // log.file_size * log.file_size)
    before, timestamp = None, 0
    for low in (first, start):
        for entry in log.walk(low, end):
            if isinstance(entry, Record):
                before, timestamp = entry.physical_offset, entry.store_timestamp
        if before is not None:
            break
    return before, timestamp


def write_salvage(plan: SalvagePlan, progress: Progress | None = None) -> RebuildSummary:
    """Writes the new store, which appears at ``output`` when it is whole. After a run that was cut
    off, the next one goes on where that stopped.

    :raises OutputExists: ``output`` holds something.
    :raises OutputInUse: another process builds it.
    :raises CannotWrite: the disk is full; what is written stays for the next run.
    """
    logs = {"kept": plan.log, "header": plan.log}
    if plan.other is not None:
        logs["other"] = plan.other.log
    with new_directory(plan.wanted.output, is_kept=True) as building:
        begin(building, identity(plan.pieces, logs.values()))
        write_files(building, plan.pieces, logs, plan.log.file_size, progress)
        copy_config(plan.wanted.root, building, plan.progress_files)
        name_batch_topics(plan.wanted.root, building)
        rebuild = replace(plan_rebuild(building, plan.config, "all"), spare_gap=_SPARE_GAP)
        summary = rebuild_in_place(rebuild, jobs=plan.wanted.jobs)
        for kept in summary.kept:
            shutil.rmtree(kept)
        # Closing the new store writes the checkpoint, and removes the files lock and abort.
        with MessageStore(building, plan.config, writable=True) as store:
            end = store.max_offset
        carry_timer(plan.wanted.root, plan.wanted.config, building, plan.config)
        # With its epochs nobody writes to a store.
        copy_of_controller(plan.wanted.root, building, end)
        (building / JOURNAL).unlink()
        durable.sync_directories(building)
        return summary
