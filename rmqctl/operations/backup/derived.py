"""The units and index items that the last records of a log must have, and which are not there yet.

A unit of the last message does not prove that other queues have theirs: rmqctl appends in bulks,
and then writes units queue by queue, and the items of the index after all units.
"""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from rmqctl.engine.derive.writer import group_by_queue
from rmqctl.engine.messagestore import MessageStore

#: At most so many bytes of log are being dispatched at a time (``CatchUp``: 16 MiB, and a record).
_BUSY_BYTES = 24 << 20


class Wanted(NamedTuple):
    """``queues``: (topic, queue id) → physical offset at which its last record ends. ``keyed``: the
    physical offset of the last record with keys; -1: there is none, or no index. ``items``: how
    many index items that record has."""

    queues: dict[tuple[str, int], int]
    keyed: int
    items: int


def wanted_before(store: MessageStore, limit: int) -> Wanted:
    """What queues and index must have of the records that may just be dispatched: those shortly
    before a physical offset, which is a record's end or the log's.

    :raises CannotRead: the disk failed.
    """
    from rmqctl.engine.dispatch.batches import batch_queue_units, key_batch, unit_batch
    from rmqctl.engine.queue.batchqueue import BATCH_UNIT
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import Scanner

    log = store.commit_log
    starts = [one.file_from_offset for one in log.files.entries if one.file_from_offset < limit]
    start = max((at for at in starts if at <= limit - _BUSY_BYTES), default=min(starts, default=0))
    queues: dict[tuple[str, int], int] = {}
    keyed, items = -1, 0
    scanner = Scanner(log, indexes_tags=store.dispatcher.indexes_tags)
    for entry in scanner.scan(start, limit) if starts else ():
        if not isinstance(entry, Batch):
            continue
        units = unit_batch(entry, store.dispatcher)
        for topic_id, queue_id, rows in group_by_queue(units.topic_id, units.queue_id):
            last = rows[-1]
            end = int(units.physical_offset[last]) + int(units.size[last])
            queues[entry.topics.names[topic_id], queue_id] = end
        for place, stored in batch_queue_units(entry, store.dispatcher).items():
            physical_offset, size, *_ = BATCH_UNIT.unpack(stored[-BATCH_UNIT.size :])
            queues[place] = physical_offset + size
        keys = key_batch(entry).physical_offset
        if len(keys):
            keyed = int(keys[-1])
            items = int((keys == keyed).sum())
    has_index = any(True for _ in store.index.files())
    return Wanted(queues, keyed, items) if has_index else Wanted(queues, -1, 0)


def lacking(store: MessageStore, wanted: Wanted) -> list[str]:
    """Names of the queues, and the index, that lack something. ``store`` must have been opened
    anew for each look."""
    found = []
    for (topic, queue_id), end in wanted.queues.items():
        if _end_of_queue(store, topic, queue_id) < end:
            found.append(f"{topic}/{queue_id}")
    index = store.index
    indexed = max((one.header.end_phy_offset for one in index.files()), default=-1)
    # The header names a message from its first item on.
    if indexed < wanted.keyed or (
        indexed == wanted.keyed and index.items_of_message(indexed) < wanted.items
    ):
        found.append("index")
    return found


def _end_of_queue(store: MessageStore, topic: str, queue_id: int) -> int:
    """The physical offset at which the record of a queue's last unit ends; -1 without units."""
    if topic not in store.dispatcher.batch_topics:
        queue = store.consume_queue(topic, queue_id)
        return -1 if queue is None else queue.max_physical_offset
    batches = store.batch_queue(topic, queue_id)
    if batches is None:
        return -1
    with closing(batches):
        return batches.max_physical_offset
