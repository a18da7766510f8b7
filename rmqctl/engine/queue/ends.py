"""Where queues end, looked up without mapping their files: for stores of many thousand queues.

A queue as a broker leaves it is a few files of one length, of which the last one holds units from
its begin on, and a hole behind them. Its end takes a list of names and a read or two. Of any other
queue :class:`~rmqctl.engine.queue.consumequeue.ConsumeQueue` has to tell.
"""

from __future__ import annotations

import os
from stat import S_ISREG
from typing import NamedTuple

from rmqctl.engine.files.extents import end_of_first_data
from rmqctl.engine.files.filequeue import is_offset_name
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE, Unit, count_written


class QueueEnd(NamedTuple):
    """``max_offset`` is the queue offset of the next unit, ``last`` the unit before it, None where
    that lies in no file. No file was made ahead, for units to come."""

    topic: str
    queue_id: int
    max_offset: int
    last: Unit | None


def queue_end(topic: str, queue_id: int, directory: str, file_size: int) -> QueueEnd | None:
    """The end of a queue, as :class:`ConsumeQueue` finds it; None when it takes that to tell: files
    of other lengths, none at all, or none with a unit in the last of several."""
    try:
        names = os.listdir(directory)
        if not names or not all(map(is_offset_name, names)) or file_size % UNIT_SIZE:
            return None
        name = max(names)
        for other in names:
            if other is not name and not _is_whole(os.stat(f"{directory}/{other}"), file_size):
                return None
        # Not to wait for a writer where somebody put a FIFO.
        descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # Who opens the queue says so.
    try:
        first_offset = int(name)
        if first_offset % UNIT_SIZE or not _is_whole(os.fstat(descriptor), file_size):
            return None

        def read(position: int, size: int) -> bytes:
            return os.pread(descriptor, size, position)

        count = count_written(read, file_size // UNIT_SIZE, end_of_first_data(descriptor))
        stored = read((count - 1) * UNIT_SIZE, UNIT_SIZE) if count else b""
        # Somebody may have cut the file while it was looked at: it has another length then.
        if not _is_whole(os.fstat(descriptor), file_size) or (not count and len(names) > 1):
            return None
        last = Unit._make(UNIT.unpack(stored)) if count else None
        return QueueEnd(topic, queue_id, first_offset // UNIT_SIZE + count, last)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _is_whole(status: os.stat_result, file_size: int) -> bool:
    return S_ISREG(status.st_mode) and status.st_size == file_size
