"""Further queues that records name, and that nothing makes: neither the configuration explains them
nor is one there."""

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


@dataclass
class Undispatched:
    """What the records of a log, or of a part of it, name with ``enableMultiDispatch`` off."""

    units: int = 0
    first: int = -1
    queues: set[tuple[str, int]] = field(default_factory=set)

    def add(self, root: Path, config: MessageStoreConfig, batch: Batch) -> None:
        """Takes records. Only an append with ``enableMultiDispatch`` gives one its offsets there,
        all of them numbers (``MultiDispatch#wrapMultiDispatch``); queues that are there are checked
        by their units."""
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
        """Takes what a later part of the log names."""
        self.units += later.units
        self.first = later.first if self.first < 0 else self.first
        self.queues |= later.queues

    def findings(self) -> Iterator[Finding]:
        """After the last record."""
        if self.queues:
            topic, queue_id = min(self.queues)
            yield finding(
                "multi-dispatch-queue-missing",
                path=f"{paths.CONSUME_QUEUE}/{topic}/{queue_id}",
                topic=topic,
                queue_id=queue_id,
                physical_offset=self.first,
                expected=f"{self.units} units in {len(self.queues)} queues, this one the first",
                found="no such queue",
            )


def _is_there(root: Path, topic: str, queue_id: int) -> bool:
    """Whether a queue has a directory; one that can have none is not missed."""
    if paths.topic_directory_problem(topic) is not None or queue_id < 0:
        return True
    return (root / paths.CONSUME_QUEUE / topic / str(queue_id)).is_dir()
