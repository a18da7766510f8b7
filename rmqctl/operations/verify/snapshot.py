"""The premises of the checks of a store, taken once before they begin: plain values, which go to
any process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

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
from rmqctl.engine.state.laterversions import batch_topics, is_of_5
from rmqctl.errors import CannotRead, FileLengthContradiction

#: A physical offset behind every other one.
_NOWHERE = LONG_MAX


@dataclass(frozen=True)
class Snapshot:
    """Sizes of a store's files (bytes), and how far its log and queues go (physical offsets).

    ``dispatched_to`` is where the record of the newest unit ends, -1 without units. Records from
    ``waiting_from`` on need not have units yet; None: all must have theirs. The log begins at
    ``log_min``. ``is_index_unusual``: the geometry in ``config`` is what the index files prove.
    ``batch_topics`` are those whose queues are batch queues (5.x).
    """

    root: str
    config: MessageStoreConfig
    log_file_size: int
    queue_file_size: int
    unclean: bool
    is_of_5: bool
    dispatched_to: int
    waiting_from: int | None
    log_min: int
    is_index_unusual: bool
    batch_queue_file_size: int
    batch_topics: frozenset[str]

    @property
    def path(self) -> Path:
        return Path(self.root)

    @property
    def has_log(self) -> bool:
        """Whether there is a file of the log."""
        return self.log_min != _NOWHERE

    def dispatcher(self) -> Dispatcher:
        """What says which units and keys records have."""
        return Dispatcher(self.config, self.batch_topics)

    def open_log(self) -> CommitLog:
        """The log as its files are now."""
        return open_commit_log(self.path, self.config, self.log_file_size)

    @staticmethod
    def of(root: Path, config: MessageStoreConfig) -> Snapshot:
        """Looks at a store.

        :raises FileLengthContradiction: a ``broker.conf`` says otherwise than the files.
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
        dispatched_to = max(newest_unit_end(root, queue_size), _newest_batch_end(root, batch_size))
        log = open_commit_log(root, config, log_size)
        return Snapshot(
            str(root.absolute()),
            config,
            log_size,
            queue_size,
            unclean,
            is_of_5(root),
            dispatched_to,
            _waiting_from(root, log, config, dispatched_to, unclean=unclean),
            log.min_offset if log.files.entries else _NOWHERE,
            geometry != stated,
            batch_size,
            _batch_topics(root),
        )


def _waiting_from(
    root: Path, log: CommitLog, config: MessageStoreConfig, dispatched_to: int, *, unclean: bool
) -> int | None:
    """Physical offset from which on records need no unit yet: the next start dispatches them."""
    if not unclean or log.files.framed:
        # A start with a log of DLedger reads none of it anew (``DLedgerCommitLog#recover``).
        return dispatched_to if dispatched_to >= 0 else None
    try:
        checkpoint = read_checkpoint(root / paths.CHECKPOINT) or Checkpoint()
    except CannotRead:  # The check of the checkpoint says so.
        checkpoint = Checkpoint()
    return scan_start(log, checkpoint, config).physical_offset


def _batch_topics(root: Path) -> frozenset[str]:
    """Topics with batch queues; of one that has queues of the other kind alone, with which a broker
    does not start, these are checked."""
    return frozenset(
        topic
        for topic in batch_topics(root)
        if (root / paths.BATCH_CONSUME_QUEUE / topic).is_dir()
        or not (root / paths.CONSUME_QUEUE / topic).is_dir()
    )


def _newest_batch_end(root: Path, file_size: int) -> int:
    """:func:`newest_unit_end` of batch queues."""
    newest = -1
    for where in paths.queue_directories(root / paths.BATCH_CONSUME_QUEUE):
        try:
            queue = BatchConsumeQueue(where.path, where.topic, where.queue_id, file_size)
        except CannotRead:  # The check of the directories says so.
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
