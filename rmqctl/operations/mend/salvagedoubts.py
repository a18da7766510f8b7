"""Whole records whose topic, queue number or queue offset may be damaged.

Nothing in a record proves these fields. A record with damage there would be dispatched to another
queue, and the messages behind it in its own queue would get other queue offsets. The queues tell
such a record: there is no unit of it where the record says, and a unit elsewhere points to it. But
a unit may as well stand where it does not belong. So a record that may be where it says stays as it
is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from formats.constants import PRE_BLANK_UNIT, TRANSACTION_TYPE_MASK
from rmqctl.engine.derive.writer import bulk_units, group_by_queue
from rmqctl.engine.dispatch.batches import UnitBatch, unit_batch
from rmqctl.engine.dispatch.rules import NO_UNIT
from rmqctl.engine.files.paths import topic_directory_problem
from rmqctl.operations.mend.salvageheader import mended_by_unit
from rmqctl.operations.mend.salvagelog import give_up
from rmqctl.operations.mend.salvageunits import by_place, units_in_ranges

if TYPE_CHECKING:
    from rmqctl.engine.dispatch.rules import Dispatcher
    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.engine.queue.consumequeue import ConsumeQueue
    from rmqctl.engine.queue.queuetable import ConsumeQueueTableReader
    from rmqctl.engine.record.record import Record
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.topics import TopicTable
    from rmqctl.operations.mend.salvagelog import Reading
    from rmqctl.operations.mend.salvageunits import LostUnit

#: A place in a queue: topic, queue id, queue offset.
_Place = tuple[str, int, int]
#: With so many doubts it is the queues that lack much; they say nothing of the records then.
_MOST = 1 << 20


class Doubts:
    """Collects the records of a log that have no unit at the queue offset that they name."""

    def __init__(self, queues: ConsumeQueueTableReader, dispatcher: Dispatcher) -> None:
        self.queues = queues
        self.dispatcher = dispatcher
        self._found: list[NDArray[np.int64]] = []
        self._count = 0
        self._topics: TopicTable | None = None
        #: Units that are not compared yet: a queue is opened once for many batches.
        self._pending: list[UnitBatch] = []
        self._pending_units = self._most_queues = 0

    def add(self, batch: Batch) -> None:
        """Takes the batches of one scan, in log order."""
        if self._count > _MOST:
            self._pending.clear()
            return
        units = unit_batch(batch, self.dispatcher)
        self._add_without_unit(batch, units)
        self._topics = batch.topics
        self._pending.append(units)
        self._pending_units += len(units.size)
        if self._pending_units >= bulk_units(self._most_queues):
            self._compare()

    def _compare(self) -> None:
        """Compares what is pending with the queues."""
        pending, self._pending, self._pending_units = self._pending, [], 0
        if not pending or self._topics is None:
            return
        units, queues = UnitBatch(*map(np.concatenate, zip(*pending, strict=True))), 0
        for topic_id, queue_id, rows in group_by_queue(units.topic_id, units.queue_id):
            queues += 1
            topic = self._topics.names[topic_id]
            queue = None
            if topic_directory_problem(topic) is None:
                queue = self.queues.find(topic, queue_id)
            place = np.stack([units.physical_offset[rows], units.size[rows]], axis=1)
            if queue is not None:
                place = place[~_is_there(queue, units.queue_offset[rows], place[:, 0])]
            self._note(place)
        self._most_queues = max(self._most_queues, queues)

    def _add_without_unit(self, batch: Batch, units: UnitBatch) -> None:
        """Adds the records whose queue offsets no queue can have."""
        kind = batch.sys_flag & TRANSACTION_TYPE_MASK
        rows = np.flatnonzero((kind != NO_UNIT[0]) & (kind != NO_UNIT[1]))
        if len(rows) > len(units.size):
            rows = rows[~np.isin(batch.physical_offset[rows], units.physical_offset)]
            self._note(np.stack([batch.physical_offset[rows], batch.total_size[rows]], axis=1))

    def _note(self, places: NDArray[np.int64]) -> None:
        if len(places):
            self._found.append(places)
            self._count += len(places)

    def places(self) -> NDArray[np.int64]:
        """Physical offset and size of each doubtful record: int64, shape ``(records, 2)``, in log
        order. Empty where there are too many."""
        self._compare()
        if not self._found or self._count > _MOST:
            return np.empty((0, 2), np.int64)
        return np.unique(np.concatenate(self._found), axis=0)


def _is_there(
    queue: ConsumeQueue, queue_offset: NDArray[np.int64], physical_offset: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the unit at each queue offset points to the record: bool, parallel to both."""
    found = np.zeros(len(queue_offset), bool)
    for start, end in _stretches(queue_offset):
        while start < end:
            window = queue.window(int(queue_offset[start]), end - start)
            if not len(window):
                break
            till = start + len(window)
            size = window["size"]
            # Where none is, the offset is 0, as of the first record.
            is_unit = (size > 0) & (size != PRE_BLANK_UNIT[1])
            found[start:till] = is_unit & (window["physical_offset"] == physical_offset[start:till])
            start = till
    return found


def _stretches(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """``(first row, end)`` of rows whose numbers follow each other."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    bounds = [0, *breaks.tolist(), len(numbers)]
    yield from pairwise(bounds)


def put_right(reading: Reading, log: CommitLog, doubts: Doubts) -> None:
    """Makes a gap of each whole record that a unit proves to be of another queue, or to have
    another queue offset, than the record says. The same unit then fills that gap.

    A queue proves nothing if one of its units stands at a place that another record names: its
    files are then those of another queue, or in disorder. A unit proves nothing of a record that
    names the unit's place, or that may be at the place that it names itself.
    """
    places = doubts.places()
    if not len(places):
        return
    starts, sizes = places[:, 0], places[:, 1]
    named = _Named(log, starts.tolist(), doubts)
    units = [
        unit
        for unit in units_in_ranges(doubts.queues, starts, starts + sizes)
        if not named.has(unit)
    ]
    astray = {unit[:2] for unit in units if named.places.get(unit[:3])}
    for unit in by_place([unit for unit in units if unit[:2] not in astray]):
        record = log.find_record(unit.physical_offset)
        if record is None or record.total_size != unit.size or named.is_possible(record):
            continue
        mapped, position = log.locate(unit.physical_offset)
        if mended_by_unit(mapped.read(position, unit.size), unit, doubts.dispatcher):
            give_up(reading, unit.physical_offset, unit.end, "unit-of-other-queue", None)


class _Named:
    """The places that doubtful records name."""

    def __init__(self, log: CommitLog, physical_offsets: list[int], doubts: Doubts) -> None:
        self._log, self._queues, self._dispatcher = log, doubts.queues, doubts.dispatcher
        #: The physical offsets of the records that name each place.
        self.places: dict[_Place, list[int]] = {}
        for offset in physical_offsets:
            record = log.find_record(offset)
            for place in () if record is None else self._of(record):
                self.places.setdefault(place, []).append(offset)

    def _of(self, record: Record) -> list[_Place]:
        return [unit[:3] for unit in self._dispatcher.units(record)]

    def has(self, unit: LostUnit) -> bool:
        """Whether the record that a unit points to names its place. A record may have units in
        light queues as well."""
        return unit.physical_offset in self.places.get(unit[:3], ())

    def is_possible(self, record: Record) -> bool:
        """Whether a record may be at the place that it names: nothing else is there, and it lies
        behind the message before it in the queue, and in front of the next one. A damaged number
        leads to a place that is taken, or to one without such neighbours."""
        topic, queue_id, queue_offset = place = record.topic, record.queue_id, record.queue_offset
        at = record.physical_offset
        if place not in self.places:
            return False  # No queue has such a place.
        here = self._standing(place)
        if here is not None:
            # Its own unit may be there: then that of a light queue is missing.
            return here == at
        if self.places[place] != [at]:
            return False
        before = self._known((topic, queue_id, queue_offset - 1))
        after = self._known((topic, queue_id, queue_offset + 1))
        if before is None and after is None:
            return queue_offset == 0 and self._queues.find(topic, queue_id) is not None
        return (before is None or before < at) and (after is None or at < after)

    def _known(self, place: _Place) -> int | None:
        """The physical offset of a record that names a place, whether or not it has its unit."""
        found = self._standing(place)
        return self.places.get(place, [None])[0] if found is None else found

    def _standing(self, place: _Place) -> int | None:
        """The physical offset of the record that names a place, and that has its unit there."""
        topic, queue_id, queue_offset = place
        queue = self._queues.find(topic, queue_id)
        unit = None if queue is None else queue.unit(queue_offset)
        if unit is None or not unit.is_written or unit.is_pre_blank:
            return None
        record = self._log.find_record(unit.physical_offset)
        if record is not None and place in self._of(record):
            return record.physical_offset
        return None
