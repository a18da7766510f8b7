"""The note of a job that is put exactly once. It is beside the job's files in ``rmqctl-append/``.

It says which number is done, which job was begun and may not have ended, and by which record of the
log the store can be recognised.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from formats import constants
from rmqctl.engine.files import durable
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.state import brokerjson
from rmqctl.errors import ConfigFileUnreadable, RmqctlError

_NOTE = "done.json"
_FILE = r"[0-9a-f]{32}-[0-9]+-[0-9]+\.arrow"
_NO_NOTE = "it is none of rmqctl's notes"


class AppendNoteUnreadable(RmqctlError):
    template = (
        "{path} does not say what was appended: {reason}. Nothing was put. Look at the newest "
        "messages; without that file the job is put anew, with all of its messages."
    )


class StoreReplaced(RmqctlError):
    template = (
        "{path} is of another store, or its log has lost its end since: at physical offset "
        "{physical_offset}, where the last message of this job was put, it is not. Nothing was "
        "put. Bring the log back; or remove {directory}, and the job begins anew, with all of the "
        "messages that it is given."
    )


class Pending(NamedTuple):
    """A job whose messages, which are in ``files``, go to the log from the physical offset
    ``begin`` on, or behind it."""

    version: int
    begin: int
    timestamp: int
    as_stored: bool
    files: list[tuple[str, int]]


class Newest(NamedTuple):
    """The last message that a job has put. It was forced to disk before the note."""

    physical_offset: int
    store_timestamp: int


class Note(NamedTuple):
    """A note. ``done`` is the last number that is done; -1: none. ``pending`` is the job that was
    begun."""

    done: int = -1
    pending: Pending | None = None
    newest: Newest | None = None


def read_note(directory: Path) -> Note:
    """Reads the note in a directory. :raises AppendNoteUnreadable: it is invalid."""
    path = directory / _NOTE
    try:
        value = json.loads(brokerjson.read_text(path))
        newest = value.get("newest")
        known = None if newest is None else Newest(*map(_whole, newest))
        return Note(_whole(value["done"]), _pending(value["pending"]), known)
    except FileNotFoundError:
        return Note()
    except ConfigFileUnreadable as error:
        raise AppendNoteUnreadable(path=str(path), reason=error.reason) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise AppendNoteUnreadable(path=str(path), reason=_NO_NOTE) from error


def write_note(directory: Path, note: Note) -> None:
    pending = None if note.pending is None else note.pending._asdict()
    value = {"done": note.done, "pending": pending, "newest": note.newest}
    durable.write_whole(directory / _NOTE, json.dumps(value).encode())


def unreadable(directory: Path, reason: str) -> AppendNoteUnreadable:
    return AppendNoteUnreadable(path=str(directory / _NOTE), reason=reason)


def check_is_of(store: MessageStore, directory: Path, note: Note) -> None:
    """Checks that a store is the one of a note. That cannot be checked if retention has deleted the
    noted message.

    :raises StoreReplaced: it is another store.
    """
    if note.newest is None or note.newest.physical_offset < store.min_offset:
        return
    place = note.newest.physical_offset
    record = store.commit_log.find_record(place) if place < store.max_offset else None
    if record is None or record.store_timestamp != note.newest.store_timestamp:
        raise StoreReplaced(
            path=str(directory / _NOTE), physical_offset=place, directory=str(directory)
        )


def _pending(value: Any) -> Pending | None:
    """The pending job in a parsed note. :raises ValueError, TypeError, KeyError: it is invalid."""
    if value is None:
        return None
    files = []
    for name, messages in value["files"]:
        if not re.fullmatch(_FILE, name):
            raise ValueError(name)  # A note names only files in its own directory.
        files.append((name, _whole(messages)))
    version, begin, timestamp = (_whole(value[name]) for name in ("version", "begin", "timestamp"))
    return Pending(version, begin, timestamp, value["as_stored"] is True, files)


def _whole(value: Any) -> int:
    if type(value) is not int or abs(value) > constants.LONG_MAX:
        raise ValueError(value)
    return value
