"""Records at the end of a copy's log that a loss of power may have damaged: they were never forced
to disk, some may lack their last bytes, and nothing in the format tells which.

Other than any other store, a copy can ask its master. The records in doubt are compared with the
master's one by one, and the log is cut at the first that differs.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import locked
from rmqctl.engine.log.openlog import open_log_writer
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.filesizes import commit_log_file_size
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint

#: So many bytes at a record's beginning tell the records of two stores apart: times, hosts, CRC.
_HEAD_SIZE = 76


class Doubt(NamedTuple):
    """``sure`` is the last record that was forced to disk (None: there is none), ``doubtful`` are
    the records after it, in order. Each is given by (physical offset, size)."""

    sure: tuple[int, int] | None
    doubtful: list[tuple[int, int]]

    def proof(self, start: int) -> tuple[tuple[int, int], int] | None:
        """The record that tells whether a master, whose log begins at ``start``, is the one of this
        copy, and how many of its first bytes have to be the same. It is the last sure record; else
        the first doubtful one, of which a loss of power has taken its end at most. None: no record
        tells."""
        if self.sure is not None and self.sure[0] >= start:
            return self.sure, self.sure[1]
        first = next((one for one in self.doubtful if one[0] >= start), None)
        return None if first is None else (first, _HEAD_SIZE)

    def before(self, physical_offset: int) -> Doubt:
        """The doubt that is left after the log was cut at a physical offset."""
        return Doubt(self.sure, [one for one in self.doubtful if one[0] < physical_offset])

    def covers(self, physical_offset: int) -> bool:
        """Whether everything from a physical offset on is in doubt."""
        return self.sure is None or physical_offset >= sum(self.sure)


def doubt_of(root: Path, config: MessageStoreConfig) -> Doubt:
    """What is in doubt in a store that was not closed cleanly: records that are not older than the
    time up to which the log is on disk by the checkpoint."""
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
    """Where the newest file begins whose first record is older than a store time (ms)."""
    for entry in reversed(store.commit_log.files.entries):
        first = store.commit_log.find_record(entry.file_from_offset)
        if first is not None and first.store_timestamp < timestamp:
            return entry.file_from_offset
    return store.min_offset


def cut(root: Path, config: MessageStoreConfig, physical_offset: int) -> None:
    """Cuts the log of a store at a physical offset; nobody has the store open. Its next start, as
    after a crash, cuts queues and index there.

    :raises OSError, CannotWrite: the disk failed; the cut can be done again.
    """
    with locked(root):
        log = open_log_writer(root, config, commit_log_file_size(root, config))
        try:
            mapped, position = log.locate(physical_offset)
            log.files.remove_from(mapped.file_from_offset + mapped.size)
            mapped.clear(position)
            mapped.flush()
        finally:
            log.close()
