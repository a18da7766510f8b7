"""The recovery with which a store is opened for writing: told as a row, or done alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import check_not_in_use
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.log.progress import Progress
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.filesizes import commit_log_file_size
from rmqctl.engine.start.model import StartPlan
from rmqctl.engine.state.laterversions import check_understood
from rmqctl.engine.write import recovery
from rmqctl.errors import (
    CannotRead,
    DamagedStore,
    FileLengthContradiction,
    FileLengthUnproven,
    StoreInUse,
    StoreReadOnly,
)

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.operations.mend.onepass import RebuildSummary
    from rmqctl.rows.changes import RecoveryRow

#: What keeps a store from being brought in order that a rebuild does not mend: a bad log, and files
#: of what was not rebuilt that may not be read or written.
_BEYOND_A_REBUILD = (
    CannotRead,
    DamagedStore,
    FileLengthContradiction,
    FileLengthUnproven,
    StoreReadOnly,
)


def _silent(done: int, total: int) -> None:
    """No progress."""


def checked_plan(
    store: MessageStore, progress: Progress = _silent, *, strict: bool = False
) -> StartPlan:
    """What would happen if a store, here open for reading, were opened for writing.

    Raises what :func:`~rmqctl.engine.files.paths.check_writable` does, and:

    :param strict: refuse files of queues and index whose lengths are not those of the settings.
        Otherwise they are taken as they are, and the plan says that they lack something.
    :raises FileLengthUnproven, FileLengthContradiction, CannotRead, DamagedStore, CommitLogMissing,
        QueueHasHole: the opening would be refused.
    :raises UnsupportedStore: such a store cannot be written.
    """
    check_may_write(store)
    commit_log_file_size(store.root, store.config, writes=True)
    store.check_log_lengths()
    if strict:
        index = IndexService(store.root / paths.INDEX, store.config.index_geometry)
        if index.paths:
            index.open(index.paths[-1]).close()
    plan, log = store.start_plan(progress, strict=strict), store.commit_log
    recovery.check(
        plan, store.root, log, store.index, store.dispatcher, store.config, plan.is_clean
    )
    return plan


def check_may_write(store: MessageStore) -> None:
    """Refuses a store that nobody may write here. Raises what
    :func:`~rmqctl.engine.files.paths.check_writable` does, and:

    :raises StoreInUse: another process holds the lock: what it writes meanwhile looks as if a start
        had to mend it.
    :raises UnsupportedStore: such a store cannot be written.
    """
    paths.check_writable(store.root)
    check_not_in_use(store.root)
    check_understood(store.root, store.config)


def recovery_row(plan: StartPlan) -> RecoveryRow:
    """A plan's fields."""
    return {
        "type": "recovery",
        "clean_shutdown": plan.is_clean,
        "scan_from": None if plan.scan is None else plan.scan.physical_offset,
        "scan_why": None if plan.scan is None else plan.scan.why,
        "bytes_to_scan": plan.scanned_bytes,
        "log_end": plan.end.offset,
        "dispatch_from": plan.dispatch_from,
        "bytes_to_dispatch": plan.dispatch_bytes,
        "queues_cut": len(plan.queue_cuts),
        "units_removed": sum(cut.max_offset - cut.end for cut in plan.queue_cuts),
        "index_files_changed": len(plan.index_cuts),
        "index_items_removed": sum(cut.counted - cut.kept for cut in plan.index_cuts),
    }


def complete(summary: RebuildSummary, root: Path, config: MessageStoreConfig) -> None:
    """Runs :func:`bring_in_order` on a store whose queues or index were just made anew. The summary
    gets what was done, or why it could not be done: then the store stays as it is.

    Errors as of opening a store for writing, but for those that a rebuild cannot mend.
    """
    try:
        summary.recovered = bring_in_order(root, config)
    except StoreInUse:
        summary.not_in_order = (
            "somebody else has opened it since. If that is its broker, it has thrown away what of "
            "the new index is newer than the checkpoint: stop it, and `rmqctl rebuild index "
            "--in-place` makes it again."
        )
    except _BEYOND_A_REBUILD as error:
        summary.not_in_order = str(error)


def bring_in_order(root: Path, config: MessageStoreConfig) -> StartPlan | None:
    """Does what a start does to a store that needs it, and closes the store. Returns what was done.
    A store that needs nothing is left alone: None. Errors as of opening a store for writing."""
    with MessageStore(root, config) as store:
        if is_in_order(store):
            return None
    with MessageStore(root, config, writable=True) as writer:
        return writer.plan


def is_in_order(store: MessageStore) -> bool:
    """Whether a start would change nothing in a store, here open for reading.

    :raises FileLengthContradiction, FileLengthUnproven: files of the log have other lengths.
    """
    store.check_log_lengths()
    plan = store.start_plan()
    filled = store.index.latest_timestamp({cut.path for cut in plan.index_cuts})
    said = plan.checkpoint.until(plan.end.store_timestamp, filled)
    return not plan.is_needed and said == plan.checkpoint
