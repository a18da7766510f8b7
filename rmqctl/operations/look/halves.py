"""Half messages and their states."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from formats import constants
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.services import transaction

PENDING, ENDED, CHECKED = "pending", "ended", "checked"
_CHECK_TIMES = transaction.PROPERTY_CHECK_TIMES.encode()


class Half(NamedTuple):
    """A half message and its state: ``pending``; ``ended`` by an op message; ``checked``: the
    broker's check has passed it, and has put it back as a later half or discarded it. ``successor``
    is the physical offset of that later half, where one was found."""

    record: Record
    state: str
    successor: int | None


def halves(store: MessageStore, *, everything: bool = False) -> Iterator[Half]:
    """Half messages from the progress of the broker's check on; with ``everything`` all of them."""
    for queue_id in transaction.half_queue_ids(store):
        progress = transaction.check_progress(store, queue_id)
        ended = transaction.ended_halves(store, queue_id, 0 if everything else progress.op)
        start = 0 if everything else progress.half
        records = partial(transaction.records_of, store, transaction.HALF_TOPIC, queue_id)
        # The queue is read twice: there may be more halves than fit into memory.
        put_back: dict[str, int] = {}
        end = start
        for queue_offset, record in records(start):
            end = queue_offset + 1
            if _CHECK_TIMES not in record.properties_bytes:
                continue
            properties = record.properties
            if transaction.check_times(properties):
                put_back[properties.get(constants.PROPERTY_UNIQ_KEY, "")] = record.physical_offset
        put_back.pop("", None)
        for queue_offset, record in records(start):
            if queue_offset >= end:
                break  # A broker has put it meanwhile.
            properties = record.properties
            last = put_back.get(properties.get(constants.PROPERTY_UNIQ_KEY, ""), -1)
            successor = last if last > record.physical_offset else None
            if queue_offset in ended or transaction.original_queue_offset(properties) in ended:
                state = ENDED
            elif queue_offset < progress.half or successor is not None:
                state = CHECKED
            else:
                state = PENDING
            yield Half(record, state, successor)
