"""The plan of a rebuild: what it will write, what prevents it, and the consent that it needs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files import paths
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.services.multiqueues import UnexplainedQueue, as_written, unexplained
from rmqctl.engine.settings.filesizes import (
    batch_queue_file_size,
    check_queue_file_size,
    commit_log_file_size,
    consume_queue_ext_file_size,
    consume_queue_file_size,
)
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.laterversions import batch_topics
from rmqctl.errors import (
    CommitLogMissing,
    FileLengthContradiction,
    NeedsConsent,
    QueuesUnexplained,
    UsageError,
)
from rmqctl.operations.mend.swap import kept_directories

if TYPE_CHECKING:
    from rmqctl.rows.reports import PlanRow

#: How many queues an error names at most.
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What a rebuild will do. ``topic`` and ``queue_id``, or ``only``, narrow it to some queues.
    ``unexplained`` are those of them that prevent it (:exc:`QueuesUnexplained`)."""

    root: Path
    config: MessageStoreConfig
    queues: bool
    index: bool
    topic: str | None
    queue_id: int | None
    commit_log_file_size: int
    consume_queue_file_size: int
    #: Size of the extension files that the queues get; None: their units have plain tags codes.
    consume_queue_ext_file_size: int | None
    #: Whether the store has an extension (``consumequeue_ext/``): it is replaced with its queues.
    has_consume_queue_ext: bool
    log_min_offset: int
    log_bytes: int
    unexplained: tuple[UnexplainedQueue, ...] = ()
    #: A gap in a queue up to this many units is filled even where the log has lost nothing.
    spare_gap: int = 0
    #: Size of the files of batch queues; None: there are no topics with such queues.
    batch_queue_file_size: int | None = None
    #: Topic and number of the only queues to be built; None: all that the other fields name.
    only: frozenset[tuple[str, int]] | None = None

    @property
    def is_of_some(self) -> bool:
        """Whether the plan is narrowed to some queues."""
        return not (self.topic is None and self.queue_id is None and self.only is None)

    def includes(self, topic: str, queue_id: int) -> bool:
        return (
            (self.topic is None or topic == self.topic)
            and (self.queue_id is None or queue_id == self.queue_id)
            and (self.only is None or (topic, queue_id) in self.only)
        )

    @property
    def structures(self) -> list[str]:
        ext = self.has_consume_queue_ext or self.consume_queue_ext_file_size is not None
        queues = [paths.CONSUME_QUEUE] + [paths.CONSUME_QUEUE_EXT] * ext
        queues += [paths.BATCH_CONSUME_QUEUE] * (self.batch_queue_file_size is not None)
        return queues * self.queues + [paths.INDEX] * self.index


def plan_rebuild(
    root: Path,
    config: MessageStoreConfig,
    what: str,
    topic: str | None = None,
    queue_id: int | None = None,
) -> RebuildPlan:
    """Looks at the store, and plans a rebuild of ``queues``, ``index`` or ``all``.

    :raises StoreNotFound, NotAStore, FileLengthContradiction, QueueFilesTooSmall, UsageError: the
        rebuild cannot be done.
    :raises NotAFile: something else than a file stands in place of a file of the log.
    """
    paths.check_store(root)
    if topic is not None:
        paths.check_topic_directory(topic)
    if what == "index" and (topic is not None or queue_id is not None):
        raise UsageError(reason="an index is rebuilt whole: give no topic and no queue id.")
    narrowed = topic is not None or queue_id is not None
    config = as_written(root, config)
    has_ext = (root / paths.CONSUME_QUEUE_EXT).is_dir()
    is_said = config.is_explicit("enable_consume_queue_ext")
    writes_ext = config.enable_consume_queue_ext or (has_ext and not is_said)
    log_file_size = commit_log_file_size(root, config)
    start, end = _log_range(root, config, log_file_size)
    plan = RebuildPlan(
        root=root,
        config=config,
        queues=what in ("queues", "all"),
        index=what in ("index", "all") and not narrowed,
        topic=topic,
        queue_id=queue_id,
        commit_log_file_size=log_file_size,
        consume_queue_file_size=consume_queue_file_size(root, config),
        consume_queue_ext_file_size=(
            consume_queue_ext_file_size(root, config) if writes_ext else None
        ),
        has_consume_queue_ext=has_ext,
        log_min_offset=start,
        log_bytes=end - start,
        batch_queue_file_size=batch_queue_file_size(root, config) if batch_topics(root) else None,
    )
    if plan.index:
        _check_index_geometry(root, config)
    if plan.queues:
        check_queue_file_size(plan.consume_queue_file_size)
    return replace(plan, unexplained=_unexplained(plan))


def as_it_is_now(plan: RebuildPlan) -> RebuildPlan:
    """The plan for the store as it is now: since it was made, a broker may have written or removed
    files.

    :raises NotAFile: as of :func:`plan_rebuild`.
    """
    start, end = log_range_now(plan)
    now = replace(plan, log_min_offset=start, log_bytes=end - start)
    return replace(now, unexplained=_unexplained(now))


def log_range_now(plan: RebuildPlan) -> tuple[int, int]:
    """Where the log begins and ends now. :raises NotAFile: as of :func:`plan_rebuild`."""
    return _log_range(plan.root, plan.config, plan.commit_log_file_size)


def _log_range(root: Path, config: MessageStoreConfig, file_size: int) -> tuple[int, int]:
    with closing(open_commit_log(root, config, file_size)) as log:
        # Queues that lack the units of such a file would seem whole.
        log.files.check_regular()
        return log.min_offset, log.files.end_offset


def _unexplained(plan: RebuildPlan) -> tuple[UnexplainedQueue, ...]:
    queues = unexplained(plan.root, plan.config) if plan.queues else ()
    return tuple(one for one in queues if plan.includes(one.topic, one.queue_id))


def _check_index_geometry(root: Path, config: MessageStoreConfig) -> None:
    """Refuses an index whose files all have another size than the settings say: the broker could
    not read the new one. Where one file has the right size, the others are cut files or no index
    files, and are replaced."""
    geometry = config.index_geometry
    if config.is_explicit("max_hash_slot_num") or config.is_explicit("max_index_num"):
        return
    files = IndexService(root / paths.INDEX, geometry).paths
    sizes = {path: size for path in files if (size := paths.listed_status(path).st_size)}
    if not sizes or geometry.file_size in sizes.values():
        return
    path, size = next(iter(sizes.items()))
    raise FileLengthContradiction(
        path=str(path),
        found=size,
        expected=geometry.file_size,
        why=f"an index file of {geometry.hash_slot_num} slots (maxHashSlotNum) and "
        f"{geometry.index_num} items (maxIndexNum)",
    )


def check_has_log(plan: RebuildPlan) -> None:
    """:raises CommitLogMissing: there is no log, and in place queues would be replaced by none."""
    if not plan.log_bytes and any(paths.queue_directories(plan.root / paths.CONSUME_QUEUE)):
        raise CommitLogMissing(path=str(plan.root / paths.COMMIT_LOG))


def check_explained(plan: RebuildPlan) -> None:
    """:raises QueuesUnexplained: queues that the store has would not be built."""
    queues = plan.unexplained
    if queues:
        named = ", ".join(f"{one.topic!r}/{one.queue_id}" for one in queues[:_MOST_NAMED])
        more = len(queues) - _MOST_NAMED
        raise QueuesUnexplained(
            queues=named + (f" and {more} more queues" if more > 0 else ""),
            units=sum(one.units for one in queues),
        )


def ask_consent(plan: RebuildPlan, *, in_place: bool, purge: bool) -> None:
    """:raises NeedsConsent: it says what would be replaced or removed."""
    if in_place:
        names = " and ".join(plan.structures)
        some = "some queues of " if plan.is_of_some else ""
        raise NeedsConsent(
            reason=f"rebuild replaces {some}{names} in {plan.root} (the old files are kept)."
        )
    if purge and (kept := kept_directories(plan.root)):
        raise NeedsConsent(
            reason=f"rebuild --purge removes {', '.join(path.name for path in kept)}."
        )


def plan_row(plan: RebuildPlan, output: Path | None, *, purge: bool) -> PlanRow:
    """The plan as a row."""
    return {
        "type": "plan",
        "store": str(plan.root),
        "output": str(output) if output is not None else "in place",
        "structures": plan.structures,
        "topic": plan.topic,
        "queue_id": plan.queue_id,
        "log_min_offset": plan.log_min_offset,
        "log_bytes": plan.log_bytes,
        "consume_queue_file_size": plan.consume_queue_file_size,
        "max_hash_slot_num": plan.config.max_hash_slot_num,
        "max_index_num": plan.config.max_index_num,
        "overruled": plan.config.overruled_names,
        "unexplained": [f"{one.topic}/{one.queue_id}" for one in plan.unexplained],
        "purges": [path.name for path in kept_directories(plan.root)] if purge else [],
    }
