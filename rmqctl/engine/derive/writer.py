"""``ReputMessageService``: writes what dispatch says of records into queues and index.

put, recovery and rebuild end here, one record or one batch at a time. Doing a record twice is
harmless: queues and index know how far they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from formats.constants import MIN_RECORD_SIZE
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.index.indexwriter import IndexServiceWriter, KeyRun
from rmqctl.engine.queue.queuetablewriter import ConsumeQueueTableWriter
from rmqctl.engine.queue.queuewriter import NO_EXT
from rmqctl.engine.record.record import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.dispatch.batches import KeyBatch, UnitBatch
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.plain import Plain
    from rmqctl.engine.scan.scanner import TopicTable

#: A bulk of units: at least and at most so many, and by itself so many for each queue.
_BULK_UNITS = (1 << 18, 1 << 20)
_UNITS_OF_QUEUE = 128
#: Units of zeros that a gap in a queue is filled with at most: 320 MiB of queue, more than the loss
#: of some log files of small messages leaves open.
_MOST_FILLED = 1 << 24
#: The first bulk of who makes queues anew.
_FIRST_UNITS = 1 << 15


class PlainRecord(NamedTuple):
    """A record of a message that goes to its own queue only, at once, and what is derived of it:
    the hash of its tags, and those of its keys in the order of their items."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp: int
    tags_code: int
    key_hashes: list[int]


class UnitRun(NamedTuple):
    """Units of one queue that go on by one from a queue offset, of records each behind the one
    before, the first of them at ``physical_offset``: as they are stored."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    stored: bytes


class PlainRun(NamedTuple):
    """Records as of :class:`PlainRecord`, one behind the other in the log, and what is derived of
    them; ``last_record`` is the physical offset of the last one, which has ``store_timestamp``."""

    start: int
    end: int
    last_record: int
    store_timestamp: int
    units: list[UnitRun]
    keys: KeyRun


class DerivedWriter:
    """Dispatches into ``queues`` and ``index``; either may be None, and is then left out.

    ``logics_msg_timestamp`` is the store time of the last record dispatched, and
    ``index_msg_timestamp`` that of the last index file filled (0: none yet): the checkpoint's,
    when it is on disk.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        queues: ConsumeQueueTableWriter | None,
        index: IndexServiceWriter | None,
    ) -> None:
        self.dispatcher = dispatcher
        self.queues = queues
        self.index = index
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0

    def dispatch(self, record: Record, *, restoring: bool = False) -> None:
        """One record. :raises OSError, CannotWrite: the disk is full; doing it again completes.

        :param restoring: after a kill: units of which only a part was stored are completed.
        """
        properties = record.properties
        if self.queues is not None:
            writes_ext = self.queues.writes_ext
            for unit in self.dispatcher.units(record, properties):
                own = (unit.topic, unit.queue_id) == (record.topic, record.queue_id)
                queue = self.queues.find_or_create(unit.topic, unit.queue_id)
                if restoring:
                    queue.restore(
                        unit.physical_offset, unit.size, unit.tags_code, unit.queue_offset
                    )
                queue.put_message_position_info(
                    unit.physical_offset,
                    unit.size,
                    unit.tags_code,
                    unit.queue_offset,
                    store_timestamp=record.store_timestamp if own and writes_ext else None,
                )
        if self.index is not None:
            filled = self.index.put_message(
                self.dispatcher.keys(record, properties),
                record.physical_offset,
                record.store_timestamp,
            )
            self._note_filled(filled)
        self.logics_msg_timestamp = record.store_timestamp

    def dispatch_plain(self, record: PlainRecord) -> None:
        """:meth:`dispatch` of a record whose unit and keys are known. Errors as there."""
        if self.queues is not None:
            queue = self.queues.find_or_create(record.topic, record.queue_id)
            unit = record.physical_offset, record.size, record.tags_code, record.queue_offset
            if not queue.put_next(*unit):
                timestamp = record.store_timestamp if self.queues.writes_ext else None
                queue.put_message_position_info(*unit, store_timestamp=timestamp)
        if self.index is not None:
            filled = self.index.put_message(
                record.key_hashes, record.physical_offset, record.store_timestamp
            )
            self._note_filled(filled)
        self.logics_msg_timestamp = record.store_timestamp

    def dispatch_run(self, run: PlainRun) -> bool:
        """:meth:`dispatch` of records whose units and keys are known. False: something about a
        queue or the index is unusual, and the log is to be asked; what was stored is not stored
        again. Errors as there. The index may have its items only after :meth:`settle`."""
        from rmqctl.kernel import module as compiled

        kernel = compiled()
        if kernel is None:
            return False
        if self.queues is not None:
            for units in run.units:
                queue = self.queues.find_or_create(units.topic, units.queue_id)
                if not queue.put_run(units.queue_offset, units.physical_offset, units.stored):
                    return False
        if self.index is not None:
            filled = self.index.put_run(kernel, run.keys, run.last_record)
            if filled is None:
                return False
            self._note_filled(filled)
        self.logics_msg_timestamp = run.store_timestamp
        return True

    def settle(self) -> None:
        """Waits for what is stored beside whatever comes next."""
        if self.index is not None:
            self.index.settle()

    def dispatch_batch(self, batch: Batch, *, restoring: bool = False, max_gap: int = 0) -> None:
        """A batch of records; ``restoring`` and errors as in :meth:`dispatch`, ``max_gap`` as in
        :meth:`put_units`."""
        from rmqctl.engine.dispatch.batches import key_batch, unit_batch

        units = unit_batch(batch, self.dispatcher)
        self.put_units(
            [units],
            batch.topics,
            self.ext_timestamps(batch, units),
            restoring=restoring,
            max_gap=max_gap,
        )
        self.put_keys(key_batch(batch), int(batch.physical_offset[-1]))
        self.logics_msg_timestamp = int(batch.store_timestamp[-1])

    def ext_timestamps(self, batch: Batch, units: UnitBatch) -> NDArray[np.int64] | None:
        """:func:`ext_timestamps`; None when the queues write no extension."""
        if self.queues is None or not self.queues.writes_ext:
            return None
        return ext_timestamps(batch, units)

    def put_units(
        self,
        batches: Sequence[UnitBatch | Plain],
        topics: TopicTable,
        ext_timestamps: NDArray[np.int64] | None = None,
        *,
        restoring: bool = False,
        max_gap: int = 0,
    ) -> int:
        """Units of some batches, or plain records, in log order; to how many queues they went.

        :param max_gap: units that damage may have swallowed: so long a gap in a queue is filled.
        """
        from rmqctl.engine.dispatch.byqueue import UnitsOfQueue, units_by_queue

        count, last = 0, (-1, -1)
        if self.queues is None:
            return count
        for units in units_by_queue(batches):
            queue = self.queues.find_or_create(topics.names[units.topic_id], units.queue_id)
            count += last != (last := (units.topic_id, units.queue_id))
            if not restoring and units.is_run and queue.put_run(*units.first, units.stored):
                continue
            column = units.columns()
            columns = column.physical_offset, column.size, column.tags_code, column.queue_offset
            if restoring:
                queue.restore_units(*columns)
            stamps = None
            if ext_timestamps is not None:
                assert isinstance(units, UnitsOfQueue), "plain records have no times for extensions"
                stamps = ext_timestamps[units.rows]
            queue.put_units(*columns, max_gap=max_gap, store_timestamp=stamps)
        return count

    def put_keys(self, keys: KeyBatch, last_record: int) -> None:
        """Index keys of a batch, whose last record is at ``last_record``."""
        if self.index is not None:
            self._note_filled(self.index.put_batch(keys, last_record))

    def _note_filled(self, end_timestamps: list[int]) -> None:
        if end_timestamps:
            self.index_msg_timestamp = end_timestamps[-1]

    def flush(self) -> None:
        """Forces queues and index to disk. :raises OSError: the disk failed."""
        if self.queues is not None:
            self.queues.flush()
        if self.index is not None:
            self.index.flush()

    def finish(
        self, put_last_units: Callable[[], object], sync_names: Callable[[], object], jobs: int
    ) -> None:
        """:meth:`flush` after the last units are put, and then ``sync_names``, which forces the
        names of all files to disk; by several threads at once, and the index, which has all of its
        keys, before. Errors as of :meth:`flush`, :meth:`put_units` and ``sync_names``."""
        if self.index is None or jobs == 1:
            put_last_units()
            self.flush()
            sync_names()
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(2, "finish") as others:
            index = others.submit(self.index.flush)
            put_last_units()
            # A disk, and a journal, takes both for little more than one.
            names = others.submit(sync_names)
            if self.queues is not None:
                self.queues.flush()
            index.result()
            names.result()

    def close(self) -> None:
        if self.queues is not None:
            self.queues.close()
        if self.index is not None:
            self.index.close()


def bulk_units(queues: int, *, is_first: bool = False) -> int:
    """How many units to gather before they are put, or looked at, queue by queue, when there are so
    many queues: each is opened once for a bulk, so this should have some units of it.

    :param is_first: of who makes queues while the log is read: few, so that most queues, and their
        names, are soon on their way to disk. Units do not hurry: the last ones are put while the
        disk has the slots of the index, which keep it longer.
    """
    least, most = _BULK_UNITS
    return min(max(queues * _UNITS_OF_QUEUE, _FIRST_UNITS if is_first else least), most)


def units_lost_in(lost: int) -> int:
    """How many units records of so many bytes of lost log may have had: so long a gap in a queue
    behind it is filled."""
    return min(lost // MIN_RECORD_SIZE, _MOST_FILLED)


def ext_timestamps(batch: Batch, units: UnitBatch) -> NDArray[np.int64]:
    """Store times (ms) of some of a batch's units, as the extension has them: int64, parallel to
    the units; NO_EXT for those of light queues."""
    import numpy as np

    rows = np.searchsorted(batch.physical_offset, units.physical_offset)
    own = (batch.topic_id[rows] == units.topic_id) & (batch.queue_id[rows] == units.queue_id)
    return np.where(own, batch.store_timestamp[rows], NO_EXT)


def group_by_queue(
    topic_id: NDArray[np.int64], queue_id: NDArray[np.int64]
) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """``(topic number, queue id, rows)`` of each queue in a batch: rows are int64 and stay in log
    order. ``topic_id`` and ``queue_id`` are parallel, int64, not negative."""
    import numpy as np

    from rmqctl.engine.scan.sorting import stable_order
    from rmqctl.kernel import module as compiled

    if not len(topic_id):
        return
    kernel = compiled()
    if kernel is not None:
        columns = (np.ascontiguousarray(one).view(np.uint8) for one in (topic_id, queue_id))
        for topic, queue, rows in kernel.group_by_queue(*columns):
            yield topic, queue, np.frombuffer(rows, np.int64)
        return
    code = topic_id * (int(queue_id.max()) + 1) + queue_id
    order = stable_order(code)
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        first = order[start]
        yield int(topic_id[first]), int(queue_id[first]), order[start:end]
