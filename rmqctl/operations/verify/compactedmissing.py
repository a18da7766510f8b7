"""Checks that a compacted topic has kept the latest message of each key, as far as the commit log
still has the messages of the queue."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from formats.constants import PROPERTY_KEYS
from rmqctl.engine.files import paths
from rmqctl.engine.queue.compactedqueue import CompactedQueue
from rmqctl.engine.store import Store
from rmqctl.operations.verify.compactedrecords import Checked, hash_of
from rmqctl.operations.verify.findings import Finding, finding

if TYPE_CHECKING:
    from rmqctl.engine.queue.consumequeue import ConsumeQueue
    from rmqctl.engine.record.record import Record


class _Absent:
    """Messages before the end of the compaction that are not kept, column by column: 25 bytes
    each."""

    def __init__(self) -> None:
        self.hashes, self.offsets, self.places = array("q"), array("q"), array("q")
        self.has_body = bytearray()

    def add(self, key: str, record: Record) -> None:
        self.hashes.append(hash_of(key))
        self.offsets.append(record.queue_offset)
        self.places.append(record.physical_offset)
        self.has_body.append(record.body_length > 0)


def check_missing(store: Store, queue: CompactedQueue, checked: Checked) -> Iterator[Finding]:
    """At most one finding: the first message that is missing, and how many others are. Messages
    behind the last one that is kept are not missing: the broker has yet to copy them.

    :raises CannotRead: a file cannot be read.
    """
    ordinary = store.consume_queue(queue.topic, queue.queue_id) if store.queues.in_files else None
    if ordinary is None or checked.last_offset < 0:
        return
    absent, lost = _Absent(), _Lost()
    for record in _not_kept(store, queue, ordinary, checked):
        key = record.properties.get(PROPERTY_KEYS, "")
        if not key.strip():
            continue  # A broker copies no message without a key.
        if record.queue_offset > checked.position:
            lost.add(record.queue_offset, record.physical_offset)
        else:
            absent.add(key, record)
    for row in _latest_of(absent, checked):
        lost.add(absent.offsets[row], absent.places[row])
    if lost.count:
        more = f", and {lost.count - 1} more" if lost.count > 1 else ""
        yield finding(
            "compaction-message-missing",
            path=f"{paths.COMPACTION_LOG}/{queue.topic}/{queue.queue_id}",
            physical_offset=lost.first[1],
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=lost.first[0],
            expected="the latest message of each key",
            found=f"no copy of it{more}",
        )


class _Lost:
    """How many messages are missing, and the queue offset and physical offset of the first."""

    def __init__(self) -> None:
        self.count, self.first = 0, (0, 0)

    def add(self, queue_offset: int, physical_offset: int) -> None:
        place = queue_offset, physical_offset
        self.first = min(self.first, place) if self.count else place
        self.count += 1


def _not_kept(
    store: Store, queue: CompactedQueue, ordinary: ConsumeQueue, checked: Checked
) -> Iterator[Record]:
    """The records of the commit log that are not kept, in the order of their queue offsets, up to
    the last one that is kept."""
    kept = chain(checked.offsets, checked.later, [checked.last_offset + 1])
    following = next(kept)
    end = min(checked.last_offset + 1, ordinary.max_offset)
    for queue_offset, unit in ordinary.units(ordinary.min_offset, end):
        while following < queue_offset:
            following = next(kept)
        if following == queue_offset:
            continue
        record = store.commit_log.find_record(unit.physical_offset)
        # That a unit leads to another record is found by the check of the commit log.
        if record is not None and (record.topic, record.queue_offset) == (
            queue.topic,
            queue_offset,
        ):
            yield record


def _latest_of(absent: _Absent, checked: Checked) -> list[int]:
    """The rows of ``absent``, ascending, whose messages should have been kept. Such a message has a
    body, and no later message, whether kept or absent, has its key."""
    import numpy as np

    columns = zip((absent.hashes, absent.offsets), (checked.hashes, checked.offsets), strict=True)
    hashes, offsets = (np.array(one + other, np.int64) for one, other in columns)
    order = np.lexsort((offsets, hashes))
    is_last = np.append(hashes[order][:-1] != hashes[order][1:], [True])[: len(order)]
    latest = order[is_last]
    rows = np.sort(latest[latest < len(absent.hashes)]).tolist()
    return [row for row in rows if absent.has_body[row]]
