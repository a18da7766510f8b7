"""Retention: which files a broker deletes, at a given time and with its disks as full as they are.

``CleanCommitLogService`` deletes the oldest commit log files, at most ten a round and never the
last one: those that were not modified for ``fileReservedTime`` hours, or files of any age
(:mod:`rmqctl.engine.services.deletewhen`). Then ``CleanConsumeQueueService`` deletes queue and
index files before the log's first offset. Rounds come every ten seconds, so an hour is enough for
everything that has expired.

Files are deleted in the broker's order, each durably before the next. So an interrupted run leaves
a valid store, and the next run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.files import paths, writing
from rmqctl.engine.files.filequeue import FileEntry
from rmqctl.engine.files.paths import listed_status
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.engine.queue.ends import queue_end
from rmqctl.engine.queue.extension import ConsumeQueueExt, ext_offset
from rmqctl.engine.record.record import Record
from rmqctl.engine.services.deletewhen import Disks, Verdict, judge
from rmqctl.engine.settings.logdirectories import log_directories

if TYPE_CHECKING:
    from rmqctl.engine.index.indexservice import IndexService
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

#: ``MappedFileQueue.DELETE_FILES_BATCH_MAX``: the most log files of one round.
DELETE_FILES_BATCH_MAX = 10
#: Rounds after ``executeDeleteFilesManually``.
MAX_MANUAL_DELETE_FILE_TIMES = 20
_HOUR = 3_600_000

EXPIRED, FORCED, BEFORE_LOG = "expired", "forced", "before-log"


class Removal(NamedTuple):
    """One file to delete. ``root`` is the directory below which no link is followed. ``reason`` is
    EXPIRED, FORCED (not expired, but the disk is full) or BEFORE_LOG (a queue or index file, and
    the log no longer has its messages)."""

    structure: str
    root: Path
    path: Path
    reason: str
    size: int
    allocated_bytes: int
    modified_timestamp: int
    device: int


class QueueRange(NamedTuple):
    """A queue's offsets: its first message now, and its first and next ones after the removals."""

    min_offset: int
    new_min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class Retention:
    """All files to delete, in this order, and the ranges that stay readable."""

    verdict: Verdict
    log_percent: int
    queue_percent: int
    min_offset: int
    new_min_offset: int
    removals: list[Removal]
    queues: dict[tuple[str, int], QueueRange]


def plan(
    store: MessageStore,
    at: int,
    *,
    percent: int | None = None,
    manual: bool = False,
    rounds: int | None = None,
    strict: bool = False,
) -> Retention:
    """The files of a store that a broker would delete at a time (ms).

    :param percent: every disk counts as this full; None: the system is asked.
    :param manual: as after ``executeDeleteFilesManually``: expired files at any hour.
    :param rounds: the most rounds; None: until a round deletes nothing.
    :param strict: refuses a log or queue with files of a wrong length, as a starting broker does.
    :raises FileLengthContradiction: it is ``strict``, and there are such files.
    """
    if strict:
        store.check_log_lengths()
    config, queues = store.config, store.root / paths.CONSUME_QUEUE
    # Directories that only readOnlyCommitLogStorePaths lists do not count.
    disks = Disks(log_directories(store.root, config).listed, queues, percent)
    log_percent, queue_percent = disks.log_percent, disks.queue_percent
    first = judge(config, at, disks, manual=manual)
    entries = store.commit_log.files.entries
    oldest = _before_last(entries, store.max_offset)
    removals: list[Removal] = []
    log_mins = [store.min_offset]
    for done in count() if rounds is None else range(rounds):
        manual_now = manual and done < MAX_MANUAL_DELETE_FILE_TIMES
        verdict = judge(config, at, disks, manual=manual_now)
        rest = oldest[len(removals) : len(removals) + DELETE_FILES_BATCH_MAX]
        some = _expired(store.root, rest, at, config, verdict) if verdict.deletes else []
        for removal in some:
            disks.remove(removal.device, removal.allocated_bytes)
        removals += some
        if not some:
            break
        log_mins.append(entries[len(removals)].file_from_offset)
    new_min = log_mins[-1]
    ranges: dict[tuple[str, int], QueueRange] = {}
    removals += _queue_removals(store, log_mins, ranges, strict)
    ranges |= _batch_ranges(store, new_min)
    removals += _index_removals(store.root, store.index, new_min)
    return Retention(first, log_percent, queue_percent, store.min_offset, new_min, removals, ranges)


def _before_last(entries: list[FileEntry], end: int) -> list[FileEntry]:
    """The files that may be deleted: all but the last one. A file behind the end, which was made
    ahead, does not count: a starting broker removes it."""
    return [entry for entry in entries if entry.file_from_offset <= end][:-1]


def _expired(
    root: Path,
    entries: list[FileEntry],
    at: int,
    config: MessageStoreConfig,
    verdict: Verdict,
) -> list[Removal]:
    """The files that a round deletes (``MappedFileQueue#deleteExpiredFileByTime``): up to the first
    that stays, so that the log gets no gap."""
    found = []
    for entry in entries:
        removal = _of_log(root, entry.path)
        if at < removal.modified_timestamp + config.file_reserved_time * _HOUR:
            if not verdict.clean_at_once:
                break
            removal = removal._replace(reason=FORCED)
        found.append(removal)
    return found


def _of_log(root: Path, path: Path) -> Removal:
    # A directory of storePathCommitLog need not lie in the store.
    top = root if path.is_relative_to(root) else path.parent
    return _removal(paths.COMMIT_LOG, top, path, EXPIRED)


def _removal(structure: str, root: Path, path: Path, reason: str) -> Removal:
    status = listed_status(path, follow_symlinks=False)
    return Removal(
        structure,
        root,
        path,
        reason,
        status.st_size,
        status.st_blocks * 512,
        status.st_mtime_ns // 1_000_000,
        status.st_dev,
    )


def _queue_removals(
    store: MessageStore,
    log_mins: list[int],
    ranges: dict[tuple[str, int], QueueRange],
    strict: bool,
) -> Iterator[Removal]:
    """Queue files of which the log has no message any more (``ConsumeQueue#deleteExpiredFile``),
    and their extension files. Fills ``ranges``. ``log_mins`` are the log's first offsets: now, and
    after each round."""
    log_min, size = log_mins[-1], store.queues.file_size
    for where in store.queues.directories():
        directory = store.root / paths.CONSUME_QUEUE_EXT / where.topic / str(where.queue_id)
        has_ext = log_min > 0 and directory.is_dir()
        end = None if has_ext else queue_end(where.topic, where.queue_id, str(where.path), size)
        if end and (first := end.first_within(log_min, store.max_offset)) is not None:
            ranges[where.topic, where.queue_id] = QueueRange(first, first, end.max_offset)
            continue  # Its only file stays. Opening each of many queues takes long.
        queue = ConsumeQueue(where.path, where.topic, where.queue_id, size, strict=strict)
        try:
            queue.cut(store.min_offset, store.max_offset)
            ranges[where.topic, where.queue_id] = _cut(queue, log_min, store.max_offset)
            entries = queue.files.entries if log_min > 0 else []
            for entry in _before_last(entries, queue.max_offset * UNIT_SIZE):
                last = queue.unit((entry.file_from_offset + queue.files.file_size) // UNIT_SIZE - 1)
                # The engine takes a hole for an old message. Here a damaged file stays, for verify.
                if last is None or not last.is_written or last.physical_offset >= log_min:
                    break
                yield _removal(paths.CONSUME_QUEUE, store.root, entry.path, BEFORE_LOG)
            if has_ext:
                yield from _ext_removals(store, directory, queue, log_mins)
        finally:
            queue.close()


def _cut(queue: ConsumeQueue | BatchConsumeQueue, log_min: int, log_end: int) -> QueueRange:
    """Cuts a queue to the log that is left; the range that it had, and has then."""
    before = queue.min_offset
    queue.cut(log_min, log_end)
    return QueueRange(before, max(queue.min_offset, before), queue.max_offset)


def _batch_ranges(store: MessageStore, log_min: int) -> dict[tuple[str, int], QueueRange]:
    """The ranges of batch queues (5.x). Their files stay; readers skip units before the log."""
    ranges = {}
    for where in store.batch_queues() if store.dispatcher.batch_topics else ():
        queue = store.batch_queue(where.topic, where.queue_id)
        if queue is not None:
            with closing(queue):
                ranges[where.topic, where.queue_id] = _cut(queue, log_min, store.max_offset)
    return ranges


def _ext_removals(
    store: MessageStore, directory: Path, queue: ConsumeQueue, log_mins: list[int]
) -> Iterator[Removal]:
    """``ConsumeQueueExt#truncateByMinAddress``: files that end before the address of the first
    remaining unit. If after a round the queue is empty or its first unit has no address, the round
    before decides."""
    for log_min in reversed(log_mins):
        queue.cut(log_min, store.max_offset)
        first = queue.unit(queue.min_offset) if queue.min_offset < queue.max_offset else None
        address = None if first is None else ext_offset(first.tags_code)
        if address is not None:
            break
    else:
        return
    for entry in ConsumeQueueExt(directory).files.entries:
        if entry.file_from_offset + entry.size >= address:
            break
        yield _removal(paths.CONSUME_QUEUE_EXT, store.root, entry.path, BEFORE_LOG)


def _index_removals(root: Path, index: IndexService, log_min: int) -> Iterator[Removal]:
    """Index files that end before the log, but never the last one (``IndexService``)."""
    for path in index.paths[:-1] if log_min > 0 else []:
        if path in index.irregular:
            return
        file = index.open(path)
        end = file.header.end_phy_offset
        file.close()
        if end >= log_min:
            return
        yield _removal(paths.INDEX, root, path, BEFORE_LOG)


def oldest(store: MessageStore, count: int) -> list[Removal]:
    """The log's first ``count`` files, of any age, and then the queue and index files that have no
    messages in the log any more, in the broker's order. The log has more than ``count`` files."""
    entries, found = store.commit_log.files.entries, []
    for entry in entries[:count]:
        found.append(_of_log(store.root, entry.path))
    log_mins = [store.min_offset, entries[count].file_from_offset]
    found += _queue_removals(store, log_mins, {}, strict=False)
    found += _index_removals(store.root, store.index, log_mins[-1])
    return found


def undispatched_before(store: MessageStore, log_min: int) -> int | None:
    """Physical offset of the first record before ``log_min`` that is not dispatched yet, and so
    would never reach a consumer; None without one."""
    if store.dispatched_to >= log_min:
        return None
    start = store.dispatched_to if store.dispatched_to > store.min_offset else None
    for entry in store.commit_log.walk(start, log_min):
        if isinstance(entry, Record) and store.dispatcher.units(entry):
            return entry.physical_offset
    return None


def remove(removals: Iterable[Removal], done: Callable[[Removal], None]) -> None:
    """Removes files in their order, each durably before the next. Calls ``done`` for each.

    The caller holds the store's lock and has none of the files open.

    :raises SymbolicLinkRefused, StoreReadOnly, CannotWrite: earlier files stay removed, and the
        store is valid.
    """
    for removal in removals:
        writing.remove_file(removal.root, removal.path)
        done(removal)
