"""Finds further queues (``INNER_MULTI_DISPATCH``) that records name, though ``enableMultiDispatch``
is off and no such queue exists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from formats.constants import TRANSACTION_TYPE_MASK
from rmqctl.engine.dispatch.multi import offsets_are_numbers
from rmqctl.engine.dispatch.rules import NO_UNIT, Dispatcher
from rmqctl.engine.files import paths
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.verify.findings import Finding, finding
from rmqctl.rows.words import some


@dataclass
class Undispatched:
    """The missing queues that records of a log, or of a part of it, name, while
    ``enableMultiDispatch`` is off.

    ``queues`` has topic and queue id of each. ``units`` counts the units that the records ask for
    in them. ``first`` is the physical offset of the first such record; -1: there is none.
    """

    units: int = 0
    first: int = -1
    queues: set[tuple[str, int]] = field(default_factory=set)

    def add(self, root: Path, config: MessageStoreConfig, batch: Batch) -> None:
        """Takes the next records. A record counts if its offsets of the further queues are all
        numbers: only an append with ``enableMultiDispatch`` writes such offsets
        (``MultiDispatch#wrapMultiDispatch``). Queues that exist do not count: their units are
        checked."""
        if not len(batch.multi_dispatch_rows) or Dispatcher(config).is_multi:
            return
        permissive = Dispatcher(MessageStoreConfig())
        kind = batch.sys_flag & TRANSACTION_TYPE_MASK
        for row in batch.multi_dispatch_rows.tolist():
            record = batch.record(row)
            if kind[row] in NO_UNIT or not offsets_are_numbers(record.properties):
                continue
            named = permissive.multi_dispatch(record)
            for name, queue_id, _ in named:
                if (name, queue_id) in self.queues or not _is_there(root, name, queue_id):
                    self.queues.add((name, queue_id))
                    self.first = record.physical_offset if self.first < 0 else self.first
                    self.units += 1

    def join(self, later: Undispatched) -> None:
        """Adds what a later part of the log has found."""
        self.units += later.units
        self.first = later.first if self.first < 0 else self.first
        self.queues |= later.queues

    def findings(self) -> Iterator[Finding]:
        """Call this after the last record. Yields at most one finding."""
        if self.queues:
            topic, queue_id = min(self.queues)
            yield finding(
                "multi-dispatch-queue-missing",
                path=f"{paths.CONSUME_QUEUE}/{topic}/{queue_id}",
                topic=topic,
                queue_id=queue_id,
                physical_offset=self.first,
                expected=f"{some(self.units, 'unit')} in {some(len(self.queues), 'queue')}, this "
                "one the first",
                found="no such queue",
            )


def _is_there(root: Path, topic: str, queue_id: int) -> bool:
    """Whether a queue has a directory, or can have none because of its name or id."""
    if paths.topic_directory_problem(topic) is not None or queue_id < 0:
        return True
    return (root / paths.CONSUME_QUEUE / topic / str(queue_id)).is_dir()
