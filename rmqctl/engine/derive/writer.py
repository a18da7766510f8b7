"""``DerivedWriter``: writes the units and index items of records (``ReputMessageService``).

put, recovery and rebuild write through it, one record or one batch at a time. A record may be
dispatched twice: queues and index skip what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from formats.constants import MIN_RECORD_SIZE
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.index.indexwriter import IndexServiceWriter, KeyRun
from rmqctl.engine.queue.queuetablewriter import ConsumeQueueTableWriter
from rmqctl.engine.queue.queuewriter import NO_EXT
from rmqctl.engine.queue.storing import restore_units
from rmqctl.engine.record.record import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.dispatch.batches import KeyBatch, UnitBatch
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.plain import Plain
    from rmqctl.engine.scan.scanner import TopicTable

#: Units of a bulk, at least and at most; between these, the number of units for each queue.
_BULK_UNITS = (1 << 18, 1 << 20)
_UNITS_OF_QUEUE = 128
#: Units of the longest gap in a queue that is filled: 320 MiB, more than the loss of some log files
#: of small messages leaves.
_MOST_FILLED = 1 << 24
#: Units of the first bulk of a rebuild.
_FIRST_UNITS = 1 << 15


class PlainRecord(NamedTuple):
    """A record without delay and further queues, and what is derived from it: the hash of its tags,
    and the hashes of its keys in the order of their index items."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp: int
    tags_code: int
    key_hashes: list[int]


class UnitRun(NamedTuple):
    """Units of one queue as stored (``stored``), with consecutive queue offsets and ascending
    records. ``queue_offset`` and ``physical_offset`` are those of the first one."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    stored: bytes


class PlainRun(NamedTuple):
    """Consecutive records of the kind of :class:`PlainRecord`, at ``[start, end)`` in the log, and
    what is derived from them. ``last_record`` is the physical offset of the last one, and
    ``store_timestamp`` (ms) its store time."""

    start: int
    end: int
    last_record: int
    store_timestamp: int
    units: list[UnitRun]
    keys: KeyRun


class DerivedWriter:
    """Dispatches into ``queues`` and ``index``; None leaves one out.

    ``logics_msg_timestamp`` (ms) is the store time of the last record dispatched, and
    ``index_msg_timestamp`` the end time of the last index file filled (0: none yet). The checkpoint
    gets them once the files are on disk.
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
        """Dispatches one record.

        :param restoring: a kill may have torn units: they are completed.
        :raises OSError, CannotWrite: the disk is full; dispatching it again completes it.
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
        """:meth:`dispatch` of a record whose unit and keys are known; the same errors."""
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
        """:meth:`dispatch` of records whose units and keys are known; the same errors.

        False: a queue or the index does not simply go on, and the caller has to dispatch from the
        log; what was stored is skipped then. The items may be in the index only after
        :meth:`settle`.
        """
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
        """Waits until a thread of the kernel has stored all index items."""
        if self.index is not None:
            self.index.settle()

    def dispatch_batch(self, batch: Batch, *, restoring: bool = False, max_gap: int = 0) -> None:
        """Dispatches a batch of records. ``restoring`` and errors as in :meth:`dispatch`,
        ``max_gap`` as in :meth:`put_units`."""
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
        """Puts the units of batches, or of plain records, in log order. Returns to how many queues.

        :param topics: the table that topic numbers refer to.
        :param ext_timestamps: as in :func:`ext_timestamps`, over all units; None: no extension.
        :param max_gap: a gap of at most so many units in a queue is filled with pre-blank units,
            because damage in the log may have swallowed their records.
        """
        from rmqctl.engine.dispatch.byqueue import UnitsOfQueue, units_by_queue

        count, last = 0, (-1, -1)
        if self.queues is None:
            return count
        for units in units_by_queue(batches):
            key = units.topic_id, units.queue_id
            queue = self.queues.find_or_create(topics.names[units.topic_id], units.queue_id)
            count += key != last
            last = key
            if not restoring and units.is_run and queue.put_run(*units.first, units.stored):
                continue
            column = units.columns()
            columns = column.physical_offset, column.size, column.tags_code, column.queue_offset
            if restoring:
                restore_units(queue, *columns)
            stamps = None
            if ext_timestamps is not None:
                assert isinstance(units, UnitsOfQueue), "plain records have no times for extensions"
                stamps = ext_timestamps[units.rows]
            queue.put_units(*columns, max_gap=max_gap, store_timestamp=stamps)
        return count

    def put_keys(self, keys: KeyBatch, last_record: int) -> None:
        """Puts the index keys of a batch. ``last_record`` is its last record's physical offset."""
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
        """Ends a rebuild: puts the last units, flushes queues and index, and forces names to disk.

        With several ``jobs`` the index, which has all of its keys already, is flushed meanwhile,
        and the names together with the queues.

        :param put_last_units: puts the last units. :param sync_names: forces the names of all files
            to disk. Errors as in :meth:`flush`, :meth:`put_units` and ``sync_names``.
        """
        if self.index is None or jobs == 1:
            put_last_units()
            self.flush()
            sync_names()
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(2, "finish") as others:
            index = others.submit(self.index.flush)
            put_last_units()
            # One commit of the file system's journal may serve both.
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
    """How many units to gather before they are put, or compared, queue by queue.

    Each queue is opened once for a bulk, so a bulk should have some units of each.

    :param queues: how many queues there are.
    :param is_first: of the first bulk of a rebuild, which is small: so most queues are made early,
        and their names are on the way to disk. Later bulks may be large, since the last units are
        put while the disk is still busy with the slots of the index.
    """
    least, most = _BULK_UNITS
    return min(max(queues * _UNITS_OF_QUEUE, _FIRST_UNITS if is_first else least), most)


def units_lost_in(lost: int) -> int:
    """How many units ``lost`` bytes of log may have had at most: the longest gap in a queue behind
    them that is filled."""
    return min(lost // MIN_RECORD_SIZE, _MOST_FILLED)


def ext_timestamps(batch: Batch, units: UnitBatch) -> NDArray[np.int64]:
    """Store times (ms) of units of a batch, for their extension units: int64, parallel to the
    units. :data:`NO_EXT` for units of light queues, which have no extension."""
    import numpy as np

    rows = np.searchsorted(batch.physical_offset, units.physical_offset)
    own = (batch.topic_id[rows] == units.topic_id) & (batch.queue_id[rows] == units.queue_id)
    return np.where(own, batch.store_timestamp[rows], NO_EXT)


def group_by_queue(
    topic_id: NDArray[np.int64], queue_id: NDArray[np.int64]
) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """``(topic number, queue id, rows)`` for each queue of a batch. ``rows`` are the numbers of its
    rows, int64, ascending. ``topic_id`` and ``queue_id`` are parallel, int64, not negative."""
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
