"""schedule ls, deliver: the delayed messages that wait, and their delivery to their real topics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from formats import constants
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.record.message import (
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    illegal,
)
from rmqctl.engine.record.record import Record
from rmqctl.engine.services import schedule
from rmqctl.engine.services.remade import check_remade
from rmqctl.engine.services.schedule import Due, Undeliverable
from rmqctl.engine.services.search import QueueSearch
from rmqctl.engine.write.appended import Bulk
from rmqctl.engine.write.bulk import PropertyEncoder
from rmqctl.errors import CannotWrite, TopicNotAllowed
from rmqctl.operations.change.undelivered import (
    FILE_MISSING,
    LEVEL_UNKNOWN,
    SKIPPED,
    UndeliveredRows,
)

if TYPE_CHECKING:
    from rmqctl.rows.changes import DelayLevelRow, DeliveryRow, UndeliveredRow
    from rmqctl.rows.summaries import ScheduleDeliverSummary, ScheduleLsSummary

_TOPIC = constants.RMQ_SYS_SCHEDULE_TOPIC
#: Units that are read at once: 80 KB.
_UNITS_AT_ONCE = 4096


class Skip(NamedTuple):
    """Messages of a level that are given up: queue offsets, the last one included."""

    level: int
    first: int
    last: int


def due_of(store: MessageStore, level: int, until: int, now: int) -> Due:
    """By what a message of a level is due. The engine delivers what lies too far ahead at once;
    this holds only where a ``broker.conf`` gives the levels, as with wrong levels it would deliver
    hours too early."""
    levels = store.dispatcher.delay_levels
    known = store.config.is_explicit("message_delay_level") and level <= len(levels)
    return Due(until, max(until, now) + levels[level - 1] if known else None)


def scheduled_levels(store: MessageStore) -> list[int]:
    """The levels that have a queue."""
    return [where.queue_id + 1 for where in store.queues.directories_of(_TOPIC)]


def delay_levels(store: MessageStore, now: int) -> Iterator[DelayLevelRow | ScheduleLsSummary]:
    """Rows ``delay_level`` of every level that has a queue or a progress, then ``summary``.

    ``next_offset`` is the offset at which a broker goes on, ``due`` counts the messages that it
    would deliver at once.
    """
    offsets = schedule.load_delay_offsets(store.root).table
    delays = store.dispatcher.delay_levels
    levels = pending = due = 0
    for level in sorted({*scheduled_levels(store), *(n for n in offsets if n > 0)}):
        queue = store.consume_queue(_TOPIC, schedule.queue_id_of(level))
        row: DelayLevelRow = {
            "type": "delay_level",
            "level": level,
            "delay_milliseconds": delays[level - 1] if level <= len(delays) else None,
            "progress": offsets.get(level),
            "min_offset": queue.min_offset if queue else 0,
            "max_offset": queue.max_offset if queue else 0,
            "next_offset": None,
            "pending": 0,
            "due": 0,
            "next_delivery_timestamp": None,
        }
        if queue is not None:
            start = schedule.first_to_deliver(offsets.get(level), queue)
            row["next_offset"] = start
            row["pending"] = queue.max_offset - start
            unit = queue.unit(start) if row["pending"] else None
            if unit is not None:
                row["next_delivery_timestamp"] = schedule.deliver_timestamp(
                    store, level, queue, unit
                )
            if level <= len(delays):
                rule = due_of(store, level, now, now)
                row["due"] = schedule.end_of_due(store, level, queue, start, rule) - start
        levels, pending, due = levels + 1, pending + row["pending"], due + row["due"]
        yield row
    yield {"type": "summary", "levels": levels, "pending": pending, "due": due}


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is to be delivered, and how.

    :param until: deliver the messages that are due at this time (milliseconds).
    :param now: the time (milliseconds) at which the command runs.
    :param levels: only these levels; empty: all of the configuration.
    :param skip: pass over these messages for good, even if they could be delivered.
    :param skip_delivered: pass over messages of which an earlier run, or a broker, has put a copy
        without recording it. Otherwise they are delivered again, as by a broker.
    """

    until: int
    now: int
    levels: frozenset[int] = frozenset()
    skip: tuple[Skip, ...] = ()
    skip_delivered: bool = False
    dry_run: bool = False


class DeliveryRun:
    """One run of ``schedule deliver`` over a store that is open for writing (for a dry run: for
    reading). ``due`` counts the messages that it looks at.

    Messages are put and forced to disk in bulks; after each bulk the progress is stored durably. A
    kill in between leaves at most one bulk that is delivered but not recorded: the next run counts
    its copies as ``delivered_before``.

    ``refused`` is the answer of a store that takes no more messages. It ends the run.
    """

    def __init__(self, store: MessageStore, delivery: Delivery) -> None:
        self.store = store
        self.delivery = delivery
        self.advance: Callable[[int], None] = lambda done: None
        self.refused: PutMessageResult | None = None
        offsets = schedule.load_delay_offsets(store.root)
        self.table = dict(offsets.table)
        self.search = QueueSearch(store)
        self.encode = PropertyEncoder()
        self._keep_backup = offsets.is_backup
        self._saved = False
        self._done = 0
        self._levels = list(self._plan())
        self.due = sum(level.end - level.start for level in self._levels)

    def _plan(self) -> Iterator[_Level]:
        for level in range(1, len(self.store.dispatcher.delay_levels) + 1):
            queue = self.store.consume_queue(_TOPIC, schedule.queue_id_of(level))
            if queue is not None and self._wanted(level):
                yield _Level(self, level, queue)

    def rows(self) -> Iterator[UndeliveredRow | DeliveryRow | ScheduleDeliverSummary]:
        """Delivers level by level; yields ``undelivered`` rows and one ``delivery`` for each level
        that has anything to do, then ``summary``."""
        due = delivered = delivered_before = passed_over = stopped = 0
        for level in self._levels:
            if level.start == level.end:
                continue
            yield from level.work()
            row = level.row()
            due += row["due"]
            delivered += row["delivered"]
            delivered_before += row["delivered_before"]
            passed_over += row["passed_over"]
            stopped += level.stopped
            yield row
            if self.refused is not None:
                break
        for unknown in self._unknown_levels():
            stopped += 1
            yield unknown
        yield {
            "type": "summary",
            "due": due,
            "delivered": delivered,
            "delivered_before": delivered_before,
            "passed_over": passed_over,
            "stopped_levels": stopped,
        }

    def _unknown_levels(self) -> Iterator[UndeliveredRow]:
        """Levels that have messages and no delay in the configuration: a broker never delivers
        them."""
        for level in scheduled_levels(self.store):
            queue = self.store.consume_queue(_TOPIC, schedule.queue_id_of(level))
            if queue is None or level <= len(self.store.dispatcher.delay_levels):
                continue
            start = schedule.first_to_deliver(self.table.get(level), queue)
            if start < queue.max_offset and self._wanted(level):
                rows = UndeliveredRows(level)
                rows.add(start, None, LEVEL_UNKNOWN, queue.max_offset - start)
                yield from rows.finished(last=True)

    def _wanted(self, level: int) -> bool:
        return not self.delivery.levels or level in self.delivery.levels

    def save(self) -> None:
        if not self.delivery.dry_run:
            schedule.save_delay_offsets(self.store.root, self.table, keep_backup=self._keep_backup)
            self._saved, self._keep_backup = True, False

    def prove_progress_can_be_stored(self) -> None:
        """Stores the progress once before the first message is put: if it cannot be stored, nothing
        is delivered that no file could record."""
        if not self._saved:
            self.save()

    def looked_at_one(self) -> None:
        self._done += 1
        if self._done % _UNITS_AT_ONCE == 0:
            self.advance(self._done)


class _Level:
    """One level of a run: its due messages as a stream, and what becomes of them."""

    def __init__(self, run: DeliveryRun, level: int, queue: ConsumeQueue) -> None:
        self._run = run
        self._store = run.store
        self.level = level
        self.progress_before = run.table.get(level)
        self.start = schedule.first_to_deliver(self.progress_before, queue)
        rule = due_of(run.store, level, run.delivery.until, run.delivery.now)
        self.end = schedule.end_of_due(run.store, level, queue, self.start, rule)
        if self.end < queue.max_offset and queue.unit(self.end) is None:
            self.end += 1  # No file holds it: the level stands still there, and that is said.
        self.stopped = False
        self._max_offset = queue.max_offset
        self._delivered = self._delivered_before = self._passed_over = 0
        self._wrote: list[int] = []
        # Deliveries go in order, so messages with copies come first: the first message without a
        # copy ends the search.
        self._copies_go_on = True
        #: Queue offsets under way, and whether each is a message (else it is passed for good).
        self._under_way: deque[tuple[int, bool]] = deque()
        self._rows = UndeliveredRows(level)

    def work(self) -> Iterator[UndeliveredRow]:
        if self._run.delivery.dry_run:
            for message in self._messages():
                self._try(message)
                yield from self._rows.finished()
        else:
            yield from self._put()
        yield from self._rows.finished(last=True)

    def _put(self) -> Iterator[UndeliveredRow]:
        self._run.prove_progress_can_be_stored()
        # Rows tell of damaged messages; they are no reason to hold back the others.
        self._store.commit_log.is_unread = False
        try:
            for bulk in self._store.append_stream(self._messages()):
                self._settle(bulk)
                yield from self._rows.finished()
        except TopicNotAllowed as error:  # One of the extra queues that a message names.
            self._refused(illegal(str(error)))
        if self._pass(0):
            self._run.save()

    def row(self) -> DeliveryRow:
        progress = self._run.table.get(self.level)
        return {
            "type": "delivery",
            "level": self.level,
            "progress_before": self.progress_before,
            "progress": progress,
            "due": self.end - self.start,
            "delivered": self._delivered,
            "delivered_before": self._delivered_before,
            "passed_over": self._passed_over,
            "pending": self._max_offset - max(progress or 0, self.start),
            "wrote_from": self._wrote[0] if self._wrote else None,
            "wrote_to": self._wrote[1] if self._wrote else None,
        }

    def _messages(self) -> Iterator[MessageExtBrokerInner]:
        """The messages to put, in order; units that give none become rows. Ends at the first that
        stops the level."""
        skip = self._run.delivery.skip
        skipped = [(one.first, one.last) for one in skip if one.level == self.level]
        queue = self._store.consume_queue(_TOPIC, schedule.queue_id_of(self.level))
        assert queue is not None
        for start in range(self.start, self.end, _UNITS_AT_ONCE):
            end = min(start + _UNITS_AT_ONCE, self.end)
            expected = start
            for queue_offset, unit in list(queue.units(start, end)):
                if queue_offset != expected:
                    break
                expected += 1
                self._run.looked_at_one()
                if any(low <= queue_offset <= high for low, high in skipped):
                    self._rows.add(queue_offset, unit.physical_offset, SKIPPED)
                    self._pass_over(queue_offset, for_good=True)
                    continue
                found = schedule.message_of_unit(self._store, unit, self._run.encode)
                if isinstance(found, Undeliverable):
                    if found.reason != "pre-blank-unit":
                        self._rows.add(queue_offset, unit.physical_offset, found)
                    if not found.passes:
                        self.stopped = True
                        return
                    self._pass_over(queue_offset, for_good=False)
                    continue
                record, message = found
                if self._copies_go_on and self._has_copy(record, message):
                    self._delivered_before += 1
                    if self._run.delivery.skip_delivered:
                        self._under_way.append((queue_offset, False))
                        continue
                self._under_way.append((queue_offset, True))
                yield message
                if self.stopped:
                    return
            if expected != end:
                self._rows.add(expected, None, FILE_MISSING)
                self.stopped = True
                return

    def _pass_over(self, queue_offset: int, *, for_good: bool) -> None:
        """Counts a message that is passed over. ``for_good``: the progress moves behind it; else
        the next delivered message moves it, as in a broker."""
        self._passed_over += 1
        if for_good:
            self._under_way.append((queue_offset, False))

    def _has_copy(self, record: Record, message: MessageExtBrokerInner) -> bool:
        encoded, copy = check_remade(self._store, message), None
        if isinstance(encoded, EncodedMessage):
            copy = self._run.search.find(
                message.topic,
                message.queue_id,
                after=record.physical_offset,
                size=encoded.size,
                tags_code=record.tags_code,
                same=lambda other: schedule.is_copy(other, record, encoded),
            )
        self._copies_go_on = copy is not None
        return self._copies_go_on

    def _try(self, message: MessageExtBrokerInner) -> None:
        """Checks a message as a put would, for a dry run."""
        encoded = check_remade(self._store, message)
        if isinstance(encoded, EncodedMessage):
            self._delivered += 1
            self._pass(1)
        else:
            self._refused(encoded)

    def _settle(self, bulk: Bulk) -> None:
        """Counts a bulk that is on disk, and stores the progress."""
        stored = bulk.stored
        if stored:
            self._delivered += len(stored)
            last = stored[-1]
            first = self._wrote[0] if self._wrote else stored[0].wrote_offset
            self._wrote = [first, last.wrote_offset + last.wrote_bytes]
        if self._pass(len(stored)):
            self._run.save()
        if bulk.refused is not None:
            self._refused(bulk.refused)
            if bulk.logged:
                self._pass_logged(bulk.logged)

    def _pass_logged(self, messages: int) -> None:
        """Moves the progress behind refused messages that the log has, if that can be stored."""
        before = dict(self._run.table)
        try:
            cast(WritableStore, self._store).flush_log()
            self._pass(messages)
            self._run.save()
            self._delivered += messages
        except CannotWrite:
            self._run.table = before

    def _pass(self, messages: int) -> bool:
        """Moves the progress behind so many of the messages under way, and behind those that are
        passed for good; returns whether it has moved."""
        moved = False
        while self._under_way and (messages or not self._under_way[0][1]):
            queue_offset, is_message = self._under_way.popleft()
            messages -= is_message
            self._run.table[self.level] = queue_offset + 1
            moved = True
        return moved

    def _refused(self, result: PutMessageResult) -> None:
        if result.status.is_of_store:
            self._run.refused = result
        queue_offset = self._under_way[0][0] if self._under_way else self.start
        queue = self._store.consume_queue(_TOPIC, schedule.queue_id_of(self.level))
        unit = queue.unit(queue_offset) if queue is not None else None
        detail = Undeliverable("refused", False, f"{result.status.value}: {result.reason}")
        self._rows.add(queue_offset, unit.physical_offset if unit else None, detail)
        self.stopped = True
