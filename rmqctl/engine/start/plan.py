"""Plans a start from the facts on disk and the engine's rules.

:func:`plan_start` only reads. It tells where the log ends, what is removed from queues and index
because the log lacks it, where the dispatch begins again, and what a checkpoint may say meanwhile:
``DefaultMessageStore#load`` and ``#start``, ``CommitLog#recoverNormally`` and
``#recoverAbnormally``, ``IndexService#load``. A writing open applies it
(:mod:`rmqctl.engine.write.recovery`) before its first append; ``verify`` uses it to tell what a
start mends.

Where the engine would delete messages or leave them out of their queues for good, the plan goes
further back in the log or has an obstacle. It never loses what the engine keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.index import recovery as indexrecovery
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.end import LogEnd
from rmqctl.engine.log.progress import Progress
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue, Unit
from rmqctl.engine.queue.ends import QueueEnd, queue_end
from rmqctl.engine.queue.recovery import first_astray, first_beyond, written_units
from rmqctl.engine.record.record import Record
from rmqctl.engine.start.logend import end_behind, find_end
from rmqctl.engine.start.lostqueues import Firsts, firsts_between, has_lost_queue, note_firsts
from rmqctl.engine.start.model import Hole, QueueCut, ScanStart, StartPlan, StoreFiles
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint

if TYPE_CHECKING:
    from rmqctl.engine.files.paths import QueueDirectory
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig


class _QueueFacts(NamedTuple):
    """One queue. Its units end at queue offset ``end``; ``last`` is the last unit of a record."""

    topic: str
    queue_id: int
    end: int
    max_offset: int
    last: Unit | None
    is_hole: bool
    #: Whether its last file was made ahead and has no units, or is empty.
    is_ahead: bool
    is_astray: bool = False


def plan_start(
    files: StoreFiles, *, is_clean: bool, progress: Progress = lambda done, total: None
) -> StartPlan:
    """Plans the start of a store, and changes nothing.

    After a clean stop this reads only the end of each queue; after a crash also the log from the
    checkpoint on.

    :raises FileLengthContradiction, CannotRead: a queue has irregular files, and is strict.
    """
    checkpoint = read_checkpoint(files.root / paths.CHECKPOINT) or Checkpoint()
    if is_clean:
        return _plan_clean(files, checkpoint)
    return _plan_unclean(files, checkpoint, progress)


#: How many files of its log DLedger reads when it starts.
_RECOVERED_BY_DLEDGER = 3


def scan_start(log: CommitLog, checkpoint: Checkpoint, config: MessageStoreConfig) -> ScanStart:
    """Where an unclean start begins to read (``CommitLog#isMappedFileMatchedRecover``). In a
    DLedger group's log any start reads the last three files (``DLedgerMmapFileStore#recover``)."""
    if log.files.framed:
        starts = [one.file_from_offset for one in log.files.entries[-_RECOVERED_BY_DLEDGER:]]
        return ScanStart(starts[0] if starts else log.min_offset, "dledger")
    before = checkpoint.min_timestamp
    if config.message_index_enable and config.message_index_safe:
        before = min(before, checkpoint.index_msg_timestamp)
    for number in range(len(log.files.entries) - 1, -1, -1):
        timestamp = first_timestamp(log, number)
        if timestamp is not None and 0 != timestamp <= before:
            return ScanStart(log.files.entries[number].file_from_offset, "checkpoint")
    return ScanStart(log.min_offset, "first-file")


def scan_place(log: CommitLog, checkpoint: Checkpoint, config: MessageStoreConfig) -> int:
    """:func:`scan_start` for the field of 5.5 in the checkpoint, where 0 says nothing: then the
    second record, which is in the same file; 0: there is none."""
    start = scan_start(log, checkpoint, config).physical_offset
    first = None if start else log.find_record(0)
    return start if first is None else first.total_size


def first_timestamp(log: CommitLog, number: int) -> int | None:
    """Store time (ms) of a file's first record; None if no record begins there, by magic code and
    place. The engine also takes a record of another place: then it reads a file that somebody has
    copied there, and leaves all files before it out."""
    first = log.first_prefix(number)
    if first is None:
        return None
    at_home = first.physical_offset == log.files.entries[number].file_from_offset
    return first.store_timestamp if at_home else None


# --- after a clean stop ----------------------------------------------------------------------


def _plan_clean(files: StoreFiles, checkpoint: Checkpoint) -> StartPlan:
    facts = list(_clean_facts(files))
    newest = [(one.last.physical_offset, one.last.size) for one in facts if one.last is not None]
    end = find_end(files.log, newest)
    cuts, facts = _cut(files, facts, end.offset)
    newest_unit = _newest(facts)
    dispatch_from, hold_back = _begin(files.log, sum(newest_unit), end)
    # If nothing will be dispatched, the queues need no search for holes.
    holes = tuple(_holes(files)) if dispatch_from < end.offset else ()
    return StartPlan(
        is_clean=True,
        checkpoint=checkpoint,
        scan=None,
        end=end,
        newest=newest_unit,
        dispatch_from=dispatch_from,
        queue_cuts=cuts,
        index_cuts=indexrecovery.plan_clean(files.index, end.offset).cuts,
        holes=holes,
        hold_back=hold_back,
        doubtful=(),
    )


def _clean_facts(files: StoreFiles) -> Iterator[_QueueFacts]:
    """The facts of every queue; most are found without mapping its files."""
    table = files.queues
    for topic, queue_id, path in paths.queue_paths(table.directory):
        found = queue_end(topic, queue_id, path, table.file_size)
        if found is not None:
            yield _facts_of(found)
            continue
        for queue in _queues(files, [paths.QueueDirectory(topic, queue_id, Path(path))]):
            yield _facts(queue, queue.max_offset, is_hole=False)


def _facts_of(found: QueueEnd) -> _QueueFacts:
    last = None if found.last is None or found.last.is_pre_blank else found.last
    topic, queue_id, end = found.topic, found.queue_id, found.max_offset
    return _QueueFacts(topic, queue_id, end, end, last, is_hole=False, is_ahead=False)


def _holes(files: StoreFiles) -> Iterator[Hole]:
    for queue in _queues(files):
        end, goes_on = written_units(queue)
        if goes_on:
            yield Hole(queue.topic, queue.queue_id, end)


# --- after a crash ---------------------------------------------------------------------------


def _plan_unclean(files: StoreFiles, checkpoint: Checkpoint, progress: Progress) -> StartPlan:
    log = files.log
    start = scan_start(log, checkpoint, files.config)
    facts = [_unclean_facts(queue, log, start) for queue in _queues(files)]
    firsts: Firsts = {}
    total = max(log.files.end_offset - start.physical_offset, 1)

    def seen(batch: Batch) -> None:
        note_firsts(batch, files.dispatcher, firsts)
        progress(batch.end_offset - start.physical_offset, total)

    end = LogEnd(start.physical_offset, 0, None)
    if log.files.entries:
        end = end_behind(log, start.physical_offset, 0, seen)
    cuts, facts = _cut(files, facts, end.offset)
    if end.store_timestamp == 0:
        end = end._replace(store_timestamp=_timestamp_before(log, facts))
    index = indexrecovery.plan_unclean(
        files.index,
        log,
        end.offset,
        min(checkpoint.index_msg_timestamp, end.store_timestamp),
        start.physical_offset if files.config.message_index_enable else None,
    )
    begin = start.physical_offset
    if index.end is not None:
        begin = min(begin, _record_at(log, index.end))
    begin = _begin_of_queues(files, facts, firsts, start.physical_offset, begin)
    dispatch_from, hold_back = _begin(log, begin, end)
    return StartPlan(
        is_clean=False,
        checkpoint=checkpoint,
        scan=start,
        end=end,
        newest=_newest(facts),
        dispatch_from=dispatch_from,
        queue_cuts=cuts,
        index_cuts=index.cuts,
        holes=(),
        hold_back=hold_back,
        doubtful=tuple(_doubtful(files, dispatch_from)),
    )


def _begin_of_queues(
    files: StoreFiles, facts: list[_QueueFacts], firsts: Firsts, start: int, begin: int
) -> int:
    """Where the dispatch begins: at ``begin``, or before it, where queues lack units.

    :param firsts: those of the log from ``start`` on, where the engine's recovery begins. What is
        read before it has messages of further queues, which may lack units as well.
    """
    log = files.log
    there = {(one.topic, one.queue_id) for one in facts}
    # Without any queue, as after a clean stop, a user who has removed all of them wants them anew.
    if not any(one.last for one in facts):
        return log.min_offset
    while True:
        for one in facts:
            first = firsts.get((one.topic, one.queue_id), -1)
            # If units are missing before the queue's first record here, the checkpoint said too
            # much. Astray units are dispatched again anyhow.
            if (one.is_hole and not one.is_astray) or first > one.end:
                begin = min(begin, _behind(log, one.last))
        if has_lost_queue(files.root, there, firsts):
            begin = log.min_offset
        if begin >= start or begin <= log.min_offset:
            return begin
        firsts = firsts | firsts_between(log, files.dispatcher, begin, start)
        start = begin


def _unclean_facts(queue: ConsumeQueue, log: CommitLog, start: ScanStart) -> _QueueFacts:
    end, is_hole = written_units(queue)
    if queue.ext is not None:
        # Units without their extension count as missing: dispatch writes both again.
        astray = first_astray(queue, log, start.physical_offset, end)
        is_astray = astray < end
        facts = _facts(queue, astray, is_hole or is_astray)
        return facts._replace(is_astray=is_astray)
    return _facts(queue, end, is_hole)


def _behind(log: CommitLog, unit: Unit | None) -> int:
    """Physical offset behind the record of a unit. Without a record: the start of the log file it
    points into; without a unit: the start of the log."""
    if unit is None:
        return log.min_offset
    record = log.find_record(unit.physical_offset)
    if record is not None and record.total_size == unit.size:
        return unit.physical_offset + unit.size
    return _record_at(log, unit.physical_offset)


def _record_at(log: CommitLog, physical_offset: int) -> int:
    """The physical offset itself if a record is there; else the start of the log file there."""
    if log.find_record(physical_offset) is not None:
        return physical_offset
    number = log.files.index_of(physical_offset)
    return log.min_offset if number < 0 else log.files.entries[number].file_from_offset


def _doubtful(files: StoreFiles, dispatch_from: int) -> Iterator[Path]:
    """Files that a crash may have left in memory only: queue files with units of records from
    ``dispatch_from`` on, their extension files, and all index files. For queues that begin with
    such a unit also the directories."""
    above = set()
    for queue in _queues(files):
        first = None
        for entry in reversed(queue.files.entries):
            yield entry.path
            first = queue.unit(entry.file_from_offset // UNIT_SIZE)
            if first is not None and first.is_written and first.physical_offset < dispatch_from:
                break
        else:
            yield queue.files.directory
            above.add(queue.files.directory.parent)
        if queue.ext is not None:
            from rmqctl.engine.queue.extension import ext_offset

            # Addresses ascend. A unit with a plain tags code tells nothing, so all files count.
            start = None if first is None else ext_offset(first.tags_code)
            for entry in queue.ext.files.entries:
                if start is None or entry.file_from_offset + entry.size > start:
                    yield entry.path
    yield from above
    if above:
        yield files.queues.directory
        yield files.queues.directory.parent
    yield from files.index.paths


# --- both ------------------------------------------------------------------------------------


def _queues(
    files: StoreFiles, directories: Iterable[QueueDirectory] | None = None
) -> Iterator[ConsumeQueue]:
    """Every queue, or those in ``directories``. Each is open only until the next one is taken."""
    table = files.queues
    for where in table.directories() if directories is None else directories:
        ext = None
        if table.ext_directory is not None:
            from rmqctl.engine.queue.extension import ConsumeQueueExt

            # A missing extension counts as empty.
            ext = ConsumeQueueExt(table.ext_directory / where.topic / str(where.queue_id))
        queue = ConsumeQueue(
            where.path,
            where.topic,
            where.queue_id,
            table.file_size,
            ext=ext,
            strict=table.is_strict,
            drops_empty=table.drops_empty,
        )
        try:
            yield queue
        finally:
            queue.close()


def _facts(queue: ConsumeQueue, end: int, is_hole: bool) -> _QueueFacts:
    last = queue.unit(end - 1)
    if last is not None and (last.is_pre_blank or not last.is_written):
        last = None
    max_offset = max(queue.max_offset, end)
    files = queue.files.entries
    is_ahead = len(files) > 1 and files[-1].file_from_offset >= end * UNIT_SIZE
    if is_ahead:  # But units may stand there, behind a hole.
        last_file = queue.files.file(len(files) - 1)
        is_ahead = last_file.first_nonzero(0, last_file.size) == last_file.size
    is_ahead = is_ahead or queue.files.empty_last is not None
    return _QueueFacts(queue.topic, queue.queue_id, end, max_offset, last, is_hole, is_ahead)


def _cut(
    files: StoreFiles, facts: list[_QueueFacts], log_end: int
) -> tuple[tuple[QueueCut, ...], list[_QueueFacts]]:
    """What is removed from queues when the log ends at ``log_end``, and their facts after that."""
    cuts, kept = [], []
    # If the log has lost its end, every queue is searched: even before a last unit with a good
    # place, which may be damage, units of lost records may stand.
    is_lost = any(one.last is not None and one.last.physical_offset >= log_end for one in facts)
    for one in facts:
        end, last = one.end, one.last
        if is_lost and last is not None:
            table = files.queues
            where = table.directory / one.topic / str(one.queue_id)
            queue = ConsumeQueue(where, one.topic, one.queue_id, table.file_size)
            try:
                end = first_beyond(queue, log_end, one.end)
                last = _facts(queue, end, one.is_hole).last
            finally:
                queue.close()
        if end < one.end or one.is_hole or one.is_ahead:
            cuts.append(
                QueueCut(one.topic, one.queue_id, end, one.max_offset, one.is_hole, one.is_astray)
            )
        kept.append(one._replace(end=end, last=last))
    return tuple(cuts), kept


def _newest(facts: list[_QueueFacts]) -> tuple[int, int]:
    """(physical offset, size) of the unit that ends last; (-1, 0) without units."""
    units = [(one.last.physical_offset, one.last.size) for one in facts if one.last is not None]
    return max(units, key=sum, default=(-1, 0))


def _begin(log: CommitLog, physical_offset: int, end: LogEnd) -> tuple[int, int | None]:
    """Physical offset of the first record to dispatch from ``physical_offset`` on, and the store
    time (ms) that leads a start there. Without such a record: the log's end, and None."""
    for entry in log.walk(max(physical_offset, log.min_offset), end.offset):
        if isinstance(entry, Record):
            later = _times_behind(log, entry.physical_offset, end.offset)
            return entry.physical_offset, min([entry.store_timestamp, *later])
    return end.offset, None


def _times_behind(log: CommitLog, start: int, end: int) -> Iterator[int]:
    """Store times (ms) of the first records of files in ``(start, end)``. If the clock was set
    back, one may be older than the records before it, and a start would begin there."""
    for number, entry in enumerate(log.files.entries):
        if start < entry.file_from_offset < end:
            timestamp = first_timestamp(log, number)
            if timestamp:
                yield timestamp


def _timestamp_before(log: CommitLog, facts: list[_QueueFacts]) -> int:
    """Store time (ms) of the newest record that a unit points to, after the cuts; 0: none."""
    units = [one.last for one in facts if one.last is not None]
    for unit in sorted(units, reverse=True):
        record = log.find_record(unit.physical_offset)
        if record is not None:
            return record.store_timestamp
    return 0
