"""When a broker deletes files of its log: the decision of a round of the retention.

It does so in an hour of ``deleteWhen``, when a disk is fuller than ``diskMaxUsedSpaceRatio``, or
when an operator asks for it. Above 85 % it deletes files of any age.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import BrokerConfError, CannotRead

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

#: Per cent of a disk in use: above the first, files of any age are deleted; above the second a
#: broker also refuses messages.
DISK_SPACE_CLEAN_FORCIBLY_RATIO = 85
DISK_SPACE_WARNING_LEVEL_RATIO = 90


class Disks:
    """How full the disks of log and queues are, now and after removals.

    :param percent: every disk counts as this full; None: the system is asked.
    """

    def __init__(self, logs: Iterable[Path], queues: Path, percent: int | None = None) -> None:
        self._room: dict[int, int] = {}
        self._used: dict[int, int] = {}
        self._logs = [self._add(path, percent) for path in logs]
        self._queues = self._add(queues, percent)

    def _add(self, path: Path, percent: int | None) -> int:
        while not path.exists() and path != path.parent:
            path = path.parent
        try:
            device, space = path.stat().st_dev, os.statvfs(path)
        except OSError as error:
            raise CannotRead(path=str(path), reason=error.strerror) from error
        used = (space.f_blocks - space.f_bfree) * space.f_frsize
        # Space for the superuser only does not count as room.
        room = used + space.f_bavail * space.f_frsize
        self._room[device] = room
        self._used[device] = used if percent is None else room * percent // 100
        return device

    def _percent(self, device: int) -> int:
        """Per cent in use, rounded up (``UtilAll#getDiskPartitionSpaceUsedPercent``)."""
        room = self._room[device]
        return -(-self._used[device] * 100 // room) if room > 0 else 0

    @property
    def log_percent(self) -> int:
        """For the log; if it has several directories, that of the emptiest disk."""
        return min(map(self._percent, self._logs))

    @property
    def queue_percent(self) -> int:
        return self._percent(self._queues)

    def remove(self, device: int, size: int) -> None:
        """Counts so many bytes on a disk as removed."""
        if device in self._used:
            self._used[device] -= size


class Verdict(NamedTuple):
    """The decision of ``CleanCommitLogService#deleteExpiredFiles`` for a round."""

    time_up: bool
    space_full: bool
    manual: bool
    clean_at_once: bool
    refuses_messages: bool

    @property
    def deletes(self) -> bool:
        return self.time_up or self.space_full or self.manual


def judge(config: MessageStoreConfig, at: int, disks: Disks, *, manual: bool = False) -> Verdict:
    """The decision at a time (ms). Hours are in the local time zone, as in a broker.

    :raises BrokerConfError: ``deleteWhen`` is no list of hours; a broker would delete nothing.
    """
    limit = min(max(config.disk_max_used_space_ratio, 10), 95)
    percents = (disks.log_percent, disks.queue_percent)
    # If the log's disk is too full, the queues' disk is not asked.
    asked = percents[:1] if percents[0] > limit else percents
    at_once = any(percent > DISK_SPACE_CLEAN_FORCIBLY_RATIO for percent in asked)
    return Verdict(
        time_up=_is_time(config.delete_when, at),
        space_full=any(percent > limit for percent in asked),
        manual=manual,
        clean_at_once=config.clean_file_forcibly_enable and at_once,
        refuses_messages=any(percent > DISK_SPACE_WARNING_LEVEL_RATIO for percent in percents),
    )


def _is_time(delete_when: str, at: int) -> bool:
    """``UtilAll#isItTimeToDo``: whether the hour of ``at`` is in a list such as ``04;16``."""
    hours = []
    # Java's split leaves out what is empty at the end.
    for text in (delete_when.rstrip(";") or delete_when).split(";"):
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise BrokerConfError(
                path="deleteWhen", reason=f"{delete_when!r} is not a list of hours such as 04;16"
            )
        hours.append(int(text))
    try:
        return datetime.fromtimestamp(at / 1000).hour in hours
    except (ValueError, OverflowError, OSError):
        return False
