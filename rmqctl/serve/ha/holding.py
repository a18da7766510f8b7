"""Holds back the answers of a SYNC_MASTER's puts until a slave has the messages
(``CommitLog#handleHA``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from rmqctl.engine.record.message import PutMessageResult
from rmqctl.engine.record.status import PutMessageStatus
from rmqctl.engine.write.bulk import Message, full
from rmqctl.serve.ha.master import Master

T = TypeVar("T")


class Held(NamedTuple, Generic[T]):
    """A put that waits, and its results. ``work`` identifies it for the caller."""

    work: T
    results: list[PutMessageResult]


class Holding(Generic[T]):
    """The puts that wait for the slaves of a master. Without slaves, and where puts need not wait
    for them, none does."""

    def __init__(self, master: Master[Held[T]] | None = None) -> None:
        self._master = master
        self._is_over = False

    def hold(
        self,
        work: T,
        messages: Sequence[Message],
        results: list[PutMessageResult],
        now: int,
    ) -> bool:
        """Whether these results are to be answered later; else they are final, with the status that
        the slaves give them."""
        stored = [one.stored for one in results if one.is_ok and one.stored is not None]
        master = self._master
        if master is None or not master.is_sync or not stored:
            return False
        if not any(one.is_wait_store_msg_ok for one in full(messages)):
            return False
        end = max(one.wrote_offset + one.wrote_bytes for one in stored)
        status = master.wait(end, Held(work, results), now)
        if status is None and not self._is_over:
            return True
        for held, late in master.due(now, is_over=True) if status is None else ():
            _tell(held.results, late)
        if status is not None:
            _tell(results, status)
        return False

    def released(self, now: int) -> list[Held[T]]:
        """The puts whose wait is over, in order; their results have the final status."""
        released = []
        due = [] if self._master is None else self._master.due(now, is_over=self._is_over)
        for held, status in due:
            _tell(held.results, status)
            released.append(held)
        return released

    def end(self) -> None:
        """From now on no put waits."""
        self._is_over = True


def _tell(results: list[PutMessageResult], status: PutMessageStatus) -> None:
    if status is not PutMessageStatus.PUT_OK:
        for result in results:
            if result.is_ok:
                result.status = status
                result.reason = "the message is stored here alone"
