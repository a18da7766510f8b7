"""Checks the physical offsets that a user names: whether a record starts there, and else where the
next one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.constants import LONG_MAX
from rmqctl.engine.files.shown import shown
from rmqctl.engine.record.entries import next_place
from rmqctl.engine.record.record import Record, find_next
from rmqctl.errors import NoRecordAt, NotARecordStart

if TYPE_CHECKING:
    from rmqctl.engine.files.mappedfile import MappedFile
    from rmqctl.engine.messagestore import MessageStore


def next_entry_offset(store: MessageStore, physical_offset: int, end: int = LONG_MAX) -> int | None:
    """The physical offset of the next record or blank behind an offset; None where none follows, or
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
    """The error for an offset at which no record starts. It names the next record."""
    following = next_entry_offset(store, physical_offset)
    if following is None:
        reason = f"{reason}; none follows, the log ends at {store.max_offset}"
        return NoRecordAt(physical_offset=physical_offset, reason=reason)
    return NotARecordStart(physical_offset=physical_offset, reason=reason, next_offset=following)


def require_place(store: MessageStore, physical_offset: int) -> tuple[MappedFile, int]:
    """The file of an offset, and the position in it.

    :raises NoRecordAt: the offset lies in no file: before the log, behind it, or where a file is
        missing or too short, which the error then names.
    """
    mapped = store.commit_log.files.find(physical_offset)
    if mapped is not None:
        return mapped, physical_offset - mapped.file_from_offset
    lost = _lost_file(store, physical_offset)
    if lost is not None:
        raise no_record(store, physical_offset, lost)
    reason = f"the log has {store.min_offset} to {store.max_offset}"
    raise NoRecordAt(physical_offset=physical_offset, reason=reason)


def _lost_file(store: MessageStore, physical_offset: int) -> str | None:
    """What is wrong with the file that would hold an offset between files; None for an offset
    before the first file or behind the last."""
    entries, size = store.commit_log.files.entries, store.commit_log.file_size
    before = [entry for entry in entries if entry.file_from_offset <= physical_offset]
    if not before or len(before) == len(entries):
        return None
    last = before[-1]
    files, begin = (physical_offset - last.file_from_offset) // size, last.file_from_offset
    place = last.path if not files else last.path.with_name(f"{begin + files * size:020d}")
    # With several log directories it is unknown which one had the file.
    is_one = len({entry.path.parent for entry in entries}) == 1
    name = shown(store.root, place) if is_one or not files else place.name
    if not files:
        return f"{name} has only {last.size} bytes, and ends before it"
    return f"the file {name}, which would hold it, is missing"


def require_record(store: MessageStore, physical_offset: int) -> Record:
    """The record at an offset.

    :raises NotARecordStart: no record starts there. The error names the next offset where one does.
    :raises NoRecordAt: no record starts there or behind it, or the log does not reach there.
    """
    require_place(store, physical_offset)
    try:
        return store.look_message_by_offset(physical_offset)
    except NoRecordAt as error:
        raise no_record(store, physical_offset, str(error.values["reason"])) from None
