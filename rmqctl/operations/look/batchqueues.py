"""Batch queues of 5.x as rows: of units, of queues, and of the messages in a record that holds
several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import chain, islice
from typing import TYPE_CHECKING

from formats.constants import LONG_MAX
from rmqctl.engine.record.bodies import DEFAULT_LIMIT
from rmqctl.operations.look.queues import queue_row
from rmqctl.operations.look.rows import message_row_with_body, spelled_body

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.queue.batchqueue import BatchConsumeQueue, BatchUnit
    from rmqctl.engine.queue.compactedqueue import CompactedQueue
    from rmqctl.engine.record.record import Record
    from rmqctl.operations.look.rows import BodySource
    from rmqctl.operations.look.walk import Selection
    from rmqctl.rows.structures import BatchUnitRow, MessageRow, QueueDamageRow, QueueRow
    from rmqctl.rows.summaries import WalkQueueSummary


def batch_queue_rows(
    store: MessageStore, topic: str | None, queue_id: int | None
) -> Iterator[QueueRow]:
    """Rows ``queue``, sorted by topic and number."""
    for where in store.batch_queues():
        if topic not in (None, where.topic) or queue_id not in (None, where.queue_id):
            continue
        queue = store.batch_queue(where.topic, where.queue_id)
        if queue is None:
            continue
        with closing(queue):
            yield {**queue_row(queue), "queue_type": "BatchCQ"}


def walk_batch_queues(
    store: MessageStore,
    what: Selection,
    offsets: tuple[int, int],
    summary: WalkQueueSummary,
) -> Iterator[BatchUnitRow | QueueDamageRow | WalkQueueSummary]:
    """Rows ``batch_unit``, as they are stored, of records with messages in a range of queue
    offsets. Units that were never written though later ones were are rows ``damage``. Then comes
    the given ``summary`` of the other queues, with these queues added."""
    made = chain.from_iterable(
        _walked(queue, what, *offsets) for queue in _opened(store, what, summary)
    )
    printed = summary["units"] + summary["damages"]
    for row in islice(made, None if what.limit is None else what.limit - printed):
        summary["units"] += row["type"] == "batch_unit"
        summary["damages"] += row["type"] == "damage"
        yield row
    yield summary


def _opened(
    store: MessageStore, what: Selection, summary: WalkQueueSummary
) -> Iterator[BatchConsumeQueue]:
    """Opens the chosen queues one after the other, and counts them."""
    for where in store.batch_queues():
        if what.topic not in (None, where.topic) or what.queue_id not in (None, where.queue_id):
            continue
        queue = store.batch_queue(where.topic, where.queue_id)
        if queue is not None:
            summary["queues"] += 1
            with closing(queue):
                yield queue


def _walked(
    queue: BatchConsumeQueue, what: Selection, offset: int, end_offset: int
) -> Iterator[BatchUnitRow | QueueDamageRow]:
    unwritten, following = 0, 0
    for _, unit in queue.units(0, queue.written_end()):
        if not any(unit):
            unwritten += 1
            continue
        if unwritten and offset <= following < end_offset:
            yield _hole_row(queue, following, unwritten)
        unwritten, following = 0, min(max(unit.end_offset, 0), LONG_MAX)
        is_asked = unit.end_offset > offset and unit.base_offset < end_offset
        if is_asked and what.shows_offset(unit.physical_offset):
            yield unit_row(queue, unit)


def unit_row(queue: BatchConsumeQueue | CompactedQueue, unit: BatchUnit) -> BatchUnitRow:
    """The row of one unit."""
    return {
        "type": "batch_unit",
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "queue_offset": unit.base_offset,
        "batch_size": unit.batch_size,
        "physical_offset": unit.physical_offset,
        "size": unit.size,
        "tags_code": unit.tags_code,
        "store_timestamp": unit.store_timestamp,
    }


def _hole_row(queue: BatchConsumeQueue, queue_offset: int, length: int) -> QueueDamageRow:
    return {
        "type": "damage",
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "queue_offset": queue_offset,
        "length": length,
        "reason": "units-never-written",
        "expected": "units",
        "found": "zeros",
    }


def message_rows(
    store: BodySource, record: Record, spelling: str, decompress_limit: int | None = None
) -> Iterator[MessageRow]:
    """The row of a record, or the rows of the messages that it holds. Each of these has its own
    queue offset, flag, properties and body; all else is the record's. The parameters are those of
    :func:`message_row_with_body`.

    A body that cannot be taken apart into messages is shown as it is.
    """
    from rmqctl.engine.read.getbatch import inner_messages

    row = message_row_with_body(store, record, spelling, decompress_limit)
    stored = store.body(record) if record.sys_flag else b""
    inner = inner_messages(record, stored, decompress_limit or DEFAULT_LIMIT)
    if inner is None:
        yield row
        return
    for one in inner:
        made: MessageRow = {
            **row,
            "queue_offset": record.queue_offset + one.number,
            "flag": one.flag,
            "body_crc": one.body_crc,
            "body_length": len(one.body),
            "tags_code": one.tags_code,
            "properties": one.properties,
        }
        if spelling != "none":
            made["body"], made["body_encoding"] = spelled_body(one.body, spelling)
        yield made
