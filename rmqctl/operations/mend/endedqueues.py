"""Queues of which the log has no message left. Queues that are made of the log alone would not have
them, and their next message would be number 0 again: consumers that wait for the number at which
the queue ended would never see it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from formats.constants import LONG_MAX, PRE_BLANK_UNIT
from rmqctl.engine.files import durable, paths
from rmqctl.engine.files.filequeue import FILE_NAME_DIGITS
from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
from rmqctl.engine.queue.consumequeue import UNIT, is_ext_addr
from rmqctl.engine.queue.ends import queue_end
from rmqctl.operations.mend.rebuildplan import RebuildPlan, log_range_now

#: The size in a unit whose record is gone, and whose own size nobody knows: any positive one.
_UNKNOWN_SIZE = 1
#: Bytes before a last unit: the queue files of no broker are longer than some megabytes.
_MOST_BEFORE = 64 << 20


class LastUnit(NamedTuple):
    """The last unit of a queue, whose record is gone. ``size`` and ``tags_code`` are None where
    nobody knows them."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int | None
    tags_code: int | None


def keep_ended_queues(plan: RebuildPlan, building: Path) -> int:
    """Adds those of a plan's queues to what was built of the log; how many there are."""
    if not plan.queues:
        return 0
    size, built = plan.consume_queue_file_size, building / paths.CONSUME_QUEUE

    def is_missing(topic: str, queue_id: int) -> bool:
        # Asked before a queue is opened, which takes ten times as long: most were built.
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
    """Batch queues (5.x) with no record in the log: their last file, as a broker's own retention
    leaves it (``MappedFileQueue#deleteExpiredFileByOffset``). How many there are."""
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
        os.close(paths.create_file(building, path, file_size, units))
        written += 1
    return written


def ended_queues(
    root: Path,
    file_size: int,
    log_min_offset: int,
    includes: Callable[[str, int], bool] = lambda topic, queue_id: True,
) -> Iterator[LastUnit]:
    """Those of a store with queue files of that size whose last unit leads to a place before the
    log. A queue that does not end as a broker leaves it is passed over."""
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
    """Makes the queues that are not below ``building`` yet, with their last unit alone, as a
    broker's own retention leaves them (``ConsumeQueue#deleteExpiredFile`` keeps the last file). How
    many there are."""
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
        os.close(paths.create_file(building, path, file_size, before + unit))
        written += 1
    return written
