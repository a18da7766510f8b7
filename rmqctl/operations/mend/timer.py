"""timer rebuild: wheel, timer log and check point of 5.x from the messages that wait.

The three are built aside and then put in place one after the other. Meanwhile a wheel of one byte
stands in the wheel's place, with which no broker starts. After a kill in between, the store cannot
be started until the rebuild is done again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from formats import constants
from formats.text import string_hash_code
from rmqctl.engine.files import paths
from rmqctl.engine.files.durable import sync_directory
from rmqctl.engine.files.lock import locked
from rmqctl.engine.messagestore import system_clock
from rmqctl.engine.services.timer import Timer
from rmqctl.engine.services.timerset import Counts, TimerSet
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.laterversions import check_understood, is_of_5
from rmqctl.engine.store import Store
from rmqctl.engine.timer.newtimer import NewTimer, Place
from rmqctl.errors import CannotWrite, NeedsConsent, UsageError
from rmqctl.operations.mend.swap import (
    TIMER_STAGING,
    built_aside,
    kept_name,
    make_staging,
    refuse_links,
    swap,
)

if TYPE_CHECKING:
    from rmqctl.rows.timers import TimerRebuildSummary

#: The wheel of one byte that stands there meanwhile.
_BLOCKER = b"\0"
_LEAST_FILE_SIZE = constants.TIMER_UNIT_SIZE + constants.TIMER_MIN_BLANK_LENGTH
#: Told of how many units of the timer's queue were read, and of how many there are to be read.
Progress = Callable[[int, int], None]
#: The files and directories that make up a timer.
TIMER_PARTS = (paths.TIMER_WHEEL, paths.TIMER_LOG, paths.TIMER_CHECKPOINT)


class TimerCutOff(CannotWrite):
    """Putting a new timer in place failed half-way."""

    template = (
        "cannot write {path}: {reason}. The messages are all there, but the timer is not whole, "
        "and no broker of 5.x starts on the store.{kept}"
    )
    step = "Check owner, mount and free space; then `rmqctl timer rebuild` makes the timer anew."


def rebuild_timer(
    root: Path,
    config: MessageStoreConfig,
    now: int,
    *,
    consent: bool,
    dry_run: bool,
    progress: Progress = lambda done, total: None,
) -> TimerRebuildSummary:
    """Makes the timer's files anew, under the store's lock; with ``dry_run`` they are built and
    thrown away. The former files are kept in ``rmqctl-old-<time>/``.

    :raises UsageError: the store never had a timer; a wheel would make it a store of 5.x.
    :raises FileLengthContradiction: a log file has another length than the others. The messages
        that it lacks would be missing in the new timer, and nothing would tell.
    :raises NeedsConsent: neither ``consent`` nor ``dry_run`` was given; nothing was changed.
    :raises StoreInUse: a broker, or another rmqctl, holds the lock; nothing was changed.
    :raises TimerCutOff: the system refused while files were put in place; run it again.
    :raises CannotWrite, StoreReadOnly, SymbolicLinkRefused: what the system says.
    """
    paths.check_store(root)
    check_understood(root, config)
    if not (is_of_5(root) or _has_timer(root)):
        raise UsageError(
            reason="no broker of 5.x has run on this store: it has no timer, and needs none. "
            "`rmqctl schedule ls` lists what waits by a delay level."
        )
    if dry_run:
        return _planned(root, config, now, progress)
    if not consent:
        planned = _planned(root, config, now, progress)
        waits = f"{planned['messages']} messages that wait"
        raise NeedsConsent(reason=f"timer rebuild makes wheel and timer log of {waits}.")
    paths.check_writable(root)
    with locked(root), Store(root, config) as store:
        store.commit_log.files.check_regular(links_only=True)
        store.check_log_lengths()
        timer = Timer(store)
        try:
            waiting = TimerSet(store, timer, now, progress=progress)
            kept = replace_timer(store, timer, waiting)
        finally:
            timer.close()
    return _summary(waiting, kept)


def replace_timer(store: Store, timer: Timer, waiting: TimerSet) -> list[str]:
    """Replaces the timer by one of the messages that wait. Returns the directories that keep the
    former one. The caller has the store's lock; errors as of :func:`rebuild_timer`."""
    root = store.root
    staging, kept = root / TIMER_STAGING, root / kept_name()
    with built_aside(root, staging):
        for name in (*TIMER_PARTS, TIMER_STAGING):
            refuse_links(root, Path(name))
        make_staging(staging)
        _write(store, timer, waiting, staging)
        try:
            _put_in_place(root, staging, kept)
        except OSError as error:
            if not is_cut_off(root):
                raise
            reason = str(error.strerror)
            where = f" What was replaced lies in {kept.name}." if kept.exists() else ""
            raise TimerCutOff(path=str(root), reason=reason, kept=where) from error
    return [kept.name] if kept.exists() else []


def carry_timer(
    root: Path, config: MessageStoreConfig, building: Path, made: MessageStoreConfig
) -> None:
    """Gives a new store with the messages of ``root`` a timer, where ``root`` has one.

    The timer cannot be copied, for its units name physical offsets of the old log. And it cannot be
    left out: the check point comes with ``config/``, and beside it a broker would never deliver the
    messages of a missing wheel and timer log.

    :param made: the new store's configuration. Errors as of :func:`rebuild_timer`.
    """
    if not _has_timer(root):
        return
    with Store(root, config) as store:
        timer = Timer(store)
        precision, size = timer.precision, timer.log.files.file_size
        timer.close()
    known = {"timer_precision_ms": precision, "mapped_file_size_timer_log": size}
    made = replace(made, **known, explicit=made.explicit | frozenset(known))  # type: ignore[arg-type]
    with Store(building, made) as store:
        timer = Timer(store)
        try:
            kept = replace_timer(store, timer, TimerSet(store, timer, system_clock()))
        finally:
            timer.close()
    for name in kept:
        shutil.rmtree(building / name)


def is_cut_off(root: Path) -> bool:
    """Whether putting a timer in place was cut off."""
    try:
        return (root / paths.TIMER_WHEEL).stat().st_size == len(_BLOCKER)
    except OSError:
        return False


def _has_timer(root: Path) -> bool:
    """Whether a part of a timer is there, or a message for one."""
    queue = Path(paths.CONSUME_QUEUE) / constants.TIMER_TOPIC
    return any(os.path.lexists(root / name) for name in (*TIMER_PARTS, queue))


def build_timer(root: Path, config: MessageStoreConfig, output: Path, now: int) -> None:
    """Builds the timer of a store below ``output``, where none is yet; the store itself is not
    changed. The caller has its lock; errors as of :func:`rebuild_timer`."""
    with Store(root, config) as store:
        timer = Timer(store)
        try:
            _write(store, timer, TimerSet(store, timer, now), output)
        finally:
            timer.close()


def planned_timer(store: Store, now: int) -> Counts:
    """What a timer made anew at ``now`` (ms) would hold; nothing is written."""
    return _planned_set(store, now, lambda done, total: None).counts


def _planned_set(store: Store, now: int, progress: Progress) -> TimerSet:
    timer = Timer(store)
    try:
        waiting = TimerSet(store, timer, now, progress=progress)
        for _ in waiting.messages():
            pass
    finally:
        timer.close()
    return waiting


def _planned(
    root: Path, config: MessageStoreConfig, now: int, progress: Progress
) -> TimerRebuildSummary:
    """What a rebuild would make; nothing is written."""
    with Store(root, config) as store:
        store.check_log_lengths()
        return _summary(_planned_set(store, now, progress), [])


def _summary(waiting: TimerSet, kept: list[str]) -> TimerRebuildSummary:
    counts = asdict(waiting.counts)
    return {
        "type": "summary",
        **counts,  # type: ignore[typeddict-item]
        "read_timestamp": waiting.clock,
        "queue_offset": waiting.end,
        "kept": kept,
    }


def _write(store: Store, timer: Timer, waiting: TimerSet, output: Path) -> None:
    """Builds the files below ``output``."""
    config, precision = store.config, timer.precision
    window = config.timer_roll_window_slot
    most = constants.TIMER_SLOTS // 2 - constants.TIMER_BLANK_SLOTS
    if not 2 <= window <= most:
        window = most
    size = timer.log.files.file_size
    if size < _LEAST_FILE_SIZE:  # The file was cut: its length gives no size for new ones.
        size = config.mapped_file_size_timer_log
    made = NewTimer(output, size, precision, window * precision, waiting.clock)
    try:
        last = -1
        for one in waiting.messages():
            topic = one.properties.get(constants.PROPERTY_REAL_TOPIC)
            hashed = 0 if topic is None else string_hash_code(topic)
            place = Place(one.record.physical_offset, one.record.total_size, hashed)
            made.add(place, one.out_timestamp, recalls=one.is_recall)
            last = one.queue_offset
        newest = waiting.last_unit()
        if newest is not None and last != waiting.end - 1:
            made.steer(Place(*newest, 0))
        made.finish(timer.checkpoint, waiting.end)
    finally:
        made.close()


def _put_in_place(root: Path, staging: Path, kept: Path) -> None:
    blocker = staging / "blocker"
    blocker.mkdir()
    (blocker / paths.TIMER_WHEEL).write_bytes(_BLOCKER)
    swap(root, blocker, kept, Path(paths.TIMER_WHEEL))
    for name in (paths.TIMER_LOG, paths.TIMER_CHECKPOINT):
        swap(root, staging, kept, Path(name))
    os.rename(staging / paths.TIMER_WHEEL, root / paths.TIMER_WHEEL)
    sync_directory(root)
