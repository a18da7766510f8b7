"""``TimerCheckpoint``: the timer's progress, in ``config/timercheck``."""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from formats import layouts
from rmqctl.engine.files.mappedfile import MappedFile

_FIELDS = Struct(layouts.TIMER_CHECKPOINT.format)


class TimerCheckpoint(NamedTuple):
    """The fields of ``timercheck``, under the names of its schema (:mod:`formats.timer`)."""

    read_timestamp: int = 0
    flushed_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0
    version_counter: int = 0


def read_timer_checkpoint(path: Path) -> TimerCheckpoint | None:
    """The check point; None when the file is absent or too short.

    :raises CannotRead: the system refuses to read it.
    """
    data = MappedFile.head(path, _FIELDS.size)
    return None if data is None else TimerCheckpoint._make(_FIELDS.unpack(data))


def encode(checkpoint: TimerCheckpoint) -> bytes:
    """The 4096 bytes of its file (``TimerCheckpoint#flush``)."""
    from formats.constants import CHECKPOINT_FILE_SIZE

    return _FIELDS.pack(*checkpoint).ljust(CHECKPOINT_FILE_SIZE, b"\0")
