"""Files of a log under names that are not theirs: an operator's slip, which no crash leaves.

A file's name is the offset of its first byte, and each record says its own place as well. Where the
first two records agree they are right about the file: a flipped bit makes one say another place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from formats.layouts import RecordPrefix
from rmqctl.engine.files.paths import open_for_reading, scan_names
from rmqctl.engine.record.record import LONGEST_PREFIX, TAILS, prefix_at
from rmqctl.errors import CannotRead


def file_name(file_from_offset: int) -> str:
    """The name of a file by its first offset: 20 digits (``UtilAll#offset2FileName``)."""
    return f"{file_from_offset:020d}"


def place_in_file(path: Path, file_size: int) -> int | None:
    """The first offset of a file of ``file_size`` bytes, as its first two records say it; None: it
    has another length, does not begin with two records that stood at a file's front, or the system
    refuses to read it."""
    try:
        descriptor = open_for_reading(path)
    except CannotRead:
        return None  # Who looks at names tells what it is called.
    try:
        if os.fstat(descriptor).st_size != file_size:
            return None
        first = _head_at(descriptor, 0)
        if first is None or first.physical_offset < 0 or first.physical_offset % file_size:
            return None
        second = _head_at(descriptor, first.total_size)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    follows = first.physical_offset + first.total_size
    is_said_twice = second is not None and second.physical_offset == follows
    return first.physical_offset if is_said_twice else None


def _head_at(descriptor: int, position: int) -> RecordPrefix | None:
    """The fixed fields of the record at a position; None: none begins there."""
    head = os.pread(descriptor, LONGEST_PREFIX, max(position, 0))
    found = prefix_at(head, 0, len(head))
    return found if found is not None and found.magic_code in TAILS else None


def own_name(path: Path, directories: Iterable[Path], file_size: int) -> str | None:
    """The name that a whole file of the log should have, and has not; None: it is none, has its
    name, or is a copy of the file that has it. ``directories`` are those of the log."""
    place = place_in_file(path, file_size)
    if place is None or path.name == file_name(place):
        return None
    others = (directory / file_name(place) for directory in directories)
    is_copy = any(place_in_file(other, file_size) == place for other in others)
    return None if is_copy else file_name(place)


def misnamed_files(directories: Iterable[Path], file_size: int) -> dict[int, Path]:
    """The log's whole files that have not their names (:func:`own_name`), by their first offsets.
    Opens every file of the log once."""
    found = {}
    every = tuple(directories)
    for directory in every:
        for name in scan_names(directory):
            own = own_name(directory / name, every, file_size)
            if own is not None:
                found[int(own)] = directory / name
    return found
