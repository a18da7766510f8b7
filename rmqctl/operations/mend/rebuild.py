"""rebuild: queues and index from the log, byte for byte what RocketMQ would have written.

Everything is built in a staging directory and then renamed. The former queues and index are kept
until they are purged. Where damage of the log leaves a gap in a queue, pre-blank units fill it: so
the messages behind it keep their queue offsets, and consumers their progress.
"""

from __future__ import annotations

from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import locked
from rmqctl.engine.files.newdirectory import new_directory
from rmqctl.engine.settings.filesizes import commit_log_file_size
from rmqctl.engine.settings.logdirectories import dledger_logs
from rmqctl.engine.state.laterversions import check_understood
from rmqctl.operations.mend.onepass import Build, RebuildSummary, finds_queue, one_pass
from rmqctl.operations.mend.rebuildplan import (
    RebuildPlan,
    as_it_is_now,
    ask_consent,
    check_explained,
    check_has_log,
    plan_rebuild,
    plan_row,
)
from rmqctl.operations.mend.rebuildrows import damage_rows, summary_row
from rmqctl.operations.mend.recovery import complete
from rmqctl.operations.mend.swap import (
    STAGING,
    built_aside,
    kept_directories,
    kept_name,
    make_staging,
    purge,
    refuse_links,
    swap_all,
)
from rmqctl.operations.progress import Progress

__all__ = [
    "Build",
    "RebuildPlan",
    "RebuildSummary",
    "ask_consent",
    "check_explained",
    "check_has_log",
    "damage_rows",
    "finds_queue",
    "kept_directories",
    "one_pass",
    "plan_rebuild",
    "plan_row",
    "purge",
    "rebuild_in_place",
    "rebuild_to",
    "summary_row",
]

#: Why the store of a DLedger member is not brought in order: only its broker ends what a crash has
#: left.
_AFTER_A_CRASH = (
    "its broker's next start throws away index files that are newer than the checkpoint. Start and "
    "stop it once before you rebuild the index."
)


def rebuild_to(
    plan: RebuildPlan,
    output: Path,
    progress: Progress | None = None,
    build: Build | None = None,
    *,
    jobs: int = 1,
) -> RebuildSummary:
    """Builds ``consumequeue/`` and ``index/`` in the new directory ``output``, which appears when
    they are whole; the store is only read.

    :param build: how to build; by default one pass by ``jobs`` threads of this process.
    :raises OutputExists: ``output`` holds something.
    :raises OutputInUse: another process builds it.
    :raises CannotWrite: the disk is full.
    :raises QueuesUnexplained: queues that the store has would not be built.
    """
    check_explained(plan)
    with new_directory(output) as building:
        return (build or one_pass(jobs))(plan, building, progress)


def rebuild_in_place(
    plan: RebuildPlan,
    progress: Progress | None = None,
    build: Build | None = None,
    *,
    jobs: int = 1,
) -> RebuildSummary:
    """Builds aside under the store's lock, then swaps (:mod:`rmqctl.operations.mend.swap`).

    The store is then brought in order as a start would do it: after a crash the broker's own start
    would throw the new index away. That may take units from queues that were not made anew; the
    summary has what was done (``recovered``), or why it was refused (``not_in_order``).

    The former files are kept in ``rmqctl-old-<time>/`` (see :func:`purge`). A killed run leaves
    each directory either old or new, and the next run removes what it had built. A failed run
    leaves all of them old.

    :raises StoreInUse: a broker, or another rmqctl, holds the lock; nothing was changed.
    :raises CommitLogMissing: the log is not there; nothing was changed.
    :raises QueuesUnexplained: queues that the store has would not be built; nothing was changed.
    :raises FileLengthUnproven: the log may have been cut, and what it has lost would be taken from
        the queues; nothing was changed.
    :raises SymbolicLinkRefused: what would be replaced, or the place to build in, is a link.
    :raises CannotWrite: what the system says. :raises SwapCutOff: it does so again when what was
        replaced was to go back.
    """
    summary = _replace(plan, progress, build or one_pass(jobs))
    if dledger_logs(plan.root):
        if (plan.root / paths.ABORT).exists():
            summary.not_in_order = _AFTER_A_CRASH
        return summary
    complete(summary, plan.root, plan.config)
    return summary


def _replace(plan: RebuildPlan, progress: Progress | None, build: Build) -> RebuildSummary:
    """Builds and swaps under the store's lock; errors as of :func:`rebuild_in_place`."""
    root, staging = plan.root, plan.root / STAGING
    check_understood(root, plan.config, log_stays=True)
    with locked(root), built_aside(root, staging):
        for name in (*plan.structures, STAGING):
            refuse_links(root, Path(name))
        # A broker that has stopped since may have written other queues.
        plan = as_it_is_now(plan)
        commit_log_file_size(root, plan.config, writes=True)
        check_has_log(plan)
        check_explained(plan)
        make_staging(staging)
        summary = build(plan, staging, progress)
        kept = root / kept_name()
        swap_all(root, staging, kept, _swapped(plan, staging))
        if kept.exists():
            summary.kept.append(kept)
        return summary


def _swapped(plan: RebuildPlan, staging: Path) -> list[Path]:
    """The directories that change places: whole ones, or those of the queues that were asked
    for."""
    if not plan.is_of_some:
        return [Path(name) for name in plan.structures]
    queues = {
        where.path.relative_to(base)
        for base in (staging, plan.root)
        for name in plan.structures
        for where in paths.queue_directories(base / name)
        if plan.includes(where.topic, where.queue_id)
    }
    return sorted(queues)
