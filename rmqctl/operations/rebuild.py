"""rebuild: queues and index from the log, byte for byte what RocketMQ would have written.

Everything is built aside, then put in place by renaming; what stood there before is kept until it
is purged. A gap that damage left in a queue is filled with pre-blank units, so that the messages
behind it keep their queue offsets and consumers their progress.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from formats.constants import MIN_RECORD_SIZE
from rmqctl.engine import paths
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.dispatch import Dispatcher
from rmqctl.engine.filesizes import (
    check_queue_file_size,
    commit_log_file_size,
    consume_queue_ext_file_size,
    consume_queue_file_size,
)
from rmqctl.engine.indexservice import IndexService
from rmqctl.engine.lock import StoreLock
from rmqctl.engine.multipath import open_commit_log
from rmqctl.engine.multiqueues import UnexplainedQueue, as_written, unexplained
from rmqctl.engine.queuetable import ConsumeQueueTable
from rmqctl.engine.record import Damage, End
from rmqctl.engine.reput import Reput
from rmqctl.engine.versions import check_understood
from rmqctl.errors import (
    CannotWrite,
    CommitLogMissing,
    DamagedStore,
    FileLengthContradiction,
    NeedsConsent,
    OutputExists,
    QueuesUnexplained,
    UsageError,
)
from rmqctl.operations.recovery import bring_in_order
from rmqctl.operations.swap import kept_directories, kept_name, purge, refuse_links, swap

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.dispatch import UnitBatch
    from rmqctl.engine.scanner import Batch, Scanner

__all__ = [
    "Build",
    "RebuildPlan",
    "RebuildSummary",
    "ask_consent",
    "damage_rows",
    "kept_directories",
    "plan_rebuild",
    "plan_row",
    "purge",
    "rebuild_in_place",
    "rebuild_to",
    "summary_row",
]

_BULK_UNITS = 1 << 18
#: Units of 320 MiB of queue: what the loss of some log files of small messages leaves open.
MOST_FILLED = 1 << 24
_STAGING = "rmqctl-new"
#: Queues that an error names.
_MOST_NAMED = 5

#: Called with the bytes of log done so far.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What a rebuild will do. ``topic`` and ``queue_id`` narrow it to some queues; ``unexplained``
    are those of them that stand in its way (:exc:`QueuesUnexplained`)."""

    root: Path
    config: MessageStoreConfig
    queues: bool
    index: bool
    topic: str | None
    queue_id: int | None
    commit_log_file_size: int
    consume_queue_file_size: int
    #: Size of the extension files that the queues get; None: they have plain tags codes.
    consume_queue_ext_file_size: int | None
    #: Whether the store has an extension, which goes with the queues that it belongs to.
    has_consume_queue_ext: bool
    log_min_offset: int
    log_bytes: int
    unexplained: tuple[UnexplainedQueue, ...] = ()

    def includes(self, topic: str, queue_id: int) -> bool:
        return (self.topic is None or topic == self.topic) and (
            self.queue_id is None or queue_id == self.queue_id
        )

    @property
    def structures(self) -> list[str]:
        ext = self.has_consume_queue_ext or self.consume_queue_ext_file_size is not None
        queues = [paths.CONSUME_QUEUE] + [paths.CONSUME_QUEUE_EXT] * ext
        return queues * self.queues + [paths.INDEX] * self.index


@dataclass(slots=True)
class RebuildSummary:
    """What a rebuild did; ``damage`` are the stretches of the log that it had to leave out."""

    records: int = 0
    units: int = 0
    index_items: int = 0
    queues: int = 0
    damage: list[Damage] = field(default_factory=list)
    refused_topics: list[str] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    #: Why a store that was not closed cleanly is not in order now; empty: it is.
    not_in_order: str = ""


#: Builds the structures of a plan below a directory.
Build = Callable[[RebuildPlan, Path, Progress | None], RebuildSummary]


def plan_rebuild(
    root: Path,
    config: MessageStoreConfig,
    what: str,
    topic: str | None = None,
    queue_id: int | None = None,
) -> RebuildPlan:
    """Looks at the store and says what a rebuild of ``queues``, ``index`` or ``all`` will do.

    :raises StoreNotFound, NotAStore, FileLengthContradiction, QueueFilesTooSmall, UsageError: it
        cannot be done.
    """
    paths.check_store(root)
    if topic is not None:
        paths.check_topic_directory(topic)
    if what == "index" and (topic is not None or queue_id is not None):
        raise UsageError(reason="an index is rebuilt whole: leave --topic and --queue-id out.")
    narrowed = topic is not None or queue_id is not None
    config = as_written(root, config)
    has_ext = (root / paths.CONSUME_QUEUE_EXT).is_dir()
    is_said = config.is_explicit("enable_consume_queue_ext")
    writes_ext = config.enable_consume_queue_ext or (has_ext and not is_said)
    log = open_commit_log(root, config, commit_log_file_size(root, config))
    plan = RebuildPlan(
        root=root,
        config=config,
        queues=what in ("queues", "all"),
        index=what in ("index", "all") and not narrowed,
        topic=topic,
        queue_id=queue_id,
        commit_log_file_size=log.file_size,
        consume_queue_file_size=consume_queue_file_size(root, config),
        consume_queue_ext_file_size=(
            consume_queue_ext_file_size(root, config) if writes_ext else None
        ),
        has_consume_queue_ext=has_ext,
        log_min_offset=log.min_offset,
        log_bytes=log.files.end_offset - log.min_offset,
    )
    if plan.index:
        _check_index_geometry(root, config)
    if plan.queues:
        check_queue_file_size(plan.consume_queue_file_size)
        kept = [one for one in unexplained(root, config) if plan.includes(one.topic, one.queue_id)]
        plan = replace(plan, unexplained=tuple(kept))
    return plan


def _check_index_geometry(root: Path, config: MessageStoreConfig) -> None:
    """An index of other sizes than the broker's would be unreadable to it. Where one of the files
    has the size that is taken, others are cut or strangers, and replaced."""
    geometry = config.index_geometry
    if config.is_explicit("max_hash_slot_num") or config.is_explicit("max_index_num"):
        return
    files = IndexService(root / paths.INDEX, geometry).paths
    sizes = {path: size for path in files if (size := path.stat().st_size)}
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


def rebuild_to(
    plan: RebuildPlan,
    output: Path,
    progress: Progress | None = None,
    build: Build | None = None,
) -> RebuildSummary:
    """Builds below ``output`` (``consumequeue/``, ``index/``); the store is only read.

    ``build`` does it in another way than one pass in this process. What does not end well, or is
    interrupted, leaves nothing there.

    :raises OutputExists: ``output`` holds something. :raises CannotWrite: the disk is full.
    :raises QueuesUnexplained: queues that are there would not be built.
    """
    _check_explained(plan)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise OutputExists(path=str(output))
    try:
        output.mkdir(parents=True, exist_ok=True)
        return (build or _build)(plan, output, progress)
    except BaseException as error:
        # A part would look like the whole, and be in the way of the next run.
        for name in plan.structures:
            shutil.rmtree(output / name, ignore_errors=True)
        if isinstance(error, OSError):
            raise CannotWrite(path=str(output), reason=str(error.strerror)) from error
        raise


def _check_explained(plan: RebuildPlan) -> None:
    """:raises QueuesUnexplained: queues that are there would not be built."""
    queues = plan.unexplained
    if queues:
        named = ", ".join(f"{one.topic!r}/{one.queue_id}" for one in queues[:_MOST_NAMED])
        more = len(queues) - _MOST_NAMED
        raise QueuesUnexplained(
            queues=named + (f" and {more} more queues" if more > 0 else ""),
            units=sum(one.units for one in queues),
        )


def _build(plan: RebuildPlan, output: Path, progress: Progress | None) -> RebuildSummary:
    return _Builder(plan, output).run(progress)


def rebuild_in_place(
    plan: RebuildPlan, progress: Progress | None = None, build: Build | None = None
) -> RebuildSummary:
    """Builds aside under the store's lock, then swaps (:mod:`rmqctl.operations.swap`). A store that
    was not closed cleanly is then brought in order as by a start, which would throw a new index
    away; where that is refused the summary says why, and the store stays as a crash left it.

    The former files are kept in ``rmqctl-old-<time>/`` (see :func:`purge`). A killed run leaves
    each directory old or new; the next one removes what it had built. A failed one removes that
    itself: on a full disk it would be in the way.

    :raises StoreInUse: a broker, or another rmqctl, holds the lock; nothing was changed.
    :raises CommitLogMissing: the log is not there; nothing was changed.
    :raises QueuesUnexplained: queues that are there would not be built; nothing was changed.
    :raises SymbolicLinkRefused: what would be replaced, or the place to build in, is a link.
    """
    summary = _replace(plan, progress, build)
    try:
        bring_in_order(plan.root, plan.config)
    except (DamagedStore, FileLengthContradiction) as error:
        summary.not_in_order = str(error)
    return summary


def _replace(plan: RebuildPlan, progress: Progress | None, build: Build | None) -> RebuildSummary:
    """:func:`rebuild_in_place` itself."""
    root = plan.root
    check_understood(root)
    if not plan.log_bytes and any(paths.queue_directories(root / paths.CONSUME_QUEUE)):
        raise CommitLogMissing(path=str(root / paths.COMMIT_LOG))
    lock = StoreLock(root)
    staging = root / _STAGING
    try:
        for name in (*plan.structures, _STAGING):
            refuse_links(root, Path(name))
        shutil.rmtree(staging, ignore_errors=True)
        summary = rebuild_to(plan, staging, progress, build)
        kept = root / kept_name()
        for relative in _swapped(plan, staging):
            swap(root, staging, kept, relative)
        if kept.exists():
            summary.kept.append(kept)
        return summary
    except OSError as error:
        raise CannotWrite(path=str(root), reason=str(error.strerror)) from error
    finally:
        if not staging.is_symlink():
            shutil.rmtree(staging, ignore_errors=True)
        lock.release()


def _swapped(plan: RebuildPlan, staging: Path) -> list[Path]:
    """Directories that change places: whole ones, or the queues that were asked for."""
    if plan.topic is None and plan.queue_id is None:
        return [Path(name) for name in plan.structures]
    queues = {
        where.path.relative_to(base)
        for base in (staging, plan.root)
        for name in plan.structures
        for where in paths.queue_directories(base / name)
        if plan.includes(where.topic, where.queue_id)
    }
    return sorted(queues)


class _Builder:
    """One pass over the log into new queues and index."""

    def __init__(self, plan: RebuildPlan, output: Path) -> None:
        self._plan = plan
        self._summary = RebuildSummary()
        self._log = open_commit_log(plan.root, plan.config, plan.commit_log_file_size)
        self._dispatcher = Dispatcher(plan.config)
        queues = index = None
        if plan.queues:
            queues = ConsumeQueueTable(
                output / paths.CONSUME_QUEUE,
                plan.consume_queue_file_size,
                ext_directory=output / paths.CONSUME_QUEUE_EXT,
                ext_file_size=plan.consume_queue_ext_file_size,
                writable_root=output,
            )
        if plan.index:
            index = IndexService(
                output / paths.INDEX, plan.config.index_geometry, writable_root=output
            )
        self._queues, self._index = queues, index
        self._reput = Reput(self._dispatcher, queues, index)
        self._pending: list[UnitBatch] = []
        self._pending_ext: list[NDArray[np.int64]] = []
        self._pending_units = 0

    def run(self, progress: Progress | None) -> RebuildSummary:
        from rmqctl.engine.scanner import Batch, Scanner

        scanner = Scanner(self._log, self._dispatcher)
        lost = 0
        try:
            for entry in scanner.scan():
                if isinstance(entry, Batch):
                    self._batch(entry, scanner)
                elif isinstance(entry, Damage):
                    self._put_pending(scanner)
                    self._summary.damage.append(entry)
                    lost += entry.length
                    # A file's name may claim a gap of any size: no disk holds such a queue.
                    self._reput.max_gap = min(lost // MIN_RECORD_SIZE, MOST_FILLED)
                if progress is not None and not isinstance(entry, End):
                    done = entry.end_offset if isinstance(entry, Batch) else entry.physical_offset
                    progress(done - self._plan.log_min_offset)
            self._put_pending(scanner)
            self._reput.flush()
        finally:
            self._reput.close()
            self._log.close()
        return self._finish(scanner)

    def _batch(self, batch: Batch, scanner: Scanner) -> None:
        from rmqctl.engine.dispatch import key_batch, unit_batch

        self._summary.records += len(batch)
        if self._queues is not None:
            units = self._wanted(unit_batch(batch, self._dispatcher), scanner)
            self._pending.append(units)
            ext_timestamps = self._reput.ext_timestamps(batch, units)
            if ext_timestamps is not None:
                self._pending_ext.append(ext_timestamps)
            self._pending_units += len(units.size)
            if self._pending_units >= _BULK_UNITS:
                self._put_pending(scanner)
        if self._index is not None:
            keys = key_batch(batch)
            self._reput.put_keys(keys, int(batch.physical_offset[-1]))
            self._summary.index_items += len(keys.key_hash)

    def _wanted(self, units: UnitBatch, scanner: Scanner) -> UnitBatch:
        """The units of the queues that were asked for."""
        import numpy as np

        plan = self._plan
        keep = np.ones(len(units.size), bool)
        if plan.topic is not None:
            keep &= units.topic_id == scanner.topics.id_of(plan.topic)
        if plan.queue_id is not None:
            keep &= units.queue_id == plan.queue_id
        return type(units)(*(column[keep] for column in units))

    def _put_pending(self, scanner: Scanner) -> None:
        import numpy as np

        if not self._pending:
            return
        columns = zip(*self._pending, strict=True)
        bulk = type(self._pending[0])(*(np.concatenate(parts) for parts in columns))
        ext = np.concatenate(self._pending_ext) if self._pending_ext else None
        self._pending, self._pending_ext, self._pending_units = [], [], 0
        self._reput.put_units(bulk, scanner.topics, ext)
        self._summary.units += len(bulk.size)

    def _finish(self, scanner: Scanner) -> RebuildSummary:
        allowed = scanner.topics.allowed_array()
        names = scanner.topics.names
        self._summary.refused_topics = [n for n, ok in zip(names, allowed, strict=True) if not ok]
        if self._queues is not None:
            self._summary.queues = sum(1 for _ in self._queues.directories())
        return self._summary


def ask_consent(plan: RebuildPlan, *, in_place: bool, purge: bool) -> None:
    """:raises NeedsConsent: says what would be replaced or removed."""
    if in_place:
        names = " and ".join(plan.structures)
        some = "" if plan.topic is None and plan.queue_id is None else "some queues of "
        raise NeedsConsent(
            reason=f"--in-place replaces {some}{names} in {plan.root} (the old files are kept)."
        )
    if purge and (kept := kept_directories(plan.root)):
        raise NeedsConsent(reason=f"--purge removes {', '.join(path.name for path in kept)}.")


def plan_row(plan: RebuildPlan, output: Path | None, *, purge: bool) -> dict[str, object]:
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


def damage_rows(summary: RebuildSummary) -> Iterator[dict[str, object]]:
    """What had to be left out, as rows."""
    for damage in summary.damage:
        yield {"type": "damage", **damage._asdict()}
    for topic in summary.refused_topics:
        yield {
            "type": "damage",
            "physical_offset": None,
            "length": None,
            "reason": "topic-not-allowed",
            "expected": "a topic that can be a directory",
            "found": topic,
        }


def summary_row(
    plan: RebuildPlan, summary: RebuildSummary, output: Path | None, purged: list[Path]
) -> dict[str, object]:
    """The summary's fields."""
    return {
        "structures": plan.structures,
        "output": str(output if output is not None else plan.root),
        "records": summary.records,
        "queues": summary.queues,
        "units": summary.units,
        "index_items": summary.index_items,
        "damages": len(summary.damage) + len(summary.refused_topics),
        "kept": [path.name for path in summary.kept],
        "purged": [path.name for path in purged],
    }
