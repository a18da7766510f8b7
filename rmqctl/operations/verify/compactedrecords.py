"""Checks the records that a broker of 5.x keeps of a compacted topic. Each is compared with its
unit, and with the record of the commit log that it is a copy of, if that is still there."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain

from formats import layouts
from formats.constants import PROPERTY_KEYS
from rmqctl.engine.files.filequeue import FileEntry
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.shown import shown
from rmqctl.engine.queue.batchqueue import LAST_FIELDS
from rmqctl.engine.queue.compactedqueue import CompactedQueue, StoredUnit
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
from rmqctl.engine.store import Store
from rmqctl.operations.verify.batchunits import describe
from rmqctl.operations.verify.findings import INFO, WARNING, Finding, finding
from rmqctl.rows.words import some

#: The bytes of PHYSICALOFFSET, the only field in which a copy differs from its original.
_ADDRESS = slice(
    layouts.RECORD_PHYSICAL_OFFSET.offset,
    layouts.RECORD_PHYSICAL_OFFSET.offset + layouts.RECORD_PHYSICAL_OFFSET.size,
)


@dataclass(slots=True)
class Checked:
    """What the check has read of a queue. The broker has compacted the queue up to the queue offset
    ``position``; -1: it has not compacted it yet.

    For each record up to there, the parallel arrays have a 64-bit hash of its key (``hashes``), its
    queue offset (``offsets``) and its offset in the compaction log (``places``): 24 bytes. For a
    later record, ``later`` has the queue offset: 8 bytes.
    """

    position: int
    last_offset: int = -1
    hashes: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    places: array[int] = field(default_factory=lambda: array("q"))
    later: array[int] = field(default_factory=lambda: array("q"))

    def note(self, key: str, record: Record) -> None:
        """Adds a record up to ``position``."""
        self.hashes.append(hash_of(key))
        self.offsets.append(record.queue_offset)
        self.places.append(record.physical_offset)


def hash_of(key: str) -> int:
    """A signed 64-bit hash of a key."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def check_records(store: Store, queue: CompactedQueue, checked: Checked) -> Iterator[Finding]:
    """The findings of all pairs of a log file and its file of units, in order. Findings with one
    code that follow each other in a file are joined to one, with their number.

    :raises CannotRead: a file cannot be read.
    """
    pairs = list(queue.pairs())
    for entry, number, units in pairs:
        pair = _Pair(store, queue, entry, queue.log.files.file(number), checked)
        pair.is_last = entry == pairs[-1][0]
        yield from _joined(pair.check(queue.places_of(units)))
    yield from _joined(_not_compacted(store, queue, checked))


def _joined(findings: Iterator[Finding]) -> Iterator[Finding]:
    held: Finding | None = None
    more = 0
    for one in chain(findings, [None]):
        if one is not None and held is not None and one.code == held.code:
            more += 1
            continue
        if held is not None:
            yield held._replace(found=f"{held.found}, and {more} more") if more else held
        held, more = one, 0


class _Pair:
    """A file of the compaction log and the file of its units. In a sound pair the units have the
    order of the records, and lead to each of them."""

    is_last = False

    def __init__(
        self,
        store: Store,
        queue: CompactedQueue,
        entry: FileEntry,
        mapped: MappedFile,
        checked: Checked,
    ) -> None:
        self._store = store
        self._queue = queue
        self._entry = entry
        self._mapped = mapped
        self._checked = checked
        in_files = store.queues.in_files
        self._ordinary = store.consume_queue(queue.topic, queue.queue_id) if in_files else None
        self._position = 0

    def check(self, places: Iterator[StoredUnit]) -> Iterator[Finding]:
        """The findings of the pair. ``places`` yields its units, each with its position."""
        held: StoredUnit | None = None
        for one in places:
            if held is not None:
                yield from self._unit(held)
            held = one
        if held is not None and not held.is_end:
            yield from self._unit(held)
        yield from self._behind()

    def _entry_at(self, position: int) -> Entry:
        if position >= self._mapped.size:
            return End(self._entry.file_from_offset + position)
        return read_entry_of(self._mapped, position)

    def _leads_to(self, stored: StoredUnit) -> int | None:
        """The position to which a unit leads, if it is behind the next record and a record there
        agrees with all fields of the unit; else None."""
        position = stored.unit.physical_offset - self._entry.file_from_offset
        if not self._position < position < self._mapped.size:
            return None
        entry = self._entry_at(position)
        is_its = isinstance(entry, Record) and stored.fields == _unit_of(entry)
        return position if is_its else None

    def _unit(self, stored: StoredUnit) -> Iterator[Finding]:
        """Compares a unit with the next entry of the log."""
        entry = self._entry_at(self._position)
        is_right = isinstance(entry, Record) and stored.fields == _unit_of(entry)
        position = None if is_right else self._leads_to(stored)
        if position is not None:
            yield from self._between(position)
            entry, self._position = self._entry_at(position), position
        elif not is_right and not self._is_said_by(stored, entry):
            yield self._wrong_unit(stored, entry)
        if isinstance(entry, Record):
            self._position += entry.total_size
            yield from self._record(entry)
        elif self._is_said_by(stored, entry):
            yield self._damaged(self._position, entry)
            self._position += stored.unit.size

    def _is_said_by(self, stored: StoredUnit, entry: Entry) -> bool:
        """Whether a unit leads exactly to the next position of the log, but no record is there:
        then the record is damaged, and not the unit."""
        start = self._entry.file_from_offset + self._position
        return not isinstance(entry, Record) and (
            stored.unit.is_written
            and stored.unit.physical_offset == start
            and stored.unit.size <= self._mapped.size - self._position
        )

    def _between(self, end: int) -> Iterator[Finding]:
        """The findings of what is between the last unit's record and ``end``, where the record of
        the next unit begins."""
        first, count = self._position, 0
        while self._position < end:
            entry = self._entry_at(self._position)
            if not isinstance(entry, Record):
                yield self._damaged(self._position, entry)
                break
            count += 1
            self._position += entry.total_size
        if count:
            yield self._without_unit(first, count)

    def _behind(self) -> Iterator[Finding]:
        """The findings of what is behind the record of the last unit."""
        first, count = self._position, 0
        while isinstance(entry := self._entry_at(self._position), Record):
            count += 1
            self._position += entry.total_size
        if count:
            found = self._without_unit(first, count)
            # A kill between the writes of a record and its unit leaves one record without a unit. A
            # power failure can take more units.
            severity = INFO if count == 1 else WARNING
            yield found._replace(severity=severity) if self.is_last else found
        elif not self.is_last and not isinstance(entry, Blank) and self._has_rest():
            yield self._damaged(self._position, entry)

    def _has_rest(self) -> bool:
        size = self._mapped.size
        return self._position < size and self._mapped.first_nonzero(self._position, size) < size

    # --- one record ----------------------------------------------------------------------

    def _record(self, record: Record) -> Iterator[Finding]:
        """Checks the fields and the body of a record, compares its queue offset with that of the
        record before it, and the whole record with its original in the commit log."""
        checked, queue = self._checked, self._queue
        if (record.topic, record.queue_id) != (queue.topic, queue.queue_id):
            yield self._of("compaction-record-damaged", record)._replace(
                expected=f"queue {queue.queue_id} of {queue.topic}",
                found=f"queue {record.queue_id} of {record.topic}",
            )
            return
        if record.queue_offset <= checked.last_offset:
            yield self._of("compaction-offsets-disordered", record)._replace(
                expected=f"more than {checked.last_offset}", found=str(record.queue_offset)
            )
        checked.last_offset = max(checked.last_offset, record.queue_offset)
        key = record.properties.get(PROPERTY_KEYS, "")
        if not key.strip():
            yield self._of("compaction-record-without-key", record)._replace(
                expected="KEYS", found="none"
            )
        if record.queue_offset > checked.position:
            checked.later.append(record.queue_offset)
        else:
            checked.note(key, record)
            if not record.body_length:
                yield self._of("compaction-not-compacted", record)._replace(
                    expected="a body", found="none"
                )
        if crc_matches(body_seen(self._mapped, record), record):
            yield from self._copied(record)
        else:
            yield self._of("compaction-body-crc-mismatch", record)._replace(
                expected="the body's CRC", found="another one"
            )

    def _copied(self, record: Record) -> Iterator[Finding]:
        """Compares a record with its original in the commit log, if that is there and its body
        matches its CRC."""
        unit = None if self._ordinary is None else self._ordinary.unit(record.queue_offset)
        original = None if unit is None else self._store.commit_log.find_record(unit[0])
        if original is None or _identity(original) != _identity(record):
            return
        mapped, position = self._store.commit_log.locate(original.physical_offset)
        if not crc_matches(body_seen(mapped, original), original):
            return
        ours = bytearray(self._mapped.read(self._position - record.total_size, record.total_size))
        theirs = mapped.read(position, original.total_size)
        ours[_ADDRESS] = theirs[_ADDRESS]
        if ours != theirs:
            yield self._of("compaction-record-differs", record)._replace(
                expected=f"the record at {original.physical_offset} of the commit log",
                found=_difference(original, record),
            )

    # --- findings ------------------------------------------------------------------------

    def _of(self, code: str, record: Record) -> Finding:
        position = record.physical_offset - self._entry.file_from_offset
        return self._at(code, position)._replace(queue_offset=record.queue_offset)

    def _at(self, code: str, position: int) -> Finding:
        return finding(
            code,
            path=shown(self._store.root, self._entry.path),
            position=position,
            topic=self._queue.topic,
            queue_id=self._queue.queue_id,
        )

    def _wrong_unit(self, stored: StoredUnit, entry: Entry) -> Finding:
        found = finding(
            "compaction-unit-mismatch",
            path=shown(self._store.root, self._queue.files.directory / self._entry.path.name),
            position=stored.position,
            topic=self._queue.topic,
            queue_id=self._queue.queue_id,
            expected="no unit",
            found=_described(stored.fields),
        )
        if not isinstance(entry, Record):
            return found
        return found._replace(queue_offset=entry.queue_offset, expected=_described(_unit_of(entry)))

    def _damaged(self, position: int, entry: Entry) -> Finding:
        found = self._at("compaction-record-damaged", position)
        if isinstance(entry, Damage):
            return found._replace(expected=entry.expected, found=f"{entry.found} ({entry.reason})")
        what = "a blank" if isinstance(entry, Blank) else "zeros"
        return found._replace(expected="a record", found=what)

    def _without_unit(self, position: int, count: int) -> Finding:
        found = self._at("compaction-record-without-unit", position)
        return found._replace(expected="a unit each", found=some(count, "record"))


def _unit_of(record: Record) -> tuple[int, ...]:
    """The fields of the unit that a broker writes for a record."""
    return (
        record.physical_offset,
        record.total_size,
        record.tags_code,
        record.store_timestamp,
        record.queue_offset,
        1,
        *LAST_FIELDS,
    )


def _described(unit: tuple[int, ...]) -> str:
    return describe(unit) if any(unit) else "zeros"


def _identity(record: Record) -> tuple[str, int, int]:
    return record.topic, record.queue_id, record.queue_offset


def _difference(original: Record, record: Record) -> str:
    """The names of the fields that differ, as a finding says it."""
    own = ("physical_offset", "body_position")
    pairs = zip(Record._fields, original, record, strict=True)
    names = [name for name, one, other in pairs if one != other and name not in own]
    return f"another {', '.join(names) or 'body'}"


def _not_compacted(store: Store, queue: CompactedQueue, checked: Checked) -> Iterator[Finding]:
    """The findings of messages that a compaction should have removed: it has passed over both the
    message and a later one with the same key."""
    import numpy as np

    hashes, offsets, places = (
        np.frombuffer(column, np.int64)
        for column in (checked.hashes, checked.offsets, checked.places)
    )
    order = np.lexsort((offsets, hashes))
    again = np.flatnonzero(hashes[order][:-1] == hashes[order][1:])
    for row in again.tolist():
        older, newer = (queue.log.find_record(int(places[order[row + more]])) for more in (0, 1))
        if older is None or newer is None or not _key(older) or _key(older) != _key(newer):
            continue  # Two keys have the same hash.
        mapped, position = queue.log.locate(older.physical_offset)
        yield finding(
            "compaction-not-compacted",
            path=shown(store.root, mapped.path),
            position=position,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=older.queue_offset,
            expected="the latest message of each key",
            found=f"one of the key of queue offset {newer.queue_offset}",
        )


def _key(record: Record) -> str:
    return record.properties.get(PROPERTY_KEYS, "")
