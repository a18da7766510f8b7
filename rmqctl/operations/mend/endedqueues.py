"""Ended queues: those whose messages have all expired from the log.

A rebuild from the log alone would leave them out. Their next message would then get queue offset 0,
and consumers that wait for the offset at which the queue ended would never see it. So each of them
gets back its last unit, as a broker's own retention leaves it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from formats.constants import LONG_MAX, PRE_BLANK_UNIT
from rmqctl.engine.files import durable, paths, writing
from rmqctl.engine.files.filequeue import FILE_NAME_DIGITS
from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
from rmqctl.engine.queue.consumequeue import UNIT, is_ext_addr
from rmqctl.engine.queue.ends import queue_end
from rmqctl.engine.state.rocksdbqueues import LastUnit
from rmqctl.operations.mend.rebuildplan import RebuildPlan, log_range_now

#: The size that is stored in a unit whose record is gone and whose real size is unknown: any
#: positive one will do.
_UNKNOWN_SIZE = 1
#: Bytes before a last unit: the queue files of no broker are longer than some megabytes.
_MOST_BEFORE = 64 << 20


def keep_ended_queues(plan: RebuildPlan, building: Path) -> int:
    """Adds the ended queues among a plan's queues to what was built from the log. Returns how many
    were added."""
    if not plan.queues:
        return 0
    size, built = plan.consume_queue_file_size, building / paths.CONSUME_QUEUE

    def is_missing(topic: str, queue_id: int) -> bool:
        # Most queues were built. To ask that first takes a tenth of the time of opening a queue.
        return plan.includes(topic, queue_id) and not os.path.exists(f"{built}/{topic}/{queue_id}")

    # Of a store whose broker runs retention may have removed what the plan still saw, and no scan.
    start, _ = log_range_now(plan)
    ends = ended_queues(plan.root, size, start, is_missing)
    written = write_last_units(building, ends, size)
    if plan.batch_queue_file_size is not None:
        written += _keep_ended_batch_queues(plan, building, plan.batch_queue_file_size, start)
    if written:
        durable.sync_directories(building)
    return written


def _keep_ended_batch_queues(
    plan: RebuildPlan, building: Path, file_size: int, log_min_offset: int
) -> int:
    """Keeps the last file of each batch queue (5.x) that has no record in the log, as a broker's
    own retention does (``MappedFileQueue#deleteExpiredFileByOffset``). Returns their number."""
    written = 0
    for where in paths.queue_directories(plan.root / paths.BATCH_CONSUME_QUEUE):
        directory = building / paths.BATCH_CONSUME_QUEUE / where.topic / str(where.queue_id)
        if directory.exists() or not plan.includes(where.topic, where.queue_id):
            continue
        with closing(
            BatchConsumeQueue(where.path, where.topic, where.queue_id, file_size)
        ) as queue:
            if not queue.end or queue.max_physical_offset > log_min_offset:
                continue
            start, units = queue.last_file()
        if start % file_size or start + file_size > LONG_MAX or len(units) > _MOST_BEFORE:
            continue
        path = directory / f"{start:0{FILE_NAME_DIGITS}d}"
        os.close(writing.create_file(building, path, file_size, units))
        written += 1
    return written


def ended_queues(
    root: Path,
    file_size: int,
    log_min_offset: int,
    includes: Callable[[str, int], bool] = lambda topic, queue_id: True,
) -> Iterator[LastUnit]:
    """The ended queues of a store whose queue files have that size: their last unit points to an
    offset before the log's first. A queue whose end no broker leaves like that is passed over."""
    for where in paths.queue_directories(root / paths.CONSUME_QUEUE):
        if not includes(where.topic, where.queue_id):
            continue
        end = queue_end(where.topic, where.queue_id, str(where.path), file_size)
        last = None if end is None else end.last
        if end is None or last is None or last.is_pre_blank or last.size <= 0:
            continue
        tags_code = None if is_ext_addr(last.tags_code) else last.tags_code
        if last.physical_offset + last.size <= log_min_offset:
            yield LastUnit(
                where.topic,
                where.queue_id,
                end.max_offset - 1,
                last.physical_offset,
                last.size,
                tags_code,
            )


def write_last_units(building: Path, ends: Iterable[LastUnit], file_size: int) -> int:
    """Makes those of the queues that are not below ``building`` yet. Each gets its last unit alone,
    as a broker's own retention leaves it (``ConsumeQueue#deleteExpiredFile`` keeps the last file).
    Returns how many were made."""
    written = 0
    for end in ends:
        directory = building / paths.CONSUME_QUEUE / end.topic / str(end.queue_id)
        position = end.queue_offset * UNIT.size
        if directory.exists() or position < 0 or position + file_size > LONG_MAX:
            continue
        if end.physical_offset < 0 or paths.topic_directory_problem(end.topic) is not None:
            continue
        start = position - position % file_size
        if position - start > _MOST_BEFORE:
            continue
        size = end.size if end.size is not None and end.size > 0 else _UNKNOWN_SIZE
        # Pre-blank units up to the last one (``ConsumeQueue#fillPreBlank``).
        before = UNIT.pack(*PRE_BLANK_UNIT) * ((position - start) // UNIT.size)
        unit = UNIT.pack(end.physical_offset, size, end.tags_code or 0)
        path = directory / f"{start:0{FILE_NAME_DIGITS}d}"
        os.close(writing.create_file(building, path, file_size, before + unit))
        written += 1
    return written
