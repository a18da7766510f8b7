"""offset: the message of a queue that was stored at a time."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from rmqctl.engine.read.bytime import Boundary, bisect, scan, store_times

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
    from rmqctl.rows.structures import OffsetRow


def offset_by_time(
    store: MessageStore,
    topic: str,
    queue_id: int,
    time: int,
    boundary: str = Boundary.NEAREST.value,
    *,
    every: bool = False,
) -> OffsetRow:
    """One row ``offset``. Its ``queue_offset``, ``store_timestamp`` and ``physical_offset`` are
    None where no message matches. ``every`` reads every message of the queue.

    :raises TopicNotAllowed: no queue can have this topic.
    """
    row: OffsetRow = {
        "type": "offset",
        "topic": topic,
        "queue_id": queue_id,
        "timestamp": time,
        "boundary": boundary,
        "queue_offset": None,
        "store_timestamp": None,
        "physical_offset": None,
        "min_offset": 0,
        "max_offset": 0,
    }
    batches = store.batch_queue(topic, queue_id)
    if batches is not None:
        return _answer_of_batches(row, batches, time, Boundary(boundary), every=every)
    queue = store.consume_queue(topic, queue_id)
    if queue is None:
        return row
    times = store_times(store.commit_log, queue)
    search = scan if every else bisect
    found = search(times, queue.min_offset, queue.max_offset, time, Boundary(boundary))
    row |= {"min_offset": queue.min_offset, "max_offset": queue.max_offset}
    unit = None if found is None else queue.unit(found)
    if found is not None and unit is not None:
        row |= {
            "queue_offset": found,
            "store_timestamp": times(found),
            "physical_offset": unit.physical_offset,
        }
    return row


def _answer_of_batches(
    row: OffsetRow, queue: BatchConsumeQueue, time: int, boundary: Boundary, *, every: bool
) -> OffsetRow:
    """The row with the fields of a batch queue (5.x), whose units have the store times. The
    messages of one record have the same time; the first of them matches."""
    search = scan if every else bisect
    with closing(queue):
        found = search(queue.stored_at, queue.first, queue.end, time, boundary)
        unit = None if found is None else queue.unit(found)
        row |= {"min_offset": queue.min_offset, "max_offset": queue.max_offset}
        if unit is not None:
            row |= {
                "queue_offset": unit.base_offset,
                "store_timestamp": unit.store_timestamp,
                "physical_offset": unit.physical_offset,
            }
    return row
