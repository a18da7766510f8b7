"""``BatchConsumeQueue`` (5.x): units of one topic and queue number, 46 bytes each, written anew.

One unit stands for a record, which may hold several messages. Which units a record has, dispatch
says; here they become files, as the engine makes them.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from formats import layouts
from rmqctl.engine.files import paths
from rmqctl.engine.files.filequeue import FILE_NAME_DIGITS

BATCH_UNIT = Struct(layouts.BATCH_QUEUE_UNIT.format)


class BatchUnit(NamedTuple):
    """The unit of a record: ``base_offset`` is the queue offset of its first message."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int


class _Queue:
    """What is not in a file yet, and where it goes; where the last unit's record starts."""

    def __init__(self) -> None:
        self.pending = bytearray()
        self.start = 0
        self.physical_offset = -1


class BatchQueueTableWriter:
    """Writes batch queues below a new directory; in memory is one file of each queue at most.

    :param root: what the directory lies below, and is synced with it.
    """

    def __init__(self, directory: Path, file_size: int, root: Path) -> None:
        self._directory = directory
        self._room = file_size - file_size % BATCH_UNIT.size
        self._file_size = file_size
        self._root = root
        self._queues: dict[tuple[str, int], _Queue] = {}

    def put(self, topic: str, queue_id: int, unit: BatchUnit) -> None:
        """The next unit of a queue. One whose record does not lie behind that of the last is there
        already. :raises OSError, CannotWrite: as of a file that is made."""
        queue = self._queues.setdefault((topic, queue_id), _Queue())
        if unit.physical_offset <= queue.physical_offset:
            return
        queue.pending += BATCH_UNIT.pack(*unit, -1, 0)
        queue.physical_offset = unit.physical_offset
        if len(queue.pending) == self._room:
            self._write(topic, queue_id, queue)

    def finish(self) -> int:
        """Writes what is left. How many queues there are."""
        for (topic, queue_id), queue in self._queues.items():
            if queue.pending:
                self._write(topic, queue_id, queue)
        return len(self._queues)

    def _write(self, topic: str, queue_id: int, queue: _Queue) -> None:
        directory = self._directory / topic / str(queue_id)
        path = directory / f"{queue.start:0{FILE_NAME_DIGITS}d}"
        os.close(paths.create_file(self._root, path, self._file_size, bytes(queue.pending)))
        queue.start += self._file_size
        queue.pending.clear()
