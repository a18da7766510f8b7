"""The data that a page draws of a store: files of the log, ranges of the queues, fill of the index.

It is looked up without walking over the log, which takes moments on any store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.files.shown import shown
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.errors import RmqctlError
from rmqctl.operations.look.index import index_info
from rmqctl.operations.look.queues import queues

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.engine.settings.storeconfig import MessageStoreConfig


class LogFile(NamedTuple):
    """A file of the log: its path (relative to the store if it lies in the store), its first
    physical offset, its length, and the store time (ms) of its first record, None without one."""

    path: str
    offset: int
    size: int
    begins: int | None


class QueueRange(NamedTuple):
    """The range of queue offsets that a queue has; its end is exclusive."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


class IndexFill(NamedTuple):
    """An index file: how many of its items are used, and the store times (ms) of its messages."""

    name: str
    items: int
    room: int
    begins: int
    ends: int


@dataclass
class Portrait:
    """A store as its files show it. ``log_end`` is the physical offset at which the log ends, or
    from which on it cannot be read; ``newest`` is the newest store time before that. ``problems``
    say what could not be looked at."""

    root: Path
    log: list[LogFile] = field(default_factory=list)
    log_end: int = 0
    newest: int | None = None
    queues: list[QueueRange] = field(default_factory=list)
    index: list[IndexFill] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def portrait(root: Path, config: MessageStoreConfig) -> Portrait:
    """Looks at a store, and changes nothing.

    :raises StoreNotFound, NotAStore, FileLengthContradiction: it cannot be opened.
    """
    found = Portrait(root)
    with MessageStore(root, config) as store:
        found.log_end, found.newest = store.max_offset, store.obstacle.store_timestamp or None
        for part, look in (("log", _log), ("queues", _queues), ("index", _index)):
            try:
                look(store, found)
            except RmqctlError as error:
                found.problems.append(f"{part}: {error}")
    return found


def _log(store: MessageStore, found: Portrait) -> None:
    log = store.commit_log
    for entry in log.files.entries:
        first = log.find_record(entry.file_from_offset) if entry.size > 0 else None
        begins = first.store_timestamp if isinstance(first, Record) else None
        found.log.append(
            LogFile(shown(found.root, entry.path), entry.file_from_offset, entry.size, begins)
        )


def _queues(store: MessageStore, found: Portrait) -> None:
    for row in queues(store):
        # The kept queue of a compacted topic (5.x) has nothing to do with the log's range.
        if row["type"] == "queue" and row.get("queue_type") != "SparseConsumeQueue":
            found.queues.append(
                QueueRange(row["topic"], row["queue_id"], row["min_offset"], row["max_offset"])
            )


def _index(store: MessageStore, found: Portrait) -> None:
    for row in index_info(store):
        if row["type"] == "index_file":
            found.index.append(
                IndexFill(
                    row["file"],
                    row["items"],
                    row["max_index_num"],
                    row["begin_timestamp"],
                    row["end_timestamp"],
                )
            )


def gaps(log: list[LogFile]) -> Iterator[tuple[int, int]]:
    """The ranges of physical offsets for which the log lacks files."""
    for one, following in pairwise(log):
        if one.offset + one.size < following.offset:
            yield one.offset + one.size, following.offset
