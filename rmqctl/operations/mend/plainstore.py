"""A new store with a plain log, from the store of a DLedger group's member: for a broker that is
in no group.

The records follow each other in the order of the old log, in files of the same size, as a broker
puts them. Each record gets a new physical offset. Everything that names physical offsets changes
with it: the offset of the half message in a record that ends a transaction, the checksum that
covers the record, the queues, the index and the offset message ids. Queue offsets stay, and with
them the progress of consumers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import BinaryIO

from formats import layouts
from formats.constants import (
    BLANK_MAGIC_CODE,
    END_FILE_MIN_BLANK_LENGTH,
    HOST_V6_MASK,
    RMQ_SYS_TRANS_HALF_TOPIC,
)
from rmqctl.engine.derive.writer import units_lost_in
from rmqctl.engine.files import durable, paths
from rmqctl.engine.files.filequeue import FILE_NAME_DIGITS
from rmqctl.engine.files.newdirectory import free_place, new_directory
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.form import CRC32_RESERVED_LENGTH, CRC_HEAD
from rmqctl.engine.record.message import property_crc
from rmqctl.engine.record.record import BLANK, Damage
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.services.multiqueues import as_written
from rmqctl.engine.settings.filesizes import commit_log_file_size
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.mend.endedqueues import ended_queues, write_last_units
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from rmqctl.operations.mend.salvage import config_of_output
from rmqctl.operations.mend.salvagefiles import copy_config, name_batch_topics, read_progress
from rmqctl.operations.mend.timer import carry_timer
from rmqctl.operations.progress import Progress
from rmqctl.rows.exported import Exported

_LONG, _INT = Struct(">q"), Struct(">i")
_PLACE = layouts.RECORD_PHYSICAL_OFFSET.offset
#: Position in a record of the offset of its half message, by the kinds of hosts.
_HALF = {
    flags: next(one for one in layout.fields if one.name == "prepared_transaction_offset").offset
    for flags, layout in layouts.RECORD_PREFIX.items()
}
_WRITTEN = 4 << 20


def write_plain_store(
    root: Path, config: MessageStoreConfig, output: Path, progress: Progress | None = None
) -> Exported:
    """Makes the new store, which appears at ``output`` when it is whole; the old one is only read.
    Damage is left out, and counted.

    :raises StoreNotFound, NotAStore: there is no store.
    :raises OutputExists: ``output`` holds something.
    :raises OutputInUse: another process builds it.
    :raises CannotWrite: the disk is full.
    :raises FileLengthUnproven, FileLengthContradiction: the length of the log's files is unknown.
    """
    paths.check_store(root)
    free_place(output)
    config = as_written(root, config)
    file_size = commit_log_file_size(root, config, writes=True)
    plain = replace(
        config_of_output(root, config, file_size),
        enable_d_leger_commit_log=False,
        d_leger_self_id="",
    )
    with new_directory(output) as building:
        progress_files = read_progress(root)
        log = open_commit_log(root, config, file_size)
        try:
            made = building / paths.COMMIT_LOG
            done, lost = _write_log(log, made, progress or (lambda done: None))
        finally:
            log.close()
        copy_config(root, building, progress_files)
        name_batch_topics(root, building)
        # Nobody sees in the new log where something is lost.
        rebuild = replace(plan_rebuild(building, plain, "all"), spare_gap=units_lost_in(lost))
        for kept in rebuild_in_place(rebuild).kept:
            shutil.rmtree(kept)
        _keep_numbers(root, config, building, plain)
        carry_timer(root, config, building, plain)
        # Closing the new store writes the checkpoint, and removes the files lock and abort.
        MessageStore(building, plain, writable=True).close()
        durable.sync_directories(building)
        return done


def _keep_numbers(
    root: Path, config: MessageStoreConfig, building: Path, plain: MessageStoreConfig
) -> None:
    """Has queues whose messages have all expired go on at their old queue offset."""
    with MessageStore(root, config) as store:
        ends = ended_queues(root, store.queues.file_size, store.min_offset)
        write_last_units(building, ends, plain.mapped_file_size_consume_queue)


def _write_log(log: CommitLog, directory: Path, progress: Progress) -> tuple[Exported, int]:
    """Writes the new log. Returns what was written, and how many bytes of the old log could not be
    read."""
    directory.mkdir()
    messages = damages = mismatches = lost = 0
    #: New addresses of half messages by their old ones.
    halves: dict[int, int] = {}
    scanner = Scanner(log, check=True, properties=False)
    with _NewLog(directory, log.file_size, log.min_offset) as new:
        for entry in scanner.scan():
            if isinstance(entry, Damage):
                damages += 1
                lost += entry.length
            if not isinstance(entry, Batch):
                continue
            for row, data in _records(entry):
                new.put(data, entry.topics.names[entry.topic_id[row]], halves)
            messages += len(entry)
            mismatches += len(entry) - int(entry.crc_matches.sum())
            progress(entry.end_offset - log.min_offset)
        new.complete_last(log, halves)
    return Exported(messages, damages, mismatches), lost


def _records(batch: Batch) -> Iterator[tuple[int, bytearray]]:
    starts, sizes = batch.position.tolist(), batch.total_size.tolist()
    with memoryview(batch.mapped.buffer) as view:
        for row, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            yield row, bytearray(view[start : start + size])


class _NewLog:
    """A log that gets one record after the other. Each of its files is forced to disk when it is
    full."""

    def __init__(self, directory: Path, file_size: int, first: int) -> None:
        """:param first: the offset of the log's first file."""
        self._directory, self._file_size = directory, file_size
        self._next_file = first // file_size * file_size
        # There is no room in a file that is not there.
        self._file_from_offset, self._position = self._next_file, file_size
        self._file: BinaryIO | None = None
        #: Physical offset and size (bytes) of the last record in the log that it came from.
        self._last = 0, 0

    def put(self, data: bytearray, topic: str, halves: dict[int, int]) -> None:
        """Stores a record at the end of the log. ``halves`` gets the new offset of a half
        message."""
        if len(data) + END_FILE_MIN_BLANK_LENGTH > self._file_size - self._position:
            self._roll()
        place = self._file_from_offset + self._position
        self._last = _LONG.unpack_from(data, _PLACE)[0], len(data)
        if topic == RMQ_SYS_TRANS_HALF_TOPIC:
            halves[_LONG.unpack_from(data, _PLACE)[0]] = place
        _put_place(data, place, halves)
        assert self._file is not None
        self._file.write(data)
        self._position += len(data)

    def complete_last(self, log: CommitLog, halves: dict[int, int]) -> None:
        """Stores the last record again, as it is now: a broker may have been writing it when it was
        read, and it stores a record's size first."""
        offset, size = self._last
        mapped = log.files.find(offset) if size else None
        if mapped is None or self._file is None:
            return
        data = bytearray(mapped.read(offset - mapped.file_from_offset, size))
        if len(data) < size:
            return  # The log has been cut there meanwhile.
        self._position -= size
        _put_place(data, self._file_from_offset + self._position, halves)
        self._file.seek(self._position)
        self._file.write(data)
        self._position += size

    def _roll(self) -> None:
        """Closes the file with a blank, and makes the next one (``CommitLog#putMessage``)."""
        if self._file is not None:
            self._file.write(BLANK.pack(self._file_size - self._position, BLANK_MAGIC_CODE))
        self._close()
        self._file_from_offset, self._position = self._next_file, 0
        path = self._directory / f"{self._file_from_offset:0{FILE_NAME_DIGITS}d}"
        file: BinaryIO = open(path, "wb", _WRITTEN)  # noqa: SIM115 (closed by _close)
        file.truncate(self._file_size)
        self._file = file
        self._next_file += self._file_size

    def _close(self) -> None:
        # What fails to be forced to disk is closed all the same, and not forced again.
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.flush()
                os.fsync(file.fileno())

    def __enter__(self) -> _NewLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()


def _put_place(data: bytearray, place: int, halves: dict[int, int]) -> None:
    """Stores in a record its physical offset, that of its half message, and then the checksum."""
    end = len(data) - CRC32_RESERVED_LENGTH
    last = data[end:]
    has_crc = last.startswith(CRC_HEAD) and property_crc(bytes(data[:end])) == last
    _LONG.pack_into(data, _PLACE, place)
    (sys_flag,) = _INT.unpack_from(data, layouts.RECORD_SYS_FLAG.offset)
    at = _HALF[sys_flag & HOST_V6_MASK]
    (half,) = _LONG.unpack_from(data, at)
    if half in halves:
        _LONG.pack_into(data, at, halves[half])
    if has_crc:
        data[end:] = property_crc(bytes(data[:end]))
