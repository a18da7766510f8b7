"""Physical offsets that a user names: where a record starts, or the next one after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.constants import LONG_MAX
from rmqctl.engine.record.entries import next_place
from rmqctl.engine.record.record import Record, find_next
from rmqctl.errors import NoRecordAt, NotARecordStart

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore


def next_entry_offset(store: MessageStore, physical_offset: int, end: int = LONG_MAX) -> int | None:
    """Physical offset of the next record or blank behind another one; None when none follows, or
    none before ``end``."""
    files = store.commit_log.files
    for number, entry in enumerate(files.entries):
        if entry.file_from_offset + entry.size <= physical_offset:
            continue
        if entry.file_from_offset >= end:
            break
        mapped = files.file(number)
        position = max(physical_offset + 1 - mapped.file_from_offset, 0)
        position = next_place(mapped, position) if mapped.framed else find_next(mapped, position)
        if position < mapped.size:
            found = mapped.file_from_offset + position
            return found if found < end else None
    return None


def no_record(store: MessageStore, physical_offset: int, reason: str) -> NoRecordAt:
    """What is raised for an offset at which no record starts: it names the next one's."""
    following = next_entry_offset(store, physical_offset)
    if following is None:
        reason = f"{reason}; none follows, the log ends at {store.max_offset}"
        return NoRecordAt(physical_offset=physical_offset, reason=reason)
    return NotARecordStart(physical_offset=physical_offset, reason=reason, next_offset=following)


def require_record(store: MessageStore, physical_offset: int) -> Record:
    """The record at an offset.

    :raises NotARecordStart: none starts there; the error names the next offset where one does.
    :raises NoRecordAt: none starts there nor after it, or the log does not reach there.
    """
    store.commit_log.locate(physical_offset)
    try:
        return store.look_message_by_offset(physical_offset)
    except NoRecordAt as error:
        raise no_record(store, physical_offset, str(error.values["reason"])) from None
