"""Reading a log on beside a broker whose retention deletes its oldest files.

A broker deletes from the front, whole files, one after the other
(``MappedFileQueue#deleteExpiredFileByTime``). So a reader that finds the next file gone, and all
before it, has lost nothing that is still there: it goes on with the first file that is left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from rmqctl.engine.files.paths import FileGone
from rmqctl.engine.record.record import End

if TYPE_CHECKING:
    from rmqctl.engine.log.commitlog import CommitLog

E = TypeVar("E")


def onward(
    log: CommitLog,
    read: Callable[[int | None, int | None], Iterator[E]],
    start: int | None = None,
    end: int | None = None,
) -> Generator[E | End]:
    """What ``read(start, end)`` yields, a walk or a scan of the log. Where retention has deleted
    files before they were read, it goes on with the first one that is left, and notes it in the
    log (:attr:`CommitLog.when_deleted`).

    For readers to whom each entry counts by itself. Who makes something of the log as a whole lets
    the error end it, and begins anew.

    :raises FileGone: a file is gone, and an earlier one is not, or none is left.
    """
    while True:
        try:
            with closing(read(start, end)) as entries:  # type: ignore[type-var]
                yield from entries
            return
        except FileGone as error:
            start = _first_left(log, error)
        if end is not None and start >= end:
            yield End(end)
            return


def _first_left(log: CommitLog, error: FileGone) -> int:
    """The physical offset at which the first file begins that is left of a log."""
    left = [os.path.lexists(entry.path) for entry in log.files.entries]
    paths = [str(entry.path) for entry in log.files.entries]
    gone = paths.index(str(error.path)) if str(error.path) in paths else -1
    if gone < 0 or any(left[: gone + 1]) or not any(left):
        raise error
    begin = log.files.entries[left.index(True)].file_from_offset
    log.deleted_bytes += begin - log.files.entries[gone].file_from_offset
    if begin > log.deleted_to:
        log.deleted_to = begin
        log.when_deleted(begin)
    return begin
