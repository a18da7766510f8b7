"""What happens while a store is copied, for whoever tells a user."""

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
    """How far the copy is: ``end`` is on disk, ``master_end`` is the master's when it was last
    asked."""

    end: int
    master_end: int
    records: int
    bytes: int


class Wrote(NamedTuple):
    """A file of ``config/`` was written."""

    name: str
    size: int


class Shortened(NamedTuple):
    """What was not to be kept is gone: so many files and bytes; the log begins there now."""

    min_offset: int
    files: int
    bytes: int


class Lost(NamedTuple):
    """The connection is lost; the copy goes on with the next one."""

    reason: str


class Unanswered(NamedTuple):
    """The master does not give its files of ``config/``; it is asked again."""

    reason: str


class Mismatch(NamedTuple):
    """A record was copied whose body is not what was stored."""

    physical_offset: int


Event = Joined | Progressed | Wrote | Shortened | Lost | Unanswered | Mismatch
