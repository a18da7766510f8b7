"""The end of the log as an opening store sees it; found by :mod:`rmqctl.engine.start.logend`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from formats.constants import END_FILE_MIN_BLANK_LENGTH
from rmqctl.engine.record.record import Damage
from rmqctl.errors import DamagedStore

if TYPE_CHECKING:
    from rmqctl.engine.files.filequeue import FileEntry

#: Bytes behind the end that are looked at when a store is opened.
NEAR = 1 << 20
#: In place of damage: a record that the engine does not read.
BAD_DELAY = "delay-not-a-number"
#: In place of damage: a file of the log whose first record is that of another file.
MISPLACED_FILE = "misplaced-file"


class LogEnd(NamedTuple):
    """The end of the log as an opening store sees it.

    ``store_timestamp`` is that of the last record (ms; 0 when unknown); ``obstacle`` is damage
    behind which newer records stand, or a file of another place: a writer must not go on there.
    """

    offset: int
    store_timestamp: int
    obstacle: Damage | None


def is_of_other_file(entry: FileEntry, named: int) -> bool:
    """Whether the record at the front of a file names, as its own place, the front of another one:
    the files were swapped, or renamed. No crash leaves that: a file is made of zeros, and what is
    cut off in it has named its own place."""
    return named >= 0 and named != entry.file_from_offset and named % entry.size == 0


def check_end(end: LogEnd) -> None:
    """:raises DamagedStore: newer records stand behind damage at the end, or a file of the log that
    is not at its place, and would be lost."""
    if end.obstacle is not None and end.obstacle.reason == BAD_DELAY:
        raise DamagedStore(
            reason="a delayed message's level (DELAY) is no number: a broker deletes that message, "
            "and all behind it, at its start",
            physical_offset=end.obstacle.physical_offset,
        )
    if end.obstacle is not None and end.obstacle.reason == MISPLACED_FILE:
        raise DamagedStore(
            reason=f"the file {end.obstacle.expected} of the log is the one of offset "
            f"{end.obstacle.found}, as its first record says: an append would overwrite it, and "
            "what belongs there would be given up. Files that were swapped or renamed are whole: "
            "give them their names back",
            physical_offset=end.obstacle.physical_offset,
        )
    if end.obstacle is not None:
        raise DamagedStore(
            reason=f"newer records stand behind a damaged place ({end.obstacle.reason}): an append "
            "would overwrite them, and a broker deletes them at its start",
            physical_offset=end.obstacle.physical_offset,
        )


def check_blank_fits(end_of_file: int, left: int) -> None:
    """Checks that a blank fits into the rest of a file, ``left`` bytes before ``end_of_file``. A
    writer leaves room for one behind every record (``DefaultAppendMessageCallback#doAppend``).

    :raises DamagedStore: fewer bytes are left than a blank takes.
    """
    if left < END_FILE_MIN_BLANK_LENGTH:
        raise DamagedStore(
            reason=f"the last record of the log leaves {left} bytes of its file, too few for the "
            f"blank of {END_FILE_MIN_BLANK_LENGTH} bytes that leads to the next file. A broker "
            "cannot append there either. Nothing was put",
            physical_offset=end_of_file - left,
        )
