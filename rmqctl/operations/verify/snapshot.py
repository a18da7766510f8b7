"""What the checks of a store assume. It is read once, before they begin. These are plain values,
which can be sent to other processes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from formats.constants import LONG_MAX
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files import paths
from rmqctl.engine.files.paths import queue_paths
from rmqctl.engine.index.geometry import known_geometry
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
from rmqctl.engine.queue.consumequeue import ConsumeQueue
from rmqctl.engine.queue.ends import queue_end
from rmqctl.engine.settings.filesizes import (
    batch_queue_file_size,
    commit_log_file_size,
    consume_queue_file_size,
)
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.start.plan import scan_start
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint
from rmqctl.engine.state.laterversions import (
    batch_topics,
    has_doubtful_queues,
    indexes_tags,
    is_of_5,
    queues_in_rocksdb,
)
from rmqctl.errors import CannotRead, FileLengthContradiction

#: A physical offset behind every other one.
_NOWHERE = LONG_MAX


@dataclass(frozen=True)
class Snapshot:
    """Sizes of a store's files (bytes), and how far its log and queues go (physical offsets).

    ``dispatched_to`` is where the record of the newest unit ends; -1 without units. Records from
    ``waiting_from`` on need not have units yet; None: all must have them. The log begins at
    ``log_min``. ``unclean`` says that ``abort`` exists. ``is_index_unusual`` says that the
    geometry in ``config`` is not the stated one, but one that the index files prove.

    ``indexes_tags`` says that messages get an index item of their tags, as since 5.4.
    ``batch_topics`` are the topics with batch queues (5.x), if queues in files count. ``rocksdb``
    is the path, relative to the store, of the database with the queues, if its queues are read.
    ``not_compared`` is why the queues that count cannot be compared with the log; None if they can.
    ``unreadable`` is what RocksDB says of a database that it cannot read.
    """

    root: str
    config: MessageStoreConfig
    log_file_size: int
    queue_file_size: int
    unclean: bool
    is_of_5: bool
    indexes_tags: bool
    dispatched_to: int
    waiting_from: int | None
    log_min: int
    is_index_unusual: bool
    batch_queue_file_size: int
    batch_topics: frozenset[str]
    rocksdb: str | None
    not_compared: str | None
    unreadable: str | None

    @property
    def path(self) -> Path:
        return Path(self.root)

    @property
    def compares_files(self) -> bool:
        """Whether the queues that count are those in files."""
        return self.rocksdb is None and self.not_compared is None

    @property
    def has_log(self) -> bool:
        """Whether there is a file of the log."""
        return self.log_min != _NOWHERE

    def dispatcher(self) -> Dispatcher:
        """The dispatcher, which derives units and keys from records. In any store of 5.x tags are
        keys that may have items: it may be a copy without what shows the newest version."""
        return Dispatcher(self.config, self.batch_topics, indexes_tags=self.is_of_5)

    def open_log(self) -> CommitLog:
        """The log as its files are now."""
        return open_commit_log(self.path, self.config, self.log_file_size)

    def begun(self, log: CommitLog) -> Snapshot:
        """The snapshot of a store whose log was opened later, and may begin later: retention may
        have removed files meanwhile."""
        return replace(self, log_min=log.min_offset) if log.min_offset > self.log_min else self

    def dispatched_again_from(self, *, unclean: bool) -> int:
        """The physical offset from which the next start of a broker dispatches, and so indexes:
        behind the record of the newest unit, and after a crash (``unclean``) from where its
        recovery begins to read, by the checkpoint as it is now. No start indexes records before
        that."""
        behind = self.dispatched_to if self.dispatched_to >= 0 else _NOWHERE
        with closing(self.open_log()) as log:
            again = _waiting_from(self.path, log, self.config, self.dispatched_to, unclean=unclean)
        return behind if again is None else min(behind, again)

    @staticmethod
    def of(root: Path, config: MessageStoreConfig, *, reads_rocksdb: bool = False) -> Snapshot:
        """Takes the snapshot of a store.

        :param reads_rocksdb: whether queues in RocksDB are checked, too.
        :raises FileLengthContradiction: a ``broker.conf`` contradicts the lengths of the files.
        """
        stated = config.index_geometry
        geometry = known_geometry(root / paths.INDEX, config)
        config = replace(
            config, max_hash_slot_num=geometry.hash_slot_num, max_index_num=geometry.index_num
        )
        log_size = commit_log_file_size(root, config)
        queue_size = consume_queue_file_size(root, config)
        unclean = (root / paths.ABORT).exists()
        batch_size = batch_queue_file_size(root, config)
        rocksdb = _RocksDB.of(root, config, reads_rocksdb)
        dispatched_to = rocksdb.built_to
        if rocksdb.name is None:
            dispatched_to = max(
                newest_unit_end(root, queue_size), newest_batch_end(root, batch_size)
            )
        log = open_commit_log(root, config, log_size)
        waiting_from: int | None = dispatched_to
        if rocksdb.name is None:
            waiting_from = _waiting_from(root, log, config, dispatched_to, unclean=unclean)
        return Snapshot(
            str(root.absolute()),
            config,
            log_size,
            queue_size,
            unclean,
            is_of_5(root),
            indexes_tags(root),
            dispatched_to,
            waiting_from,
            log.min_offset if log.files.entries else _NOWHERE,
            geometry != stated,
            batch_size,
            # With RocksDB no topic has queues in files (``RocksDBConsumeQueueStore``).
            _batch_topics(root) if rocksdb == _RocksDB() else frozenset(),
            rocksdb.name,
            rocksdb.not_compared,
            rocksdb.unreadable,
        )


class _RocksDB(NamedTuple):
    """What can be checked of queues in RocksDB. All fields are their defaults if a store has its
    queues in files."""

    name: str | None = None
    not_compared: str | None = None
    unreadable: str | None = None
    #: The physical offset from which a start dispatches; -1: the database has none.
    built_to: int = -1

    @classmethod
    def of(cls, root: Path, config: MessageStoreConfig, reads: bool) -> _RocksDB:
        if has_doubtful_queues(root, config):
            return cls(not_compared="in files and in RocksDB, and no storeType says which count")
        name = queues_in_rocksdb(root, config)
        if name is None:
            return cls()
        from rmqctl.engine.state.rocksdb import RocksDBUnreadable, is_readable

        if not reads:
            return cls(not_compared="in RocksDB, which verify compares in its own process only")
        if not is_readable():
            return cls(not_compared="in RocksDB, and the package rocksdict is not there")
        from rmqctl.engine.state.rocksdbqueues import QueueDatabase

        try:
            with closing(QueueDatabase(root / name)) as database:
                for _ in database.places():
                    pass
                return cls(name, built_to=database.built_to())
        except RocksDBUnreadable as error:
            return cls(not_compared="in RocksDB, and unreadable", unreadable=str(error.reason))


def _waiting_from(
    root: Path, log: CommitLog, config: MessageStoreConfig, dispatched_to: int, *, unclean: bool
) -> int | None:
    """The physical offset from which on records need no unit yet, because the next start dispatches
    them; None: all records must have units."""
    if not unclean or log.files.framed:
        # With a DLedger log a start dispatches only records behind the newest unit
        # (``DLedgerCommitLog#recover``).
        return dispatched_to if dispatched_to >= 0 else None
    try:
        checkpoint = read_checkpoint(root / paths.CHECKPOINT) or Checkpoint()
    except CannotRead:  # The check of the checkpoint reports it.
        checkpoint = Checkpoint()
    return scan_start(log, checkpoint, config).physical_offset


def _batch_topics(root: Path) -> frozenset[str]:
    """The topics with batch queues. A topic that is configured for batch queues, but has ordinary
    queues alone, is not one of them: a broker does not start with it, and its ordinary queues are
    checked."""
    return frozenset(
        topic
        for topic in batch_topics(root)
        if (root / paths.BATCH_CONSUME_QUEUE / topic).is_dir()
        or not (root / paths.CONSUME_QUEUE / topic).is_dir()
    )


def newest_batch_end(root: Path, file_size: int) -> int:
    """:func:`newest_unit_end` for batch queues."""
    newest = -1
    for where in paths.queue_directories(root / paths.BATCH_CONSUME_QUEUE):
        try:
            queue = BatchConsumeQueue(where.path, where.topic, where.queue_id, file_size)
        except CannotRead:  # The check of the directories reports it.
            continue
        newest = max(newest, queue.max_physical_offset)
        queue.close()
    return newest


def newest_unit_end(root: Path, file_size: int) -> int:
    """Where the record of the newest unit of all queues ends; -1 without units.

    A broker starts dispatching there (``DefaultMessageStore#start``).
    """
    newest = -1
    for topic, queue_id, path in queue_paths(root / paths.CONSUME_QUEUE):
        end = queue_end(topic, queue_id, path, file_size)
        if end is not None:
            if end.last is not None and not end.last.is_pre_blank:
                newest = max(newest, end.last.physical_offset + end.last.size)
            continue
        try:
            queue = ConsumeQueue(Path(path), topic, queue_id, file_size)
        except (FileLengthContradiction, CannotRead):
            continue
        newest = max(newest, queue.max_physical_offset)
        queue.close()
    return newest
