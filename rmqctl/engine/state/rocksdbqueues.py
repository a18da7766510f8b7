"""The database of queues of 5.x (``RocksDBConsumeQueueStore``): units, and begin and end of queues.

Units behind a queue's end are left over from a log that was cut; later messages replace them. Units
before its begin are of expired messages; RocksDB removes them at some time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from formats import rocksdb as layout
from formats.constants import CQ_STORE_UNIT_SIZE, INT_MAX, LONG_MAX
from rmqctl.engine.state.rocksdb import Database

_UNITS, _OFFSETS = "default", "offset"
#: The largest queue offset: behind it a unit's position in a file would not be a Java long.
_LAST_OFFSET = LONG_MAX // CQ_STORE_UNIT_SIZE - 1


class LastUnit(NamedTuple):
    """The last unit of a queue. ``size`` and ``tags_code`` are None where they are unknown: the
    database no longer has the unit."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int | None
    tags_code: int | None


class Place(NamedTuple):
    """The entry of a queue's first or last unit in the column family ``offset``."""

    physical_offset: int
    queue_offset: int


class StoredUnit(NamedTuple):
    """A unit of a queue in RocksDB. ``store_timestamp`` (ms) is that of its record."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int


class QueueDatabase:
    """One database of queues, open until :meth:`close`; any thread may read.

    Malformed keys and values are ignored. For a topic that no key can have, nothing is found.

    :raises RocksDBMissing, RocksDBUnreadable: it cannot be read. Each method may raise the latter.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path).open()

    def close(self) -> None:
        self._database.close()

    def places(self) -> Iterator[tuple[str, int, Place]]:
        """Topic, queue id and last unit of every queue that ever had a unit."""
        for key, value in self._database.items(_OFFSETS):
            queue, place = _queue_of(key), _place(value)
            if queue is not None and place is not None:
                yield *queue, place

    def ends(self) -> list[LastUnit]:
        """The last unit of every queue, sorted by topic and queue id."""
        found = []
        for topic, queue_id, place in self.places():
            unit = self.unit(topic, queue_id, place.queue_offset)
            size = tags_code = None
            if unit is not None and unit.physical_offset == place.physical_offset:
                size, tags_code = unit.size, unit.tags_code
            at = place.queue_offset, place.physical_offset
            found.append(LastUnit(topic, queue_id, *at, size, tags_code))
        return sorted(found, key=lambda one: one[:2])

    def queue_ids(self, topic: str) -> Iterator[int]:
        """Numbers of the queues of a topic that have had a unit, ascending. Only the keys of this
        topic are read."""
        if topic == layout.CHECKPOINT_TOPIC or not _is_key(topic, 0):
            return
        before = layout.end_key(topic, 0)[: -layout.QUEUE_ID.size]
        for key, value in self._database.items(_OFFSETS, before):
            if not key.startswith(before):
                return
            queue = _queue_of(key)
            if queue is not None and _place(value) is not None:
                yield queue[1]

    def last(self, topic: str, queue_id: int) -> Place | None:
        """The last unit of a queue; None when there never was one."""
        if topic == layout.CHECKPOINT_TOPIC:
            return None
        return self._place(topic, queue_id, layout.MAX)

    def first(self, topic: str, queue_id: int) -> Place | None:
        """The first unit of a queue, as a broker last noted it: its record may have expired since
        (``RocksDBConsumeQueueOffsetTable#getMinCqOffset``)."""
        return self._place(topic, queue_id, layout.MIN)

    def _place(self, topic: str, queue_id: int, which: bytes) -> Place | None:
        if not _is_key(topic, queue_id):
            return None
        value = self._database.get(_OFFSETS, layout.end_key(topic, queue_id, which))
        return None if value is None else _place(value)

    def built_to(self) -> int:
        """Physical offset up to which the log is dispatched, as of the database's last flush
        (``RocksDBConsumeQueueOffsetTable#getMaxPhyOffset``); 0 if it is not noted."""
        value = self._database.get(_OFFSETS, layout.end_key(layout.CHECKPOINT_TOPIC, 0))
        if value is None or len(value) != layout.BUILT_TO.size:
            return 0
        (offset,) = layout.BUILT_TO.unpack(value)
        return max(int(offset), 0)

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> StoredUnit | None:
        """The unit at a queue offset; None without one."""
        if not (_is_key(topic, queue_id) and 0 <= queue_offset <= LONG_MAX):
            return None
        value = self._database.get(_UNITS, layout.unit_key(topic, queue_id, queue_offset))
        return None if value is None or len(value) != layout.UNIT.size else _unit(value)

    def units(self, topic: str, queue_id: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Queue offset and bytes (:data:`formats.rocksdb.UNIT`) of the stored units at queue
        offsets ``[start, end)``, in order."""
        key = layout.unit_key(topic, queue_id, start)
        before = key[: -layout.QUEUE_OFFSET.size]
        for other, value in self._database.items(_UNITS, key):
            if not other.startswith(before):
                return
            if len(other) != len(key) or len(value) != layout.UNIT.size:
                continue
            (queue_offset,) = layout.QUEUE_OFFSET.unpack_from(other, len(before))
            if not start <= queue_offset < end:
                return
            yield queue_offset, value

    def last_stored(self, topic: str, queue_id: int, end: int) -> int | None:
        """Queue offset of the last stored unit before queue offset ``end``; None without one."""
        key = layout.unit_key(topic, queue_id, max(end - 1, 0))
        found = self._database.last(_UNITS, key)
        before = key[: -layout.QUEUE_OFFSET.size]
        if found is None or not found.startswith(before) or len(found) != len(key):
            return None
        (queue_offset,) = layout.QUEUE_OFFSET.unpack_from(found, len(before))
        return int(queue_offset)


def queue_ends(root: Path, name: str) -> list[LastUnit]:
    """The last unit of every queue in the database ``name``.

    :raises RocksDBMissing, RocksDBUnreadable: it cannot be read.
    """
    database = QueueDatabase(root / name)
    try:
        return database.ends()
    finally:
        database.close()


def _is_key(topic: str, queue_id: int) -> bool:
    """Whether a key can have this topic and queue id."""
    is_number = 0 <= queue_id <= INT_MAX
    return is_number and not any("\ud800" <= letter <= "\udfff" for letter in topic)


def _queue_of(key: bytes) -> tuple[str, int] | None:
    """Topic and queue id in a key of a last unit; None for any other key."""
    parts = layout.topic_and_rest(key)
    before = layout.MAX + layout.MARK
    if parts is None or parts[0] == layout.CHECKPOINT_TOPIC:
        return None
    topic, rest = parts
    if not rest.startswith(before) or len(rest) != len(before) + layout.QUEUE_ID.size:
        return None
    (queue_id,) = layout.QUEUE_ID.unpack(rest[len(before) :])
    return None if queue_id < 0 else (topic, queue_id)


def _place(value: bytes) -> Place | None:
    if len(value) != layout.END.size:
        return None
    place = Place._make(layout.END.unpack(value))
    is_place = place.physical_offset >= 0 and 0 <= place.queue_offset < _LAST_OFFSET
    return place if is_place else None


def _unit(value: bytes) -> StoredUnit:
    return StoredUnit._make(layout.UNIT.unpack(value))
