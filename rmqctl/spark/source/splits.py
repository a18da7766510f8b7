"""Plans the splits, of which a task reads one, from names, sizes and a few single records, and
reads them.

A split of the log begins at the first record at or after its planned start, and ends where the next
split begins. So a store with a few big files keeps all cores busy. Damage is returned as rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from formats.constants import INT_MAX
from rmqctl.arrow.arrays import problem_batch
from rmqctl.engine.files import paths
from rmqctl.engine.files.filequeue import MappedFileQueue
from rmqctl.engine.log.commitlog import CommitLog, without_file
from rmqctl.engine.log.times import may_hold
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.engine.record.record import Damage
from rmqctl.errors import NotAFile, RmqctlError
from rmqctl.spark.remote import remote
from rmqctl.spark.remote.urls import shown
from rmqctl.spark.session.staging import is_remote
from rmqctl.spark.source.logsplit import log_batches, open_log
from rmqctl.spark.source.pushdown import Bounds
from rmqctl.spark.source.queuesandindex import index_batches, open_index_file, queue_batches
from rmqctl.spark.source.split import Part, ReadSettings, Split

_NOTHING = (0, -1)
#: The status of rows for stretches that cannot be read.
DAMAGE = "damage"


class DataLost(RmqctlError):
    """A part of the log cannot be read, and with ``failOnDataLoss`` a query must not go on without
    it."""

    template = (
        "{store} cannot be read in one place: {reason}. Without failOnDataLoss=true such places "
        "are rows whose status is damage."
    )


def plan(settings: ReadSettings, bounds: Bounds) -> Iterator[Split]:
    """The splits of all stores, in order. A store that cannot be read is a split with its
    problem."""
    if settings.min_partitions > 0:
        settings = replace(settings, split_bytes=_step_for(settings))
    planners = {"commitlog": _plan_log, "queue": _plan_queues, "index": _plan_index}
    for store in settings.stores:
        source = settings.source(store)
        if not (bounds.admits("store", source.store) and bounds.admits("broker", source.broker)):
            continue
        try:
            if is_remote(store):
                yield from _plan_remote(store, settings, bounds)
                continue
            paths.check_store(Path(store))
            with MessageStore(store, settings.config) as opened:
                yield from planners[settings.structure](opened, settings, bounds)
        except (RmqctlError, OSError) as error:
            yield Split(store, problem=str(error))


def _step_for(settings: ReadSettings) -> int:
    """The bytes of log of a split, so small that there are at least as many splits as wanted."""
    total = 0
    for store in settings.stores:
        try:
            log = open_log(store, settings.config)
            total += sum(entry.size for entry in log.files.entries)
            log.close()
        except (RmqctlError, OSError):
            continue  # The split of this store will report the error.
    step = settings.split_bytes if settings.split_bytes > 0 else total
    return max(min(step, total // settings.min_partitions), 1)


def _plan_remote(store: str, settings: ReadSettings, bounds: Bounds) -> Iterator[Split]:
    """Plans from listings and, if store times are bounded, from the first records of files. The
    task that reaches the end of the log finds it."""
    remote.check_store(store)
    opened = remote.RemoteStore(store, settings.config)
    if settings.structure == "commitlog":
        log = opened.log()
        try:
            end = log.files.end_offset
            for split in log_splits(log, store, settings.split_bytes, log_end=end):
                if (
                    split.problem or bounds.overlaps("physical_offset", split.start, split.end)
                ) and _may_hold_times(log, split, settings, bounds):
                    yield split
        finally:
            log.close()
    elif settings.structure == "queue":
        queues = ((*queue, -1) for queue in opened.queues())
        yield from _queue_splits(store, queues, settings, bounds)
        if opened.refused:
            names = ", ".join(opened.refused[:3])
            text = f"{len(opened.refused)} names below consumequeue/ are no topics: {names}"
            yield Split(store, problem=text)
    else:
        yield from _index_splits(store, opened.index_names(), settings, bounds)


def _plan_log(store: MessageStore, settings: ReadSettings, bounds: Bounds) -> Iterator[Split]:
    log = store.commit_log
    for entry in log.files.irregular:
        if entry.size < 0:
            error = NotAFile(path=str(entry.path), reason=paths.NOT_REGULAR)
            yield Split(str(store.root), problem=str(error))
    first, low = _places_before(store, bounds)
    last, log_end = log.files.end_offset, store.max_offset
    for split in log_splits(log, str(store.root), settings.split_bytes, log_end=log_end):
        if split.problem and _ends_before(store, split):
            continue
        # Units do not tell the order of records behind the end of the log.
        behind_end = split.end == last or split.end > log_end
        if (
            split.problem
            or (
                bounds.overlaps("physical_offset", split.start, split.end)
                and (behind_end or split.start < first or split.end > low)
            )
        ) and _may_hold_times(log, split, settings, bounds):
            yield split


def _ends_before(store: MessageStore, gap: Split) -> bool:
    """Whether the log ends before a stretch that no file has: then nothing is missing there."""
    log, end = store.commit_log, store.max_offset
    number = log.first_file(gap.end)
    # Behind a full file the log goes on, and one without a byte is not full.
    is_empty = not log.files.entries[number - 1].size
    if end > gap.start or (end == gap.start and not is_empty):
        return False
    return store.obstacle.obstacle is None and not log.holds_data(number)


def log_splits(
    log: CommitLog,
    store: str,
    step: int,
    start: int | None = None,
    end: int | None = None,
    *,
    log_end: int,
) -> Iterator[Split]:
    """The splits of the log between the starts of two records (None: of the whole log), and splits
    for stretches that no file has.

    What a file has behind ``log_end``, mostly nothing, belongs to the last split before that.
    """
    entries = log.files.entries
    for number, entry in enumerate(entries):
        low, high = entry.file_from_offset, entry.file_from_offset + entry.size
        if number:
            gap = without_file(entries[number - 1], low, log.file_size)
            is_wanted = start is None or gap.physical_offset >= start
            if gap.length and is_wanted and (end is None or low <= end):
                yield missing_split(store, gap)
        if (start is not None and high <= start) or (end is not None and low >= end):
            continue
        first = low if start is None else max(low, start)
        stop = high if end is None else min(high, end)
        step = step if step > 0 else max(entry.size, 1)
        places = [first, *range(first + step, min(stop, log_end), step), stop]
        for at, following in pairwise(places):
            yield Split(
                store,
                start=at,
                end=following,
                meets_start=at != first,
                meets_end=following != stop,
                size=max(min(following, log_end) - at, 0),
            )


def missing_split(store: str, gap: Damage) -> Split:
    """The split for a stretch of the log that no file has, as :meth:`CommitLog.step` reports it."""
    problem = f"{gap.reason}: expected {gap.expected}, found {gap.found}"
    end = gap.physical_offset + gap.length
    return Split(store, start=gap.physical_offset, end=end, problem=problem)


def expired_split(store: str, start: int, end: int) -> Split:
    """The split for a stretch of the log that has expired before a stream has read it."""
    problem = f"commitlog-file-expired: expected the log from {start}, found it from {end}"
    return Split(store, start=start, end=end, problem=problem)


def _places_before(store: MessageStore, bounds: Bounds) -> tuple[int, int]:
    """A stretch of the log, ``(start, end)``, in which no record of the wanted queue has the wanted
    queue offset or a later one, as its units show. It goes from the record of the queue's first
    unit to that of the offset. It is empty if the units show nothing.

    A unit counts only if its record agrees. Before the record of the first unit there may be
    records of the queue from a time before its topic was deleted and made again. Behind that of the
    wanted offset the queue may begin again at any time, because queues that are rebuilt from such a
    log (``ConsumeQueue#putMessagePositionInfo``) keep the units of the first time.
    """
    topics, numbers = bounds.only.get("topic", ()), bounds.only.get("queue_id", ())
    low = bounds.low.get("queue_offset", 0)
    # Prepared records have queue offset 0, and no unit. So units help only for offsets above 0.
    if len(topics) != 1 or len(numbers) != 1 or low <= 0:
        return _NOTHING
    (topic,), (number,) = topics, numbers
    if not isinstance(topic, str) or not isinstance(number, int):
        return _NOTHING
    if paths.topic_directory_problem(topic) is not None:
        return _NOTHING
    queue = store.consume_queue(topic, number)
    if queue is None:
        return _NOTHING
    first = _proven_place(store, queue, queue.min_offset)
    place = _proven_place(store, queue, low)
    return _NOTHING if first is None or place is None else (first, place)


def _proven_place(store: MessageStore, queue: ConsumeQueue, queue_offset: int) -> int | None:
    """The physical offset of the message at a queue offset; None if unit and record disagree."""
    unit = queue.unit(queue_offset)
    record = store.commit_log.find_record(unit.physical_offset) if unit is not None else None
    if record is None or (record.topic, record.queue_id, record.queue_offset) != (
        queue.topic,
        queue.queue_id,
        queue_offset,
    ):
        return None
    return record.physical_offset


def _may_hold_times(log: CommitLog, split: Split, settings: ReadSettings, bounds: Bounds) -> bool:
    """Whether a split's file may have records of the wanted store times. For a stretch that no file
    has, the file before it decides."""
    number = log.files.index_of(split.start - 1 if split.problem else split.start)
    since, until = bounds.low.get("store_timestamp"), bounds.high.get("store_timestamp")
    if number < 0 or (since is None and until is None):
        return True
    return may_hold(log, number, since, until, settings.clock_slack)


def _plan_queues(store: MessageStore, settings: ReadSettings, bounds: Bounds) -> Iterator[Split]:
    # Of a database the files have all queues.
    in_files, file_size = store.queues.in_files, store.queues.file_size

    def sizes(path: Path) -> tuple[list[int], int]:
        files = MappedFileQueue(path, file_size) if in_files else None
        return ([], 0) if files is None else (_used_bytes(files), max(files.min_offset, 0))

    found = store.queues.directories()
    queues = ((where.topic, where.queue_id, *sizes(where.path)) for where in found)
    yield from _queue_splits(str(store.root), queues, settings, bounds)


def _used_bytes(files: MappedFileQueue) -> list[int]:
    """How many bytes the files of a queue take on disk; 0 for one that is gone."""
    found = []
    for entry in files.entries:
        try:
            found.append(entry.path.stat().st_blocks * 512)
        except FileNotFoundError:
            found.append(0)
    return found


def _queue_splits(
    store: str,
    queues: Iterable[tuple[str, int, list[int], int]],
    settings: ReadSettings,
    bounds: Bounds,
) -> Iterator[Split]:
    """Splits of whole queue files, with several small queues in one. Each queue is given as its
    topic, its id, the bytes of its files, and where the first one begins."""
    limit = max(settings.split_bytes // 4, 1)
    parts: list[Part] = []
    size = 0
    for topic, queue_id, sizes, first in queues:
        if not (bounds.admits("topic", topic) and bounds.admits("queue_id", queue_id)):
            continue
        start = 0
        for number, used in enumerate(sizes):
            size += used
            if size >= limit:
                parts.append(Part(topic, queue_id, start, number + 1, first))
                yield Split(store, parts=tuple(parts), size=size)
                parts, size, start = [], 0, number + 1
        if start < len(sizes) or not sizes:
            parts.append(Part(topic, queue_id, start, len(sizes), first))
    if parts:
        yield Split(store, parts=tuple(parts), size=size)


def _plan_index(store: MessageStore, settings: ReadSettings, bounds: Bounds) -> Iterator[Split]:
    names = [path.name for path in store.index.paths]
    yield from _index_splits(str(store.root), names, settings, bounds)


def _index_splits(
    store: str, names: Iterable[str], settings: ReadSettings, bounds: Bounds
) -> Iterator[Split]:
    step = max(settings.split_bytes // UNIT_SIZE, 1)
    for name in names:
        if not bounds.admits("file", name):
            continue
        try:
            file = open_index_file(store, name, settings.config)
            last = file.item_count
            file.close()
        except (RmqctlError, OSError):
            last = 0  # The reader will report the error.
        for at in range(1, max(last, 1) + 1, step):
            part = Part(name, 0, at, min(at + step, last + 1))
            yield Split(store, parts=(part,), size=(part.end - part.start) * UNIT_SIZE)


def read(
    split: Split, settings: ReadSettings, bounds: Bounds, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of a split as Arrow batches.

    :raises DataLost: a stretch cannot be read, and ``fails_on_loss`` is set.
    """
    if not settings.fails_on_loss:
        yield from _rows(split, settings, bounds, schema)
        return
    import pyarrow.compute as pc

    more = [name for name in ("status", "damage") if name not in schema.names]
    wider = pa.schema([*schema, *(pa.field(name, pa.string()) for name in more)])
    for batch in _rows(split, settings, bounds, wider):
        lost = pc.index(batch.column("status"), DAMAGE).as_py()
        if lost >= 0:
            raise DataLost(store=shown(split.store), reason=batch.column("damage")[lost].as_py())
        yield batch.select(schema.names)


def _rows(
    split: Split, settings: ReadSettings, bounds: Bounds, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    if split.problem:
        where = {"physical_offset": split.start} if split.end else {}
        if split.end:
            where["total_size"] = min(split.end - split.start, INT_MAX)
        yield problem_batch(schema, settings.source(split.store), split.problem, **where)
    elif settings.structure == "commitlog":
        yield from log_batches(split, settings, bounds, schema)
    elif settings.structure == "queue":
        yield from queue_batches(split, settings, bounds, schema)
    else:
        yield from index_batches(split, settings, schema)
