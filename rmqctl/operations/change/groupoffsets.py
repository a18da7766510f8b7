"""group set-offset: where a consumer group goes on, set while no broker runs."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import locked
from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.services.anyqueue import AnyQueue, opened_queue, queue_directories
from rmqctl.engine.settings.logdirectories import dledger_logs
from rmqctl.engine.state import brokerjson
from rmqctl.engine.state.consumeroffsets import JOURNAL, ConsumerOffsets, load_consumer_offsets
from rmqctl.engine.state.laterversions import check_offsets_in_files, check_understood
from rmqctl.errors import NeedsConsent, UsageError, WrittenByItsBrokers
from rmqctl.operations.mend.recovery import bring_in_order, is_in_order
from rmqctl.rows.words import some

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.engine.start.model import StartPlan
    from rmqctl.rows.summaries import GroupSetOffsetSummary
    from rmqctl.rows.topics import OffsetChangeRow

#: What is to be said of a plan where :func:`set_offsets` does to the store what a start does.
NOT_FINAL = (
    "These numbers are of the queues as they are. First the store is brought in order as by a "
    "broker's start, and queues may get other ends: `rmqctl flush` does that alone."
)
#: A number from here on is more likely a time (milliseconds, of 2001 and later) than an offset.
_EARLIEST_TIME = 10**12


class Place(Enum):
    """What an offset is set to: each queue's first message, its end, a given offset, or the first
    message stored at a time or later (the end where there is none)."""

    BEGIN = "begin"
    END = "end"
    OFFSET = "offset"
    TIME = "time"


class Target(NamedTuple):
    """A place, and its offset or time (ms)."""

    place: Place
    value: int = 0


class Request(NamedTuple):
    """Whose offsets are set, and to what. With ``queue_id`` None those of all queues of the topic
    are. With ``is_new`` the group need not have an offset of the topic yet."""

    group: str
    topic: str
    target: Target
    queue_id: int | None = None
    is_new: bool = False


class Change(NamedTuple):
    """The change of one queue. ``skipped`` counts unread messages that the group will not get,
    ``read_again`` those that it has read and will get again."""

    queue_id: int
    old_offset: int | None
    new_offset: int
    min_offset: int
    max_offset: int
    skipped: int
    read_again: int


class Plan(NamedTuple):
    request: Request
    offsets: ConsumerOffsets
    changes: list[Change]
    #: What a start would have done to the store and was done first; None: nothing.
    recovered: StartPlan | None = None

    @property
    def moved(self) -> list[Change]:
        """The changes that change something."""
        return [change for change in self.changes if change.old_offset != change.new_offset]


def plan_offsets(root: Path, config: MessageStoreConfig, request: Request) -> Plan:
    """Looks at the store, and changes nothing.

    :raises UsageError: there is no such queue, or group, or the offset lies in none.
    :raises StoreNotFound, NotAStore: there is no store.
    :raises ConfigFileUnreadable: the group's offsets are not known.
    :raises UnsupportedStore: they are kept in another form.
    """
    for name in (request.group, request.topic):
        if not name or brokerjson.TOPIC_GROUP_SEPARATOR in name:
            raise UsageError(reason=f"{name[:80]!r} is no name of a group or topic.")
    paths.check_store(root)
    check_offsets_in_files(root)
    _check_no_member(root, config)
    offsets = load_consumer_offsets(root, request.group, request.topic, config.told_lmq)
    old, queue_id = offsets.offsets, request.queue_id
    if offsets.is_light:
        if queue_id not in (None, 0):
            raise UsageError(
                reason=f"group {request.group!r} is a light one, which has one offset of each "
                "topic, that of queue 0. Leave --queue-id out."
            )
        queue_id = 0
    with MessageStore(root, config) as store:
        changes = [
            _change(queue, request, old.get(queue.queue_id))
            for queue in _queues(store, request.topic, queue_id)
        ]
    if not old and not request.is_new:
        raise UsageError(
            reason=f"group {request.group!r} has no offset of topic {request.topic!r}: `rmqctl "
            "groups` lists those that have. Say --new to give it one."
        )
    return Plan(request, offsets, changes)


def _check_no_member(root: Path, config: MessageStoreConfig) -> None:
    """Refuses a member of a DLedger group. Every ten seconds a member takes the offsets of the
    leader (``SlaveSynchronize#syncConsumerOffset``), which overwrite what is set here; and if this
    member leads next, its offsets are not those of the others.

    :raises WrittenByItsBrokers: the store is one of a member.
    """
    for name in dledger_logs(root) or ["dledger-*"] * config.enable_d_leger_commit_log:
        raise WrittenByItsBrokers(
            path=str(root / name),
            reason="the store is a member's of a DLedger group, and members take their offsets "
            "from the one that leads",
            advice="`mqadmin resetOffsetByTime` moves a group while they run",
        )


def _queues(store: MessageStore, topic: str, queue_id: int | None) -> Iterator[AnyQueue]:
    """One queue of a topic, or all. :raises UsageError: there is none."""
    found = False
    for where in queue_directories(store, topic):
        if queue_id in (None, where.queue_id):
            with opened_queue(store, where.topic, where.queue_id) as queue:
                if queue is not None:
                    found = True
                    yield queue
    if not found:
        number = "" if queue_id is None else f" {queue_id}"
        raise UsageError(
            reason=f"there is no queue{number} of topic {topic!r}: `rmqctl queues` lists all."
        )


def _change(queue: AnyQueue, request: Request, old: int | None) -> Change:
    """What becomes of one queue. :raises UsageError: the offset that is asked for lies outside."""
    target, is_one = request.target, request.queue_id is not None
    low, high = queue.min_offset, queue.max_offset
    new = {Place.BEGIN: low, Place.END: high}.get(target.place, target.value)
    if target.place is Place.TIME:
        first = queue.first_stored_from(target.value)
        new = high if first is None else first
    if not low <= new <= high:
        raise UsageError(
            reason=f"queue {queue.queue_id} goes from offset {low} to {high}, and {new} lies "
            f"outside: consumers would jump. {_instead(new, is_one=is_one)}"
        )
    unread = new if old is None else min(max(old, low), high)
    return Change(queue.queue_id, old, new, low, high, max(new - unread, 0), max(unread - new, 0))


def _instead(offset: int, *, is_one: bool) -> str:
    """What to give instead of an offset that lies outside of the queue. ``is_one``: the request is
    for a single queue."""
    if offset >= _EARLIEST_TIME:
        return f"For the first message stored at a time give @{offset}."
    return "Give one that lies in it, begin, end, or a time" + (
        "." if is_one else "; with --queue-id an offset is that of one queue."
    )


def ask_consent(plan: Plan, store: MessageStore) -> None:
    """:raises NeedsConsent: something would change; says what."""
    moved = plan.moved
    if moved:
        told = "" if is_in_order(store) else f" {NOT_FINAL}"
        skipped = sum(change.skipped for change in moved)
        again = sum(change.read_again for change in moved)
        raise NeedsConsent(
            reason=f"set-offset moves group {plan.request.group!r} on topic "
            f"{plan.request.topic!r} in {some(len(moved), 'queue')}: it will not get "
            f"{some(skipped, 'message')} that it has not read, and get {again} again.{told}"
        )


def set_offsets(root: Path, config: MessageStoreConfig, request: Request) -> Plan:
    """Plans under the store's lock, and sets the offsets: first the journal is written, then the
    file, whose former content goes to its ``.bak``. A store that was not closed cleanly is brought
    in order before, as by a broker's start. Errors as of :func:`plan_offsets`.

    :raises StoreInUse: a broker, or another rmqctl, holds the lock; nothing was changed.
    """
    paths.check_store(root)
    paths.check_writable(root)
    _check_no_member(root, config)
    check_understood(root, config)
    plan_offsets(root, config, request)  # What is refused is refused before anything is changed.
    recovered = bring_in_order(root, config)
    with locked(root):
        plan = plan_offsets(root, config, request)
        if plan.moved:
            changes = {change.queue_id: change.new_offset for change in plan.moved}
            plan.offsets.set(changes, list(_journal(plan)))
        return plan._replace(recovered=recovered)


def _journal(plan: Plan) -> Iterator[dict[str, Any]]:
    now = system_clock()
    for change in plan.moved:
        yield {
            "timestamp": now,
            "file": plan.offsets.name,
            "group": plan.request.group,
            "topic": plan.request.topic,
            "queue_id": change.queue_id,
            "old_offset": change.old_offset,
            "new_offset": change.new_offset,
        }


def rows(plan: Plan, *, dry_run: bool) -> Iterator[OffsetChangeRow | GroupSetOffsetSummary]:
    """Rows ``offset_change``, one a queue, then ``summary``."""
    request = plan.request
    for change in plan.changes:
        yield {
            "type": "offset_change",
            "group": request.group,
            "topic": request.topic,
            "queue_id": change.queue_id,
            "old_offset": change.old_offset,
            "new_offset": change.new_offset,
            "min_offset": change.min_offset,
            "max_offset": change.max_offset,
            "skipped": change.skipped,
            "read_again": change.read_again,
        }
    yield {
        "type": "summary",
        "dry_run": dry_run,
        "queues": len(plan.changes),
        "changed": len(plan.moved),
        "skipped": sum(change.skipped for change in plan.changes),
        "read_again": sum(change.read_again for change in plan.changes),
        "file": f"{brokerjson.CONFIG}/{plan.offsets.name}",
        "journal": f"{brokerjson.CONFIG}/{JOURNAL}",
    }
