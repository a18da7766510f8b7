"""transaction commit, rollback: what ends half messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from formats import constants
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import (
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    illegal,
)
from rmqctl.engine.record.record import Record, body_seen, crc_matches
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.services import transaction
from rmqctl.engine.services.remade import check_remade
from rmqctl.engine.write.appended import Bulk
from rmqctl.errors import TopicNotAllowed
from rmqctl.operations.look.halves import CHECKED, ENDED, finals_of, halves

if TYPE_CHECKING:
    from rmqctl.rows.changes import TransactionRow
    from rmqctl.rows.summaries import TransactionEndSummary


Action = Literal["commit", "rollback"]
#: Statuses of rows that say that the store takes no more messages.
STORE_REFUSED = {status.value for status in PutMessageStatus if status.is_of_store}


class Ending(NamedTuple):
    """How transactions are ended. With ``group`` half messages of other producer groups are
    refused, as a broker refuses them by the group of the request."""

    action: Action
    now: int
    group: str | None = None
    dry_run: bool = False


def end_transactions(
    store: MessageStore, physical_offsets: Iterable[int], ending: Ending
) -> Iterator[TransactionRow | TransactionEndSummary]:
    """Commits half messages or rolls them back; yields a row ``transaction`` for each, then
    ``summary``.

    A commit puts the final message, then the op message; a rollback puts the op message. A kill in
    between leaves a final message without an op message: the next commit finds it by its
    PREPAREDTRANSACTIONOFFSET, and puts the op message alone. A rollback is refused then, for
    consumers get that message. A status that says that the store takes no messages ends the run.
    """
    work = _Work(store, list(dict.fromkeys(physical_offsets)), ending)
    yield from work.rows()
    yield {
        "type": "summary",
        "done": work.done,
        "refused": work.refused,
        "not_tried": len(work.offsets) - work.done - work.refused,
    }


@dataclass(slots=True)
class _End:
    """A transaction that is being ended: its row, how many messages are to be put for it, and the
    physical offsets of those that were."""

    row: TransactionRow
    to_put: int
    offsets: list[int] = field(default_factory=list)


class _Work:
    def __init__(self, store: MessageStore, offsets: list[int], ending: Ending) -> None:
        self.offsets = offsets
        self.done = 0
        self.refused = 0
        self._store = store
        self._ending = ending
        self._pending = {half.record.physical_offset: half for half in halves(store)}
        known = (self._pending.get(offset) for offset in self.offsets)
        self._finals = finals_of(store, (half.record for half in known if half is not None))
        self._under_way: deque[_End] = deque()
        self._rows: list[TransactionRow] = []

    def rows(self) -> Iterator[TransactionRow]:
        if self._ending.dry_run:
            self._try()
        else:
            # A rollback of a half message with a damaged body delivers that body to nobody.
            self._store.commit_log.is_unread = False
            try:
                for bulk in self._store.append_stream(self._messages()):
                    self._settle(bulk)
                    yield from self._rows
                    self._rows.clear()
                    if bulk.refused is not None:
                        break
            except TopicNotAllowed as error:  # One of the further queues that a message names.
                self._end_all(illegal(str(error)))
        yield from self._rows

    def _settle(self, bulk: Bulk) -> None:
        for appended in bulk.stored:
            end = self._under_way[0]
            end.offsets.append(appended.wrote_offset)
            if len(end.offsets) == end.to_put:
                self._finish(self._under_way.popleft(), "PUT_OK")
        if bulk.refused is not None:
            self._end_all(bulk.refused)

    def _try(self) -> None:
        """Checks messages as puts would, for a dry run."""
        for message in self._messages():
            checked = check_remade(self._store, message)
            if not isinstance(checked, EncodedMessage):
                refused = self._under_way.pop()
                self._end_all(None)
                self._finish(refused, checked.status.value, checked.reason)
                return
        self._end_all(None)

    def _end_all(self, refused: PutMessageResult | None) -> None:
        """Ends what is under way. Refused are several transactions where all were appended and
        something after the append failed; None: a dry run has found nothing against them."""
        status, reason = (refused.status.value, refused.reason) if refused else ("DRY_RUN", "")
        while self._under_way:
            self._finish(self._under_way.popleft(), status, reason)

    def _messages(self) -> Iterator[MessageExtBrokerInner]:
        """The messages to put, in order. A transaction that is refused becomes a row, and puts
        none."""
        for offset in self.offsets:
            half = self._store.commit_log.find_record(offset)
            status, reason = self._refusal(offset, half)
            if half is None or status:
                self._finish(_End(self._row(offset, half), 0), status, reason)
                continue
            row = self._row(offset, half)
            row["final_offset"] = self._finals.get(offset)
            puts_final = self._ending.action == "commit" and row["final_offset"] is None
            self._under_way.append(_End(row, 1 + puts_final))
            if puts_final:
                yield transaction.commit_message(half, self._store.body(half))
            yield transaction.op_message(half, self._ending.now)

    def _refusal(self, offset: int, half: Record | None) -> tuple[str, str]:
        """Status and reason; two empty strings when the transaction can be ended."""
        if half is None:
            return "NOT_FOUND", "no record starts there: `rmqctl transaction ls` shows the offsets"
        commits = self._ending.action == "commit"
        problem = transaction.half_problem(half)
        if problem is None and commits:
            problem = transaction.commit_problem(half)
        if problem is not None:
            return "ILLEGAL", problem
        group = half.properties[constants.PROPERTY_PRODUCER_GROUP]
        if self._ending.group not in (None, group):
            return "PRODUCER_GROUP_WRONG", f"its producer group is {group}"
        known = self._pending.get(offset)
        if known is None:
            return "NOT_PENDING", (
                "it lies before the progress of the broker's check: it has ended, was put back as "
                "a later half message or was discarded (`rmqctl transaction ls --all`)"
            )
        if known.state == ENDED:
            return "NOT_PENDING", "an op message has ended it"
        if known.state == CHECKED:
            return "NOT_PENDING", f"the broker's check has put it back at {known.successor}"
        if not commits and offset in self._finals:
            return "COMMITTED", (
                f"a commit that was cut off has put its final message at {self._finals[offset]}, "
                f"and consumers get it: `rmqctl transaction commit {offset}` completes that"
            )
        mapped, _ = self._store.commit_log.locate(offset)
        if commits and not crc_matches(body_seen(mapped, half), half):
            return "BODY_DAMAGED", "its body is not what was stored: take it from a replica"
        return "", ""

    def _row(self, offset: int, half: Record | None) -> TransactionRow:
        properties = {} if half is None else half.properties
        return {
            "type": "transaction",
            "action": self._ending.action,
            "status": "",
            "physical_offset": offset,
            "queue_offset": None if half is None else half.queue_offset,
            "real_topic": properties.get(constants.PROPERTY_REAL_TOPIC),
            "real_queue_id": properties.get(constants.PROPERTY_REAL_QUEUE_ID),
            "producer_group": properties.get(constants.PROPERTY_PRODUCER_GROUP),
            "final_offset": None,
            "op_offset": None,
        }

    def _finish(self, end: _End, status: str, reason: str = "") -> None:
        row = end.row
        row["status"] = status
        if end.to_put == 2 and end.offsets:
            row["final_offset"] = end.offsets[0]
        if end.offsets and len(end.offsets) == end.to_put:
            row["op_offset"] = end.offsets[-1]
        if reason:
            row["reason"] = reason
        self.done += status in ("PUT_OK", "DRY_RUN")
        self.refused += status not in ("PUT_OK", "DRY_RUN")
        self._rows.append(row)
