"""The copy: a store that is written by its master's log alone.

It is opened, and brought in order after a kill, as every store that is written. What is asked of
the master before anything is appended says whether this is a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.log.progress import Progress
from rmqctl.engine.messagestore import MessageStore, WritableStore, system_clock
from rmqctl.engine.record.pieces import LogPiece
from rmqctl.engine.services import retention
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.brokerjson import CONFIG
from rmqctl.engine.state.persist import persist
from rmqctl.errors import DamagedStore
from rmqctl.replicate.doubt import Doubt, cut, doubt_of
from rmqctl.replicate.errors import CopyDiffers, CopyTooOld, CopyUnproven, MasterNotCopied
from rmqctl.replicate.events import Shortened
from rmqctl.replicate.follower import Join, join_at
from rmqctl.replicate.keeping import Keep
from rmqctl.replicate.questions import THE_MASTER, ConfigFile, Dialogue, log_range, record_at


def is_own(root: Path, config: MessageStoreConfig, doubt: Doubt) -> Dialogue[bool]:
    """Whether a master has what proves that a store, which nobody has open, is a copy of it."""
    start, _ = yield from log_range()
    proof = doubt.proof(start)
    if proof is None:
        return False
    (offset, _), size = proof
    theirs = yield from record_at(offset)
    with MessageStore(root, config) as store:
        mapped, position = store.commit_log.locate(offset)
        return theirs is not None and theirs[:size] == mapped.read(position, size)


class Copy:
    """A copy below ``root``, whose lock is held; made when there is none.

    ``end`` is up to where it has the log, ``stored`` up to where that is on disk, unless it
    :attr:`is_in_doubt`; by ``config`` its files are made.

    :param is_own: whether the master has what proves that this is a copy of it: asked before
        anything is taken away that stands behind a hole.
    :raises RmqctlError: as of :class:`~rmqctl.engine.messagestore.WritableStore`.
    """

    def __init__(
        self,
        root: Path,
        config: MessageStoreConfig,
        *,
        clock: Callable[[], int] = system_clock,
        progress: Progress = lambda done, total: None,
        is_own: Callable[[Doubt], bool] = lambda doubt: True,
    ) -> None:
        # What is appended goes to the files: what is reported has to be on disk anyhow.
        self.config = replace(config, transient_store_pool_enable=False, broker_role="ASYNC_MASTER")
        self._clock, self._progress, self._is_own = clock, progress, is_own
        self.root = root
        #: What a loss of power may have left; None: it was closed cleanly, or is known to be sound.
        self._doubt: Doubt | None = None
        if (root / paths.ABORT).exists():
            self._doubt = doubt_of(root, self.config)
        self.store = self._opened()
        #: Records and bytes that were appended here.
        self.records = self.bytes = 0
        #: Physical offsets of records whose body is not what was stored: the master's, too.
        self.mismatches: list[int] = []
        try:
            # What is in doubt is not to count as forced to disk before the master was asked.
            if self._doubt is None:
                self.flush_log()
        except BaseException:
            self.store.abandon()
            raise

    def _opened(self) -> WritableStore:
        """The store, brought in order. Where newer records stand behind a hole, and all of that was
        not forced to disk, the log ends before it: the master still has what was there."""
        while True:
            try:
                return WritableStore(
                    self.root,
                    self.config,
                    create=True,
                    clock=self._clock,
                    progress=self._progress,
                )
            except DamagedStore as error:
                offset = error.values.get("physical_offset")
                if self._doubt is None or not isinstance(offset, int):
                    raise
                if not self._doubt.covers(offset) or not self._is_own(self._doubt):
                    raise
                cut(self.root, self.config, offset)
                self._doubt = self._doubt.before(offset)

    @property
    def end(self) -> int:
        return self.store.commit_log.write_offset

    @property
    def stored(self) -> int:
        return self.store.commit_log.flushed_where

    @property
    def is_in_doubt(self) -> bool:
        """Whether its end may be what a loss of power has left, until it has joined its master."""
        return self._doubt is not None

    @property
    def is_empty(self) -> bool:
        return not self.store.commit_log.files.entries

    def append(self, piece: LogPiece) -> None:
        """Appends and dispatches. :raises CannotWrite: the disk failed, or is full."""
        self.store.writer.append_piece(piece)
        self.records += piece.records
        self.bytes += len(piece.data)
        self.mismatches += piece.mismatches

    def flush_log(self) -> None:
        """Everything that was appended is on disk. :raises CannotWrite: the disk failed."""
        self.store.flush_structures(("commitlog",))

    def write(self, file: ConfigFile) -> bool:
        """Writes a file of ``config/``, unless it says the same; whether it was written.

        :raises SymbolicLinkRefused, StoreReadOnly, CannotWrite: it is as it was.
        """
        path = self.root / CONFIG / file.name
        if path.is_file() and path.read_bytes() == file.text.encode():
            return False
        persist(self.root, file.name, file.text)
        return True

    def shorten(self, keep: Keep, master_start: int) -> Shortened | None:
        """Takes away what is not to be kept, with the store closed, as cleanly as by a stop: a kill
        leaves a shorter copy. None: there is nothing.

        :raises RmqctlError: the disk refuses, or another program has the store.
        """
        removals = keep.removals(self.store, master_start, self._clock())
        if not removals:
            return None
        self.store.close()
        lock = StoreLock(self.root)
        try:
            retention.remove(removals, lambda one: None)
        finally:
            lock.release()
        self.store = self._opened()
        size = sum(one.allocated_bytes for one in removals)
        return Shortened(self.store.min_offset, len(removals), size)

    def join(self, master: tuple[int, int], most_message: int = 0) -> Dialogue[Join]:
        """Asks the master, whose log has that range, for the record that the copy has last, and
        says how to go on.

        :raises CopyDiffers: the master has another one, or ends before.
        :raises CopyTooOld: the master's log begins behind the copy's end.
        :raises CopyUnproven: it has nothing that the copy has.
        :raises MasterNotCopied: no log of this file size begins where the master's does.
        """
        start, end = master
        file_size = self.store.commit_log.file_size
        if self.is_empty:
            self._doubt = None
            if start % file_size:
                # Its files are named by their places, all of one size; frames and blanks are judged
                # by that, and so is where the first file of the copy begins.
                reason = (
                    f"its log begins at {start}, which is no multiple of {file_size}, the size of "
                    "its files (mappedFileSizeCommitLog)"
                )
                raise MasterNotCopied(address=THE_MASTER, reason=reason)
            return join_at(start, master, file_size, most_message)
        if self.end > end:
            reason = f"it ends at {self.end}, and the master's log at {end}"
            raise CopyDiffers(path=str(self.root), reason=reason, physical_offset=end)
        if self.end < start:
            raise CopyTooOld(path=str(self.root), end=self.end, start=start)
        proof = self._proof(start)
        if proof is None and self.end > self.store.min_offset:
            raise CopyUnproven(path=str(self.root), end=self.end, start=start)
        if proof is not None and not (yield from self._is_masters(*proof)):
            reason = "the master has not that record there"
            raise CopyDiffers(path=str(self.root), reason=reason, physical_offset=proof[0][0])
        yield from self._dispel(start)
        self.flush_log()
        return join_at(self.end, master, file_size, most_message)

    def _proof(self, start: int) -> tuple[tuple[int, int], int] | None:
        """What tells whether a master, whose log begins at ``start``, is the one of this copy: as
        of :meth:`~rmqctl.replicate.doubt.Doubt.proof`. Of a log that is sure that is the newest
        record with a unit, else the first one of the newest file."""
        if self._doubt is not None:
            return self._doubt.proof(start)
        last = max(self.store.newest_units(), default=None)
        if last is not None and last[0] >= start:
            return last, last[1]
        for entry in reversed(self.store.commit_log.files.entries):
            offset = entry.file_from_offset
            is_there = start <= offset < self.end
            first = self.store.commit_log.find_record(offset) if is_there else None
            if first is not None:
                return (offset, first.total_size), first.total_size
        return None

    def _is_masters(self, place: tuple[int, int], size: int) -> Dialogue[bool]:
        """Whether the master has the record at (physical offset, size), in its first ``size``
        bytes."""
        theirs = yield from record_at(place[0])
        mapped, position = self.store.commit_log.locate(place[0])
        own = mapped.read(position, place[1])
        if size < place[1]:
            return theirs is not None and theirs[:size] == own[:size]
        return theirs == own

    def _dispel(self, start: int) -> Dialogue[None]:
        """Compares what is in doubt, and cuts the log where the master has something else."""
        for place in self._doubt.doubtful if self._doubt is not None else ():
            is_here = start <= place[0] < self.end
            if is_here and not (yield from self._is_masters(place, place[1])):
                self.store.abandon()
                cut(self.root, self.config, place[0])
                self.store = self._opened()
                break
        self._doubt = None

    def flush(self) -> None:
        """Log, queues and index are on disk, and the checkpoint says so."""
        self.store.flush()

    def close(self) -> None:
        """A clean stop: nothing is cut. :raises CannotWrite: the disk failed."""
        self.store.close()

    def abandon(self) -> None:
        """Closes as a kill would."""
        self.store.abandon()
