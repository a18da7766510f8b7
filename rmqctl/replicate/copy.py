"""The copy: a store that is written by its master's log alone.

It is opened, and brought in order after a kill, as every store that is written. What is asked of
the master before anything is appended says whether this is a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rmqctl.engine.log.progress import Progress
from rmqctl.engine.messagestore import WritableStore, system_clock
from rmqctl.engine.record.pieces import LogPiece
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.brokerjson import CONFIG
from rmqctl.engine.state.persist import persist
from rmqctl.replicate.errors import CopyDiffers, CopyTooOld
from rmqctl.replicate.follower import Join, join_at
from rmqctl.replicate.questions import ConfigFile, Dialogue, record_at


class Copy:
    """A copy below ``root``, whose lock is held; made when there is none.

    ``end`` is up to where it has the log, ``stored`` up to where that is on disk.

    :raises RmqctlError: as of :class:`~rmqctl.engine.messagestore.WritableStore`.
    """

    def __init__(
        self,
        root: Path,
        config: MessageStoreConfig,
        *,
        clock: Callable[[], int] = system_clock,
        progress: Progress = lambda done, total: None,
    ) -> None:
        # What is appended goes to the files: what is reported has to be on disk anyhow.
        usual = replace(config, transient_store_pool_enable=False, broker_role="ASYNC_MASTER")
        self.store = WritableStore(root, usual, create=True, clock=clock, progress=progress)
        self.root = root
        #: Records and bytes that were appended here.
        self.records = self.bytes = 0
        #: Physical offsets of records whose body is not what was stored: the master's, too.
        self.mismatches: list[int] = []
        try:
            self.flush_log()
        except BaseException:
            self.store.abandon()
            raise

    @property
    def end(self) -> int:
        return self.store.commit_log.write_offset

    @property
    def stored(self) -> int:
        return self.store.commit_log.flushed_where

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

    def join(self, master: tuple[int, int], most_message: int = 0) -> Dialogue[Join]:
        """Asks the master, whose log has that range, for the record that the copy has last, and
        says how to go on.

        :raises CopyDiffers: the master has another one, or ends before.
        :raises CopyTooOld: the master's log begins behind the copy's end.
        """
        start, end = master
        file_size = self.store.commit_log.file_size
        if self.is_empty:
            return join_at(start, master, file_size, most_message)
        if self.end > end:
            reason = f"it ends at {self.end}, and the master's log at {end}"
            raise CopyDiffers(path=str(self.root), reason=reason, physical_offset=end)
        if self.end < start:
            raise CopyTooOld(path=str(self.root), end=self.end, start=start)
        offset, size = max(self.store.newest_units(), default=(-1, 0))
        if offset >= start:
            theirs = yield from record_at(offset)
            mapped, position = self.store.commit_log.locate(offset)
            if theirs != mapped.read(position, size):
                reason = "the master has another record there" if theirs else "it has none there"
                raise CopyDiffers(path=str(self.root), reason=reason, physical_offset=offset)
        return join_at(self.end, master, file_size, most_message)

    def flush(self) -> None:
        """Log, queues and index are on disk, and the checkpoint says so."""
        self.store.flush()

    def close(self) -> None:
        """A clean stop: nothing is cut. :raises CannotWrite: the disk failed."""
        self.store.close()

    def abandon(self) -> None:
        """Closes as a kill would."""
        self.store.abandon()
