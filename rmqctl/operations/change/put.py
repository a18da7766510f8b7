"""put: one message into a store, and the row that says what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.engine.record.form import room_of
from rmqctl.engine.record.message import (
    MessageExtBrokerInner,
    PutMessageResult,
    longest_record,
)
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.start.nearend import check_before
from rmqctl.errors import CannotWrite

if TYPE_CHECKING:
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.start.model import StartPlan
    from rmqctl.engine.write.drylines import DryLines
    from rmqctl.engine.write.lines import Lines
    from rmqctl.rows.changes import AppendResultRow


class StoredNotClosed(CannotWrite):
    """What was put is stored, but the store could not be closed."""

    template = (
        "{path}: what was put is stored, and the store could not be closed: {reason}. Do not put "
        "it again: the log has it. `rmqctl flush`, or the next command that writes, brings the "
        "rest in order."
    )
    step = "Check owner, mount and free space before that."


def put_one(
    store: MessageStore, message: MessageExtBrokerInner, *, flush: bool = True
) -> AppendResultRow:
    """Puts one message; the row says what became of it."""
    return append_result_row(store.put_message(message, flush=flush).named(message))


class DryPut:
    """Says what puts would answer, for a store that is open for reading."""

    def __init__(self, store: MessageStore, plan: StartPlan) -> None:
        """:param plan: what opening the store for writing would do first.

        :raises DamagedStore: before the log's end is damage behind which nothing can be put.
        """
        check_before(store.commit_log, store.max_offset)
        self._store = store
        self.form = store.form
        #: Bytes of the longest record, or batch of records, that the store takes.
        self.longest = min(
            longest_record(store.config.max_message_size, self.form),
            room_of(store.commit_log.file_size),
        )
        #: Where queues end after the start has cut them.
        self._cuts = {(cut.topic, cut.queue_id): cut.end for cut in plan.queue_cuts}
        #: Queues that were checked; each is once, as by a put.
        self._sound: set[tuple[str, int]] = set()

    def check(self, message: MessageExtBrokerInner) -> AppendResultRow:
        """The row of one message; its offsets are None.

        :raises QueueUnsound: the message would have no unit after a broker's start.
        """
        checked = self._store.check_message(message)
        if isinstance(checked, PutMessageResult):
            return append_result_row(checked.named(message))
        topic, queue_id = checked.message.topic, checked.message.queue_id
        for where in ((topic, queue_id), *self._multi(checked.message)):
            if where not in self._sound:
                cut = self._cuts.get(where)
                self._store.queues.check_goes_on(*where, self._store.max_offset, cut)
                self._sound.add(where)
        return would_be_stored(topic, queue_id)

    def plain_lines(self, lines: Lines) -> DryLines | None:
        """Passes over lines that the store would surely take. None: all must be checked."""
        from rmqctl.engine.write.compiled import dry_lines

        store = self._store
        return dry_lines(store.config, store.commit_log.file_size, self.form, lines)

    def _multi(self, message: MessageExtBrokerInner) -> list[tuple[str, int]]:
        """The light queues that a message goes to."""
        if not self._store.config.enable_multi_dispatch:
            return []
        from rmqctl.engine.dispatch.multi import multi_queues

        return multi_queues(message, self.form, self._store.dispatcher)


def would_be_stored(topic: str, queue_id: int) -> AppendResultRow:
    """The row of a message that a put would store."""
    return append_result_row(PutMessageResult(PutMessageStatus.PUT_OK, None, topic, queue_id))


def append_result_row(result: PutMessageResult) -> AppendResultRow:
    """What became of a put; offsets are None when nothing was stored."""
    append = result.stored
    row: AppendResultRow = {
        "type": "append_result",
        "status": result.status.value,
        "msg_id": append.msg_id if append else None,
        "topic": result.topic,
        "queue_id": result.queue_id,
        "wrote_offset": append.wrote_offset if append else None,
        "wrote_bytes": append.wrote_bytes if append else None,
        "queue_offset": append.queue_offset if append else None,
        "store_timestamp": append.store_timestamp if append else None,
    }
    if result.reason:
        row["reason"] = result.reason
    return row
