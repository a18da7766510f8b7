"""Events while a store is copied, for the command that prints them."""

from __future__ import annotations

from typing import NamedTuple


class Joined(NamedTuple):
    """The master was asked for its log from an offset on. ``master_end`` is where it ended then."""

    address: str
    broker_name: str
    role: str
    from_offset: int
    master_start: int
    master_end: int
    file_size: int


class Progressed(NamedTuple):
    """How far the copy is: its log is on disk up to ``end``; the master's ended at ``master_end``
    when it was last asked."""

    end: int
    master_end: int
    records: int
    bytes: int


class Wrote(NamedTuple):
    """A file of ``config/`` was written."""

    name: str
    size: int


class Shortened(NamedTuple):
    """Files that are not kept were deleted: so many, of so many bytes. The log now begins at
    ``min_offset``."""

    min_offset: int
    files: int
    bytes: int


class Lost(NamedTuple):
    """The connection is lost; it will be made again."""

    reason: str


class Unanswered(NamedTuple):
    """The master does not give its files of ``config/``; it will be asked again."""

    reason: str


class Mismatch(NamedTuple):
    """A record was copied whose body fails its CRC."""

    physical_offset: int


Event = Joined | Progressed | Wrote | Shortened | Lost | Unanswered | Mismatch
