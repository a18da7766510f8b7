"""``StoreCheckpoint``: the store times up to which log, queues and index are on disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from formats import layouts
from formats.constants import CHECKPOINT_FILE_SIZE
from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.writing import open_for_writing

_FIELDS = Struct(layouts.CHECKPOINT.format)
_TIMESTAMPS = Struct(">" + "".join(field.code for field in layouts.CHECKPOINT.fields[:3]))
_LOGICS = Struct(layouts.LOGICS_PHYSICAL_OFFSET.format)
#: A recovery begins so many milliseconds before the checkpoint's times.
RECOVERY_MARGIN = 3000


class Checkpoint(NamedTuple):
    """The fields of ``checkpoint``, the first three in ms. The last two are of 5.x; 0 before."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """Store time (ms) from which an unclean recovery may start
        (``StoreCheckpoint#getMinTimestamp``)."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - RECOVERY_MARGIN)

    def held_back(self, *times: int | None, least: int = 0) -> Checkpoint:
        """The checkpoint with the queues' time moved back to the oldest of these store times (ms),
        so that a recovery begins before it. None of them counts as older than ``least``."""
        known = [max(time, least) for time in times if time is not None]
        return self._replace(logics_msg_timestamp=min([self.logics_msg_timestamp, *known]))

    def until(self, timestamp: int, index_timestamp: int = 0) -> Checkpoint:
        """The checkpoint cut to the end of the log: later times must be from another log.

        :param timestamp: store time (ms) of the log's last record; 0: not known.
        :param index_timestamp: end (ms) of the last full index file. It is later than
            ``timestamp`` if the clock was set back.
        """
        if timestamp <= 0:
            return self
        physic, logics = (min(time, timestamp) for time in self[:2])
        index = min(self.index_msg_timestamp, max(timestamp, index_timestamp))
        return Checkpoint(physic, logics, index, *self[3:])


def read_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint; None when the file is absent or too short to be one.

    :raises CannotRead: the system refuses to read it.
    """
    data = MappedFile.head(path, _FIELDS.size)
    return None if data is None else Checkpoint._make(_FIELDS.unpack(data))


def write_checkpoint(root: Path, path: Path, checkpoint: Checkpoint) -> None:
    """Stores the three timestamps and forces them to disk (``StoreCheckpoint#flush``).

    The fields of 5.x stay as they are. An existing file has its disk blocks already, so it can be
    written on a full disk.

    :raises OSError: the disk failed, or is full.
    """
    stamps = _TIMESTAMPS.pack(*checkpoint[:3])
    if not path.exists():
        MappedFile.create(root, path, CHECKPOINT_FILE_SIZE, head=stamps).close()
        return
    descriptor = open_for_writing(root, path)
    try:
        if os.fstat(descriptor).st_size < CHECKPOINT_FILE_SIZE:
            # A short file gets its full length, as in Java when it is mapped.
            os.ftruncate(descriptor, CHECKPOINT_FILE_SIZE)
        write_at(descriptor, stamps, 0)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def read_logics_offset(path: Path) -> int:
    """The place from which an unclean start of 5.5 reads; 0: it is not known, and times count.

    :raises CannotRead: the system refuses to read it.
    """
    data = MappedFile.head(path, _FIELDS.size + _LOGICS.size)
    return 0 if data is None else max(_LOGICS.unpack_from(data, _FIELDS.size)[0], 0)


def lower_logics_offset(
    root: Path, path: Path, scan_start: Callable[[], int], *, is_of_5_5: bool = False
) -> None:
    """Moves the place from which an unclean start of 5.5 reads, if the checkpoint has one, back to
    where the times lead: the log may have lost records since, and others may come there.

    :param scan_start: gives the physical offset from which a start reads by the times. It is not 0,
        which would say that the place is not known: 5.5 goes by times then, but later ones than
        older versions (``ConsumeQueueStore#isMappedFileMatchedRecover``).
    :param is_of_5_5: a broker of this version may start on the store, so a place is stored even if
        there is none yet.
    :raises OSError: the disk failed.
    """
    stored = read_logics_offset(path)
    if not path.exists() or (stored == 0 and not is_of_5_5):
        return
    start = scan_start()
    if 0 < stored <= start:
        return
    descriptor = open_for_writing(root, path)
    try:
        write_at(descriptor, _LOGICS.pack(start), _FIELDS.size)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
