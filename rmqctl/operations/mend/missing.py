"""rebuild --missing: adds to queues and index what the log has and they lack, and nothing else.

A queue gets the units behind its last one, or all units where the queue is not there; the index
gets the keys behind its last item. The units and items that are there are not checked: ``verify``
does that, and a whole rebuild mends what is wrong with them.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.derive.writer import DerivedWriter, group_by_queue, units_lost_in
from rmqctl.engine.dispatch.batches import filled_bytes, without_place
from rmqctl.engine.files import paths, writing
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.queue.outofplace import OutOfPlace
from rmqctl.engine.record.record import Damage
from rmqctl.engine.services.multiqueues import as_written
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.mend.rebuildrows import out_of_place_fields
from rmqctl.operations.mend.recovery import checked_plan
from rmqctl.operations.progress import Progress

if TYPE_CHECKING:
    from rmqctl.engine.scan.batch import Batch


@dataclass(slots=True)
class MissingSummary:
    """What was added, or would be (dry run). ``damage`` are the stretches of the log that cannot be
    read."""

    records: int = 0
    units: int = 0
    index_items: int = 0
    queues: set[tuple[str, int]] = field(default_factory=set)
    damage: list[Damage] = field(default_factory=list)
    #: Records that are not in their queues where they name it; None: they were not counted.
    out_of_place: OutOfPlace | None = None


def add_missing(
    root: Path,
    config: MessageStoreConfig,
    what: str,
    progress: Progress | None = None,
    *,
    dry_run: bool = False,
    jobs: int = 1,
) -> MissingSummary:
    """Adds what is missing to ``queues``, ``index`` or ``all``; with ``dry_run`` it only counts.
    ``jobs`` threads read the log.

    :raises StoreInUse: a broker, or another rmqctl, holds the lock; nothing was changed.
    :raises CannotWrite: the disk is full. What was added stays, and a second run goes on from it.
    """
    paths.check_store(root)
    config = as_written(root, config)
    with MessageStore(root, config) as store:
        known = _Known(store)
        checked_plan(store)  # Where a writing store would refuse to open, a dry run does too.
        if dry_run:
            return _run(store, known, what, None, progress, jobs)
    # Opening must not catch up itself: an absent queue would then begin with its last units.
    with MessageStore(root, config, writable=True, catches_up=False) as store:
        derived = DerivedWriter(
            store.dispatcher,
            store.queues if what in ("queues", "all") else None,
            store.index if what in ("index", "all") else None,
        )
        try:
            restoring = not store.plan.is_clean
            summary = _run(store, known, what, derived, progress, jobs, restoring=restoring)
            if derived.queues is not None:
                summary.out_of_place = replace(derived.queues.out_of_place)
                summary.units -= summary.out_of_place.without_unit
            # The structure that was not asked for catches up as it does whenever a store is opened.
            store.catch_up()
        except OSError as error:
            raise writing.writing_error(root, error) from error
        return summary


class _Known:
    """The physical offsets up to which the queues and the index of a store go."""

    def __init__(self, store: MessageStore) -> None:
        self.queues: dict[tuple[str, int], int] = {}
        for where in store.queues.directories():
            queue = ConsumeQueue(
                where.path,
                where.topic,
                where.queue_id,
                store.queues.file_size,
                strict=True,
                drops_empty=store.queues.drops_empty,
            )
            queue.cut(store.min_offset, store.max_offset)
            self.queues[where.topic, where.queue_id] = queue.max_physical_offset
            queue.close()
        self.index = -1
        for file in store.index.files():
            self.index = max(self.index, file.header.end_phy_offset if file.item_count else -1)


def _run(
    store: MessageStore,
    known: _Known,
    what: str,
    derived: DerivedWriter | None,
    progress: Progress | None,
    jobs: int,
    *,
    restoring: bool = False,
) -> MissingSummary:
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import Scanner
    from rmqctl.engine.scan.tuning import ScanTuning

    summary = MissingSummary()
    lost = max_gap = 0
    scanner = Scanner(
        store.commit_log,
        indexes_tags=store.dispatcher.indexes_tags,
        tuning=ScanTuning(threads=jobs),
    )
    # Closed, or a thread would go on reading a log that is let go of.
    with closing(scanner.scan(None, store.max_offset)) as entries:
        for entry in entries:
            if isinstance(entry, Batch):
                lost += filled_bytes(entry)
                max_gap = units_lost_in(lost)
                summary.damage += without_place(entry)
                _count(store, entry, known, what, summary)
                if derived is not None:
                    derived.dispatch_batch(entry, restoring=restoring, max_gap=max_gap)
                if progress is not None:
                    progress(entry.end_offset - store.min_offset)
            elif isinstance(entry, Damage):
                summary.damage.append(entry)
                lost += entry.length
                max_gap = units_lost_in(lost)
    return summary


def _count(
    store: MessageStore, batch: Batch, known: _Known, what: str, summary: MissingSummary
) -> None:
    """Counts what a batch adds."""
    from rmqctl.engine.dispatch.batches import key_batch, unit_batch

    summary.records += len(batch)
    if what in ("queues", "all"):
        units = unit_batch(batch, store.dispatcher)
        for topic_id, queue_id, rows in group_by_queue(units.topic_id, units.queue_id):
            key = batch.topics.names[topic_id], queue_id
            ends = units.physical_offset[rows] + units.size[rows]
            missing = int((ends > known.queues.get(key, -1)).sum())
            if missing:
                summary.units += missing
                summary.queues.add(key)
    if what in ("index", "all"):
        summary.index_items += int((key_batch(batch).physical_offset > known.index).sum())


def summary_row(what: str, summary: MissingSummary) -> dict[str, object]:
    """The summary's fields."""
    names = {"queues": [paths.CONSUME_QUEUE], "index": [paths.INDEX]}
    return {
        "structures": names.get(what, [paths.CONSUME_QUEUE, paths.INDEX]),
        "output": None,
        "records": summary.records,
        "queues": len(summary.queues),
        "units": summary.units,
        "index_items": summary.index_items,
        "damages": len(summary.damage),
        **out_of_place_fields(summary.out_of_place),
    }
