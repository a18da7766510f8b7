"""``config/tieredStoreMetadata.json``: a broker's list of its uploaded segments.

A broker reads only the segments named here, and only up to their ``size``, except the last one of a
log and of a queue (``FlatAppendFile#recoverFileSize``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from formats.constants import LONG_MAX
from rmqctl.engine.files.paths import scan_names
from rmqctl.engine.state import brokerjson

FILE = "tieredStoreMetadata.json"
#: Directory of index files that are not uploaded yet (``IndexStoreService``).
LOCAL_INDEX = "tiered_index_file"
COMMIT_LOG, CONSUME_QUEUE, INDEX = KINDS = ("COMMIT_LOG", "CONSUME_QUEUE", "INDEX")
#: The tables of ``KINDS`` (``FileSegmentType``).
_TABLES = ("commitLogFileSegmentTable", "consumeQueueFileSegmentTable", "indexFileSegmentTable")
_NUMBERS = ("baseOffset", "size", "status", "createTimestamp", "beginTimestamp", "endTimestamp")


class SegmentMetadata(NamedTuple):
    """The entry of a segment. Times are epoch milliseconds; None if not set (``Long#MAX_VALUE``).
    ``path`` is ``broker/topic/queue id``, as in the file."""

    path: str
    kind: str
    base_offset: int
    size: int
    status: int
    create_timestamp: int | None
    begin_timestamp: int | None
    end_timestamp: int | None


class TieredMetadata(NamedTuple):
    """``topic_ids`` are the index's numbers for topics. ``segments`` are keyed by path, kind and
    base."""

    topic_ids: dict[str, int]
    segments: dict[tuple[str, str, int], SegmentMetadata]


def tiered_storage(root: Path) -> str | None:
    """A name in a store that shows that its broker uploads messages; None without one."""
    name = f"{brokerjson.CONFIG}/{FILE}"
    if os.path.lexists(root / name):
        return name
    return LOCAL_INDEX if scan_names(root / LOCAL_INDEX) else None


def read_metadata(root: Path) -> TieredMetadata | None:
    """The metadata as a broker loads it, without malformed entries. None: the store has none.

    :raises ConfigFileUnreadable: the file is broken, and its ``.bak`` does not help.
    :raises CannotRead: the system refuses.
    """
    value = brokerjson.read_config(root, FILE)
    if value is None:
        return None
    topics = {}
    for name, topic in brokerjson.table_of(value, "topicMetadataTable").items():
        number = brokerjson.whole(topic.get("topicId")) if isinstance(topic, dict) else None
        if isinstance(name, str) and number is not None:
            topics[name] = number
    segments = {(one.path, one.kind, one.base_offset): one for one in _segments(value)}
    return TieredMetadata(topics, segments)


def _segments(value: Any) -> Iterator[SegmentMetadata]:
    for kind, name in zip(KINDS, _TABLES, strict=True):
        for path, table in brokerjson.table_of(value, name).items():
            entries = table.values() if isinstance(table, dict) else ()
            for entry in entries:
                segment = _segment(str(path), kind, entry)
                if segment is not None:
                    yield segment


def _segment(path: str, kind: str, entry: Any) -> SegmentMetadata | None:
    if not isinstance(entry, dict):
        return None
    numbers = [brokerjson.whole(entry.get(name, 0)) for name in _NUMBERS]
    base, size, status, *times = (-1 if one is None else one for one in numbers)
    if not (0 <= base <= LONG_MAX and 0 <= size <= LONG_MAX):
        return None
    created, begin, end = (one if 0 < one < LONG_MAX else None for one in times)
    return SegmentMetadata(path, kind, base, size, status, created, begin, end)
