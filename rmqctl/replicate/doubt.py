"""What a loss of power may have left at the end of a copy's log: records that were never forced to
disk, some of them without their last bytes, and nothing in the format tells.

A copy has a way out that no other store has: its master still knows. What is in doubt is compared
with it, record by record, and cut off from the first one on that is another.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.log.openlog import open_log_writer
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.filesizes import commit_log_file_size
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint

#: Bytes of a record's beginning in which those of two stores differ: times, hosts, CRC.
_HEAD_SIZE = 76


class Doubt(NamedTuple):
    """``sure`` is the last record that was forced to disk, None without one; ``doubtful`` are those
    behind it, in order. Each is (physical offset, size)."""

    sure: tuple[int, int] | None
    doubtful: list[tuple[int, int]]

    def proof(self, start: int) -> tuple[tuple[int, int], int] | None:
        """What tells whether a master, whose log begins at ``start``, is the one of this copy: a
        place, and how many bytes of it have to be the same. The last record that is sure; else the
        first one at all, of which a loss of power has taken no more than its end. None: nothing
        does."""
        if self.sure is not None and self.sure[0] >= start:
            return self.sure, self.sure[1]
        first = next((one for one in self.doubtful if one[0] >= start), None)
        return None if first is None else (first, _HEAD_SIZE)

    def before(self, physical_offset: int) -> Doubt:
        """What is in doubt of a log that was cut there."""
        return Doubt(self.sure, [one for one in self.doubtful if one[0] < physical_offset])

    def covers(self, physical_offset: int) -> bool:
        """Whether everything from an offset on is in doubt."""
        return self.sure is None or physical_offset >= sum(self.sure)


def doubt_of(root: Path, config: MessageStoreConfig) -> Doubt:
    """What is in doubt of a store that was not closed cleanly: records that are not older than what
    its checkpoint says is on disk."""
    if not (root / paths.COMMIT_LOG).is_dir():
        return Doubt(None, [])
    checkpoint = read_checkpoint(root / paths.CHECKPOINT) or Checkpoint()
    sure: tuple[int, int] | None = None
    doubtful: list[tuple[int, int]] = []
    with MessageStore(root, config) as store:
        for entry in store.commit_log.walk(_start(store, checkpoint.physic_msg_timestamp)):
            if not isinstance(entry, Record):
                continue
            place = entry.physical_offset, entry.total_size
            if doubtful or entry.store_timestamp >= checkpoint.physic_msg_timestamp:
                doubtful.append(place)
            else:
                sure = place
    return Doubt(sure, doubtful)


def _start(store: MessageStore, timestamp: int) -> int:
    """The newest file whose first record is older than a store time (ms)."""
    for entry in reversed(store.commit_log.files.entries):
        first = store.commit_log.find_record(entry.file_from_offset)
        if first is not None and first.store_timestamp < timestamp:
            return entry.file_from_offset
    return store.min_offset


def cut(root: Path, config: MessageStoreConfig, physical_offset: int) -> None:
    """Ends the log of a store that nobody has open before an offset; its next start, which is not a
    clean one, brings queues and index there.

    :raises OSError, CannotWrite: the disk failed; doing it again ends it.
    """
    lock = StoreLock(root)
    try:
        log = open_log_writer(root, config, commit_log_file_size(root, config))
        try:
            mapped, position = log.locate(physical_offset)
            log.files.remove_from(mapped.file_from_offset + mapped.size)
            mapped.clear(position)
            mapped.flush()
        finally:
            log.close()
    finally:
        lock.release()
