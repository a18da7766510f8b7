"""The rows ``undelivered`` of schedule deliver: delayed messages that stay where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqctl.engine.services.schedule import Undeliverable

if TYPE_CHECKING:
    from rmqctl.rows.changes import UndeliveredRow

#: What to do about a message that does not go back to its topic, by reason.
NEXT_STEPS = {
    "record-gone": "nothing: retention has deleted it, and a broker passes over it too",
    "real-topic-is-half-topic": "nothing: a broker discards it too",
    "unit-mismatch": "`rmqctl verify` says what is wrong there: mend it, or --skip it",
    "body-crc-mismatch": "look at it with `rmqctl message`, then --skip it",
    "real-topic-missing": "look at it with `rmqctl message`, then --skip it",
    "real-topic-not-allowed": "look at it with `rmqctl message`, then --skip it",
    "real-queue-id-not-allowed": "look at it with `rmqctl message`, then --skip it",
    "queue-file-missing": "`rmqctl rebuild queues`",
    "level-unknown": "give the broker's broker.conf with --broker-conf",
    "refused": "mend what the detail says and deliver again, or --skip it",
    "skipped": "nothing: --skip named it",
}

SKIPPED = Undeliverable("skipped", True, "passed over for good")
LEVEL_UNKNOWN = Undeliverable("level-unknown", False, "messageDelayLevel has no such level")
FILE_MISSING = Undeliverable("queue-file-missing", False, "the queue has no file for this unit")


@dataclass(slots=True)
class UndeliveredRows:
    """The ``undelivered`` rows of a level. Neighbours with the same reason become one row."""

    level: int
    _rows: list[UndeliveredRow] = field(default_factory=list)

    def add(
        self,
        queue_offset: int,
        physical_offset: int | None,
        why: Undeliverable,
        messages: int = 1,
    ) -> None:
        last = self._rows[-1] if self._rows else None
        if (
            last is not None
            and why.passes
            and last["reason"] == why.reason
            and last["queue_offset"] + last["messages"] == queue_offset
        ):
            last["messages"] += 1
            return
        self._rows.append(
            {
                "type": "undelivered",
                "level": self.level,
                "queue_offset": queue_offset,
                "messages": messages,
                "physical_offset": physical_offset,
                "reason": why.reason,
                "stops_the_level": not why.passes,
                "detail": why.detail,
                "next_step": NEXT_STEPS[why.reason],
            }
        )

    def finished(self, *, last: bool = False) -> Iterator[UndeliveredRow]:
        """The rows that no later message can join; with ``last`` all."""
        keep = 0 if last else 1
        while len(self._rows) > keep:
            yield self._rows.pop(0)
