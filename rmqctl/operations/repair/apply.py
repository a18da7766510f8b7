"""repair --apply, --resume and --undo: a plan is carried out as a whole, or not at all.

All of this happens under the store's lock. Until the journal is written, a kill, an error or a full
disk leaves the store unchanged. After that ``resume`` brings the store to the new state and
``undo`` to the old one. Both refuse where another program has written to the store meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.engine.files import durable, paths, writing
from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.files.owner import hand_over_tree
from rmqctl.engine.files.unfinished import JOURNAL, KEPT_BY_REPAIR, REPAIR, is_amid_repair
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.state.laterversions import check_understood
from rmqctl.errors import CannotWrite, NeedsConsent, NoDirectoryToWriteTo
from rmqctl.operations.doctor.lint import Summary, lint
from rmqctl.operations.mend.swap import refuse_links
from rmqctl.operations.progress import Progress
from rmqctl.operations.repair import model
from rmqctl.operations.repair.errors import NoRepair, PlanDoesNotFit, RepairOvertaken
from rmqctl.operations.repair.fingerprint import fingerprint, log_problem
from rmqctl.operations.repair.journal import (
    PLAN,
    Journal,
    Mover,
    backup_name,
    is_tail,
    kept_files,
    read_journal,
    write_journal,
)
from rmqctl.operations.repair.movable import check_movable
from rmqctl.operations.repair.plan import settings_of
from rmqctl.operations.repair.planfile import plan_text, read_plan
from rmqctl.operations.repair.stage import stage
from rmqctl.operations.verify.queueext import check_ext_directory

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.operations.repair.model import Plan

APPLIED, UNDONE = "applied", "undone"


class Repaired(NamedTuple):
    """What was done. ``state`` is :data:`APPLIED` or :data:`UNDONE`, ``steps`` are those of the
    plan, ``backup`` is the directory with what was replaced (None: there is none)."""

    state: str
    steps: list[dict[str, Any]]
    backup: Path | None


def check_plan(root: Path, config: MessageStoreConfig, plan: Plan) -> None:
    """Checks that a store is still as a plan takes it to be: its log, its configuration, and what
    the steps touch.

    :raises PlanDoesNotFit: it is another store, or has changed.
    :raises SymbolicLinkRefused, CannotWrite, StoreReadOnly: its steps cannot be done there.
    """
    for name, value in settings_of(config).items():
        # A plan of an older rmqctl lacks some settings; no step that it has depends on them.
        known = plan.premises.settings.get(name, value)
        if known != value:
            other = f"{name} was {known!r}, and is {value!r}: give the same broker.conf"
            raise PlanDoesNotFit(store=str(root), reason=other)
    with MessageStore(root, config) as store:
        reason = log_problem(store.commit_log, plan.premises.log, store.max_offset)
        if reason is None and store.had_abort == plan.premises.clean_shutdown:
            reason = f"{paths.ABORT} came or went"
    strangers = _strangers(root, config, plan)
    for step in plan.steps:
        if reason is None and step.action == model.QUARANTINE and step.path not in strangers:
            reason = f"{step.path} is no stranger there (step {step.number})"
        for path, known in step.store_has.items():
            if reason is None and fingerprint(root / path) != known:
                reason = f"{path} is not what it was (step {step.number})"
    if reason is not None:
        if paths.resolved(root) != paths.resolved(Path(plan.store)):
            reason += f"; it was made for {plan.store}"
        raise PlanDoesNotFit(store=str(root), reason=reason)
    check_movable(root, plan.steps)


def _strangers(root: Path, config: MessageStoreConfig, plan: Plan) -> set[str | None]:
    """Paths at which something is found that does not belong there. Only asked for where a plan
    moves files away."""
    if all(step.action != model.QUARANTINE for step in plan.steps):
        return set()
    # Lint does not look at the names of the extension's files.
    found = chain(lint(root, config, Summary()), check_ext_directory(root, config))
    return {one.path for one in found}


def ask_consent(plan: Plan) -> None:
    """:raises NeedsConsent: something would change."""
    if plan.steps:
        steps = "1 step" if len(plan.steps) == 1 else f"{len(plan.steps)} steps"
        raise NeedsConsent(
            reason=f"the plan changes the store in {steps} (what is replaced is kept)."
        )


def apply(
    root: Path,
    config: MessageStoreConfig,
    plan: Plan,
    progress: Progress | None = None,
    *,
    jobs: int = 1,
) -> Repaired:
    """Does all steps of a plan, or none.

    :raises StoreInUse: a broker, or another rmqctl, holds the lock.
    :raises RepairUnfinished: another repair was cut off.
    :raises PlanDoesNotFit: the store is not the plan's, or has gone on.
    :raises CannotWrite: the disk is full: before the journal nothing was changed; later the error
        says how to go on.
    """
    _check(root, config)
    paths.check_writable(root)
    lock = StoreLock(root)
    try:
        paths.check_writable(root)
        check_plan(root, config, plan)
        if not plan.steps:
            return Repaired(APPLIED, [], None)
        journal = _staged(root, config, plan, progress, jobs)
        return _forward(root, journal)
    finally:
        lock.release()


def resume(
    root: Path, config: MessageStoreConfig, progress: Progress | None = None, *, jobs: int = 1
) -> Repaired:
    """Carries a repair to its end that was cut off. Errors as of :func:`apply`.

    :raises NoRepair: no repair was cut off.
    :raises RepairOvertaken: another program has written to the store since.
    """
    _check(root, config)
    if not is_amid_repair(root):
        if not (root / REPAIR / PLAN).is_file():
            raise NoRepair(store=str(root), verb="ended")
        return apply(root, config, read_plan(root / REPAIR / PLAN), progress, jobs=jobs)
    lock = StoreLock(root)
    try:
        journal = read_journal(root / REPAIR)
        _check_not_overtaken(root, config, root / REPAIR, journal, "ended")
        return _forward(root, journal)
    finally:
        lock.release()


def undo(
    root: Path, config: MessageStoreConfig, ask: Callable[[Path], None] = lambda backup: None
) -> Repaired:
    """Takes back a repair that was cut off; where none was, the last one that was done.

    :param ask: is called with the backup of a repair that was done, before anything is changed. It
        may raise.
    :raises NoRepair: there is no repair to take back. Other errors as of :func:`resume`.
    """
    _check(root, config)
    lock = StoreLock(root)
    try:
        directory = root / REPAIR
        if not is_amid_repair(root):
            if os.path.lexists(directory):
                _remove_staged(root)
                return Repaired(UNDONE, [], None)
            directory = _last_backup(root)
            ask(directory)
        journal = read_journal(directory)
        _check_not_overtaken(root, config, directory, journal, "undone")
        if directory != root / REPAIR:
            _begin_again(root, directory)
        mover = Mover(root, root / REPAIR, journal)
        mover.back()
        mover.clear()
        return Repaired(UNDONE, journal.steps, None)
    finally:
        lock.release()


def _begin_again(root: Path, backup: Path) -> None:
    """Makes a backup the directory of a repair that was cut off, by renaming it.

    :raises CannotWrite, StoreReadOnly: the system refuses; nothing was changed, and no repair
        counts as cut off.
    """
    try:
        durable.put_in_place(backup, root / REPAIR)
    except OSError as error:
        raise writing.writing_error(backup, error) from error


def _check(root: Path, config: MessageStoreConfig) -> None:
    paths.check_store(root)
    check_understood(root, config)
    refuse_links(root, Path(REPAIR))
    if (root / REPAIR).exists() and not (root / REPAIR).is_dir():
        raise NoDirectoryToWriteTo(path=str(root / REPAIR))


def _staged(
    root: Path, config: MessageStoreConfig, plan: Plan, progress: Progress | None, jobs: int
) -> Journal:
    """Builds everything that is new, and writes the journal. A failure leaves nothing behind."""
    directory = root / REPAIR
    try:
        _remove_staged(root)
        directory.mkdir()
        hand_over_tree(directory, root)
        durable.sync_directory(root)
        durable.write_whole(directory / PLAN, plan_text(plan).encode())
        journal = stage(root, config, plan, progress, jobs)
        write_journal(root, journal)
        return journal
    except OSError as error:
        _remove_staged(root)
        raise CannotWrite(path=str(directory), reason=str(error.strerror)) from error
    except BaseException:
        _remove_staged(root)
        raise


def _remove_staged(root: Path) -> None:
    """Removes what was built for a repair that has not changed anything. If the directory holds
    files of the store all the same (somebody has removed the journal), it is kept as a backup."""
    if is_amid_repair(root):
        return
    if any(not is_tail(path) for path in kept_files(root / REPAIR)):
        os.rename(root / REPAIR, root / backup_name(root, datetime.now()))
        durable.sync_directory(root)
    else:
        durable.remove_tree(root / REPAIR)


def _forward(root: Path, journal: Journal) -> Repaired:
    mover = Mover(root, root / REPAIR, journal)
    mover.forward()
    return Repaired(APPLIED, journal.steps, mover.finish())


def _last_backup(root: Path) -> Path:
    """The backup of the last repair. :raises NoRepair: there is no repair, or each was taken
    back."""
    for name in reversed(paths.scan_names(root)):
        if name.startswith(KEPT_BY_REPAIR) and (root / name / JOURNAL).is_file():
            refuse_links(root, Path(name))
            return root / name
    raise NoRepair(store=str(root), verb="undone")


def _check_not_overtaken(
    root: Path, config: MessageStoreConfig, directory: Path, journal: Journal, verb: str
) -> None:
    """:raises RepairOvertaken: the store is no longer as the repair has left it."""
    with MessageStore(root, config) as store:
        reason = log_problem(store.commit_log, journal.log)
    reason = reason or Mover(root, directory, journal).problem()
    if reason is not None:
        raise RepairOvertaken(verb=verb, reason=reason, kept=str(directory))
