"""queues: one row for each consume queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
    from rmqctl.engine.queue.consumequeue import ConsumeQueue
    from rmqctl.rows.structures import QueueRow
    from rmqctl.rows.summaries import QueuesSummary


def queues(
    store: MessageStore, topic: str | None = None, queue_id: int | None = None
) -> Iterator[QueueRow | QueuesSummary]:
    """Rows ``queue``, sorted by topic and number, then ``summary``.

    ``max_offset`` is the queue offset of the next message. ``messages`` counts those that the log
    still has. ``max_physical_offset`` is where the last one ends in the log. The kept queue of a
    compacted topic (5.x) has a row of its own behind that of the queue itself; its messages are not
    counted again.
    """
    count = messages = 0
    rows: Iterable[QueueRow] = _rows(store, topic, queue_id)
    if store.dispatcher.batch_topics:
        from rmqctl.operations.look.batchqueues import batch_queue_rows

        others = batch_queue_rows(store, topic, queue_id)
        rows = merge(rows, others, key=_place)
    if store.compacted_topics:
        from rmqctl.operations.look.compactedqueues import compacted_queue_rows

        rows = merge(
            map(_with_type, rows), compacted_queue_rows(store, topic, queue_id), key=_place
        )
    for row in rows:
        count += 1
        messages += row["messages"] if row.get("queue_type") != "SparseConsumeQueue" else 0
        yield row
    yield {"type": "summary", "queues": count, "messages": messages}


def _with_type(row: QueueRow) -> QueueRow:
    """A row with the kind of its queue, by which several rows of one queue are told apart."""
    row.setdefault("queue_type", "SimpleCQ")
    return row


def _place(row: QueueRow) -> tuple[str, int]:
    return row["topic"], row["queue_id"]


def _rows(store: MessageStore, topic: str | None, queue_id: int | None) -> Iterator[QueueRow]:
    queues = store.queues
    for where in queues.directories() if topic is None else queues.directories_of(topic):
        if queue_id not in (None, where.queue_id):
            continue
        queue = store.consume_queue(where.topic, where.queue_id)
        if queue is None:
            continue
        yield queue_row(queue)


def queue_row(queue: ConsumeQueue | BatchConsumeQueue) -> QueueRow:
    """The row of one opened queue."""
    return {
        "type": "queue",
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
        "max_physical_offset": queue.max_physical_offset,
        "messages": max(queue.max_offset - queue.min_offset, 0),
    }
