"""The order of a verification, and what the log itself shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import field as field_of
from pathlib import Path

import numpy as np

from formats import layouts
from formats.constants import (
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_SCHEDULE_TOPIC,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    TRANSACTION_TYPE_MASK,
)
from rmqctl.engine import paths
from rmqctl.engine.bytecolumns import take
from rmqctl.engine.checkpoint import Checkpoint, read_checkpoint
from rmqctl.engine.commitlog import CommitLog
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.dispatch import Dispatcher, key_batch, unit_batch
from rmqctl.engine.dispatchtail import unordered_bytes
from rmqctl.engine.filesizes import commit_log_file_size, consume_queue_file_size
from rmqctl.engine.indexservice import IndexService
from rmqctl.engine.multidispatch import offsets_are_numbers
from rmqctl.engine.multipath import log_directories, open_commit_log
from rmqctl.engine.propertycrc import property_crc_mismatches
from rmqctl.engine.record import Blank, Damage, End, body_crc_of
from rmqctl.engine.scanner import Batch, Scanner
from rmqctl.engine.versions import is_of_5, not_understood, queues_not_understood
from rmqctl.operations.verify.directories import check_directories, shown
from rmqctl.operations.verify.findings import CODES, ERROR, INFO, WARNING, Finding, finding
from rmqctl.operations.verify.index import IndexChecker
from rmqctl.operations.verify.places import Ranges
from rmqctl.operations.verify.queueext import check_ext_directory
from rmqctl.operations.verify.queues import QueueChecker, newest_unit_end

#: Topics of which 5.x puts no message into light queues (``isNeedHandleMultiDispatch``).
_NO_LIGHT_QUEUES = (RETRY_GROUP_TOPIC_PREFIX, "rmq_sys_", RMQ_SYS_SCHEDULE_TOPIC)
_QUEUE_FILES = paths.CONSUME_QUEUE + "/"
_INT, _SHORT = np.dtype(">i4"), np.dtype(">i2")

#: Called with the bytes of log done so far.
Progress = Callable[[int], None]


@dataclass(slots=True)
class Summary:
    """What was looked at, and how many findings of each severity there were."""

    records: int = 0
    blanks: int = 0
    units: int = 0
    index_items: int = 0
    min_offset: int = 0
    max_offset: int = 0
    severities: Counter[str] = field_of(default_factory=Counter)

    @property
    def is_clean(self) -> bool:
        """No errors and no warnings; what is only worth knowing does not count."""
        return not self.severities[ERROR] and not self.severities[WARNING]

    def row(self) -> dict[str, object]:
        """The summary's fields."""
        return {
            "records": self.records,
            "blanks": self.blanks,
            "units": self.units,
            "index_items": self.index_items,
            "min_offset": self.min_offset,
            "max_offset": self.max_offset,
            "errors": self.severities[ERROR],
            "warnings": self.severities[WARNING],
            "infos": self.severities[INFO],
        }


def verify(
    root: Path, config: MessageStoreConfig, progress: Progress | None = None
) -> Iterator[Finding | Summary]:
    """Findings of the whole store, then one :class:`Summary`.

    :raises StoreNotFound, NotAStore: there is no store at ``root``.
    :raises FileLengthContradiction: a ``broker.conf`` says otherwise than the files.
    """
    paths.check_store(root)
    verification = _Verification(root, config, progress)
    for found in verification.run():
        verification.summary.severities[found.severity] += 1
        yield found
    yield verification.summary


class _Verification:
    def __init__(self, root: Path, config: MessageStoreConfig, progress: Progress | None) -> None:
        self._root = root
        self._config = config
        self._progress = progress
        self.summary = Summary()
        self._log_size = commit_log_file_size(root, config)
        self._queue_size = consume_queue_file_size(root, config)
        self._unclean = (root / paths.ABORT).exists()
        self._is_of_5 = is_of_5(root)
        # Read before the log: a running broker writes it every second.
        self._has_checkpoint = (root / paths.CHECKPOINT).exists()
        self._read_checkpoint = read_checkpoint(root / paths.CHECKPOINT)
        self._log = self._open_log()
        self._damaged = Ranges()
        self._newest_timestamp = 0
        self._dispatched_to = newest_unit_end(root, self._queue_size)
        # The last record seen when its CRC is wrong: torn if nothing follows and nothing points
        # to it, damaged else.
        self._suspect: Finding | None = None

    def before(self) -> Iterator[Finding]:
        """Before anything is read of the log."""
        index_size = self._config.index_geometry.file_size
        unread = queues_not_understood(self._root)
        for found in check_directories(
            self._root,
            self._log_size,
            self._queue_size,
            index_size,
            log_directories(self._root, self._config).all,
        ):
            # Of queues in RocksDB, which may lie there, nothing is known.
            if not (unread(None) and (found.path or "").startswith(_QUEUE_FILES)):
                yield found
        yield from check_ext_directory(self._root, self._config)
        for name, what in not_understood(self._root):
            yield finding("not-understood", path=name, found=what)
        if self._unclean:
            yield finding("unclean-shutdown", path=paths.ABORT)
        if self._log.min_offset:
            yield finding("log-starts-late", physical_offset=self._log.min_offset)

    def run(self) -> Iterator[Finding]:
        yield from self.before()
        index_service = IndexService(self._root / paths.INDEX, self._config.index_geometry)
        dispatcher = Dispatcher(self._config)
        scanner = Scanner(self._log, dispatcher, check=True)
        queues = QueueChecker(
            self._root,
            self._open_log,
            self._queue_size,
            scanner.topics,
            self._waiting_from(),
            self._damaged,
            queues_not_understood(self._root),
        )
        index = IndexChecker(
            self._root,
            index_service,
            self._log.min_offset,
            self._damaged,
            self._open_log,
            unclean=self._unclean,
            waiting_from=self._waiting_from(),
        )
        try:
            for entry in scanner.scan():
                if isinstance(entry, Batch):
                    yield from self._batch(entry)
                    yield from queues.add(unit_batch(entry, dispatcher))
                    if self._config.message_index_enable:
                        yield from index.add(key_batch(entry))
                else:
                    yield from self._entry(entry)
                self._report_progress(entry)
            yield from queues.finish(self.summary.max_offset)
            if self._config.message_index_enable:
                yield from index.finish(self.summary.max_offset)
            yield from self._checkpoint()
            self.summary.units, self.summary.index_items = queues.units, index.items
        finally:
            index.close()
            queues.close()
            self._log.close()

    def _open_log(self) -> CommitLog:
        return open_commit_log(self._root, self._config, self._log_size)

    def _waiting_from(self) -> int | None:
        """From where on records may have no unit yet; None when all must have theirs."""
        if not self._unclean:
            return self._dispatched_to if self._dispatched_to >= 0 else None
        unordered = unordered_bytes(self._config)
        if self._dispatched_to >= 0:
            return self._dispatched_to - unordered
        files = self._log.files
        is_young = len(files.entries) < 2 or files.end_offset - files.min_offset <= unordered
        return 0 if is_young else None

    def _report_progress(self, entry: Batch | Blank | Damage | End) -> None:
        if self._progress is not None:
            done = entry.end_offset if isinstance(entry, Batch) else entry.physical_offset
            self._progress(done - self._log.min_offset)

    # --- the log -------------------------------------------------------------------------

    def _batch(self, batch: Batch) -> Iterator[Finding]:
        yield from self._release_suspect()
        self.summary.records += len(batch)
        self._newest_timestamp = max(self._newest_timestamp, int(batch.store_timestamp.max()))
        for row in np.flatnonzero(~batch.crc_matches).tolist():
            bad = self._record_finding("body-crc-mismatch", batch, row)
            record = batch.record(row)
            bad = bad._replace(
                expected=f"{record.body_crc:#010x}",
                found=f"{body_crc_of(batch.mapped.buffer, record):#010x}",
            )
            if row == len(batch) - 1 and record.physical_offset >= self._dispatched_to:
                self._suspect = bad
            else:
                yield bad
        yield from self._record_crcs(batch)
        yield from self._dispatch_stops(batch)
        yield from self._empty_parts(batch)
        for row in batch.malformed.tolist():
            yield self._record_finding("properties-malformed", batch, row)
        allowed = batch.topics.allowed_array()
        if not allowed.all():
            for row in np.flatnonzero(~allowed[batch.topic_id]).tolist():
                yield self._record_finding("topic-not-allowed", batch, row)

    def _record_crcs(self, batch: Batch) -> Iterator[Finding]:
        """Records that are not as their own checksum says; where the body is damaged that has been
        said."""
        for row, wanted, stored in property_crc_mismatches(batch):
            if batch.crc_matches[row]:
                bad = self._record_finding("record-crc-mismatch", batch, row)
                yield bad._replace(expected=_property(wanted), found=_property(stored))

    def _dispatch_stops(self, batch: Batch) -> Iterator[Finding]:
        """Records on which a broker's dispatch fails, again and again, with enableMultiDispatch: of
        4.9.3 one without properties (``DefaultMessageStore#checkMultiDispatchQueue``), of any
        version one whose offsets of further queues are no numbers (``multiDispatchLmqQueue``)."""
        if not self._config.enable_multi_dispatch:
            return
        kind = batch.sys_flag & TRANSACTION_TYPE_MASK
        has_unit = (kind != TRANSACTION_PREPARED_TYPE) & (kind != TRANSACTION_ROLLBACK_TYPE)
        bare = has_unit & (batch.properties_length == 0) & (not self._is_of_5)
        for row in np.flatnonzero(bare).tolist():
            yield self._record_finding("dispatch-stops", batch, row)._replace(
                expected="properties", found="none"
            )
        for row in batch.multi_dispatch_rows.tolist():
            record = batch.record(row)
            properties = record.properties
            if self._is_of_5 and record.topic.startswith(_NO_LIGHT_QUEUES):
                continue
            if has_unit[row] and not offsets_are_numbers(properties):
                yield self._record_finding("dispatch-stops", batch, row)._replace(
                    expected="numbers in INNER_MULTI_QUEUE_OFFSET",
                    found=properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET],
                )

    def _empty_parts(self, batch: Batch) -> Iterator[Finding]:
        """What the engine passes over where a body or properties are empty: a negative length,
        which counts as none, and a CRC of nothing that is not 0."""
        data = np.frombuffer(batch.mapped.buffer, np.uint8)
        for code, length, position, dtype in (
            ("body-length-out-of-range", batch.body_length, batch.body_position, _INT),
            (
                "properties-length-out-of-range",
                batch.properties_length,
                batch.properties_position,
                _SHORT,
            ),
        ):
            rows = np.flatnonzero(length == 0)
            stored = take(data, position[rows] - dtype.itemsize, dtype)
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
            path=self._path(record.physical_offset),
            physical_offset=record.physical_offset,
            position=int(batch.position[row]),
            topic=record.topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
        )

    def _release_suspect(self) -> Iterator[Finding]:
        if self._suspect is not None:
            suspect, self._suspect = self._suspect, None
            yield suspect

    def _entry(self, entry: Blank | Damage | End) -> Iterator[Finding]:
        if isinstance(entry, End):
            yield from self._end(entry)
            return
        yield from self._release_suspect()
        if isinstance(entry, Blank):
            self.summary.blanks += 1
            return
        self._damaged.add(entry)
        yield finding(
            entry.reason,
            path=self._path(entry.physical_offset),
            physical_offset=entry.physical_offset,
            position=self._position(entry.physical_offset),
            expected=entry.expected,
            found=f"{entry.found} ({entry.length} bytes to the next record)",
        )

    def _end(self, end: End) -> Iterator[Finding]:
        self.summary.min_offset = self._log.min_offset
        self.summary.max_offset = end.physical_offset
        where = {
            "path": self._path(end.physical_offset),
            "physical_offset": end.physical_offset,
            "position": self._position(end.physical_offset),
        }
        if self._suspect is not None:
            # Header whole, body not: the append never finished.
            torn = CODES["torn-tail"]
            yield self._suspect._replace(
                code="torn-tail", severity=torn.severity, advice=torn.advice
            )
        elif end.residue and end.reason == "zeroed-records":
            yield finding("residue-after-end", found=f"{end.residue} bytes", **where)
        elif end.residue:
            stale = end.reason == "physical-offset-mismatch"
            yield finding(
                "stale-record" if stale else "torn-tail",
                expected=end.expected,
                found=end.found,
                **where,
            )

    def _path(self, physical_offset: int) -> str:
        number = self._log.files.index_of(physical_offset)
        if number < 0:
            return f"{paths.COMMIT_LOG}/{physical_offset:020d}"
        return str(shown(self._root, self._log.files.entries[number].path))

    def _position(self, physical_offset: int) -> int | None:
        number = self._log.files.index_of(physical_offset)
        if number < 0:
            return None
        return physical_offset - self._log.files.entries[number].file_from_offset

    # --- the checkpoint ------------------------------------------------------------------

    def _checkpoint(self) -> Iterator[Finding]:
        checkpoint = self._read_checkpoint
        if checkpoint is None:
            if self._has_checkpoint:
                yield finding("checkpoint-unreadable", path=paths.CHECKPOINT, position=0)
            elif self.summary.records:
                yield finding("checkpoint-missing", path=paths.CHECKPOINT)
            return
        for field in layouts.CHECKPOINT.fields[:3]:
            name, value = field.name, getattr(checkpoint, field.name)
            if self.summary.records and (value > self._newest_timestamp or value < 0):
                yield finding(
                    "checkpoint-in-future",
                    path=paths.CHECKPOINT,
                    position=field.offset,
                    expected=f"{name} at most {self._newest_timestamp}",
                    found=f"{name} {value}",
                )
        if self.summary.records and checkpoint[:3] == Checkpoint()[:3]:
            yield finding("checkpoint-zero", path=paths.CHECKPOINT, position=0)


def _property(data: bytes) -> str:
    """A stored property as ``name=value``; other bytes than text are shown as escapes."""
    text = data.rstrip(b"\2").replace(b"\1", b"=")
    return text.decode("ascii", "backslashreplace")
