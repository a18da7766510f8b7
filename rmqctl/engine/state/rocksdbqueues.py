"""The database of queues of 5.x (``RocksDBConsumeQueueStore``): units, where queues begin and end.

Units behind a queue's end are left from a log that was cut, and a later message takes their place;
those before its begin are of messages that have expired, and RocksDB drops them when it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from formats import rocksdb as layout
from formats.constants import CQ_STORE_UNIT_SIZE, INT_MAX, LONG_MAX
from rmqctl.engine.state.rocksdb import Database

_UNITS, _OFFSETS = "default", "offset"
#: Behind it a unit's place in a file would be no Java long: nobody has such a queue.
_LAST_OFFSET = LONG_MAX // CQ_STORE_UNIT_SIZE - 1


class QueueEnd(NamedTuple):
    """The last unit of a queue: where its record is, or was, and its size and tags code; both None
    when the database has the unit no more."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int | None
    tags_code: int | None


class Place(NamedTuple):
    """What the column family ``offset`` says of a queue's first or last unit."""

    physical_offset: int
    queue_offset: int


class StoredUnit(NamedTuple):
    """A unit of a queue in RocksDB; ``store_timestamp`` is its record's."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int


class QueueDatabase:
    """One database of queues, open until :meth:`close`; any thread may read.

    Keys and values of other shapes than a broker's are passed over, and so is a topic of a caller
    that no key can have.

    :raises RocksDBMissing, RocksDBUnreadable: it cannot be read; each method raises the latter.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path).open()

    def close(self) -> None:
        self._database.close()

    def places(self) -> Iterator[tuple[str, int, Place]]:
        """Topic, queue number and last unit of every queue that has had one."""
        for key, value in self._database.items(_OFFSETS):
            queue, place = _queue_of(key), _place(value)
            if queue is not None and place is not None:
                yield *queue, place

    def ends(self) -> list[QueueEnd]:
        """The end of every queue, sorted by topic and number."""
        found = []
        for topic, queue_id, place in self.places():
            unit = self.unit(topic, queue_id, place.queue_offset)
            size = tags_code = None
            if unit is not None and unit.physical_offset == place.physical_offset:
                size, tags_code = unit.size, unit.tags_code
            at = place.queue_offset, place.physical_offset
            found.append(QueueEnd(topic, queue_id, *at, size, tags_code))
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
        """The last unit of a queue; None when there has been none."""
        if topic == layout.CHECKPOINT_TOPIC:
            return None
        return self._place(topic, queue_id, layout.MAX)

    def first(self, topic: str, queue_id: int) -> Place | None:
        """The first unit of a queue as it was when somebody asked last: its record may have expired
        since (``RocksDBConsumeQueueOffsetTable#getMinCqOffset``)."""
        return self._place(topic, queue_id, layout.MIN)

    def _place(self, topic: str, queue_id: int, which: bytes) -> Place | None:
        if not _is_key(topic, queue_id):
            return None
        value = self._database.get(_OFFSETS, layout.end_key(topic, queue_id, which))
        return None if value is None else _place(value)

    def built_to(self) -> int:
        """Physical offset up to which the log's records have their units, as far as the database
        was flushed (``RocksDBConsumeQueueOffsetTable#getMaxPhyOffset``); 0 when it does not say."""
        value = self._database.get(_OFFSETS, layout.end_key(layout.CHECKPOINT_TOPIC, 0))
        if value is None or len(value) != layout.BUILT_TO.size:
            return 0
        (offset,) = layout.BUILT_TO.unpack(value)
        return max(int(offset), 0)

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> StoredUnit | None:
        """The unit at a queue offset; None when there is none."""
        if not (_is_key(topic, queue_id) and 0 <= queue_offset <= LONG_MAX):
            return None
        value = self._database.get(_UNITS, layout.unit_key(topic, queue_id, queue_offset))
        return None if value is None or len(value) != layout.UNIT.size else _unit(value)

    def units(self, topic: str, queue_id: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Queue offset and bytes (:data:`formats.rocksdb.UNIT`) of the units that are stored at
        queue offsets ``[start, end)``, in order."""
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
        """Queue offset of the last unit that is stored before queue offset ``end``."""
        key = layout.unit_key(topic, queue_id, max(end - 1, 0))
        found = self._database.last(_UNITS, key)
        before = key[: -layout.QUEUE_OFFSET.size]
        if found is None or not found.startswith(before) or len(found) != len(key):
            return None
        (queue_offset,) = layout.QUEUE_OFFSET.unpack_from(found, len(before))
        return int(queue_offset)


def queue_ends(root: Path, name: str) -> list[QueueEnd]:
    """The end of every queue that the database ``name`` of queues knows.

    :raises RocksDBMissing, RocksDBUnreadable: it cannot be read.
    """
    database = QueueDatabase(root / name)
    try:
        return database.ends()
    finally:
        database.close()


def _is_key(topic: str, queue_id: int) -> bool:
    """Whether a caller's queue can be in a key."""
    is_number = 0 <= queue_id <= INT_MAX
    return is_number and not any("\ud800" <= letter <= "\udfff" for letter in topic)


def _queue_of(key: bytes) -> tuple[str, int] | None:
    """Topic and number of the queue whose last unit a key is of."""
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
