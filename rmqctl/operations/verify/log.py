"""Checks the records of the log (bodies, checksums, properties, topics), and the log's end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from isal.isal_zlib import crc32

from formats import layouts
from formats.constants import (
    EARLIEST_STORE_TIME,
    END_OF_STORE_TIMES,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    TRANSACTION_TYPE_MASK,
)
from rmqctl.engine.dispatch.batches import bad_delay_rows, without_place
from rmqctl.engine.dispatch.multi import stops_dispatch
from rmqctl.engine.files import paths
from rmqctl.engine.files.shown import shown
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.end import is_of_other_file
from rmqctl.engine.log.misnamed import misnamed_files, place_in_file
from rmqctl.engine.record.record import Blank, Damage, End
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import Bytes, Ints, take
from rmqctl.engine.scan.plain import Plain
from rmqctl.engine.scan.recordcrc import property_crc_mismatches
from rmqctl.engine.scan.scanner import ScanEntry
from rmqctl.engine.start.logend import end_of_files
from rmqctl.operations.verify.controller import ControllerChecker
from rmqctl.operations.verify.damageranges import Ranges
from rmqctl.operations.verify.decodable import not_decodable
from rmqctl.operations.verify.dledger import EntryChecker
from rmqctl.operations.verify.findings import (
    CODES,
    MISPLACED,
    NAMED_OTHERWISE,
    TORN_BEHIND_ITS_UNIT,
    WAS_WHOLE,
    Finding,
    finding,
)
from rmqctl.operations.verify.snapshot import Snapshot
from rmqctl.operations.verify.undispatched import Undispatched

_MAGIC_CODE = np.dtype(f">{layouts.RECORD_MAGIC_CODE.code}")
_BODY_LENGTH = np.dtype(f">{layouts.RECORD_PREFIX[0].fields[-1].code}")
_PROPERTIES_LENGTHS = {
    magic_code: np.dtype(f">{tail.properties_length.code}")
    for magic_code, tail in layouts.TAIL.items()
}


class LogChecker:
    """Checks what a scan of the log, or of a part of it, yields. Call :meth:`add` with the entries
    in log order.

    ``damaged`` gets the ranges in which nothing can be read. ``newest_timestamp`` (ms) is the
    newest store time. ``suspect`` is the finding of the last record read, if its CRC is wrong: a
    torn append if nothing follows it and no unit points to it, else damage. The findings of
    ``undispatched`` come with the log's end.
    """

    def __init__(self, snapshot: Snapshot, log: CommitLog, damaged: Ranges) -> None:
        self.records = 0
        self.blanks = 0
        self.newest_timestamp = 0
        self.suspect: Finding | None = None
        #: Further checkers of the records, if the store is one of several copies.
        self.listeners: list[EntryChecker | ControllerChecker] = []
        self.undispatched = Undispatched()
        self.snapshot = snapshot
        self.log = log
        self._damaged = damaged
        self._before: Blank | Damage | None = None

    def start_end(self, end: End) -> End:
        """The log's end as a start finds it, behind the last entry (:func:`end_of_files`)."""
        place = end_of_files(self.log, end.physical_offset, self._before)
        return end._replace(physical_offset=place)

    def add(self, entry: ScanEntry | Plain) -> Iterator[Finding]:
        """Checks the next entry."""
        if isinstance(entry, End):
            yield from self._end(self.start_end(entry))
            return
        self._before = entry if isinstance(entry, Blank | Damage) else None
        yield from self.release_suspect()
        if isinstance(entry, Plain):
            self.records += entry.records
            self.newest_timestamp = max(self.newest_timestamp, entry.newest_timestamp)
        elif isinstance(entry, Batch):
            yield from self._batch(entry)
        elif isinstance(entry, Blank):
            self.blanks += 1
        else:
            self._damaged.add(entry)
            yield self._damage(entry)

    def pause(self) -> Iterator[Finding]:
        """Call this after the last record of a stretch, when the log goes on behind it."""
        yield from self.release_suspect()
        yield from self.undispatched.findings()

    def release_suspect(self) -> Iterator[Finding]:
        """Yields the suspect as damage. Call this when something follows it."""
        if self.suspect is not None:
            suspect, self.suspect = self.suspect, None
            yield suspect

    def _batch(self, batch: Batch) -> Iterator[Finding]:
        self.records += len(batch)
        for listener in self.listeners:
            yield from listener.add(batch)
        self.newest_timestamp = max(self.newest_timestamp, int(batch.store_timestamp.max()))
        for row in np.flatnonzero(~batch.crc_matches).tolist():
            bad = self._record_finding("body-crc-mismatch", batch, row)
            record = batch.record(row)
            body_crc = crc32(self.log.body(record)) & 0x7FFFFFFF
            if body_crc == record.body_crc:
                continue  # A broker was still writing the record when it was scanned.
            bad = bad._replace(expected=f"{record.body_crc:#010x}", found=f"{body_crc:#010x}")
            if row == len(batch) - 1 and record.physical_offset >= self.snapshot.dispatched_to:
                self.suspect = bad
            else:
                yield bad
        yield from self._record_crcs(batch)
        for row, expected, found in not_decodable(batch):
            bad = self._record_finding("message-not-decodable", batch, row)
            yield bad._replace(expected=expected, found=found)
        for damage in without_place(batch):
            where = self._where(damage.physical_offset)
            yield finding(damage.reason, expected=damage.expected, found=damage.found, **where)
        yield from self._dispatch_stops(batch)
        self.undispatched.add(self.snapshot.path, self.snapshot.config, batch)
        yield from self._empty_parts(batch)
        for row in bad_delay_rows(batch):
            level = batch.record(row).properties[PROPERTY_DELAY_TIME_LEVEL]
            bad = self._record_finding("delay-not-a-number", batch, row)
            yield bad._replace(expected="a number in DELAY", found=level[:100])
        for row in batch.malformed.tolist():
            yield self._record_finding("properties-malformed", batch, row)
        time = batch.store_timestamp
        odd = (time < EARLIEST_STORE_TIME) | (time >= END_OF_STORE_TIMES)
        for row in np.flatnonzero(odd).tolist():
            bad = self._record_finding("store-time-implausible", batch, row)
            yield bad._replace(expected="a time from 2012 to 2099", found=f"{int(time[row])} ms")
        allowed = batch.topics.allowed_array()
        if not allowed.all():
            for row in np.flatnonzero(~allowed[batch.topic_id]).tolist():
                yield self._record_finding("topic-not-allowed", batch, row)

    def _record_crcs(self, batch: Batch) -> Iterator[Finding]:
        """The findings of records that do not match the CRC in their properties. Records with a
        damaged body have been reported already."""
        for row, wanted, stored in property_crc_mismatches(batch):
            if batch.crc_matches[row]:
                bad = self._record_finding("record-crc-mismatch", batch, row)
                yield bad._replace(expected=_property(wanted), found=_property(stored))

    def _dispatch_stops(self, batch: Batch) -> Iterator[Finding]:
        """Records on which a broker's dispatch fails, and is tried again without end. There are two
        kinds: a record whose offsets of further queues are not numbers, because these are parsed
        for waiting consumers whatever the switches say (``notifyMessageArrive4MultiQueue``); and,
        with ``enableMultiDispatch`` of 4.9.3, a record without properties
        (``DefaultMessageStore#checkMultiDispatchQueue``)."""
        kind = batch.sys_flag & TRANSACTION_TYPE_MASK
        has_unit = (kind != TRANSACTION_PREPARED_TYPE) & (kind != TRANSACTION_ROLLBACK_TYPE)
        is_multi = self.snapshot.config.enable_multi_dispatch and not self.snapshot.is_of_5
        bare = has_unit & (batch.properties_length == 0) & is_multi
        for row in np.flatnonzero(bare).tolist():
            yield self._record_finding("dispatch-stops", batch, row)._replace(
                expected="properties", found="none"
            )
        for row in batch.multi_dispatch_rows.tolist():
            record = batch.record(row)
            properties = record.properties
            if stops_dispatch(record.topic, properties, is_of_5=self.snapshot.is_of_5):
                yield self._record_finding("dispatch-stops", batch, row)._replace(
                    expected="numbers in INNER_MULTI_QUEUE_OFFSET",
                    found=properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET],
                )

    def _empty_parts(self, batch: Batch) -> Iterator[Finding]:
        """Damage of empty bodies and properties that the engine ignores: a negative length, which
        it takes for 0, and a body CRC other than 0."""
        data = np.frombuffer(batch.mapped.buffer, np.uint8)
        bodiless = np.flatnonzero(batch.body_length == 0)
        place = batch.body_position[bodiless] - _BODY_LENGTH.itemsize
        bare = np.flatnonzero(batch.properties_length == 0)
        for code, rows, stored in (
            ("body-length-out-of-range", bodiless, take(data, place, _BODY_LENGTH)),
            ("properties-length-out-of-range", bare, _properties_lengths(data, batch, bare)),
        ):
            for at in np.flatnonzero(stored).tolist():
                bad = self._record_finding(code, batch, int(rows[at]))
                yield bad._replace(expected="0", found=str(stored[at]))
        for row in np.flatnonzero((batch.body_length == 0) & (batch.body_crc != 0)).tolist():
            bad = self._record_finding("body-crc-mismatch", batch, row)
            yield bad._replace(expected=f"{int(batch.body_crc[row]):#010x}", found=f"{0:#010x}")

    def _record_finding(self, code: str, batch: Batch, row: int) -> Finding:
        record = batch.record(row)
        return finding(
            code,
            topic=record.topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            **self._where(record.physical_offset),
        )

    def _damage(self, damage: Damage) -> Finding:
        found = finding(
            damage.reason,
            expected=damage.expected,
            found=f"{damage.found} ({damage.length} bytes to the next record)",
            **self._where(damage.physical_offset),
        )
        if self._is_misplaced(damage):
            return found._replace(advice=MISPLACED)
        return found._replace(advice=NAMED_OTHERWISE) if self._is_named_otherwise(damage) else found

    def _is_named_otherwise(self, damage: Damage) -> bool:
        """Whether the missing file is there under the name of another place of the log."""
        if damage.reason != "commitlog-file-missing":
            return False
        found = misnamed_files(self.log.files.directories, self.log.file_size)
        missing = range(damage.physical_offset, damage.physical_offset + damage.length)
        return any(place in missing for place in found)

    def _is_misplaced(self, place: Damage | End) -> bool:
        """Whether a file begins with the first records of another file of the log."""
        files = self.log.files
        number = files.index_of(place.physical_offset)
        if place.reason != "physical-offset-mismatch" or number < 0 or files.framed:
            return False
        entry = files.entries[number]
        is_front = place.physical_offset == entry.file_from_offset
        size = self.log.file_size
        if not is_front or not is_of_other_file(entry, int(place.found), size):
            return False
        return place_in_file(entry.path, size) == int(place.found)

    def _end(self, end: End) -> Iterator[Finding]:
        where = self._where(end.physical_offset)
        for listener in self.listeners:
            yield from listener.finish(end.physical_offset)
        yield from self.undispatched.findings()
        if self.suspect is not None:
            # The header is whole, and the body is not: the append was torn.
            torn, suspect = CODES["torn-tail"], self.suspect
            self.suspect = None
            yield suspect._replace(code="torn-tail", severity=torn.severity, advice=torn.advice)
        elif end.residue and end.reason == "zeroed-records":
            yield finding("residue-after-end", found=f"{end.residue} bytes", **where)
        elif self._is_misplaced(end):
            mismatch = finding(end.reason, expected=end.expected, found=end.found, **where)
            yield mismatch._replace(advice=MISPLACED)
        elif end.residue:
            stale = end.reason == "physical-offset-mismatch"
            code = "stale-record" if stale else "torn-tail"
            found = finding(code, expected=end.expected, found=end.found, **where)
            if self.snapshot.dispatched_to > end.physical_offset:
                # A unit points to the record or behind it, so it was whole once. A crash can keep
                # the unit and lose pages of the record. A cut file has its own finding.
                is_torn = self.snapshot.unclean or bool(self.log.files.irregular)
                found = found._replace(advice=TORN_BEHIND_ITS_UNIT if is_torn else WAS_WHOLE)
            yield found

    def _where(self, physical_offset: int) -> dict[str, object]:
        """The fields of a finding that name a place of the log."""
        files = self.log.files
        number = files.index_of(physical_offset)
        if number >= 0:
            entry = files.entries[number]
        else:
            before = [one for one in files.entries if one.file_from_offset <= physical_offset]
            if not before or physical_offset >= before[-1].file_from_offset + self.log.file_size:
                path = f"{paths.COMMIT_LOG}/{physical_offset:020d}"
                return {"path": path, "physical_offset": physical_offset}
            entry = before[-1]  # The place is behind the end of a file that was cut.
        return {
            "path": shown(self.snapshot.path, entry.path),
            "physical_offset": physical_offset,
            "position": physical_offset - entry.file_from_offset,
        }


def _properties_lengths(data: Bytes, batch: Batch, rows: Ints) -> Ints:
    """The stored lengths (int64, bytes) of the properties of some rows. The width of the field
    depends on the version of the record."""
    place = batch.position[rows] + layouts.RECORD_MAGIC_CODE.offset
    magic_code = take(data, place, _MAGIC_CODE)
    lengths = np.empty(len(rows), np.int64)
    for code, dtype in _PROPERTIES_LENGTHS.items():
        at = np.flatnonzero(magic_code == code)
        lengths[at] = take(data, batch.properties_position[rows[at]] - dtype.itemsize, dtype)
    return lengths


def _property(data: bytes) -> str:
    """A stored property as ``name=value``. Bytes that are not ASCII are shown as escapes."""
    text = data.rstrip(b"\2").replace(b"\1", b"=")
    return text.decode("ascii", "backslashreplace")
