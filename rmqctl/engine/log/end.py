"""``LogEnd``: where the log ends when a store is opened (:mod:`rmqctl.engine.start.logend`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from formats.constants import END_FILE_MIN_BLANK_LENGTH
from rmqctl.engine.record.record import Damage
from rmqctl.errors import DamagedStore

if TYPE_CHECKING:
    from rmqctl.engine.files.filequeue import FileEntry

#: Bytes behind the end that are read when a store is opened.
NEAR = 1 << 20
#: Reason of an obstacle that is a whole record: no broker reads it, for its DELAY is no number.
BAD_DELAY = "delay-not-a-number"
#: Reason of an obstacle that is a whole file: its first record belongs to another file.
MISPLACED_FILE = "misplaced-file"


class LogEnd(NamedTuple):
    """The end of the log when a store is opened.

    ``offset`` is the physical offset behind the last record. ``store_timestamp`` is that of the
    last record (ms; 0: not known). With an ``obstacle`` no writer may append there: damage with
    newer records behind it, :data:`BAD_DELAY` or :data:`MISPLACED_FILE`.
    """

    offset: int
    store_timestamp: int
    obstacle: Damage | None


def is_of_other_file(entry: FileEntry, named: int, file_size: int) -> bool:
    """Whether a file's first record belongs to the start of another file, because files were
    swapped or renamed.

    A crash does not leave that: a new file is all zeros, and a torn record in it names this place.

    :param named: PHYSICALOFFSET of the file's first record.
    :param file_size: bytes of a whole file of the log.
    """
    return named >= 0 and named != entry.file_from_offset and named % file_size == 0


def check_end(end: LogEnd) -> None:
    """Refuses to append at an end that has an obstacle.

    :raises DamagedStore: records, or a file, would be overwritten and lost.
    """
    if end.obstacle is not None and end.obstacle.reason == BAD_DELAY:
        raise DamagedStore(
            reason="a delayed message's level (DELAY) is no number: a broker deletes that message, "
            "and all behind it, at its start",
            physical_offset=end.obstacle.physical_offset,
        )
    if end.obstacle is not None and end.obstacle.reason == MISPLACED_FILE:
        raise DamagedStore(
            reason=f"the file {end.obstacle.expected} of the log is the one of offset "
            f"{end.obstacle.found}, as its first record says: an append would take its place, "
            "and what belongs there would be given up. Files that were swapped or renamed are "
            "whole: give them their names back",
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
