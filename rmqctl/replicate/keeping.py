"""How much of its log a copy keeps. A slave deletes expired files by its own settings
(``DefaultMessageStore.CleanCommitLogService``); so may a copy that follows a master for months."""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.services import retention
from rmqctl.engine.services.retention import Removal


class Keep(NamedTuple):
    """Which files of a log are kept: those modified within so many milliseconds
    (``fileReservedTime``), or the newest ones up to so many bytes, or those that the master has.
    The last file is always kept."""

    millis: int | None = None
    size: int | None = None
    as_master: bool = False

    def removals(self, store: MessageStore, master_start: int, now: int) -> list[Removal]:
        """What is deleted, in the order of deletion: the oldest files of the log first.

        :param master_start: where the master's log begins. :param now: ms.
        """
        entries = store.commit_log.files.entries
        total, count = sum(one.size for one in entries), 0
        for entry in entries[:-1]:
            end = entry.file_from_offset + entry.size
            if self.millis is not None:
                goes = entry.path.stat().st_mtime_ns // 1_000_000 < now - self.millis
            elif self.size is not None:
                goes = total > self.size
            else:
                goes = end <= master_start
            if not goes or end >= store.max_offset:
                break
            total, count = total - entry.size, count + 1
        return retention.oldest(store, count) if count else []
