"""Finds where queues end without mapping their files, for stores of many thousand queues.

A queue usually has a few files of one length; the last one has units at its start and a hole behind
them. Finding the end of such a queue takes one directory listing and one or two reads. For any
other queue :class:`~rmqctl.engine.queue.consumequeue.ConsumeQueue` has to be opened.
"""

from __future__ import annotations

import os
from stat import S_ISREG
from typing import NamedTuple

from rmqctl.engine.files.extents import end_of_first_data
from rmqctl.engine.files.filequeue import is_offset_name
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE, Unit, count_written


class QueueEnd(NamedTuple):
    """``max_offset`` is the queue offset of the next unit; ``last`` is the unit before it, or None
    when there is none in the files. No empty file was made ahead. ``first_offset`` is the queue
    offset at which the only file begins, and ``first`` the unit there; both are None where the
    queue has several files, and ``first`` where it has no unit."""

    topic: str
    queue_id: int
    max_offset: int
    last: Unit | None
    first_offset: int | None = None
    first: Unit | None = None

    @property
    def max_physical_offset(self) -> int:
        """Where the record of the last unit ends; -1 without one."""
        return -1 if self.last is None else self.last.physical_offset + self.last.size

    def first_within(self, log_min: int, log_end: int) -> int | None:
        """``min_offset`` of a queue with one file, all of whose units are of records in the log's
        range ``[log_min, log_end)``: a start cuts nothing. None where the queue may be cut, or has
        to be opened to tell."""
        if self.last is not None and (
            self.last.physical_offset >= log_end or self.last.is_pre_blank
        ):
            return None
        if self.first is not None and self.first.physical_offset < log_min:
            return None
        return self.first_offset


def queue_end(topic: str, queue_id: int, directory: str, file_size: int) -> QueueEnd | None:
    """The end of a queue, the same as :class:`ConsumeQueue` finds. None when only that can tell: a
    file has another length, there is no file, or the last of several holds no unit."""
    try:
        names = os.listdir(directory)
        if not names or not all(map(is_offset_name, names)) or file_size % UNIT_SIZE:
            return None
        name = max(names)
        for other in names:
            if other is not name and not _is_whole(os.stat(f"{directory}/{other}"), file_size):
                return None
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # Opening the queue raises it.
    try:
        first_offset = int(name)
        if first_offset % UNIT_SIZE or not _is_whole(os.fstat(descriptor), file_size):
            return None

        def read(position: int, size: int) -> bytes:
            return os.pread(descriptor, size, position)

        count = count_written(read, file_size // UNIT_SIZE, end_of_first_data(descriptor))
        stored = read((count - 1) * UNIT_SIZE, UNIT_SIZE) if count else b""
        begin = read(0, UNIT_SIZE) if count and len(names) == 1 else b""
        # The file may have been cut during the reads: it has another length then.
        if not _is_whole(os.fstat(descriptor), file_size) or (not count and len(names) > 1):
            return None
        last = Unit._make(UNIT.unpack(stored)) if count else None
        start, end = first_offset // UNIT_SIZE, first_offset // UNIT_SIZE + count
        if len(names) > 1:
            return QueueEnd(topic, queue_id, end, last)
        first = Unit._make(UNIT.unpack(begin)) if count else None
        return QueueEnd(topic, queue_id, end, last, start, first)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _is_whole(status: os.stat_result, file_size: int) -> bool:
    return S_ISREG(status.st_mode) and status.st_size == file_size
