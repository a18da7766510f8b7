"""The kept queues of compacted topics (5.x) as rows: of queues and of units.

The queues of these topics in ``consumequeue/`` are shown like all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from rmqctl.engine.queue.compactedqueue import compacted_queues
from rmqctl.operations.look.batchqueues import unit_row

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.compactedqueue import CompactedQueue
    from rmqctl.operations.look.walk import Selection
    from rmqctl.rows.structures import BatchUnitRow, QueueRow
    from rmqctl.rows.summaries import WalkQueueSummary

#: The value that tells these rows from those of batch queues.
QUEUE_TYPE = "SparseConsumeQueue"


def compacted_queue_rows(
    store: MessageStore, topic: str | None, queue_id: int | None
) -> Iterator[QueueRow]:
    """Rows ``queue``, sorted by topic and number; ``messages`` counts those that are kept."""
    for queue in _opened(store, topic, queue_id):
        low, high, _ = queue.ends()
        yield {
            "type": "queue",
            "topic": queue.topic,
            "queue_id": queue.queue_id,
            "min_offset": low,
            "max_offset": high,
            "max_physical_offset": queue.max_physical_offset(),
            "messages": sum(1 for _ in queue.units()),
            "queue_type": QUEUE_TYPE,
        }


def walk_compacted_queues(
    store: MessageStore, what: Selection, offsets: tuple[int, int], summary: WalkQueueSummary
) -> Iterator[BatchUnitRow | WalkQueueSummary]:
    """Rows ``batch_unit`` of a range of queue offsets, then the given ``summary`` of the other
    queues, with these queues added. Physical offsets in ``what`` are those of the queue's own
    log."""
    made = _unit_rows(store, what, offsets, summary)
    printed = summary["units"] + summary["damages"]
    for row in islice(made, None if what.limit is None else max(what.limit - printed, 0)):
        summary["units"] += 1
        yield row
    yield summary


def _unit_rows(
    store: MessageStore, what: Selection, offsets: tuple[int, int], summary: WalkQueueSummary
) -> Iterator[BatchUnitRow]:
    start, end = offsets
    for queue in _opened(store, what.topic, what.queue_id):
        summary["queues"] += 1
        for _, unit, _ in queue.units():
            is_asked = start <= unit.base_offset < end
            if is_asked and what.shows_offset(unit.physical_offset):
                yield {**unit_row(queue, unit), "queue_type": QUEUE_TYPE}


def _opened(
    store: MessageStore, topic: str | None, queue_id: int | None
) -> Iterator[CompactedQueue]:
    """Opens the chosen queues one after the other."""
    for where in compacted_queues(store.root):
        if topic not in (None, where.topic) or queue_id not in (None, where.queue_id):
            continue
        queue = store.compacted_queue(where.topic, where.queue_id)
        if queue is not None:
            with closing(queue):
                yield queue
