"""Brings a store that is open for writing to disk: flushes, checkpoint, background services.

Without :meth:`StoreFlusher.start` no thread runs: waiting putters flush for themselves and each
other, and closing flushes the rest.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.files.durable import raise_lost
from rmqctl.engine.flush.services import (
    CommitRealTimeService,
    FlushConsumeQueueService,
    FlushRealTimeService,
    GroupCommitService,
)
from rmqctl.engine.flush.thread import ServiceThread
from rmqctl.engine.start.model import StartPlan
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rmqctl.engine.write.background import ReputMessageService
from rmqctl.engine.write.context import WriteContext
from rmqctl.engine.write.flags import RunningFlags
from rmqctl.errors import CannotWrite, LogNotForced

#: The structures that can be flushed one by one.
STRUCTURES = ("commitlog", "queues", "index")


class FlushedRange(NamedTuple):
    """One flushed structure. Its part for the log between the two physical offsets is surely on
    disk now; before, it may not have been."""

    structure: str
    from_offset: int
    to_offset: int


class StoreFlusher:
    """Flushes one store that is open for writing.

    ``checkpoint`` is the content of the checkpoint file once the store is closed.
    """

    def __init__(self, context: WriteContext, flags: RunningFlags) -> None:
        config, log = context.config, context.log
        self._root = context.root
        self._config = config
        self._log = log
        self._queues = context.queues
        self._derived = context.derived
        self._tail = context.tail
        self._lock = context.lock
        self._hold_back: int | None = None
        #: How often the clock was set back so far that the checkpoint had to go back with it.
        self._times_set_back = 0
        self._least = 0
        self._doubtful: tuple[Path, ...] = ()
        #: The content of the checkpoint file; None: there is none.
        self._written: Checkpoint | None = None
        self._flushed = dict.fromkeys(STRUCTURES, context.tail.done)
        self._checkpoint_lock = threading.Lock()
        self.checkpoint = Checkpoint()
        self._is_first = False
        #: Whether services may run in the background.
        self.has_services = False
        #: A served store with ASYNC_FLUSH: puts are answered, and messages shown to readers, before
        #: the log is on disk. Else both wait for the disk.
        self.answers_first = False
        self.group_commit = GroupCommitService(log, self._physic_flushed)
        self.flush_real_time = FlushRealTimeService(log, config, self._physic_flushed)
        self.reput_message = ReputMessageService(context, flags)
        self.commit_real_time = CommitRealTimeService(
            log, config, (self.flush_real_time, self.reput_message)
        )
        self.flush_consume_queue = FlushConsumeQueueService(config, self._flush_queues)
        #: In the order in which they end: each makes the last work for the later ones.
        self._services: tuple[ServiceThread, ...] = (
            self.commit_real_time,
            self.reput_message,
            self.group_commit,
            self.flush_real_time,
            self.flush_consume_queue,
        )

    def begin(self, plan: StartPlan, hold_back: int | None) -> None:
        """Called before anything is changed: writes a checkpoint that stays true meanwhile, and
        that leads a start after a kill far enough back.

        :param hold_back: store time (ms) from which on queues and index are written anew; None:
            they only get what is put. :raises OSError: the disk is full.
        """
        self._flushed = dict.fromkeys(STRUCTURES, max(plan.dispatched_to, self._log.min_offset))
        index = self._derived.index
        changed = {cut.path for cut in plan.index_cuts}
        filled = 0 if index is None else index.latest_timestamp(changed)
        self.checkpoint = plan.checkpoint.until(plan.end.store_timestamp, filled)
        self._is_first = plan.end.offset == 0 and self.checkpoint == Checkpoint()
        self._hold_back = hold_back
        self._doubtful = plan.doubtful
        if index is not None and filled < self.checkpoint.index_msg_timestamp:
            # The newest file will be written to unless it is full, so a start after a kill must
            # not trust it (``IndexService#load``). If the clock was set back, that start throws
            # older files away as well.
            self.checkpoint = self.checkpoint._replace(index_msg_timestamp=filled)
        if not plan.is_clean:
            self.checkpoint = self._doubting_newest()
        if plan.is_clean:
            self._note_index_on_disk(changed)
        else:
            self._log.doubt_flushed(self.checkpoint.physic_msg_timestamp)
        self._written = plan.checkpoint
        # Index files that a start after a crash throws away anyhow need no earlier checkpoint.
        trusts_less = self.checkpoint.index_msg_timestamp < plan.checkpoint.index_msg_timestamp
        unsafe = None
        if trusts_less and not plan.is_clean:
            unsafe = self._index_unsafe_since(self.checkpoint)
        if hold_back is not None or unsafe is not None:
            from rmqctl.engine.start.holdback import least_hold_back

            oldest = min(time for time in (hold_back, unsafe) if time is not None)
            self._least = least_hold_back(self._log, plan.checkpoint, self._config, oldest)
        if plan.is_clean or trusts_less:
            self._write(self._held_back())
        else:
            self._write(self.checkpoint.held_back(hold_back, least=self._least))
        if read_checkpoint(self._root / paths.CHECKPOINT) is None:
            self._written = None  # The file is missing or too short: it says nothing.

    def force_what_is_left(self) -> None:
        """Forces queues and index to disk once they have nothing more than the log: also what an
        earlier, killed start has removed. This must come before the log grows: after a loss of
        power a removed unit may be back, and would stand for whatever record is at its place then.

        :raises OSError: the disk failed.
        """
        self._queues.unsynced.take()
        self._queues.unsynced.sync_taken(self._doubtful)

    def _note_index_on_disk(self, changed: Collection[Path] = ()) -> None:
        """Notes full index files on disk that the checkpoint does not know, for example because the
        checkpoint was lost. Without this a broker would throw all of them away after its next crash
        (``IndexService#load``)."""
        index = self._derived.index
        filled = 0 if index is None else index.latest_timestamp(changed)
        if index is not None and filled > self.checkpoint.index_msg_timestamp:
            index.sync_all()
            self._advance(index=filled)

    def _held_back(self) -> Checkpoint:
        """The checkpoint while the store is open. A start after a kill throws the newest index file
        away and indexes again only the records that its recovery reads, so it must begin before
        that file's first record."""
        checkpoint = self._doubting_newest()
        unsafe = self._index_unsafe_since(checkpoint)
        return checkpoint.held_back(self._hold_back, unsafe, least=self._least)

    def _doubting_newest(self) -> Checkpoint:
        """The checkpoint, a millisecond earlier for the index if the newest index file is still
        written and ends in the millisecond in which the full file before it ended. A start after a
        kill would keep that file, with slots that lead to items beyond its header's count."""
        index, checkpoint = self._derived.index, self.checkpoint
        if index is None or not index.is_growing_since(checkpoint.index_msg_timestamp):
            return checkpoint
        return checkpoint._replace(index_msg_timestamp=checkpoint.index_msg_timestamp - 1)

    def _index_unsafe_since(self, checkpoint: Checkpoint) -> int | None:
        """See :meth:`~rmqctl.engine.index.indexservice.IndexService.unsafe_since`."""
        index = self._derived.index
        return None if index is None else index.unsafe_since(checkpoint.index_msg_timestamp)

    # --- services ------------------------------------------------------------------------

    def start(self, *, dispatch: bool) -> None:
        """Starts the flush services of the configured flush type; with ``dispatch`` also the ones
        that dispatch records and flush the queues."""
        self.has_services = True
        if self._config.flush_disk_type == "SYNC_FLUSH":
            self.group_commit.start()
        else:
            self.flush_real_time.start()
        if self._config.is_transient_store_pool_enable:
            self.commit_real_time.start()
        if dispatch:
            self.reput_message.start()
            self.flush_consume_queue.start()

    def shutdown(self, *, finish: bool = True) -> None:
        """Ends all services. With ``finish`` each finishes its work first."""
        for service in self._services:
            service.shutdown(finish=finish)

    def appended(self) -> None:
        """Wakes the services that bring what was appended to the files and the queues."""
        self.commit_real_time.wakeup()
        self.reput_message.wakeup()

    def wakeup(self) -> None:
        """Wakes the flush services for an append that nobody waits for."""
        self.group_commit.wakeup()
        self.flush_real_time.wakeup()

    # --- flushing ------------------------------------------------------------------------

    def before_append(self, timestamp: int) -> None:
        """Writes a checkpoint before a store's first record, as a broker's start does. The time of
        the first record is always safe: a recovery starts before it."""
        if self._is_first:
            self.checkpoint = Checkpoint(timestamp, timestamp)
            self._write(self.checkpoint)
            self._is_first = False
        elif self._written is not None and timestamp < self._written.min_timestamp:
            # The clock was set back. A start would begin in a file of the log that begins now, and
            # pass over what is not on disk of the queues for those before it.
            times = [timestamp, *([] if self._hold_back is None else [self._hold_back])]
            self._hold_back = min(times)
            self._times_set_back += 1
            # New index files will end before older ones. A start after a kill that did not trust
            # the older ones would throw them away, and keep the new ones, behind which it indexes.
            self._note_index_on_disk()
            self._write(self._held_back())

    def _physic_flushed(self, timestamp: int) -> None:
        self._advance(physic=timestamp)

    def _advance(self, physic: int = 0, logics: int = 0, index: int = 0) -> None:
        """Notes store times (ms) up to which structures are on disk. Times up to 0 tell nothing
        new, as with the engine.

        The times of log and queues go back with the clock, as the engine's do: a start begins in
        the newest log file that is not younger, which would lie behind what was not on disk. The
        time of the index never goes back.
        """
        with self._checkpoint_lock:
            old = self.checkpoint
            self.checkpoint = old._replace(
                physic_msg_timestamp=physic if physic > 0 else old.physic_msg_timestamp,
                logics_msg_timestamp=logics if logics > 0 else old.logics_msg_timestamp,
                index_msg_timestamp=max(old.index_msg_timestamp, index),
            )

    def closed(self) -> None:
        """Writes the final checkpoint, after everything was flushed and ``abort`` removed."""
        self._write_unless_full(self.checkpoint)

    def _write_unless_full(self, checkpoint: Checkpoint) -> None:
        """:meth:`_write`; on a full disk the older checkpoint stays, which is as safe."""
        try:
            self._write(checkpoint)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _write(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint if it is new. :raises OSError: the disk failed, or is full."""
        with self._checkpoint_lock:
            if checkpoint != self._written:
                write_checkpoint(self._root, self._root / paths.CHECKPOINT, checkpoint)
                self._written = checkpoint

    def _flush_queues(self, least_pages: int) -> None:
        """Flushes the queues that have grown by ``least_pages`` pages; with 0 all, and the
        checkpoint (``FlushConsumeQueueService#doFlush``)."""
        with self._lock:
            timestamp = self._derived.logics_msg_timestamp
            index = self._derived.index
            index_timestamp = 0 if index is None else index.forced_timestamp
            self._queues.unsynced.take(least_pages)
            times_set_back = self._times_set_back
        # Without the put lock, so putters go on meanwhile.
        self._check_derived()
        self._queues.unsynced.sync_taken()
        if least_pages == 0 and not (self._tail.failed or self._tail.is_due):
            self._advance(logics=timestamp, index=index_timestamp)
            with self._lock:
                # Else units have come meanwhile that are older than those on disk.
                if self._times_set_back == times_set_back:
                    self._hold_back = None
                checkpoint = self._held_back()
            self._write_unless_full(checkpoint)

    def _check_derived(self) -> None:
        """A start dispatches what either of queues and index lacks from where the checkpoint says,
        so that must not move on when the disk has failed for one of them.

        :raises OSError: it has."""
        raise_lost(self._queues.unsynced)
        if self._derived.index is not None:
            raise_lost(self._derived.index.unsynced)

    def flush_log(self) -> None:
        """Forces all records to disk, but writes no checkpoint.

        :raises CannotWrite: the disk failed, now or before."""
        try:
            self._log.force()
        except OSError as error:
            raise CannotWrite(path=str(self._root), reason=str(error.strerror)) from error
        self._physic_flushed(self._log.flushed_timestamp)

    def check_log(self) -> None:
        """:raises LogNotForced: a flush of the log has failed. Nothing that is put after that is
        safe: the system may have dropped pages that it could not write."""
        if self._log.lost is not None:
            raise LogNotForced(path=str(self._root), reason=str(self._log.lost.strerror))

    def complete(self) -> None:
        """Dispatches what an earlier error has left in the log without queues or index.

        :raises CannotWrite, OSError: the disk is still full.
        """
        with self._lock:
            if self._tail.failed and not self._tail.is_due:
                self._tail.complete()

    @property
    def shown_to(self) -> int:
        """Physical offset up to which clients of a served store may read."""
        return self._log.read_offset if self.answers_first else self._log.flushed_where

    @property
    def behind(self) -> int:
        """Bytes of log that are not on disk yet (``MappedFileQueue#howMuchFallBehind``)."""
        return max(self._log.read_offset - self._log.flushed_where, 0)

    def flush(
        self, structures: Iterable[str] = STRUCTURES, *, is_closing: bool = False
    ) -> list[FlushedRange]:
        """Dispatches the rest of the log, forces structures to disk and advances the checkpoint.
        Returns what was flushed.

        :param is_closing: :meth:`closed` will write the checkpoint.
        :raises OSError: the disk failed, now or before. :raises CannotWrite: the disk is full. An
            error that a service has met since the last call is raised, too.
        """
        for service in self._services:
            failure = service.take_failure()
            if failure is not None:
                raise failure
        ranges, structures = [], tuple(structures)
        with self._lock:
            self._log.commit_all()
            if not self._tail.is_due:
                self._tail.complete()
            end = self._log.read_offset
            for structure in structures:
                start = self._flushed[structure]
                if structure == "commitlog":
                    start = self._log.flushed_where
                    self._log.force(end)
                    self._advance(physic=self._log.store_timestamp)
                elif structure == "queues":
                    self._check_derived()
                    self._queues.flush()
                    self._advance(logics=self._log.store_timestamp)
                elif structure == "index" and self._derived.index is not None:
                    self._check_derived()
                    self._derived.index.flush()
                    self._advance(index=self._derived.index_msg_timestamp)
                    self._note_index_on_disk()
                self._flushed[structure] = end
                # A damaged unit may name an offset behind the log.
                ranges.append(FlushedRange(structure, min(start, end), end))
            if "queues" in structures and not self._tail.is_due:
                # Everything is dispatched and on disk: the recovery is over.
                self._hold_back = None
            if not is_closing or self._written is None or not self._written.min_timestamp:
                self._write(self._held_back())
        return ranges
