"""clean: what a broker's retention would delete, who would lose messages by it, and doing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from formats.constants import RMQ_SYS_SCHEDULE_TOPIC
from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import locked
from rmqctl.engine.files.shown import shown
from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.services import retention
from rmqctl.engine.services.retention import Removal, Retention
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.laterversions import check_understood
from rmqctl.errors import DamagedStore, NeedsConsent
from rmqctl.operations.look.info import irregular_files
from rmqctl.operations.mend.recovery import bring_in_order
from rmqctl.rows.words import some

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.engine.start.model import StartPlan
    from rmqctl.rows.reports import FileRow, ProgressRow
    from rmqctl.rows.summaries import CleanSummary


class Rule(NamedTuple):
    """By what a run judges: the time (ms; None: now), how full the disks are taken to be (percent;
    None: as they are), whether an operator asks for it (``executeDeleteFilesManually``), and how
    many rounds it makes."""

    at: int | None = None
    percent: int | None = None
    manual: bool = False
    rounds: int | None = None


class Progress(NamedTuple):
    """How far one queue is read by a consumer group, or, where ``group`` is None, by the delivery
    of a delay level. ``lag`` counts the messages that are still unread, ``lost`` those of them that
    the removals take away."""

    topic: str
    queue_id: int
    group: str | None
    consumer_offset: int
    min_offset: int
    new_min_offset: int
    max_offset: int
    lag: int
    lost: int


class CleanPlan(NamedTuple):
    root: Path
    retention: Retention
    progress: list[Progress]
    irregular: list[str]
    #: What a start would have done to the store and was done first; None: nothing.
    recovered: StartPlan | None = None

    @property
    def lost(self) -> int:
        return sum(row.lost for row in self.progress)

    @property
    def losing_groups(self) -> set[str | None]:
        return {row.group for row in self.progress if row.lost}


def plan_clean(
    root: Path, config: MessageStoreConfig, rule: Rule, *, to_do: bool = False
) -> CleanPlan:
    """Plans by the store and the clock; changes nothing.

    :param to_do: the plan will be carried out: what speaks against that is raised.

    :raises StoreNotFound, NotAStore, BrokerConfError: there is no plan.
    :raises FileLengthContradiction: the plan is ``to_do``, and a broker would not start.
    :raises DamagedStore: the plan is ``to_do``, and records that would go are in no queue yet.
    :raises ConfigFileUnreadable: who has read what is not known.
    """
    at = system_clock() if rule.at is None else rule.at
    with MessageStore(root, config) as store:
        irregular = irregular_files(store)
        found = retention.plan(
            store,
            at,
            percent=rule.percent,
            manual=rule.manual,
            rounds=rule.rounds,
            strict=to_do,
        )
        waiting = retention.undispatched_before(store, found.new_min_offset)
    # A plan that is only shown would be carried out after a recovery, which dispatches them.
    if to_do and waiting is not None and found.new_min_offset > found.min_offset:
        raise DamagedStore(
            reason="records that would be deleted are in no queue yet, so nobody has read them "
            "(`rmqctl flush` dispatches them)",
            physical_offset=waiting,
        )
    return CleanPlan(root, found, sorted(_progress(root, config, found), key=_most_lost), irregular)


def _most_lost(row: Progress) -> tuple[int, str, str, int]:
    return -row.lost, row.topic, row.group or "", row.queue_id


def _progress(root: Path, config: MessageStoreConfig, found: Retention) -> Iterator[Progress]:
    readers: list[tuple[str, int, str | None, int]] = [
        (topic, queue_id, group, offset)
        for (topic, group), offsets in brokerjson.consumer_offsets(root, config.told_lmq).items()
        for queue_id, offset in offsets.items()
    ]
    delays = brokerjson.delay_offsets(root)
    for topic, queue_id in found.queues:
        if topic == RMQ_SYS_SCHEDULE_TOPIC:
            # Level n lies in queue n - 1; a level that was never delivered starts at 0.
            readers.append((topic, queue_id, None, delays.get(queue_id + 1, 0)))
    for topic, queue_id, group, offset in readers:
        queue = found.queues.get((topic, queue_id))
        if queue is None:
            continue
        unread = max(offset, queue.min_offset)
        yield Progress(
            topic,
            queue_id,
            group,
            offset,
            *queue,
            lag=max(queue.max_offset - unread, 0),
            lost=max(min(queue.new_min_offset, queue.max_offset) - unread, 0),
        )


def clean(
    root: Path, config: MessageStoreConfig, rule: Rule, done: Callable[[Removal], None]
) -> CleanPlan:
    """Plans under the store's lock, and removes the files; ``done`` is told of each one.

    A store that was not closed cleanly is brought in order first, as a broker's start does. A run
    that is killed is completed by the next one.

    :raises StoreInUse: a broker, or another rmqctl, holds the lock; nothing was changed.
    """
    paths.check_store(root)
    paths.check_writable(root)
    check_understood(root, config)
    recovered = bring_in_order(root, config)
    with locked(root):
        plan = plan_clean(root, config, rule, to_do=True)
        retention.remove(plan.retention.removals, done)
        return plan._replace(recovered=recovered)


def ask_consent(plan: CleanPlan) -> None:
    """:raises NeedsConsent: something would go; says what."""
    removals = plan.retention.removals
    if not removals:
        return
    size = sum(removal.allocated_bytes for removal in removals)
    loss = f", and with them {some(plan.lost, 'unread message')}" if plan.lost else ""
    raise NeedsConsent(
        reason=f"clean deletes {some(len(removals), 'file')} ({size} bytes on disk){loss}."
    )


def file_row(plan_root: Path, removal: Removal) -> FileRow:
    """One file that goes."""
    return {
        "type": "file",
        "structure": removal.structure,
        "path": shown(plan_root, removal.path),
        "reason": removal.reason,
        "size": removal.size,
        "allocated_bytes": removal.allocated_bytes,
        "modified_timestamp": removal.modified_timestamp,
    }


def progress_rows(plan: CleanPlan) -> Iterator[ProgressRow]:
    """One reader of one queue a row, those that lose most first."""
    for row in plan.progress:
        yield {
            "type": "progress",
            "topic": row.topic,
            "queue_id": row.queue_id,
            "group": row.group,
            "consumer_offset": row.consumer_offset,
            "min_offset": row.min_offset,
            "new_min_offset": row.new_min_offset,
            "max_offset": row.max_offset,
            "lag": row.lag,
            "lost": row.lost,
        }


def summary_row(plan: CleanPlan, *, dry_run: bool) -> CleanSummary:
    """The summary: the decision, and what becomes of the store."""
    found = plan.retention
    return {
        "type": "summary",
        "dry_run": dry_run,
        "time_up": found.verdict.time_up,
        "space_full": found.verdict.space_full,
        "manual": found.verdict.manual,
        "clean_at_once": found.verdict.clean_at_once,
        "refuses_messages": found.verdict.refuses_messages,
        "log_disk_percent": found.log_percent,
        "queue_disk_percent": found.queue_percent,
        "min_offset": found.min_offset,
        "new_min_offset": found.new_min_offset,
        "files": len(found.removals),
        "allocated_bytes": sum(removal.allocated_bytes for removal in found.removals),
        "messages": sum(
            max(queue.new_min_offset - queue.min_offset, 0) for queue in found.queues.values()
        ),
        "lost": plan.lost,
        "losing_groups": len(plan.losing_groups),
    }
