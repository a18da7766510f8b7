"""Which structures are checked, and which stretch of the log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Blank, Record
from rmqctl.errors import NoRecordAt
from rmqctl.operations.verify.findings import Finding
from rmqctl.operations.verify.snapshot import Snapshot

#: What can be checked by itself, and where its files lie.
STRUCTURES = {
    "commitlog": (paths.COMMIT_LOG,),
    "queues": (
        paths.CONSUME_QUEUE,
        paths.CONSUME_QUEUE_EXT,
        paths.BATCH_CONSUME_QUEUE,
        paths.COMPACTION,
    ),
    "index": (paths.INDEX,),
    "checkpoint": (paths.CHECKPOINT,),
    "timer": (paths.TIMER_WHEEL, paths.TIMER_LOG, "config"),
}


class GoesOnNowhere(NoRecordAt):
    """A check that is to go on where no record stands any more."""

    template = (
        "there is no record at physical offset {physical_offset}, where the check is to go on: "
        "{reason}. The log is another one since, or has lost its end."
    )
    step = "Check all of it."
    command_step = "Check all of it: begin with --resume-from 0."


class VerifyPlan(NamedTuple):
    """By how many threads the log is read, what is checked, and which stretch of the log."""

    jobs: int
    only: frozenset[str]
    resume_from: int | None
    is_over: Callable[[], bool]

    def begin(self, snapshot: Snapshot) -> int | None:
        """Where to begin; None: where the log does. :raises GoesOnNowhere: nothing starts there."""
        if self.resume_from is None:
            return None
        with closing(snapshot.open_log()) as log:
            if self.resume_from <= log.min_offset:
                return None
            if log.files.index_of(self.resume_from) < 0:
                # Not where the files end: what stands behind the last record is no part of the log.
                with MessageStore(snapshot.path, snapshot.config) as store:
                    reason = f"the log has {store.min_offset} to {store.max_offset}"
                raise GoesOnNowhere(physical_offset=self.resume_from, reason=reason)
            try:
                if not isinstance(log.entry_at(self.resume_from), Blank | Record):
                    log.record_at(self.resume_from)
            except NoRecordAt as error:
                raise GoesOnNowhere(**error.values) from None
        return self.resume_from

    def tells(self, found: Finding) -> bool:
        """Whether a finding of the files as such is of something that is checked, or of none of the
        structures."""
        first = (found.path or "").split("/")[0]
        return not any(first in STRUCTURES[name] for name in STRUCTURES.keys() - self.only)
