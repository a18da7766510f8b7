"""timer deliver: puts the messages that are due in the timer of 5.x into their topics, then makes
the timer anew from those that still wait.

A kill in between leaves copies that the timer does not know of. The next run finds them by the
index, as ``timer rebuild`` does: it counts them as delivered before, and leaves them out of the
timer.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from isal.isal_zlib import crc32

from formats import constants
from formats.text import CAPACITY_OF_5, encode_properties
from rmqctl.engine.record.message import (
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    illegal,
)
from rmqctl.engine.record.record import Record
from rmqctl.engine.services import timer as rules
from rmqctl.engine.services.remade import check_remade
from rmqctl.engine.services.schedule import Undeliverable, message_timeup
from rmqctl.engine.services.timer import Timer
from rmqctl.engine.services.timerset import LOOKS, TimerSet
from rmqctl.engine.write.bulk import PropertyEncoder
from rmqctl.errors import CannotWrite, TopicNotAllowed
from rmqctl.operations.mend.timer import is_cut_off, replace_timer
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore, WritableStore
    from rmqctl.rows.timers import TimerDeliverSummary, TimerUndeliveredRow

_NOT_ENQUEUED = constants.LONG_MAX
#: Progress is told each so many messages.
_AT_ONCE = 4096


def delivered_message(
    record: Record, body: bytes, encode: PropertyEncoder, enqueued: int, dequeued: int
) -> MessageExtBrokerInner | Undeliverable:
    """The copy that ``TimerMessageStore#convert`` makes. It has the times (ms) at which the message
    came into the wheel and left it. The encoded properties still hold the real topic and queue: a
    broker clears these only after encoding."""
    if body and crc32(body) & 0x7FFFFFFF != record.body_crc:
        return Undeliverable("body-crc-mismatch", False, "the body is not what was stored")
    found = message_timeup(record, body, encode)
    if isinstance(found, Undeliverable):
        return found
    properties = dict(record.properties)
    properties[constants.PROPERTY_TIMER_ENQUEUE_MS] = str(enqueued)
    properties[constants.PROPERTY_TIMER_DEQUEUE_MS] = str(dequeued)
    stored = encode_properties(properties, CAPACITY_OF_5)
    for name in (constants.PROPERTY_REAL_TOPIC, constants.PROPERTY_REAL_QUEUE_ID):
        del properties[name]
    return replace(found, properties=properties, properties_bytes=stored)


class TimerDelivery:
    """One run over a store that is open for writing (for a dry run: for reading).

    :param until: deliver the messages that are due at this time (ms).
    :param now: the time (ms) at which the command runs.
    """

    def __init__(self, store: MessageStore, until: int, now: int, *, dry_run: bool) -> None:
        self._store = store
        self._until = until
        self._now = now
        self._dry_run = dry_run
        self._encode = PropertyEncoder()
        self._undelivered: list[TimerUndeliveredRow] = []
        #: Messages that are on their way, and the physical offsets of those that are delivered.
        self._under_way: list[Record] = []
        self._done: set[int] = set()
        self._due = self._before = 0
        self.refused: PutMessageResult | None = None
        queue = store.consume_queue(constants.TIMER_TOPIC, 0)
        self._queued = 0 if queue is None else queue.max_offset - queue.min_offset
        self._progress: Progress = lambda done: None

    @property
    def steps(self) -> int:
        """How far the progress of :meth:`rows` goes at most: each message of the timer's queue is
        looked up, delivered, and looked at again for the new timer."""
        return self._queued * (2 if self._dry_run else 2 + LOOKS)

    def rows(
        self, progress: Progress = lambda done: None
    ) -> Iterator[TimerUndeliveredRow | TimerDeliverSummary]:
        """Delivers; yields ``timer_undelivered`` rows, then ``summary``. ``progress`` is told of
        the :attr:`steps` that are done."""
        self._progress = progress
        kept: list[str] = []
        if is_cut_off(self._store.root) and not self._dry_run:
            # The timer was being replaced when a run was cut off: it does not name what is due.
            with closing(Timer(self._store)) as timer:
                waiting = TimerSet(self._store, timer, self._now)
                kept += replace_timer(self._store, timer, waiting)
        with closing(Timer(self._store)) as timer:
            if self._dry_run:
                self._try(timer)
            else:
                self._put(timer)
            yield from self._undelivered
            if (self._done or self._before) and not self._dry_run:
                waiting = TimerSet(
                    self._store,
                    timer,
                    self._now,
                    until=self._until,
                    delivered=frozenset(self._done),
                    progress=lambda done, _: progress(2 * self._queued + done),
                )
                kept += replace_timer(self._store, timer, waiting)
        yield {
            "type": "summary",
            "due": self._due,
            "delivered": len(self._done),
            "delivered_before": self._before,
            "undelivered": len(self._undelivered),
            "kept": kept,
        }

    def _messages(self, timer: Timer) -> Iterator[MessageExtBrokerInner]:
        """The copies to put, in the order of their slots. A message without a copy that could be
        put becomes a row."""
        # All are looked up before the first is put, for puts change the queue. There may be a
        # million. Their offsets, and the times at which they came into the wheel, are held.
        places = array("q")
        for number, timed in enumerate(timer.due(self._until)):
            self._tell(number)
            if timed.record is not None:
                enqueued = _NOT_ENQUEUED if timed.unit is None else timed.unit.write_timestamp
                places.extend((timed.physical_offset, enqueued))
        pairs = zip(places[::2], places[1::2], strict=True)
        for number, (offset, enqueued) in enumerate(pairs, self._queued):
            self._tell(number)
            record = self._store.commit_log.find_record(offset)
            if record is None:
                continue  # Something has changed it since it was looked up.
            self._due += 1
            if rules.copy_of(self._store, record, record.properties) is not None:
                self._before += 1
                continue
            body = self._store.body(record)
            made = delivered_message(record, body, self._encode, enqueued, self._now)
            if isinstance(made, Undeliverable):
                self._note(record, made.reason, made.detail)
                continue
            self._under_way.append(record)
            yield made

    def _tell(self, done: int) -> None:
        if not done % _AT_ONCE:
            self._progress(done)

    def _note(self, record: Record, reason: str, detail: str) -> None:
        self._undelivered.append(
            {
                "type": "timer_undelivered",
                "physical_offset": record.physical_offset,
                "queue_offset": record.queue_offset,
                "reason": reason,
                "detail": detail,
            }
        )

    def _try(self, timer: Timer) -> None:
        """What :meth:`_put` would do, as far as the messages themselves tell."""
        for message in self._messages(timer):
            checked = check_remade(self._store, message)
            if not isinstance(checked, EncodedMessage):
                self._note_refused(checked)
                return
            self._done.add(self._under_way.pop().physical_offset)

    def _note_refused(self, result: PutMessageResult) -> None:
        """Of the first message that is on its way: the store does not take it, and the run ends."""
        self._note(self._under_way[0], "refused", f"{result.status.value}: {result.reason}")

    def _put(self, timer: Timer) -> None:
        # Rows tell of damaged messages; they are no reason to hold back the others.
        self._store.commit_log.is_unread = False
        try:
            for bulk in self._store.append_stream(self._messages(timer)):
                stored = len(bulk.stored)
                self._done.update(one.physical_offset for one in self._under_way[:stored])
                del self._under_way[:stored]
                if bulk.refused is not None:
                    self.refused = bulk.refused
                    self._note_refused(bulk.refused)
                    if bulk.logged:
                        self._done_by_log(self._under_way[: bulk.logged])
                    return
        except TopicNotAllowed as error:  # One of the further queues that a message names.
            self.refused = illegal(str(error))
            self._note_refused(self.refused)

    def _done_by_log(self, records: list[Record]) -> None:
        """Counts refused messages that the log has as delivered, if they are on disk: the next
        start brings them to their queues."""
        with suppress(CannotWrite):
            cast("WritableStore", self._store).flush_log()
            self._done.update(record.physical_offset for record in records)
