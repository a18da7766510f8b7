"""Dispatch of a scanner's batch: the rules of :mod:`rmqctl.engine.dispatch.rules`, over arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from formats import constants
from formats.text import java_int
from rmqctl.engine.dispatch.rules import MAX_QUEUE_OFFSET, NO_UNIT, Dispatcher
from rmqctl.engine.record.filler import FILLER_TOPICS
from rmqctl.engine.record.record import Damage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.plain import Plain


class UnitBatch(NamedTuple):
    """Units of a batch in log order: parallel arrays, int64, of shape ``(units,)``.

    ``topic_id`` is the topic's number in the scanner's table. The units of one record are adjacent,
    that of its own queue first.
    """

    topic_id: NDArray[np.int64]
    queue_id: NDArray[np.int64]
    queue_offset: NDArray[np.int64]
    physical_offset: NDArray[np.int64]
    size: NDArray[np.int64]
    tags_code: NDArray[np.int64]


class KeyBatch(NamedTuple):
    """Index keys of a batch in the order of their index items: parallel arrays of shape
    ``(keys,)``.

    ``key_hash`` is int32 and never negative, except in :func:`marked_key_batch`.
    ``physical_offset`` and ``store_timestamp`` (ms) are int64 and those of the key's record.
    """

    key_hash: NDArray[np.int32]
    physical_offset: NDArray[np.int64]
    store_timestamp: NDArray[np.int64]

    @classmethod
    def joined(cls, batches: Sequence[KeyBatch]) -> KeyBatch:
        """The keys of one or more batches, concatenated."""
        import numpy as np

        if len(batches) == 1:
            return batches[0]
        hashes, offsets, stamps = zip(*batches, strict=True)
        return cls(np.concatenate(hashes), np.concatenate(offsets), np.concatenate(stamps))

    def of_rows(self, rows: NDArray[np.int64]) -> KeyBatch:
        """The keys of some rows (int64), as copies."""
        return KeyBatch(self.key_hash[rows], self.physical_offset[rows], self.store_timestamp[rows])

    def unmarked(self) -> KeyBatch:
        """The keys of a :func:`marked_key_batch` with the hashes of their items."""
        return self._replace(key_hash=self.key_hash ^ (self.key_hash >> 31))

    def part(self, start: int, end: int) -> KeyBatch:
        """The keys ``[start, end)``, as views."""
        return KeyBatch(
            self.key_hash[start:end],
            self.physical_offset[start:end],
            self.store_timestamp[start:end],
        )


def unit_batch(batch: Batch, dispatcher: Dispatcher) -> UnitBatch:
    """:meth:`Dispatcher.units` for every record of a batch."""
    import numpy as np

    codes = _tags_codes(batch, dispatcher)
    rows = rows_with_unit(batch, dispatcher)
    columns = [
        batch.topic_id[rows],
        batch.queue_id[rows],
        batch.queue_offset[rows],
        batch.physical_offset[rows],
        batch.total_size[rows],
        codes[rows],
    ]
    multi = batch.multi_dispatch_rows.tolist()
    if multi:
        extra: list[tuple[int, ...]] = []
        for row in multi:
            for unit in dispatcher.units(batch.record(row)):
                at = batch.topics.id_of(unit.topic)
                extra.append((row, at, *unit[1:]))
        # ``extra`` has all units of these records, so their rows are taken out of the plain ones.
        keep = ~np.isin(rows, multi)
        order = np.concatenate([rows[keep], np.array([e[0] for e in extra], np.int64)])
        columns = [
            np.concatenate([column[keep], np.array([e[i + 1] for e in extra], np.int64)])
            for i, column in enumerate(columns)
        ]
        by_row = np.argsort(order, kind="stable")
        columns = [column[by_row] for column in columns]
    return UnitBatch(*columns)


def rows_with_unit(batch: Batch, dispatcher: Dispatcher) -> NDArray[np.int64]:
    """The rows that have a unit in the consume queue of their topic and queue id: int64, ascending,
    shape ``(k,)``."""
    import numpy as np

    has_unit = _of_queues(batch) & _has_place(batch)
    if dispatcher.batch_topics:
        has_unit &= ~of_topics(batch, dispatcher.batch_topics)
    return np.flatnonzero(has_unit)


def without_place(batch: Batch) -> list[Damage]:
    """Damage for each record of a batch whose queue id or queue offset no queue can have. Such a
    record gets no unit."""
    import numpy as np

    return [
        Damage(
            int(batch.physical_offset[row]),
            int(batch.total_size[row]),
            "queue-place-impossible",
            "a queue and a queue offset",
            f"queue {batch.queue_id[row]}, offset {batch.queue_offset[row]}",
        )
        for row in np.flatnonzero(_of_queues(batch) & ~_has_place(batch)).tolist()
    ]


def _of_queues(batch: Batch) -> NDArray[np.bool_]:
    """Which rows belong to a queue, by transaction type and topic: bool, shape ``(n,)``."""
    kind = batch.sys_flag & constants.TRANSACTION_TYPE_MASK
    allowed = batch.topics.allowed_array()[batch.topic_id]
    rows: NDArray[np.bool_] = (kind != NO_UNIT[0]) & (kind != NO_UNIT[1]) & allowed
    return rows


def _has_place(batch: Batch) -> NDArray[np.bool_]:
    """Which rows have a queue id and a queue offset that a queue can have: bool, shape ``(n,)``."""
    number: NDArray[np.bool_] = batch.queue_offset >= 0
    return number & (batch.queue_offset <= MAX_QUEUE_OFFSET) & (batch.queue_id >= 0)


def of_topics(batch: Batch, topics: frozenset[str]) -> NDArray[np.bool_]:
    """Which rows are of one of these topics: bool, shape ``(n,)``."""
    import numpy as np

    numbers = [number for number, name in enumerate(batch.topics.names) if name in topics]
    return np.isin(batch.topic_id, numbers)


def batch_queue_units(batch: Batch, dispatcher: Dispatcher) -> dict[tuple[str, int], bytearray]:
    """The stored units of batch queues that a batch's records get, by topic and queue id, in log
    order. Made record by record, since few stores have batch queues."""
    found: dict[tuple[str, int], bytearray] = {}
    if not dispatcher.batch_topics:
        return found
    for row in of_topics(batch, dispatcher.batch_topics).nonzero()[0].tolist():
        record = batch.record(row)
        unit = dispatcher.batch_unit(record)
        if unit is not None:
            found.setdefault((record.topic, record.queue_id), bytearray()).extend(unit.packed())
    return found


def _tags_codes(batch: Batch, dispatcher: Dispatcher) -> NDArray[np.int64]:
    """:meth:`Dispatcher.tags_code` of every row (int64): for delayed messages the delivery time."""
    delayed = _delayed(batch)
    if not delayed:
        return batch.tags_code
    codes = batch.tags_code.copy()
    for row, level in delayed.items():
        timestamp, code = int(batch.store_timestamp[row]), int(codes[row])
        codes[row] = dispatcher.delivery_time(level, timestamp, code)
    return codes


def bad_delay_rows(batch: Batch) -> list[int]:
    """Rows of delayed messages whose level is no number, ascending."""
    return [row for row, level in _delayed(batch).items() if java_int(level) is None]


def _delayed(batch: Batch) -> dict[int, str]:
    """Rows of the schedule topic that have a DELAY property, and its text."""
    if not batch.delay_levels:
        return {}
    schedule = batch.topics.id_of(constants.RMQ_SYS_SCHEDULE_TOPIC)
    topic_id = batch.topic_id
    return {row: level for row, level in batch.delay_levels.items() if topic_id[row] == schedule}


def key_batch(batch: Batch | Plain) -> KeyBatch:
    """:meth:`Dispatcher.keys` for every record of a batch, or of plain records with their keys. The
    scan has the dispatcher's ``indexes_tags``."""
    keys = marked_key_batch(batch)
    return keys.unmarked() if batch.topics.indexes_tags else keys


def marked_key_batch(batch: Batch | Plain) -> KeyBatch:
    """:func:`key_batch` with the hashes of tags still complemented, as the scan gives them."""
    from rmqctl.engine.scan.plain import Plain

    if isinstance(batch, Plain):
        return KeyBatch(batch.key_hash, batch.key_offset, batch.key_timestamp)
    kind = batch.sys_flag & constants.TRANSACTION_TYPE_MASK
    rows, hashes = batch.key_row, batch.key_hash
    rolled_back = kind[rows] == constants.TRANSACTION_ROLLBACK_TYPE
    if rolled_back.any():
        rows, hashes = rows[~rolled_back], hashes[~rolled_back]
    return KeyBatch(hashes, batch.physical_offset[rows], batch.store_timestamp[rows])


def filled_bytes(batch: Batch) -> int:
    """How many bytes of a batch are fillers (:mod:`rmqctl.engine.record.filler`). They stand for
    lost messages, so queues may lack units behind them."""
    rolled_back = (
        batch.sys_flag & constants.TRANSACTION_TYPE_MASK == constants.TRANSACTION_ROLLBACK_TYPE
    )
    if not rolled_back.any():
        return 0
    numbers = [batch.topics.number_of(topic) for topic in FILLER_TOPICS]
    is_filler = (batch.topic_id == numbers[0]) | (batch.topic_id == numbers[1])
    return int(batch.total_size[rolled_back & is_filler].sum())
