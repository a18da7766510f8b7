"""``RunningFlags``: whether a store may be written to, and why not."""

from __future__ import annotations

from enum import IntFlag


class RunningFlag(IntFlag):
    """The bits, with Java's values."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16


_ERRORS = (
    RunningFlag.NOT_WRITEABLE
    | RunningFlag.WRITE_LOGICS_QUEUE_ERROR
    | RunningFlag.WRITE_INDEX_FILE_ERROR
    | RunningFlag.DISK_FULL
)
#: Compared by identity to see if any flag is set: an enum's truth takes longer.
NO_FLAG = RunningFlag(0)


class RunningFlags:
    """The flags of one open store."""

    def __init__(self) -> None:
        self.flag_bits = NO_FLAG

    @property
    def is_writeable(self) -> bool:
        # Each put reads this, and an enum's & takes a microsecond.
        return self.flag_bits is NO_FLAG or not self.flag_bits & _ERRORS

    def make(self, flag: RunningFlag) -> None:
        self.flag_bits |= flag

    def clear(self, flag: RunningFlag) -> None:
        self.flag_bits &= ~flag

    def __str__(self) -> str:
        return ", ".join(str(flag.name) for flag in RunningFlag if flag & self.flag_bits)
