"""Finds the end of the log: the first place without a record behind those known to be written.

A cleanly closed store needs no walk over whole files: the newest record with a queue unit is near
the end (:func:`find_end`). After a crash the log is read from a certain file on
(:func:`end_behind`), as by the engine's recovery (``CommitLog#recoverAbnormally``); but here a
record must also name its own place. Both look behind the end: newer records there mean damage, and
not a write that a crash cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from formats.constants import END_FILE_MIN_BLANK_LENGTH, LONG_MAX, RMQ_SYS_SCHEDULE_TOPIC
from rmqctl.engine.dispatch.rules import has_bad_delay
from rmqctl.engine.log.commitlog import RECORD_HEAD, CommitLog, Step
from rmqctl.engine.log.end import BAD_DELAY, MISPLACED_FILE, NEAR, LogEnd, is_of_other_file
from rmqctl.engine.log.misnamed import file_name, place_in_file
from rmqctl.engine.record.record import (
    Blank,
    Damage,
    End,
    Entry,
    Record,
    body_seen,
    crc_matches,
    read_entry_of,
)
from rmqctl.errors import DamagedStore, InternalError

if TYPE_CHECKING:
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import ScanEntry

#: Bytes that are walked record by record. Then the scanner takes over, which starts slower.
_FAR = 4 << 20
#: Damage behind which the engine's recovery goes on with the next existing file.
PASSED_OVER = ("commitlog-file-missing", "blank-size-mismatch")


def find_end(log: CommitLog, newest: Iterable[tuple[int, int]]) -> LogEnd:
    """Finds the end from ``newest``: (physical offset, size) of each queue's last unit.

    A short walk starts behind the newest unit that points to a record of its size. Without such a
    unit it starts at the last file that begins with an entry.
    """
    start, last = _proven_start(log, newest)
    timestamp = 0 if last is None else last.store_timestamp
    number, position = _place(log, start)
    begin = log.offset_of(number, position)
    entry: Entry | None = None
    while True:
        if _ends_quietly(log, number, position):
            end = end_of_files(log, log.offset_of(number, position), entry)
            return LogEnd(end, timestamp, None)
        offset = log.offset_of(number, position)
        if position >= 0 and offset - begin > _FAR:
            return end_behind(log, offset, timestamp)
        step = log.step(number, position)
        entry = step.entry
        if isinstance(entry, Record):
            if not crc_matches(body_seen(log.files.file(number), entry), entry):
                return LogEnd(entry.physical_offset, timestamp, _obstacle(log, step, timestamp))
            is_delayed = entry.topic == RMQ_SYS_SCHEDULE_TOPIC
            if is_delayed and has_bad_delay(entry.topic, entry.properties):
                return _before_bad_delay(entry.physical_offset, timestamp)
            timestamp = entry.store_timestamp
        elif isinstance(entry, End):
            misplaced = _swapped_file(log, entry.physical_offset)
            return LogEnd(entry.physical_offset, timestamp, misplaced)
        elif isinstance(entry, Damage) and entry.reason not in PASSED_OVER:
            return LogEnd(entry.physical_offset, timestamp, _obstacle(log, step, timestamp))
        number, position = step.number, step.position


def end_behind(
    log: CommitLog,
    start: int,
    timestamp: int,
    seen: Callable[[Batch], None] = lambda batch: None,
    *,
    end: int | None = None,
) -> LogEnd:
    """Finds the end behind ``start``, the place of a record or blank. Reads every record and
    compares its body with its CRC.

    :param timestamp: store time (ms) of the record before; 0: not known.
    :param seen: called with each batch of records; the last may also have records behind the end.
    :param end: nothing from this physical offset on is read.
    """
    from rmqctl.engine.dispatch.batches import bad_delay_rows
    from rmqctl.engine.scan.batch import Batch
    from rmqctl.engine.scan.scanner import Scanner

    before: ScanEntry | None = None
    for entry in Scanner(log, check=True, properties=False).scan(start, end):
        if isinstance(entry, Batch):
            seen(entry)
            whole = len(entry) if entry.crc_matches.all() else int(entry.crc_matches.argmin())
            sound = min([whole, *bad_delay_rows(entry)])
            if sound:
                timestamp = int(entry.store_timestamp[sound - 1])
            if sound < whole:
                return _before_bad_delay(int(entry.physical_offset[sound]), timestamp)
            if sound < len(entry):
                return _end_at(log, int(entry.physical_offset[sound]), timestamp)
        elif isinstance(entry, End):
            misplaced = _swapped_file(log, entry.physical_offset)
            offset = end_of_files(log, entry.physical_offset, before)
            return LogEnd(offset, timestamp, misplaced)
        elif isinstance(entry, Damage) and entry.reason not in PASSED_OVER:
            return _end_at(log, entry.physical_offset, timestamp)
        before = entry
    raise InternalError(reason="a scan was not closed by its end")


def end_of_files(log: CommitLog, end: int, before: Entry | ScanEntry | None) -> int:
    """Where a start ends the log, when a walk ends at the physical offset ``end``, behind the entry
    ``before``.

    A blank leads to the next file. If there is none, as after a crash, a start ends the log where
    that blank begins, so the next record takes its place if it fits (``CommitLog#recoverNormally``,
    ``#recoverAbnormally``). A DLedger log goes on behind it (``DLedgerMmapFileStore#recover``).
    """
    if log.files.framed or end != log.files.end_offset or not isinstance(before, Blank | Damage):
        return end
    if isinstance(before, Damage) and before.reason != "blank-size-mismatch":
        return end
    return before.physical_offset


def _before_bad_delay(offset: int, timestamp: int) -> LogEnd:
    """The end before a delayed message whose level is no number: a start's recovery ends there
    (``CommitLog#checkMessageAndReturnSize``). Its record is whole, so it is an obstacle whatever
    stands behind it."""
    return LogEnd(offset, timestamp, Damage(offset, 0, BAD_DELAY, "", ""))


def _end_at(log: CommitLog, offset: int, timestamp: int) -> LogEnd:
    """The end before damage, or before a record whose body does not match its CRC."""
    return LogEnd(offset, timestamp, _obstacle(log, log.step(*_place(log, offset)), timestamp))


def _place(log: CommitLog, start: int | None) -> tuple[int, int]:
    """File number and position of a physical offset; behind the last file when no file has it."""
    if start is None:
        return 0, 0
    number = log.files.index_of(start)
    if number < 0:
        return len(log.files.entries), 0
    return number, start - log.files.entries[number].file_from_offset


def _ends_quietly(log: CommitLog, number: int, position: int) -> bool:
    """Whether zeros stand here, for ``NEAR`` bytes, and no later file begins with an entry.

    Opening a store does not read gigabytes of written zeros; ``verify`` reads them all.
    """
    if number == len(log.files.entries):
        return True
    if position < 0:
        return False
    mapped = log.files.file(number)
    if mapped.read_aside(position, RECORD_HEAD).strip(b"\0"):
        return False  # Most likely a record, and no end.
    near = min(position + NEAR, mapped.size)
    return mapped.first_nonzero(position, near) == near and not any(
        _starts_with_entry(log, later) for later in range(number + 1, len(log.files.entries))
    )


def _starts_with_entry(log: CommitLog, number: int) -> bool:
    mapped = log.files.file(number)
    if next(mapped.extents(0, END_FILE_MIN_BLANK_LENGTH), None) is None:
        return False  # Reading a page of a hole takes a thousand times longer than this check.
    return isinstance(read_entry_of(mapped, 0), Record | Blank)


def _proven_start(
    log: CommitLog, newest: Iterable[tuple[int, int]]
) -> tuple[int | None, Record | None]:
    for physical_offset, size in sorted(newest, reverse=True):
        record = log.find_record(physical_offset)
        if record is not None and record.total_size == size:
            return physical_offset + size, record
    for number in range(len(log.files.entries) - 1, 0, -1):
        if _starts_with_entry(log, number):
            return log.files.entries[number].file_from_offset, None
    return None, None


def _obstacle(log: CommitLog, step: Step, timestamp: int) -> Damage | None:
    """The entry of a step as an obstacle, if a record behind it is newer than those before it; or
    a file that belongs elsewhere.

    Older records behind the end were left by a truncation of the engine: their bytes stay until
    they are overwritten.
    """
    entry = step.entry
    number, position = step.number, step.position
    while not isinstance((behind := log.step(number, position)).entry, Record | End):
        number, position = behind.number, behind.position
    if isinstance(behind.entry, End) or behind.entry.store_timestamp < timestamp:
        return _swapped_file(log, entry.physical_offset)
    if isinstance(entry, Damage):
        return entry
    return Damage(entry.physical_offset, 0, "body-crc-mismatch", "", "")


def misplaced_files(log: CommitLog) -> list[Damage]:
    """The files of the log that begin with the first record of another one, by their first records
    alone, and those that have no name of one."""
    starts = (entry.file_from_offset for entry in log.files.entries)
    swapped = (found for start in starts if (found := _swapped_file(log, start)) is not None)
    return [*swapped, *_renamed_files(log)]


def _swapped_file(log: CommitLog, start: int) -> Damage | None:
    """Damage, if the file at ``start`` begins with the first record of another log file."""
    number, position = _place(log, start)
    if log.files.framed or number == len(log.files.entries) or position:
        return None
    entry, first = log.files.entries[number], log.first_prefix(number)
    if first is None or not is_of_other_file(entry, first.physical_offset, log.file_size):
        return None
    named = first.physical_offset
    return Damage(start, 0, MISPLACED_FILE, entry.path.name, str(named))


def _renamed_files(log: CommitLog, end: int = LONG_MAX) -> Iterator[Damage]:
    """Whole files of the log with a name that no log file has (``393216``,
    ``00000000000000393216.bak``): those whose place no other file has, or at or behind ``end``,
    where a file that has it is of zeros."""
    for path in log.files.foreign:
        place = place_in_file(path, log.file_size)
        if place is not None and (place >= end or log.files.index_of(place) < 0):
            yield Damage(place, 0, MISPLACED_FILE, path.name, str(place))


def check_renamed(log: CommitLog, end: int) -> None:
    """Refuses a log that ends at ``end`` and has a file under another name: an append would go to
    a store on which no broker starts, or in which the messages of that file are missing.

    :raises DamagedStore: there is such a file, before the log's end or behind it.
    """
    for found in _renamed_files(log, end):
        raise DamagedStore(
            reason=f"the file {found.expected} in the log's directory is the log's own, as its "
            "first records say: somebody has renamed it, so its messages are missing. Keep the "
            f"broker down, and give it its name, {file_name(found.physical_offset)}",
            physical_offset=found.physical_offset,
        )
