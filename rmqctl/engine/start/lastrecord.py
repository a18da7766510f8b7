"""Finds the last record of a log, from the end of its data backwards.

A store with a hundred thousand queues should not be searched for one pull. If the log's data ends
with a record, and that is the last one of its queue, no unit of another queue can tell more about
the log's end. Then :func:`~rmqctl.engine.start.logend.find_end` starts from this record as it would
from the newest unit of all.
"""

from __future__ import annotations

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.engine.log.commitlog import RECORD_HEAD, CommitLog
from rmqctl.engine.queue.ends import queue_end
from rmqctl.engine.queue.queuetable import ConsumeQueueTable
from rmqctl.engine.record.record import Blank, Record, find_next

#: Bytes before the end of the data in which an entry is searched: first few, then more for longer
#: records. The last is also the most bytes of zeros that are read behind the data.
_NEAR = (64 << 10, 1 << 20, 8 << 20)
_PIECE = 256 << 10


def proven_last(log: CommitLog, queues: ConsumeQueueTable) -> Record | None:
    """The last record of a log, if its unit is the last of its queue. None: all queues must be
    read to tell the log's end."""
    record = last_record(log)
    if record is None or record.queue_id < 0 or topic_directory_problem(record.topic):
        return None
    where = f"{queues.directory}/{record.topic}/{record.queue_id}"
    end = queue_end(record.topic, record.queue_id, where, queues.file_size)
    if end is None or end.last is None or end.max_offset != record.queue_offset + 1:
        return None
    unit = end.last.physical_offset, end.last.size
    return record if unit == (record.physical_offset, record.total_size) else None


def last_record(log: CommitLog) -> Record | None:
    """The last record of a log, if at most a blank stands behind it. None: there is none, or
    finding it would take too long."""
    for number in reversed(range(len(log.files.entries))):
        mapped = log.files.file(number)
        data_end = _data_end(mapped)
        if data_end != 0:
            return None if data_end is None else _last_in(log, number, mapped, data_end)
    return None


def _data_end(mapped: MappedFile) -> int | None:
    """Position behind the last byte that is not zero; 0 without one. None: too many zeros that are
    not in a hole stand behind it."""
    zeros = 0
    for low, high in reversed(list(mapped.extents(0, mapped.size))):
        for end in range(high, low, -_PIECE):
            first = max(end - _PIECE, low)
            kept = len(mapped.read_aside(first, end - first).rstrip(b"\0"))
            if kept:
                return first + kept
            zeros += end - first
            if zeros > _NEAR[-1]:
                return None
    return 0


def _last_in(log: CommitLog, number: int, mapped: MappedFile, data_end: int) -> Record | None:
    for near in _NEAR:
        low = max(data_end - near, 0)
        position = find_next(mapped, low)
        if position < data_end:
            return _walked_to(log, number, position, data_end)
        if not low:
            break
    return None


def _walked_to(log: CommitLog, number: int, position: int, data_end: int) -> Record | None:
    """The last record from ``position`` on; None if the entries do not reach to ``data_end``."""
    last, reached = None, 0
    while position < data_end:
        step = log.step(number, position)
        if isinstance(step.entry, Record):
            last, reached = step.entry, step.position
        elif isinstance(step.entry, Blank):
            reached = position + RECORD_HEAD
        else:
            return None
        if step.number != number:
            break
        position = step.position
    return last if reached >= data_end else None
