"""What the end of a log asks of queues and index, and what of that is not there yet.

That a queue has a unit of the last message does not say that the others have theirs: rmqctl, which
appends in bulks, writes their units queue by queue, and the items of the index behind all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.engine.derive.writer import group_by_queue
from rmqctl.engine.messagestore import MessageStore

#: Bytes of log that one dispatch is busy with at most (``CatchUp``: 16 MiB), and a record more.
_BUSY_BYTES = 24 << 20


class Wanted(NamedTuple):
    """(topic, queue id) → physical offset at which the last of its records ends; and the physical
    offset of the last record with keys, -1: there is none, or no index."""

    queues: dict[tuple[str, int], int]
    keyed: int


def wanted_before(store: MessageStore, limit: int) -> Wanted:
    """What the records before a physical offset, a record's or the log's end, ask for that may be
    dispatched just now. :raises CannotRead: the disk failed."""
    from rmqctl.engine.dispatch.batches import key_batch, unit_batch
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import Scanner

    log = store.commit_log
    starts = [one.file_from_offset for one in log.files.entries if one.file_from_offset < limit]
    start = max((at for at in starts if at <= limit - _BUSY_BYTES), default=min(starts, default=0))
    queues: dict[tuple[str, int], int] = {}
    keyed = -1
    for entry in Scanner(log).scan(start, limit) if starts else ():
        if not isinstance(entry, Batch):
            continue
        units = unit_batch(entry, store.dispatcher)
        for topic_id, queue_id, rows in group_by_queue(units.topic_id, units.queue_id):
            last = rows[-1]
            end = int(units.physical_offset[last]) + int(units.size[last])
            queues[entry.topics.names[topic_id], queue_id] = end
        keys = key_batch(entry).physical_offset
        keyed = int(keys[-1]) if len(keys) else keyed
    has_index = any(True for _ in store.index.files())
    return Wanted(queues, keyed if has_index else -1)


def lacking(store: MessageStore, wanted: Wanted) -> list[str]:
    """What has less than it is asked for, by name; ``store`` is opened anew for each look."""
    found = []
    for (topic, queue_id), end in wanted.queues.items():
        queue = store.consume_queue(topic, queue_id)
        if queue is None or queue.max_physical_offset < end:
            found.append(f"{topic}/{queue_id}")
    indexed = max((one.header.end_phy_offset for one in store.index.files()), default=-1)
    if indexed < wanted.keyed:
        found.append("index")
    return found
