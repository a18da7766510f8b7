"""info: the store at a glance, without walking over the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from formats.layouts import TAIL
from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import is_locked
from rmqctl.engine.files.shown import shown
from rmqctl.engine.record.record import Record
from rmqctl.engine.services.anyqueue import queue_directories
from rmqctl.engine.state import laterversions
from rmqctl.engine.state.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from rmqctl.engine.files.filequeue import FileEntry
    from rmqctl.engine.files.paths import QueueDirectory
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.rows.structures import StoreRow


def info(store: MessageStore) -> StoreRow:
    """One row ``store``: files, sizes, offsets, state, and what rmqctl does not understand."""
    log, index, end = store.commit_log.files, store.index, store.obstacle
    directories, unreadable = _queues(store)
    checkpoint = read_checkpoint(store.root / paths.CHECKPOINT)
    row: StoreRow = {
        "type": "store",
        "path": str(store.root),
        "commitlog_files": len(log.entries),
        "commitlog_file_size": store.commit_log.file_size,
        "min_physical_offset": store.min_offset,
        "max_physical_offset": store.max_offset,
        "oldest_store_timestamp": _timestamp_at(store, store.min_offset),
        "newest_store_timestamp": end.store_timestamp or None,
        "damage_at": None if end.obstacle is None else end.obstacle.physical_offset,
        "topics": len({where.topic for where in directories}),
        "queues": len(directories),
        "consumequeue_file_size": store.queues.file_size,
        "index_files": len(index.paths),
        "max_hash_slot_num": index.geometry.hash_slot_num,
        "max_index_num": index.geometry.index_num,
        "abort": store.had_abort,
        "locked": is_locked(store.root),
        "checkpoint_physic_msg_timestamp": checkpoint and checkpoint.physic_msg_timestamp,
        "checkpoint_logics_msg_timestamp": checkpoint and checkpoint.logics_msg_timestamp,
        "checkpoint_index_msg_timestamp": checkpoint and checkpoint.index_msg_timestamp,
        "allocated_bytes": allocated_bytes(store.root, store.config),
        "foreign": [shown(store.root, path) for path in log.foreign]
        + [f"index/{name}" for name in index.foreign],
        "irregular": irregular_files(store),
        "not_understood": [*not_understood(store), *unreadable],
    }
    if checkpoint is not None and laterversions.is_of_5(store.root):
        row["checkpoint_master_flushed_offset"] = checkpoint.master_flushed_offset
        row["checkpoint_confirm_phy_offset"] = checkpoint.confirm_phy_offset
    _add_controller(store.root, row)
    _add_dledger(store, row)
    return row


def _queues(store: MessageStore) -> tuple[list[QueueDirectory], list[str]]:
    """The queues; where a database cannot be read none, and why."""
    if store.queues.in_files:
        return list(queue_directories(store)), []
    from rmqctl.engine.state.rocksdb import RocksDBUnreadable

    try:
        store.newest_units()
        return list(queue_directories(store)), []
    except RocksDBUnreadable as error:
        name = store.queues.directory.name
        return [], [f"{name}: queues in RocksDB (5.x), which cannot be read: {error.reason}"]


def _add_controller(root: Path, row: StoreRow) -> None:
    """Adds what a broker in controller mode says of itself."""
    from rmqctl.engine.state.controller import IDENTITY_FILE, read_identity, store_epochs

    if (root / IDENTITY_FILE).exists():
        identity = read_identity(root / IDENTITY_FILE)
        said = None if identity is None else "#".join(map(str, identity))
        row["broker_identity"] = said
    epochs = store_epochs(root)
    if epochs is not None:
        row["epochs"] = [f"{one.epoch} from {one.start_offset}" for one in epochs.epochs]


def _add_dledger(store: MessageStore, row: StoreRow) -> None:
    """Adds what a member of a DLedger group says of itself."""
    from rmqctl.engine.settings.logdirectories import log_directories
    from rmqctl.engine.state.dledger import dledger_state

    data = log_directories(store.root, store.config).dledger
    if data is not None:
        state = dledger_state(data.parent)
        row["dledger_log"] = str(data.relative_to(store.root))
        row["dledger_term"] = state.current_term
        row["dledger_end_index"] = state.end_index
        row["dledger_committed_index"] = state.committed_index


def _timestamp_at(store: MessageStore, physical_offset: int) -> int | None:
    if store.commit_log.files.index_of(physical_offset) < 0:
        return None
    entry = store.commit_log.entry_at(physical_offset)
    return entry.store_timestamp if isinstance(entry, Record) else None


def irregular_files(store: MessageStore, files: list[FileEntry] | None = None) -> list[str]:
    """The files, among some or all of the store, whose length differs from that of their kind; also
    anything that stands in place of a file.

    Reading takes what is there of them. A broker does not start with them, and writing is refused.
    """
    sizes = {paths.CONSUME_QUEUE: store.queues.file_size}
    found = []
    for entry in store.irregular if files is None else files:
        path = shown(store.root, entry.path)
        expected = sizes.get(path.partition("/")[0], store.commit_log.file_size)
        is_file = entry.size >= 0
        what = f"{entry.size} bytes, not {expected}" if is_file else "not a regular file"
        found.append(f"{path}: {what}")
    return found


def not_understood(store: MessageStore) -> list[str]:
    """The parts of a store that come from versions or options whose files rmqctl does not read."""
    read = "" if store.queues.in_files else store.queues.directory.name
    names = [
        f"{name}: {what}" for name, what in laterversions.not_understood(store.root) if name != read
    ]
    newest = store.newest_units() if store.queues.in_files else []
    for offset in {store.min_offset, *(offset for offset, _ in newest)}:
        entry = store.commit_log.find_record(offset)
        if isinstance(entry, Record) and (tail := TAIL[entry.magic_code]).what:
            return [*names, f"commitlog: records with {tail.what}s ({tail.since} and later)"]
    return names


def allocated_bytes(root: Path, config: MessageStoreConfig) -> int:
    """Disk space of the files of a store, with its log wherever that is: holes do not count. Links
    are not followed. Raises as :func:`~rmqctl.operations.look.disk.disk_usage`."""
    from rmqctl.operations.look.disk import disk_usage

    return sum(row["allocated_bytes"] for row in disk_usage(root, config))
