"""``StoreCheckpoint``: up to which store time log, queues and index are on disk."""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from formats import layouts
from formats.constants import CHECKPOINT_FILE_SIZE
from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.paths import open_for_writing

_FIELDS = Struct(layouts.CHECKPOINT.format)
_TIMESTAMPS = Struct(">" + "".join(field.code for field in layouts.CHECKPOINT.fields[:3]))
#: A recovery begins so much (ms) before what the checkpoint says.
RECOVERY_MARGIN = 3000


class Checkpoint(NamedTuple):
    """The fields of ``checkpoint``; the last two are 5.x's, 0 before."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """Where an unclean recovery may start (``StoreCheckpoint#getMinTimestamp``)."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - RECOVERY_MARGIN)

    def held_back(self, *times: int | None, least: int = 0) -> Checkpoint:
        """The checkpoint that says of the queues no more than up to the oldest of these store times
        (ms), by which a recovery begins before it; none of them counts as older than ``least``."""
        known = [max(time, least) for time in times if time is not None]
        return self._replace(logics_msg_timestamp=min([self.logics_msg_timestamp, *known]))

    def until(self, timestamp: int, index_timestamp: int = 0) -> Checkpoint:
        """The checkpoint of a log whose last record has this store time (ms; 0: not known), and
        whose last full index file ends at ``index_timestamp``, which is later where the clock has
        gone back: one that says more was another log's."""
        if timestamp <= 0:
            return self
        physic, logics = (min(time, timestamp) for time in self[:2])
        index = min(self.index_msg_timestamp, max(timestamp, index_timestamp))
        return Checkpoint(physic, logics, index, *self[3:])


def read_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint; None when the file is absent or too short to be one.

    :raises CannotRead: the system refuses to read it.
    """
    if not path.exists():
        return None
    mapped = MappedFile.open(path)
    try:
        if mapped.size < _FIELDS.size:
            return None
        return Checkpoint._make(_FIELDS.unpack(mapped.read(0, _FIELDS.size)))
    finally:
        mapped.close()


def write_checkpoint(root: Path, path: Path, checkpoint: Checkpoint) -> None:
    """Stores the three timestamps and forces them to disk (``StoreCheckpoint#flush``).

    The fields of 5.x are left as they are. Where a file stands that has its blocks nothing is
    allocated: a full disk does not keep it from being written.

    :raises OSError: the disk failed, or is full.
    """
    stamps = _TIMESTAMPS.pack(*checkpoint[:3])
    if not path.exists():
        MappedFile.create(root, path, CHECKPOINT_FILE_SIZE, head=stamps).close()
        return
    descriptor = open_for_writing(root, path)
    try:
        if os.fstat(descriptor).st_size < CHECKPOINT_FILE_SIZE:
            # One that was cut short gets its length, as mapping it does in Java.
            os.ftruncate(descriptor, CHECKPOINT_FILE_SIZE)
        write_at(descriptor, stamps, 0)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
