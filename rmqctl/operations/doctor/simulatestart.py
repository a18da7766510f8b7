"""simulate-start: what a broker's start would do to a store, and which messages it would lose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from formats import constants
from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import is_locked
from rmqctl.engine.log.end import MISPLACED_FILE
from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.queue.consumequeue import UNIT_SIZE, ConsumeQueue
from rmqctl.engine.queue.ends import queue_end
from rmqctl.engine.rehearsal.model import Deleted, Outcome, QueueState, Step
from rmqctl.engine.rehearsal.rehearse import rehearse
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.services import retention
from rmqctl.engine.settings.filesizes import unproven_log_file
from rmqctl.engine.settings.logdirectories import dledger_logs
from rmqctl.engine.start.logend import misplaced_files
from rmqctl.engine.start.nearend import check_before
from rmqctl.engine.state.laterversions import check_understood, queues_not_understood
from rmqctl.errors import BrokerConfError, DamagedStore, FileLengthUnproven, UnsupportedStore
from rmqctl.operations.doctor.lint import refusal
from rmqctl.operations.doctor.whynot import contradicts_files, fails_on_length, fails_on_renamed
from rmqctl.rows.words import some

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig


class StartNotPlayed(UnsupportedStore):
    """The start of this store is not known here."""

    template = (
        "{path}: {reason}, and only the start of a broker with a plain log and queues in files can "
        "be played. `rmqctl verify` says what is wrong with this store, if anything."
    )


class Truncated(NamedTuple):
    """A file that a start cuts: the position where its data ends before, and where after it."""

    path: Path
    start: int
    end: int


class LostOfQueue(NamedTuple):
    """A queue after the start, and how many of its messages it no longer has then."""

    state: QueueState
    lost: int


@dataclass
class Simulation:
    """What a start does. ``removals`` are the files that the retention deletes right after it.
    ``is_damaged_near_end``: the log is so damaged near its end that it must not be written, for a
    start after a clean stop would delete what stands there. ``is_misplaced``: the log ends at a
    file whose name is another file's; ``has_misplaced``: it has such files anywhere.
    ``is_contradicted``: it fails by sizes of the configuration that no file has.
    ``has_wrong_file``: it fails on a file of the log whose length no repair mends. ``refusal``: why
    the start fails, where the broker may not write its files; the rest is what a start does that
    may."""

    root: Path
    version: str
    outcome: Outcome
    queues: list[LostOfQueue] = field(default_factory=list)
    truncated: list[Truncated] = field(default_factory=list)
    removals: list[Deleted] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    messages_lost: int = 0
    bytes_lost: int = 0
    is_damaged_near_end: bool = False
    is_misplaced: bool = False
    has_misplaced: bool = False
    is_contradicted: bool = False
    has_wrong_file: bool = False
    refusal: str | None = None

    @property
    def starts(self) -> bool:
        return self.outcome.starts and self.refusal is None

    @property
    def queue_messages_lost(self) -> int:
        return sum(one.lost for one in self.queues)

    @property
    def misplaced(self) -> int:
        """How many units the start puts at places of other messages."""
        return sum(state.misplaced for state in self.outcome.queues)

    @property
    def loses_nothing(self) -> bool:
        """Whether all messages of log and queues are there afterwards."""
        return not self.messages_lost and not self.queue_messages_lost

    @property
    def is_harmless(self) -> bool:
        """Whether the broker starts, no message is lost, and queues have each at its place."""
        return self.starts and self.loses_nothing and not self.misplaced


def simulate_start(
    root: Path,
    config: MessageStoreConfig,
    *,
    version: str = "4.9.3",
    at: int | None = None,
    percent: int | None = None,
    read: Callable[[int], None] = lambda size: None,
) -> Simulation:
    """Simulates a start; changes nothing.

    :param version: one of :data:`~rmqctl.engine.rehearsal.model.VERSIONS`.
    :param at: the time of the start (ms), by which the retention judges; None is now.
    :param percent: how full the disks are assumed to be; None: as full as they are.
    :param read: called with the number of bytes of the log that were read.
    :raises StoreNotFound, NotAStore, StartNotPlayed, FileLengthUnproven, CannotRead: the start
        cannot be simulated.
    """
    from rmqctl.engine.files.paths import check_store

    check_store(root)
    _check_playable(root, config)
    # What a running broker writes meanwhile is not there for the start that is played.
    until = _end_of(root, config) if is_locked(root) else constants.LONG_MAX
    outcome = rehearse(root, config, as_5=version != "4.9.3", read=read)
    done = Simulation(root, version, outcome, steps=list(outcome.steps))
    done.refusal = refusal(root, config)
    if done.refusal is not None:
        done.steps.append(Step("fail", "", done.refusal))
    if outcome.walked_to is None and not outcome.starts:
        done.is_contradicted = contradicts_files(root, config)
        if not done.is_contradicted:
            done.is_misplaced = fails_on_renamed(root, config, outcome.reason or "")
            done.has_wrong_file = fails_on_length(root, config, outcome.reason or "")
        return done  # It comes to nothing that it could cut.
    with MessageStore(root, config) as store:
        _compare_log(store, done, until)
        _compare_queues(store, done, until)
        obstacle = store.obstacle.obstacle
        done.is_misplaced = obstacle is not None and obstacle.reason == MISPLACED_FILE
        _name_misplaced(store, done)
        _note_misplaced_units(done)
        if outcome.starts:
            _ask_retention(store, done, system_clock() if at is None else at, percent)
            done.is_damaged_near_end = _is_damaged_near_end(store)
    return done


def _name_misplaced(store: MessageStore, done: Simulation) -> None:
    """A start reads files as they follow each other, and asks no record for its place."""
    for found in misplaced_files(store.commit_log):
        why = f"it is the file of offset {found.found}, as its first record says"
        done.steps.append(Step("misplaced-file", f"{paths.COMMIT_LOG}/{found.expected}", why))
        done.has_misplaced = True


def _note_misplaced_units(done: Simulation) -> None:
    """The dispatch begins behind records that a queue lacks: the engine appends the next ones where
    it ends, and consumers get others than those that they ask for."""
    wrong = [state for state in done.outcome.queues if state.misplaced]
    if wrong:
        where = f"{paths.CONSUME_QUEUE}/{wrong[0].topic}/{wrong[0].queue_id}"
        count = f"{some(done.misplaced, 'unit')} of {some(len(wrong), 'queue')}"
        why = f"{count}, this one the first, come to places of other messages: units are missing"
        done.steps.append(Step("misplaced-units", where, why))


def _is_damaged_near_end(store: MessageStore) -> bool:
    try:
        check_before(store.commit_log, store.max_offset)
    except DamagedStore:
        return True
    return False


def _check_playable(root: Path, config: MessageStoreConfig) -> None:
    """:raises StartNotPlayed: the start of this store is not known here.
    :raises FileLengthUnproven: the length of the log's files is unknown; with files of another
        length a broker does not start.
    """
    reason = ""
    if dledger_logs(root) or config.enable_d_leger_commit_log:
        reason = "a DLedger group keeps its log"
    elif queues_not_understood(root):
        reason = "its broker keeps queues in RocksDB"
    else:
        try:
            check_understood(root, config)
        except UnsupportedStore as error:
            reason = str(error.reason)
    if reason:
        raise StartNotPlayed(path=str(root), reason=reason)
    if (doubtful := unproven_log_file(root, config)) is not None:
        path, size = doubtful
        raise FileLengthUnproven(path=str(path), found=size)


# --- what is lost ----------------------------------------------------------------------------


def _end_of(root: Path, config: MessageStoreConfig) -> int:
    with MessageStore(root, config) as store:
        return store.max_offset


def _compare_log(store: MessageStore, done: Simulation, until: int) -> None:
    """Counts the records behind the new end of the log and before ``until``, and notes the file
    that is cut there."""
    end, seen = done.outcome.walked_to, store.obstacle
    if end is None or end >= seen.offset:
        return
    damage, newest = seen.obstacle, seen.store_timestamp
    for entry in Scanner(store.commit_log, properties=False).scan(end):
        if not isinstance(entry, Batch):
            continue
        kept = (entry.physical_offset >= end) & (entry.physical_offset < until)
        if damage is not None:
            # What is older is residue of an earlier life of the log, which nobody has any more.
            is_before = entry.physical_offset < damage.physical_offset
            kept &= is_before | (entry.store_timestamp >= newest)
        done.messages_lost += int(kept.sum())
        done.bytes_lost += int(entry.total_size[kept].sum())
    number = store.commit_log.files.index_of(end)
    if number >= 0 and done.messages_lost:
        mapped = store.commit_log.files.file(number)
        position = end - mapped.file_from_offset
        done.truncated.append(Truncated(mapped.path, mapped.end_of_data(position), position))


def _compare_queues(store: MessageStore, done: Simulation, until: int) -> None:
    """Compares what each queue has now, of the log before ``until``, and after the start; notes the
    queues that are cut."""
    has_log = bool(store.commit_log.files.entries)
    for state in done.outcome.queues:
        ends = queue_end(state.topic, state.queue_id, str(state.directory), store.queues.file_size)
        is_kept = ends is not None and ends.max_offset <= min(state.cut_to, state.max_offset)
        if is_kept or not state.directory.is_dir():
            if is_kept or state.max_offset:
                done.queues.append(LostOfQueue(state, 0))
            continue  # It stays as it is, or is new: no need to open it.
        queue = ConsumeQueue(state.directory, state.topic, state.queue_id, store.queues.file_size)
        try:
            if has_log:
                queue.cut(store.min_offset, min(store.max_offset, until))
            done.queues.append(LostOfQueue(state, max(queue.max_offset - state.max_offset, 0)))
            if state.cut_to < queue.max_offset:
                _note_cut(queue, state, done)
        finally:
            queue.close()


def _note_cut(queue: ConsumeQueue, state: QueueState, done: Simulation) -> None:
    number = queue.files.index_of(state.cut_to * UNIT_SIZE)
    if number < 0:
        return
    entry = queue.files.entries[number]
    deleted = {one.path for one in done.outcome.deleted}
    if entry.path not in deleted:
        start = min(queue.max_offset * UNIT_SIZE - entry.file_from_offset, entry.size)
        end = state.cut_to * UNIT_SIZE - entry.file_from_offset
        done.truncated.append(Truncated(entry.path, start, end))


def _ask_retention(store: MessageStore, done: Simulation, at: int, percent: int | None) -> None:
    """Notes what the first rounds of the retention remove of what the start has left."""
    gone = {one.path for one in done.outcome.deleted}
    try:
        plan = retention.plan(store, at, percent=percent)
    except BrokerConfError as error:
        done.steps.append(Step("retention", "", f"deletes nothing: {error}"))
        return
    done.removals = [
        Deleted(one.path, one.size, one.reason) for one in plan.removals if one.path not in gone
    ]
    if done.removals:
        verdict = plan.verdict
        why = (
            "a disk is too full"
            if verdict.space_full or verdict.clean_at_once
            else "the hour is one of deleteWhen"
        )
        done.steps.append(Step("retention", "commitlog", f"a minute after the start: {why}"))
