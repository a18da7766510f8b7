"""The plan of a verification: which structures it checks, and which stretch of the log."""

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

#: The structures that can be checked alone, each with its directories and files in the store.
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
    """The check is to resume at a physical offset where there is no record any more."""

    template = (
        "there is no record at physical offset {physical_offset}, where the check is to go on: "
        "{reason}. The log is another one since, or has lost its end, or a file."
    )
    step = "Check all of it."
    command_step = "Check all of it: begin with --resume-from 0."


class VerifyPlan(NamedTuple):
    """The plan: ``jobs`` threads read the log from ``resume_from`` on (None: from its start), until
    ``is_over`` returns True. ``only`` has the names of the checked structures."""

    jobs: int
    only: frozenset[str]
    resume_from: int | None
    is_over: Callable[[], bool]

    def begin(self, snapshot: Snapshot) -> int | None:
        """The physical offset at which to begin; None: at the start of the log.

        :raises GoesOnNowhere: no record or blank starts at ``resume_from``.
        """
        if self.resume_from is None:
            return None
        with closing(snapshot.open_log()) as log:
            if self.resume_from <= log.min_offset:
                return None
            if log.files.index_of(self.resume_from) < 0:
                # The message says where the log ends, which is not where its files end.
                with MessageStore(snapshot.path, snapshot.config) as store:
                    reason = f"the log has {store.min_offset} to {store.max_offset}"
                    if self.resume_from < store.max_offset:
                        reason += ", without a file of this place"
                raise GoesOnNowhere(physical_offset=self.resume_from, reason=reason)
            try:
                if not isinstance(log.entry_at(self.resume_from), Blank | Record):
                    log.record_at(self.resume_from)
            except NoRecordAt as error:
                raise GoesOnNowhere(**error.values) from None
        return self.resume_from

    @property
    def needs_queues(self) -> bool:
        """Whether a stretch must ask the queues what is before it."""
        return not self.only.isdisjoint(("queues", "checkpoint"))

    def tells(self, found: Finding) -> bool:
        """Whether a finding of names and lengths is reported: it is, except for the files of a
        structure that is not checked."""
        first = (found.path or "").split("/")[0]
        return not any(first in STRUCTURES[name] for name in STRUCTURES.keys() - self.only)
