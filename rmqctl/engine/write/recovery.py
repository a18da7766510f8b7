"""Does to a store what a broker's start would do, before anything is put into it.

The plan (:mod:`rmqctl.engine.start.plan`) says what is done; here is the order. A kill at any
moment leaves a store that the next start, also the engine's, brings to the same state:

1. Units with addresses that lead nowhere in the extension are removed: the engine leaves them, and
   what it later appends to the extension would become theirs.
2. The checkpoint goes back to where the dispatch begins again, and ``abort`` is made.
3. Index items and units of records that the log lacks are removed, and files of the log that are
   empty (of 5.x), or hold zeros and stand far behind its end. This is forced to disk, together with
   whatever a crash may have left in memory only.
4. The records that the plan names are dispatched again.
5. The first flush of everything brings these to disk. Only then may the checkpoint move on.
"""

from __future__ import annotations

from pathlib import Path

from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files import paths
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.index.indexwriter import IndexServiceWriter
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.end import check_end
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.log.progress import Progress
from rmqctl.engine.queue.errors import QueueHasHole
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.start.logend import check_renamed
from rmqctl.engine.start.model import StartPlan
from rmqctl.engine.start.nearend import check_before
from rmqctl.engine.start.plan import scan_place
from rmqctl.engine.state.checkpoint import Checkpoint, lower_logics_offset, read_checkpoint
from rmqctl.engine.write.context import WriteContext
from rmqctl.engine.write.storeflusher import StoreFlusher
from rmqctl.errors import CannotWrite, CommitLogMissing


def check(
    plan: StartPlan,
    root: Path,
    log: CommitLog,
    index: IndexService,
    dispatcher: Dispatcher,
    config: MessageStoreConfig,
    is_unread: bool,
) -> None:
    """Refuses a plan that would lose something, before anything is changed.

    :param is_unread: the records before the log's end are checked later, before the first put.
    :raises CommitLogMissing: there are units, but no log.
    :raises DamagedStore: as :func:`~rmqctl.engine.log.end.check_end` and
        :func:`~rmqctl.engine.start.logend.check_renamed` raise it.
    :raises QueueHasHole: units stand behind a place without one; a broker would drop them.
    :raises FileLengthContradiction: the index's newest file would have a wrong length.
    :raises BatchQueueBehind: messages of a batch queue are not dispatched yet.
    :raises BatchQueueAhead: a batch queue has units of messages that the log lacks.
    """
    if log.files.end_offset == log.min_offset and (plan.queue_cuts or plan.dispatched_to >= 0):
        raise CommitLogMissing(path=str(root / paths.COMMIT_LOG))
    check_end(plan.end)
    check_renamed(log, plan.end.offset)
    if not is_unread:
        check_before(log, plan.end.offset)
    for hole in plan.holes:
        raise QueueHasHole(topic=hole.topic, queue_id=hole.queue_id, queue_offset=hole.queue_offset)
    _check_index(plan, index)
    if dispatcher.batch_topics:
        from rmqctl.engine.write.batchtail import check_batch_queues

        check_batch_queues(root, config, log, dispatcher, (plan.dispatch_from, plan.end.offset))


def _check_index(plan: StartPlan, index: IndexService) -> None:
    """Refuses an index whose newest file, after the plan's cuts, has a wrong length."""
    gone = {cut.path for cut in plan.index_cuts if not cut.kept}
    newest = next((path for path in reversed(index.paths) if path not in gone), None)
    if newest in index.irregular:
        index.open(newest).close()


#: Files that a broker has ready behind the one that it writes to (``AllocateMappedFileService``).
_AHEAD = 2


def _remove_far_ahead(log: CommitLogWriter, end: int) -> None:
    """Removes log files of zeros that stand further behind the end than a broker makes them ahead,
    as a loss of power leaves them. After a clean stop a start reads the last three files
    (``CommitLog#recoverNormally``): it would go on at the first of those, and leave a gap behind
    the end, at which its next start after a crash deletes all that is newer. A start after a crash
    removes them, too (``MappedFileQueue#truncateDirtyFiles``)."""
    number = log.files.index_of(end)
    behind = log.files.entries[number + 1 + _AHEAD :] if number >= 0 else []
    for at in reversed(range(len(log.files.entries) - len(behind), len(log.files.entries))):
        mapped = log.files.file(at)
        if mapped.first_nonzero(0, mapped.size) < mapped.size:
            return
        log.files.remove_from(mapped.file_from_offset)


class Recovery:
    """Carries out a plan in a store whose lock is held."""

    def __init__(
        self,
        plan: StartPlan,
        context: WriteContext,
        index: IndexServiceWriter,
        flusher: StoreFlusher,
    ) -> None:
        self._plan = plan
        self._context = context
        self._index = index
        self._flusher = flusher

    def begin(self, abort: bytes, *, from_first: bool = False) -> None:
        """Steps 1 to 3.

        :param abort: content of a new ``abort``. :param from_first: the caller dispatches the whole
            log. :raises CannotWrite: the disk failed.
        """
        plan, context = self._plan, self._context
        context.tail.is_due = True
        try:
            for cut in plan.queue_cuts:
                if cut.is_astray:
                    context.queues.clear_from(cut.topic, cut.queue_id, cut.end)
            self._flusher.begin(plan, 0 if from_first else plan.hold_back)
            checkpoint = context.root / paths.CHECKPOINT
            lower_logics_offset(
                context.root,
                checkpoint,
                lambda: self._scan_start(checkpoint),
                is_of_5_5=context.derived.dispatcher.indexes_tags,
            )
            if plan.is_clean:
                path = context.root / paths.ABORT
                MappedFile.create(context.root, path, len(abort), head=abort).close()
            empty = context.log.files.empty_last
            if empty is not None:
                context.log.files.remove_from(empty.file_from_offset)
            _remove_far_ahead(context.log, plan.end.offset)
            if plan.index_cuts:
                from rmqctl.engine.index.recovery import apply_cuts

                apply_cuts(self._index, plan.index_cuts, self._store_timestamp_at)
            newest = self._index.last()
            if newest is not None and not newest.item_count:
                # After a crash a file that was just made may be all zeros. Then nothing tells how
                # far the file before it reaches, and its records would be indexed again.
                self._index.recover(self._store_timestamp_at)
            for cut in plan.queue_cuts:
                if not cut.is_astray:
                    context.queues.clear_from(cut.topic, cut.queue_id, cut.end)
            self._flusher.force_what_is_left()
        except OSError as error:
            raise CannotWrite(path=str(context.root), reason=str(error.strerror)) from error

    def dispatch(self, progress: Progress = lambda done, total: None) -> None:
        """Step 4. :raises CannotWrite: the disk failed; the next start goes on with it."""
        plan, context = self._plan, self._context
        try:
            unclean = not plan.is_clean
            context.tail.recover(plan.dispatch_from, unclean=unclean, progress=progress)
        except OSError as error:
            raise CannotWrite(path=str(context.root), reason=str(error.strerror)) from error

    def _scan_start(self, path: Path) -> int:
        """The place of a record from which an unclean start reads by the checkpoint's times, at
        most the log's end."""
        checkpoint, context = read_checkpoint(path) or Checkpoint(), self._context
        start = scan_place(context.log, checkpoint, context.config)
        return min(start, self._plan.end.offset)

    def _store_timestamp_at(self, physical_offset: int) -> int | None:
        record = self._context.log.find_record(physical_offset)
        return record.store_timestamp if isinstance(record, Record) else None
