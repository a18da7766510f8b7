"""Which files of a log may hold messages of a time, judged by the first records of each file.

A broker appends in the order of its clock. A clock is set back now and then, so a file is skipped
only when its times are out of range by a margin (:data:`CLOCK_SLACK`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqctl.engine.files.paths import FileGone
from rmqctl.engine.record.record import Damage, Record

if TYPE_CHECKING:
    from rmqctl.engine.log.commitlog import CommitLog

#: Milliseconds by which store times may go back in a log without a message being missed.
CLOCK_SLACK = 3_600_000
#: Records at the start of a file whose times are read: that of a single one may be damaged.
_WITNESSES = 8


def may_hold(
    log: CommitLog, number: int, since: int | None, until: int | None, slack: int = CLOCK_SLACK
) -> bool:
    """Whether a file may hold messages stored from ``since`` to ``until`` (ms, both inclusive;
    None: no limit), judged by its first records and those of the next file.

    A gap behind a file, where files are missing, counts as part of it.

    :param slack: the margin in ms; negative: times say nothing, and every file may.
    """
    if slack < 0:
        return True
    if until is not None:
        times = _first_times(log, number)
        if times and min(times) - slack > until:
            return False
    if since is not None:
        following = _first_times(log, number + 1) or _latest_times(log, number)
        if following and max(following) + slack < since:
            return False
    return True


def stretches(
    log: CommitLog,
    since: int | None,
    until: int | None,
    end: int | None = None,
    *,
    start: int | None = None,
) -> Iterator[tuple[int | None, int | None]]:
    """The parts of a log that may hold messages of these store times (:func:`may_hold`), as
    ``(start, end)``; None is the start, or the end, of the log.

    Walks of the parts yield every message of these times that a walk of ``[start, end)`` yields.
    ``start`` is the offset of a record.
    """
    if since is None and until is None:
        yield start, end
        return
    begin: int | None = None
    for number, entry in enumerate(log.files.entries):
        at = entry.file_from_offset
        if end is not None and at >= end:
            break
        if start is not None and at + entry.size <= start:
            continue
        if may_hold(log, number, since, until):
            first = at if start is None else max(at, start)
            begin = first if begin is None else begin
        elif begin is not None:
            yield begin, at
            begin = None
    if begin is not None:
        yield begin, end


def _first_times(log: CommitLog, number: int) -> list[int]:
    """Store times (ms) of the first records of a file; none when one of them is damaged, or there
    is no such file."""
    times: list[int] = []
    if number == len(log.files.entries):
        return times
    place = log.files.entries[number].file_from_offset
    while len(times) < _WITNESSES and log.files.index_of(place) == number:
        try:
            entry = log.entry_at(place)
        except FileGone:
            return []  # Retention has deleted it since it was listed.
        if isinstance(entry, Damage):
            return []
        if not isinstance(entry, Record):
            break
        times.append(entry.store_timestamp)
        place = entry.physical_offset + entry.total_size
    return times


def _latest_times(log: CommitLog, number: int) -> list[int]:
    """For the last file of a log, two times (ms): now, and when the file was modified last. No
    record in it is newer than the later one. Empty for other files."""
    if number + 1 < len(log.files.entries):
        return []
    now = int(time.time() * 1000)
    try:
        return [now, int(log.files.entries[number].path.stat().st_mtime * 1000)]
    except OSError:
        return [now]  # The file is a URL, or retention has removed it.
