"""checkpoint: shows from where a start after a crash would read, computes the latest checkpoint
that the data proves right, and stores one.

A start after a crash reads the log from the newest file whose first record is not younger than the
checkpoint (``CommitLog#isMappedFileMatchedRecover``). It throws away index files that are younger.
With a checkpoint that is too late, messages are missing from their queues; one that is too early
only costs time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.files import paths
from rmqctl.engine.files.lock import locked
from rmqctl.engine.files.shown import shown
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.record.times import utc_time
from rmqctl.engine.settings.filesizes import commit_log_file_size
from rmqctl.engine.start.plan import scan_place, scan_start
from rmqctl.engine.state.checkpoint import (
    Checkpoint,
    lower_logics_offset,
    read_checkpoint,
    read_logics_offset,
    write_checkpoint,
)
from rmqctl.errors import CannotWrite, CheckpointTooLate, NeedsConsent
from rmqctl.operations.doctor.startrows import estimated_seconds
from rmqctl.operations.verify import INFO, Finding, verify

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.rows import Row
    from rmqctl.rows.doctor import CheckpointSummary, CheckpointTimeRow

#: The times of 4.9.3, by their names in the rows.
NAMES = Checkpoint._fields[:3]
_PHYSIC, _LOGICS, _INDEX = NAMES
_UNCOUNTED = "index-uncounted-items"
#: Findings that count though they are no faults: queues or index lack messages that the next start
#: would add.
_BEHIND = ("dispatch-behind", "index-behind", _UNCOUNTED)
#: Faults of a unit that is at its place: no dispatch adds another unit there.
_IN_PLACE = "unit-delivery-time-mismatch"


class Proven(NamedTuple):
    """The latest time (ms) that the data proves right, and the finding that ends the proof, if
    any."""

    timestamp: int
    ended_by: Finding | None


class Judged(NamedTuple):
    """The checkpoint of a store. ``stored`` is None where there is none; ``new`` is the one that
    was computed or is to be stored, or None. ``newest`` is the store time (ms) of the newest
    record, ``scan_path`` the file of the log from which a start after a crash would read;
    ``logics_offset`` is from where one of 5.5 would, 0 if that is not stored."""

    stored: Checkpoint | None
    new: Checkpoint | None
    proofs: dict[str, Proven]
    newest: int
    scan_from: int
    scan_path: str | None
    scan_why: str
    bytes_to_scan: int
    logics_offset: int

    @property
    def says_too_much(self) -> bool:
        """Whether a stored time is later than the proven one, or than the newest record."""
        if self.stored is None:
            return False
        limits = dict.fromkeys(NAMES, self.newest)
        limits |= {name: proof.timestamp for name, proof in self.proofs.items()}
        return any(getattr(self.stored, name) > limits[name] for name in NAMES)

    @property
    def is_sound(self) -> bool:
        """Whether there is a checkpoint, and none of its times is too late."""
        return self.stored is not None and any(self.stored[:3]) and not self.says_too_much


def show(root: Path, config: MessageStoreConfig) -> Judged:
    """The stored checkpoint, and what a start after a crash would do with it. The log is not
    walked."""
    with MessageStore(root, config) as store:
        return _judged(store, None, {})


def compute(
    root: Path, config: MessageStoreConfig, read: Callable[[int], None] = lambda done: None
) -> Judged:
    """The latest checkpoint that the data proves right. Everything is checked. Each time is that of
    the newest record, or an earlier one where queues or index lack a message.

    :param read: told of bytes of the log that were read.
    """
    first: dict[str, Finding] = {}
    for found in verify(root, config, read):
        if not isinstance(found, Finding):
            continue
        name = concerned(found)
        if name is not None and place_of(found) < place_of(first.get(name)):
            first[name] = found
    with MessageStore(root, config) as store:
        proofs = proofs_of(store, first)
        stored = read_checkpoint(root / paths.CHECKPOINT) or Checkpoint()
        new = stored._replace(**{name: proof.timestamp for name, proof in proofs.items()})
        return _judged(store, new, proofs)


def concerned(found: Finding) -> str | None:
    """The time of the checkpoint (its field) that a finding refutes."""
    if (found.severity == INFO and found.code not in _BEHIND) or found.code == _IN_PLACE:
        return None
    part = (found.path or "").partition("/")[0]
    if found.structure == "queue" or part in (paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT):
        return _LOGICS
    if found.structure == "index" or part == paths.INDEX:
        return _INDEX
    return None


def place_of(found: Finding | None) -> float:
    if found is None:
        return float("inf")
    return -1 if found.physical_offset is None else found.physical_offset


def proofs_of(store: MessageStore, first: dict[str, Finding]) -> dict[str, Proven]:
    """How late each time may be, by the first finding that refutes it."""
    proofs = {name: _proven(store, first.get(name)) for name in NAMES}
    behind = first.get(_INDEX)
    is_pending = store.had_abort and behind is not None and behind.severity == INFO
    if is_pending:
        # The next start indexes what its recovery reads, and the index's time has no say in that:
        # also all of what it throws away.
        since = store.index.unsafe_since(proofs[_INDEX].timestamp)
        times = [proofs[_INDEX].timestamp, *([] if since is None else [since])]
        if min(times) < proofs[_LOGICS].timestamp:
            proofs[_LOGICS] = Proven(min(times), behind)
    return proofs


def _proven(store: MessageStore, first: Finding | None) -> Proven:
    """The time just before the first record that a finding names, or before an index file that a
    start is to throw away; without a finding the newest record's time."""
    newest, log = store.obstacle.store_timestamp, store.commit_log
    if first is None:
        return Proven(newest, None)
    if first.code == _UNCOUNTED and first.path is not None:
        # A broker that kept the file would lose what stands before them in their slots.
        with closing(store.index.open(store.root / first.path)) as file:
            return Proven(max(min(newest, file.header.end_timestamp - 1), 0), first)
    place = first.physical_offset
    number = -1 if place is None else log.files.index_of(place)
    if place is None or place <= store.min_offset or number < 0:
        return Proven(0 if place is None or place <= store.min_offset else newest, first)
    # A walk begins at a record: where none stands, that is at the start of the file.
    is_record = log.find_record(place) is not None
    for entry in log.walk(place if is_record else log.files.entries[number].file_from_offset):
        if isinstance(entry, Record) and entry.physical_offset >= place:
            return Proven(max(entry.store_timestamp - 1, 0), first)
    return Proven(newest, first)


def _judged(store: MessageStore, new: Checkpoint | None, proofs: dict[str, Proven]) -> Judged:
    stored = read_checkpoint(store.root / paths.CHECKPOINT)
    start = scan_start(store.commit_log, new or stored or Checkpoint(), store.config)
    number = store.commit_log.files.index_of(start.physical_offset)
    path = None if number < 0 else shown(store.root, store.commit_log.files.entries[number].path)
    return Judged(
        stored,
        new,
        proofs,
        store.obstacle.store_timestamp,
        start.physical_offset,
        path,
        start.why,
        max(store.max_offset - start.physical_offset, 0),
        read_logics_offset(store.root / paths.CHECKPOINT),
    )


# --- storing ---------------------------------------------------------------------------------


def plan_set(judged: Judged, times: dict[str, int | None]) -> Judged:
    """The checkpoint to be stored: the present one, or an empty one, with some times replaced.

    :raises CheckpointTooLate: a time is later than the newest record. The next start after a crash
        would then pass over messages that are still to come.
    """
    given = {name: time for name, time in times.items() if time is not None}
    for name, time in given.items():
        _check_not_later(name, time, judged.newest)
    return judged._replace(new=(judged.stored or Checkpoint())._replace(**given))


def planned(root: Path, config: MessageStoreConfig, new: Checkpoint) -> Judged:
    """What a start after a crash would read if the new checkpoint were stored; changes nothing.

    :raises FileLengthUnproven: the only file of the log may have been cut, and the times that are
        proven are of what is left.
    """
    commit_log_file_size(root, config, writes=True)
    with MessageStore(root, config) as store:
        return _judged(store, new, {})


def _check_not_later(name: str, time: int, newest: int) -> None:
    """:raises CheckpointTooLate: a time is later than the newest record."""
    if time > newest:
        raise CheckpointTooLate(
            name=name, timestamp=time, newest=newest, given=utc_time(time), limit=utc_time(newest)
        )


def ask_consent(judged: Judged) -> None:
    """:raises NeedsConsent: something would change, and the error says what."""
    if judged.new is not None and judged.new != judged.stored:
        changes = ", ".join(
            f"{name} from {_told(getattr(judged.stored, name, 0))} to "
            f"{_told(getattr(judged.new, name))}"
            for name in NAMES
            if getattr(judged.stored, name, None) != getattr(judged.new, name)
        )
        raise NeedsConsent(reason=f"checkpoint set changes {changes}.")


def _told(time: int) -> str:
    """A time of a checkpoint; one of 0 says nothing, and is none."""
    return utc_time(time) if time else "0"


def store_checkpoint(root: Path, config: MessageStoreConfig, new: Checkpoint) -> Judged:
    """Stores a checkpoint under the store's lock, and forces it to disk.

    :raises StoreInUse: a broker, or another rmqctl, holds the lock; nothing was changed.
    :raises CannotWrite, StoreReadOnly: the disk failed, or refuses.
    :raises FileLengthUnproven: as of :func:`planned`.
    """
    paths.check_store(root)
    paths.check_writable(root)
    commit_log_file_size(root, config, writes=True)
    with locked(root):
        with MessageStore(root, config) as store:
            store.commit_log.files.check_regular(links_only=True)
            before = _judged(store, new, {})
            place = scan_place(store.commit_log, new, config)
            for name in NAMES:
                _check_not_later(name, getattr(new, name), before.newest)
        try:
            write_checkpoint(root, path := root / paths.CHECKPOINT, new)
            lower_logics_offset(root, path, lambda: place)
        except OSError as error:
            raise CannotWrite(path=str(root / paths.CHECKPOINT), reason=error.strerror) from error
        return before


# --- rows ------------------------------------------------------------------------------------


def rows(judged: Judged) -> Iterator[Row]:
    """A row for each time, without the summary."""
    for name in NAMES:
        stored = None if judged.stored is None else getattr(judged.stored, name)
        row: CheckpointTimeRow = {
            "type": "checkpoint_time",
            "name": name,
            "stored_timestamp": stored,
            "new_timestamp": None if judged.new is None else getattr(judged.new, name),
            "ended_by": None,
            "ended_at": None,
        }
        ended_by = judged.proofs[name].ended_by if name in judged.proofs else None
        if ended_by is not None:
            row["ended_by"], row["ended_at"] = ended_by.code, ended_by.physical_offset
        yield row


def verdict(judged: Judged) -> str:
    """The verdict in one line."""
    seconds = estimated_seconds(judged.bytes_to_scan)
    cost = f"a start after a crash reads {judged.bytes_to_scan} bytes, about {seconds:g} s"
    if judged.stored is None:
        return f"There is no checkpoint: {cost}."
    if judged.says_too_much:
        hidden = "after a crash messages would be missing in their queues"
        return f"The checkpoint says more than what is true: {hidden}."
    if not any(judged.stored[:3]):
        return f"The checkpoint says nothing: {cost}."
    if not judged.proofs:
        told = "Whether the data proves it, `rmqctl checkpoint compute` says"
        return f"The checkpoint is not later than the newest record: {cost}. {told}."
    return f"The checkpoint holds: {cost}."


def summary_row(judged: Judged, *, dry_run: bool | None = None) -> CheckpointSummary:
    """The summary. ``dry_run`` is None for commands that change nothing anyway."""
    row: CheckpointSummary = {
        "type": "summary",
        "newest_store_timestamp": judged.newest or None,
        "says_too_much": judged.says_too_much,
        "scan_from": judged.scan_from,
        "first_scanned_file": judged.scan_path,
        "scan_why": judged.scan_why,
        "bytes_to_scan": judged.bytes_to_scan,
        "estimated_seconds": estimated_seconds(judged.bytes_to_scan),
    }
    if dry_run is not None:
        row["dry_run"] = dry_run
    if judged.stored is not None and any(judged.stored[3:]):
        row["master_flushed_offset"] = judged.stored.master_flushed_offset
        row["confirm_phy_offset"] = judged.stored.confirm_phy_offset
    if judged.logics_offset:
        row["logics_physical_offset"] = judged.logics_offset
    return row
