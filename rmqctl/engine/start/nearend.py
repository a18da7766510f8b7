"""Checks the records before the end of a log, before the first append.

A broker that starts after a clean stop reads the last three files, and deletes all records behind
the first place there that it cannot read (``CommitLog#recoverNormally``): new messages would be
deleted with them. Opening a store does not read these files, so the last 256 KiB are checked before
something is put. After a crash a start reads only from the checkpoint on, but closing makes it a
clean stop: so then they are checked before anything is done. Only ``verify`` finds earlier damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.engine.dispatch.rules import has_bad_delay
from rmqctl.engine.log.end import BAD_DELAY
from rmqctl.engine.record.record import Damage, End, Record, body_seen, crc_matches, find_next
from rmqctl.engine.start.logend import PASSED_OVER
from rmqctl.errors import DamagedStore

if TYPE_CHECKING:
    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.engine.log.logwriter import CommitLogWriter

#: Bytes before the end that are checked.
LOOKED_AT = 256 << 10
#: How many files ``CommitLog#recoverNormally`` reads.
_RECOVERED_FILES = 3


def check_near_end(log: CommitLogWriter) -> None:
    """:func:`check_before` for the next append. Does nothing a second time, or if opening the store
    has done it."""
    if log.is_unread:
        check_before(log, log.write_offset)
        log.is_unread = False


def check_before(log: CommitLog, end: int) -> None:
    """:raises DamagedStore: a start after a clean stop would delete records before ``end``, and all
    that are put there."""
    damage = _last_damage(log, end) if log.files.entries else None
    if damage is not None:
        raise DamagedStore(
            reason=f"a damaged place ({damage.reason}) stands where a broker's start reads the "
            "log: it deletes all that is behind it, and the messages put now with it. Nothing was "
            "put",
            physical_offset=damage.physical_offset,
        )


def _last_damage(log: CommitLog, end: int) -> Damage | None:
    """The damage shortly before ``end`` at which a start ends the log; None without any."""
    entries = log.files.entries
    start = max(entries[-_RECOVERED_FILES:][0].file_from_offset, end - LOOKED_AT)
    number = log.files.index_of(start)
    if number < 0:
        return None
    position = start - entries[number].file_from_offset
    if position:
        position = find_next(log.files.file(number), position)
        if position == entries[number].size:
            number, position = number + 1, 0
    while number < len(entries) and log.offset_of(number, max(position, 0)) < end:
        step = log.step(number, position)
        entry = step.entry
        if isinstance(entry, Record):
            if not crc_matches(body_seen(log.files.file(number), entry), entry):
                return Damage(entry.physical_offset, 0, "body-crc-mismatch", "", "")
            if has_bad_delay(entry.topic, entry.properties):
                return Damage(entry.physical_offset, 0, BAD_DELAY, "", "")
        elif isinstance(entry, Damage) and entry.reason not in PASSED_OVER:
            return entry
        elif isinstance(entry, End):
            return None
        number, position = step.number, step.position
    return None
