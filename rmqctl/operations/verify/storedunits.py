"""Looks up runs of units in their queue's files, in the process that reads the records. The process
that checks the queue then gets only where a run begins, and how many units it has."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqctl.engine.files import paths
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue, unit_dtype
from rmqctl.errors import CannotRead, FileLengthContradiction
from rmqctl.operations.verify.snapshot import Snapshot

#: The fewest units that are looked up. It costs less to send fewer units than to look them up.
LEAST_STORED = 1 << 10
#: How many queues are cached. A cached queue keeps no file open.
_MOST_QUEUES = 256


class StoredUnits(NamedTuple):
    """``length`` consecutive units of a queue, from ``queue_offset`` on, that are in the queue's
    files byte for byte. Their physical offsets are ascending."""

    queue_offset: int
    length: int


class UnitsLookup:
    """Looks up runs of at least ``least`` units in the files of the queues."""

    def __init__(self, snapshot: Snapshot, least: int = LEAST_STORED) -> None:
        self._snapshot = snapshot
        self._least = least
        self._queues: OrderedDict[tuple[str, int], ConsumeQueue | None] = OrderedDict()

    def find(self, topic: str, queue_id: int, units: NDArray[np.void]) -> StoredUnits | None:
        """Looks up a run of units, an array with the fields ``queue_offset``, ``physical_offset``,
        ``size`` and ``tags_code``. None if not all of them are stored, or the run is too short:
        then the check of the queue must compare the units themselves."""
        count = len(units)
        if count < self._least or not _is_run(units):
            return None
        queue = self._queue(topic, queue_id)
        if queue is None:
            return None
        first = int(units["queue_offset"][0])
        wanted = np.empty(count, unit_dtype())
        for name in ("physical_offset", "size", "tags_code"):
            wanted[name] = units[name]
        data = memoryview(wanted.tobytes())
        done = 0
        try:
            while done < count:
                stored = queue.stored(first + done, count - done)
                end = done + len(stored) // UNIT_SIZE
                if not stored or stored != data[done * UNIT_SIZE : end * UNIT_SIZE]:
                    return None
                done = end
        except CannotRead:
            return None  # The check of the queue will read the same file, and report it.
        finally:
            queue.close()
        return StoredUnits(first, count)

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue without an extension; None if there is no such queue, or it cannot be read."""
        key = topic, queue_id
        if key not in self._queues:
            self._queues[key] = self._open(topic, queue_id)
            if len(self._queues) > _MOST_QUEUES:
                self._queues.popitem(last=False)
        self._queues.move_to_end(key)
        return self._queues[key]

    def _open(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        place = paths.CONSUME_QUEUE, topic, str(queue_id)
        where = self._snapshot.path.joinpath(*place)
        ext = self._snapshot.path.joinpath(paths.CONSUME_QUEUE_EXT, *place[1:])
        if (
            not self._snapshot.compares_files
            or topic in self._snapshot.batch_topics
            or ext.is_dir()
            or not where.is_dir()
        ):
            return None
        try:
            queue = ConsumeQueue(where, topic, queue_id, self._snapshot.queue_file_size)
        except (FileLengthContradiction, CannotRead):
            return None
        queue.close()
        return queue


def _is_run(units: NDArray[np.void]) -> bool:
    goes_on = np.diff(units["queue_offset"]) == 1
    return bool((goes_on & (np.diff(units["physical_offset"]) > 0)).all())
