"""transaction ls: half messages, their states, and final messages that are there already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from formats import constants
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import EncodedMessage
from rmqctl.engine.record.record import Record
from rmqctl.engine.services import transaction
from rmqctl.engine.services.remade import check_remade
from rmqctl.engine.services.search import records_of_sizes, undispatched

if TYPE_CHECKING:
    from rmqctl.rows.changes import HalfMessageRow
    from rmqctl.rows.summaries import TransactionLsSummary

#: Half messages whose final messages are looked for at once.
_AT_ONCE = 10_000

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


def finals_of(store: MessageStore, pending: Iterable[Record]) -> dict[int, int]:
    """Final messages of these half messages that are stored already, because a commit was cut off
    before it put the op message: physical offset of the half message → that of the final one
    (bytes). Each target queue is passed once, and only records are read that have the size of a
    final message, or that no unit names yet. Final messages of halves that the broker's check has
    put back since are found by the index."""
    wanted: dict[tuple[str, int], dict[int, int]] = {}
    found: dict[int, int] = {}
    for half in pending:
        if transaction.commit_problem(half) is not None:
            continue
        final = transaction.commit_message(half, store.body(half))
        encoded = check_remade(store, final)
        if isinstance(encoded, EncodedMessage):
            stored = encoded.message  # A delay level takes it to another queue.
            sizes = wanted.setdefault((stored.topic, stored.queue_id), {})
            sizes[half.physical_offset] = encoded.size
            former = _final_of_former(store, half, stored.topic)
            if former is not None:
                found[half.physical_offset] = former
    in_queues = (
        records_of_sizes(store, topic, queue_id, min(sizes), set(sizes.values()))
        for (topic, queue_id), sizes in wanted.items()
    )
    candidates = chain(chain.from_iterable(in_queues), undispatched(store) if wanted else ())
    found |= {
        record.prepared_transaction_offset: record.physical_offset
        for record in candidates
        if record.transaction_type == constants.TRANSACTION_COMMIT_TYPE
        and record.prepared_transaction_offset in wanted.get((record.topic, record.queue_id), ())
    }
    return found


def _final_of_former(store: MessageStore, half: Record, topic: str) -> int | None:
    """Physical offset of the final message in ``topic`` of the half that the broker's check has put
    back as this one; None: this is the first, or the index knows no such message. Its body, birth
    and unique key are those of the half (``TransactionalMessageBridge#renewHalfMessageInner``)."""
    properties = half.properties
    key = properties.get(constants.PROPERTY_UNIQ_KEY)
    if not key or not transaction.check_times(properties):
        return None
    for match in store.query_message(topic, key):
        record = match.record
        if (
            record is not None
            and match.matches
            and record.transaction_type == constants.TRANSACTION_COMMIT_TYPE
            and record.body_crc == half.body_crc
            and record.born_timestamp == half.born_timestamp
        ):
            return record.physical_offset
    return None


def half_messages(
    store: MessageStore, now: int, *, everything: bool = False, group: str | None = None
) -> Iterator[HalfMessageRow | TransactionLsSummary]:
    """Rows ``half_message`` of the pending half messages (with ``everything`` of all), then
    ``summary``."""
    counts = dict.fromkeys((PENDING, ENDED, CHECKED), 0)
    found = halves(store, everything=everything)
    while some := list(islice(found, _AT_ONCE)):
        finals = finals_of(store, (half.record for half in some if half.state == PENDING))
        for half in some:
            row = _half_row(store, half, now, finals.get(half.record.physical_offset))
            if group not in (None, row["producer_group"]):
                continue
            counts[half.state] += 1
            if everything or half.state == PENDING:
                yield row
    yield {
        "type": "summary",
        "pending": counts[PENDING],
        "ended": counts[ENDED],
        "checked": counts[CHECKED],
    }


def _half_row(
    store: MessageStore, half: Half, now: int, final_offset: int | None
) -> HalfMessageRow:
    record = half.record
    properties = record.properties
    return {
        "type": "half_message",
        "physical_offset": record.physical_offset,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "state": half.state,
        "real_topic": properties.get(constants.PROPERTY_REAL_TOPIC),
        "real_queue_id": properties.get(constants.PROPERTY_REAL_QUEUE_ID),
        "producer_group": properties.get(constants.PROPERTY_PRODUCER_GROUP),
        "unique_key": properties.get(constants.PROPERTY_UNIQ_KEY),
        "keys": properties.get(constants.PROPERTY_KEYS),
        "check_times": transaction.check_times(properties),
        "born_timestamp": record.born_timestamp,
        "store_timestamp": record.store_timestamp,
        "age_milliseconds": now - record.born_timestamp,
        "final_offset": final_offset,
        "broker_does": _broker_does(store, record, now) if half.state == PENDING else None,
    }


def _broker_does(store: MessageStore, record: Record, now: int) -> str:
    """What a broker's check does with a pending half message: ``wait``, ``ask`` its producer, or
    ``discard`` it (move it to ``TRANS_CHECK_MAX_TIME_TOPIC``)."""
    properties, age = record.properties, now - record.born_timestamp
    reserved = store.config.file_reserved_time * 3_600_000
    checks = store.config.transaction_check_max
    if transaction.check_times(properties) >= checks or age > reserved:
        return "discard"
    time_out = transaction.time_out_of(properties, store.config.transaction_time_out)
    return "wait" if 0 <= age < time_out else "ask"
