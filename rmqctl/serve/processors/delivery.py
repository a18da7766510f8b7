"""Delivers delayed messages to their topics when they are due (``ScheduleMessageService``).

Messages that consumers have sent back come again in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.constants import RMQ_SYS_SCHEDULE_TOPIC
from rmqctl.engine.record.message import PutMessageResult
from rmqctl.engine.services import schedule
from rmqctl.engine.services.remade import put_remade
from rmqctl.engine.services.schedule import Due, Undeliverable
from rmqctl.engine.write.bulk import PropertyEncoder
from rmqctl.serve.processors.put import Upkept

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import WritableStore
    from rmqctl.engine.queue.consumequeue import ConsumeQueue
    from rmqctl.engine.store import Store

#: How many messages of a level are delivered before other levels, and producers, have their turn.
_MOST_AT_ONCE = 256
#: Why a message was not delivered: nothing is wrong with it, or something is.
_AGAIN = "It is tried again until the store takes it"
_SKIP = "`rmqctl schedule deliver --skip` passes over it"


class Delivery:
    """Delivers the delayed messages of one store. A delivered message is on disk before
    ``delayOffset.json`` says so. After a kill in between it is delivered once more, as by a broker.

    :raises ConfigFileUnreadable: that file and its ``.bak`` are broken, so that every delayed
        message of the log would be delivered again.
    """

    name = "delayed messages"

    def __init__(self, store: Store) -> None:
        offsets = schedule.load_delay_offsets(store.root)
        self._table = dict(offsets.table)
        self._saved = dict(offsets.table)
        self._keep_backup = offsets.is_backup
        self._encode = PropertyEncoder()
        #: Levels whose delivery has stopped, each with the reason that was told.
        self._standing: dict[int, str] = {}

    def deliver(self, store: WritableStore) -> Upkept:
        """Puts the messages that are due by the store's clock. For the thread that writes.

        :raises CannotWrite: the disk failed.
        """
        kept = Upkept([], [])
        now = store.clock()
        for level, delay in enumerate(store.dispatcher.delay_levels, 1):
            queue = store.consume_queue(RMQ_SYS_SCHEDULE_TOPIC, schedule.queue_id_of(level))
            if queue is not None:
                # The engine's rule for what lies too far ahead, where the levels are known for
                # sure: with the wrong ones it would deliver hours too early.
                is_known = store.config.is_explicit("message_delay_level")
                due = Due(now, now + delay if is_known else None)
                self._deliver_level(store, level, queue, due, kept)
        if self._table != self._saved:
            store.flush_log()
            schedule.save_delay_offsets(store.root, self._table, keep_backup=self._keep_backup)
            self._saved, self._keep_backup = dict(self._table), False
        return kept

    def _deliver_level(
        self, store: WritableStore, level: int, queue: ConsumeQueue, due: Due, kept: Upkept
    ) -> None:
        start = schedule.first_to_deliver(self._table.get(level), queue)
        end = schedule.end_of_due(store, level, queue, start, due)
        for queue_offset, unit in queue.units(start, min(end, start + _MOST_AT_ONCE)):
            found = schedule.message_of_unit(store, unit, self._encode)
            if isinstance(found, Undeliverable):
                if not found.passes:
                    self._stand(level, queue_offset, f"{found.reason}: {found.detail}", _SKIP, kept)
                    return
            else:
                result = put_remade(store, found[1])
                if not result.is_logged:
                    step = _AGAIN if result.status.is_of_store else _SKIP
                    self._stand(level, queue_offset, _reason(result), step, kept)
                    return
                kept.stored.append(result)
            self._table[level] = queue_offset + 1

    def _stand(self, level: int, queue_offset: int, reason: str, step: str, kept: Upkept) -> None:
        """Stops a level at a message, and tells so once."""
        text = f"level {level} stands still at queue offset {queue_offset}: {reason}"
        if self._standing.get(level) != text:
            self._standing[level] = text
            kept.troubles.append(f"{text}. {step}")


def _reason(result: PutMessageResult) -> str:
    return f"{result.status.value} {result.reason}".strip()
