"""``StoreCheckpoint``: up to which store time log, queues and index are on disk."""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from formats import layouts
from formats.constants import CHECKPOINT_FILE_SIZE
from rmqctl.engine.mappedfile import MappedFile
from rmqctl.engine.paths import open_for_writing

_FIELDS = Struct(layouts.CHECKPOINT.format)
_TIMESTAMPS = Struct(">qqq")
_RECOVERY_MARGIN = 3000


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
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _RECOVERY_MARGIN)


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
        return Checkpoint._make(_FIELDS.unpack_from(mapped.buffer, 0))
    finally:
        mapped.close()


def write_checkpoint(root: Path, path: Path, checkpoint: Checkpoint) -> None:
    """Stores the three timestamps and forces them to disk (``StoreCheckpoint#flush``).

    The fields of 5.x are left as they are.

    :raises OSError: the disk is full.
    """
    stamps = _TIMESTAMPS.pack(*checkpoint[:3])
    if path.exists():
        if path.stat().st_size < CHECKPOINT_FILE_SIZE:
            _lengthen(root, path)
        mapped = MappedFile.open_writable(root, path)
    else:
        mapped = MappedFile.create(root, path, CHECKPOINT_FILE_SIZE, head=stamps)
    try:
        mapped.reserve(0, CHECKPOINT_FILE_SIZE)
        mapped.write(0, stamps)
        mapped.flush()
    finally:
        mapped.close()


def _lengthen(root: Path, path: Path) -> None:
    """Gives a file that was cut short its length, as mapping it does in Java."""
    descriptor = open_for_writing(root, path)
    try:
        os.ftruncate(descriptor, CHECKPOINT_FILE_SIZE)
    finally:
        os.close(descriptor)
