"""The copy: a store to which nothing but its master's log is written.

It is opened, and brought in order after a kill, as every store that is written. Before anything is
appended, the master is asked for a record that proves that this is a copy of its store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import locked
from rmqctl.engine.log.progress import Progress
from rmqctl.engine.messagestore import MessageStore, WritableStore, system_clock
from rmqctl.engine.record.pieces import LogPiece
from rmqctl.engine.services import retention
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.brokerjson import CONFIG, is_of_backup
from rmqctl.engine.state.persist import persist
from rmqctl.errors import DamagedStore
from rmqctl.replicate.doubt import Doubt, cut, doubt_of
from rmqctl.replicate.errors import CopyDiffers, CopyTooOld, CopyUnproven, MasterNotCopied
from rmqctl.replicate.events import Shortened
from rmqctl.replicate.follower import Join, join_at
from rmqctl.replicate.keeping import Keep
from rmqctl.replicate.questions import THE_MASTER, ConfigFile, Dialogue, log_range, record_at


def is_own(root: Path, config: MessageStoreConfig, doubt: Doubt) -> Dialogue[bool]:
    """Whether a master has the record that proves that a store is a copy of its own. Nobody has the
    store open."""
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
    """The copy in ``root``, whose lock is held; it is made when there is none.

    The copy has the log up to ``end``. Up to ``stored`` that is on disk, unless the copy
    :attr:`is_in_doubt`. Its files are made by ``config``.

    :param is_own: says whether the master has the record that proves that this is a copy of its
        store. It is asked before records behind a hole are taken away.
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
        # No transient pool: only what is on disk is reported to the master.
        self.config = replace(config, transient_store_pool_enable=False, broker_role="ASYNC_MASTER")
        self._clock, self._progress, self._is_own = clock, progress, is_own
        self.root = root
        #: The records that a loss of power may have damaged; None: the copy was closed cleanly, or
        #: has been compared with its master.
        self._doubt: Doubt | None = None
        if (root / paths.ABORT).exists():
            self._doubt = doubt_of(root, self.config)
        self.store = self._opened()
        #: Records and bytes that were appended here.
        self.records = self.bytes = 0
        #: Physical offsets of records whose body is not what was stored: the master's, too.
        self.mismatches: list[int] = []
        try:
            # Records in doubt must not count as forced to disk before the master was asked.
            if self._doubt is None:
                self.flush_log()
        except BaseException:
            self.store.abandon()
            raise

    def _opened(self) -> WritableStore:
        """Opens the store, and brings it in order. Where newer records are behind a hole, and none
        of them was forced to disk, the log is cut before the hole: the master still has them."""
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
        """Whether a loss of power may have damaged its end. True until it has joined its master."""
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
        """Forces everything that was appended to disk. :raises CannotWrite: the disk failed."""
        self.store.flush_structures(("commitlog",))

    def write(self, file: ConfigFile) -> bool:
        """Writes a file of ``config/``, unless it has the same content; returns whether it did.

        :raises SymbolicLinkRefused, StoreReadOnly, CannotWrite: the file is as it was.
        """
        path = self.root / CONFIG / file.name
        if path.is_file() and path.read_bytes() == file.text.encode():
            return False
        persist(self.root, file.name, file.text, keep_backup=is_of_backup(self.root, file.name))
        return True

    def shorten(self, keep: Keep, master_start: int) -> Shortened | None:
        """Deletes the files that are not to be kept; None: there are none. The store is closed
        cleanly for it, and opened again, so that a kill leaves a shorter copy and no damage.

        :raises RmqctlError: the disk refuses, or another program has opened the store.
        """
        removals = keep.removals(self.store, master_start, self._clock())
        if not removals:
            return None
        self.store.close()
        with locked(self.root):
            retention.remove(removals, lambda one: None)
        self.store = self._opened()
        size = sum(one.allocated_bytes for one in removals)
        return Shortened(self.store.min_offset, len(removals), size)

    def join(self, master: tuple[int, int], most_message: int = 0) -> Dialogue[Join]:
        """Asks the master for the newest record that proves this a copy, and says where to go on.

        :param master: where the master's log begins and ends.
        :raises CopyDiffers: the master has another record there, or its log ends before the copy's.
        :raises CopyTooOld: the master's log begins behind the copy's end.
        :raises CopyUnproven: the master has deleted everything that the copy has.
        :raises MasterNotCopied: the master's log does not begin with a file of its file size.
        """
        start, end = master
        file_size = self.store.commit_log.file_size
        if self.is_empty:
            self._doubt = None
            if start % file_size:
                # Files are named by their offsets, and all have one size: by it frames and blanks
                # are judged, and it says where the first file of the copy begins.
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
        """The record that tells whether a master, whose log begins at ``start``, is the one of this
        copy, as :meth:`~rmqctl.replicate.doubt.Doubt.proof` gives it. Without doubt it is the
        newest record with a unit, else the first record of the newest file."""
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
        """Whether the first ``size`` bytes of the record at (physical offset, size) are the
        master's, too."""
        theirs = yield from record_at(place[0])
        mapped, position = self.store.commit_log.locate(place[0])
        own = mapped.read(position, place[1])
        if size < place[1]:
            return theirs is not None and theirs[:size] == own[:size]
        return theirs == own

    def _dispel(self, start: int) -> Dialogue[None]:
        """Compares the records in doubt, and cuts the log at the first that the master has
        otherwise."""
        for place in self._doubt.doubtful if self._doubt is not None else ():
            is_here = start <= place[0] < self.end
            if is_here and not (yield from self._is_masters(place, place[1])):
                self.store.abandon()
                cut(self.root, self.config, place[0])
                self.store = self._opened()
                break
        self._doubt = None

    def flush(self) -> None:
        """Forces log, queues and index to disk, and advances the checkpoint."""
        self.store.flush()

    def close(self) -> None:
        """Closes the copy cleanly. :raises CannotWrite: the disk failed."""
        self.store.close()

    def abandon(self) -> None:
        """Closes the copy without flushing it, as a kill would."""
        self.store.abandon()
