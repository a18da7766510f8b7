"""rebuild --to-file-queues: makes a store with queues in RocksDB one with queue files, which a
broker with ``storeType=default`` reads.

Queues are made from the log, as any rebuild makes them. The databases give what the log does not
have: topics, groups and offsets, which become the JSON files of ``config/``, and the ends of queues
whose messages have all expired. Everything is built aside. Then the JSON files and the queues are
put in place and the databases are taken away, one after the other. A kill leaves a store that its
broker still takes for one with RocksDB, or one that this command finishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.constants import LONG_MAX
from rmqctl.engine.files import durable, paths
from rmqctl.engine.files.lock import locked
from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.state import brokerjson, fastjson
from rmqctl.engine.state.laterversions import rocksdb_to_convert
from rmqctl.engine.state.persist import persist
from rmqctl.engine.state.rocksdb import config_files
from rmqctl.engine.state.rocksdbqueues import LastUnit, queue_ends
from rmqctl.errors import NeedsConsent, UsageError
from rmqctl.operations.mend.endedqueues import write_last_units
from rmqctl.operations.mend.rebuild import RebuildSummary, check_explained, one_pass
from rmqctl.operations.mend.rebuildplan import RebuildPlan, as_it_is_now, plan_rebuild
from rmqctl.operations.mend.recovery import complete
from rmqctl.operations.mend.swap import (
    STAGING,
    built_aside,
    kept_name,
    make_staging,
    refuse_links,
    swap,
)

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.operations.progress import Progress


@dataclass(slots=True)
class Conversion:
    """A conversion: the plan of the queues, the databases to be taken away, and, where they were
    read, what they say beyond the log. ``ended`` are queues whose messages have all expired from
    the log; ``summary`` says what was built."""

    plan: RebuildPlan
    databases: list[str]
    #: Whether the queues are still to be made: a run that was cut off may have put them in place.
    makes_queues: bool
    #: Whether the databases are not to be read.
    from_log_alone: bool = False
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    ends: list[LastUnit] = field(default_factory=list)
    ended: int = 0
    #: The next queue offsets, given by the caller, of queues whose messages have all expired.
    min_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    #: Those of these queues of which the log does have messages, which tell the next offset.
    not_ended: list[tuple[str, int]] = field(default_factory=list)
    summary: RebuildSummary = field(default_factory=RebuildSummary)

    def read(self) -> None:
        """Reads what the databases say now. Errors as of :func:`plan_conversion`."""
        if self.from_log_alone:
            return
        root = self.plan.root
        self.configs = config_files(root)
        if self.makes_queues:
            self.ends = queue_ends(root, next(filter(_is_of_queues, self.databases)))

    def row(self, *, dry_run: bool) -> dict[str, object]:
        """The summary's fields."""
        done = self.summary

        def told(count: int) -> int | None:
            return None if dry_run else count

        counted = {name: len(table) for name, table in self._tables().items()}
        return {
            "dry_run": dry_run,
            "databases": self.databases,
            "records": told(done.records),
            "queues": told(done.queues + self.ended),
            "units": told(done.units),
            "ended_queues": told(self.ended),
            "topics": counted.get(brokerjson.TOPICS),
            "groups": counted.get(brokerjson.SUBSCRIPTION_GROUP),
            "offsets": counted.get(brokerjson.CONSUMER_OFFSET),
            "damages": told(len(done.damage) + len(done.refused_topics)),
            "kept": [path.name for path in done.kept],
        }

    def _tables(self) -> dict[str, dict[str, Any]]:
        tables = ("topicConfigTable", "subscriptionGroupTable", "offsetTable")
        return {
            name: next(value[table] for table in tables if table in value)
            for name, value in self.configs.items()
        }


def _is_of_queues(database: str) -> bool:
    return not database.startswith(brokerjson.CONFIG)


def plan_conversion(
    root: Path,
    config: MessageStoreConfig,
    *,
    from_log_alone: bool = False,
    min_offsets: Mapping[tuple[str, int], int] | None = None,
) -> Conversion:
    """Looks at the store, and reads its databases unless ``from_log_alone``.

    :param min_offsets: topic and queue number → the next queue offset, for queues of which the log
        has no message left. The databases tell it when they are read.
    :raises UsageError: there is nothing to convert, or no queue can have such a minimum offset.
    :raises TopicNotAllowed: a minimum offset is of a topic whose name no topic may have.
    :raises UnsupportedStore: the store has more than queues and configuration in RocksDB, or a
        database cannot be read.
    :raises WrittenByItsBrokers: the store is one of several copies that a controller keeps alike.
    """
    paths.check_store(root)
    databases = rocksdb_to_convert(root, config)
    plan = plan_rebuild(root, replace(config, store_type="default"), "queues")
    of_queues = list(filter(_is_of_queues, databases))
    conversion = Conversion(plan, databases, bool(of_queues), from_log_alone)
    if min_offsets and of_queues:
        conversion.min_offsets = min_offsets
        conversion.ends = _stated_ends(plan, min_offsets)
    conversion.read()
    return conversion


def _stated_ends(plan: RebuildPlan, min_offsets: Mapping[tuple[str, int], int]) -> list[LastUnit]:
    """Queues that go on at these offsets. The last unit of each gets the physical offset of a
    record right before the log's first file."""
    found = []
    for (topic, queue_id), offset in sorted(min_offsets.items()):
        paths.check_topic_directory(topic)
        if offset * UNIT_SIZE + plan.consume_queue_file_size > LONG_MAX:
            raise UsageError(reason=f"no queue is as long as --min-offset {topic}:{queue_id} says.")
        if offset and plan.log_min_offset <= 0:
            raise UsageError(
                reason=f"the log begins at 0, so no message of {topic}:{queue_id} has expired: "
                "leave its --min-offset out."
            )
        if offset:
            place = plan.log_min_offset - 1
            found.append(LastUnit(topic, queue_id, offset - 1, place, None, None))
    return found


def convert(
    conversion: Conversion, progress: Progress | None = None, *, jobs: int = 1, consent: bool
) -> RebuildSummary:
    """Converts under the store's lock. What is replaced is kept in ``rmqctl-old-<time>/``.

    :raises NeedsConsent: ``consent`` is not given.
    :raises StoreInUse: a broker, or another rmqctl, holds the lock.
    :raises CannotWrite: what the system says, such as of a full disk.
    """
    root = conversion.plan.root
    if not consent:
        names = ", ".join(conversion.databases)
        raise NeedsConsent(reason=f"rebuild replaces {names} in {root} by files.")
    staging = root / STAGING
    with locked(root), built_aside(root, staging):
        for name in (*conversion.databases, STAGING):
            refuse_links(root, Path(name))
        # A broker that has stopped since has written the last offsets of its consumers.
        plan = conversion.plan = as_it_is_now(conversion.plan)
        conversion.read()
        check_explained(plan)
        make_staging(staging)
        if conversion.makes_queues:
            conversion.summary = one_pass(jobs)(plan, staging, progress)
            conversion.ended = _write_ends(conversion, staging)
            (staging / paths.CONSUME_QUEUE).mkdir(exist_ok=True)
            durable.sync_directories(staging)
        for name, value in conversion.configs.items():
            persist(root, name, fastjson.dumps(value))
        kept = root / kept_name()
        first = [paths.CONSUME_QUEUE] * conversion.makes_queues
        for name in dict.fromkeys([*first, *conversion.databases]):
            swap(root, staging, kept, Path(name))
        summary = conversion.summary
        summary.kept.append(kept)
    complete(summary, root, plan.config)
    return summary


def _write_ends(conversion: Conversion, staging: Path) -> int:
    """Writes the queues whose messages have all expired. Returns how many there are."""
    start = conversion.plan.log_min_offset
    queues = staging / paths.CONSUME_QUEUE
    conversion.not_ended = [
        (topic, queue_id)
        for topic, queue_id in sorted(conversion.min_offsets)
        if (queues / topic / str(queue_id)).exists()
    ]
    ends = (end for end in conversion.ends if end.physical_offset < start)
    return write_last_units(staging, ends, conversion.plan.consume_queue_file_size)
