"""Appends pieces of a master's log to a slave's store (``CommitLog#appendData``).

The slave makes queues and index itself, by the same dispatch as for puts.
"""

from __future__ import annotations

from formats.constants import END_FILE_MIN_BLANK_LENGTH
from rmqctl.engine.log.commitlog import RECORD_HEAD
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.record.pieces import LogPiece
from rmqctl.engine.record.record import Blank, read_entry_of
from rmqctl.errors import InternalError


def append_piece(log: CommitLogWriter, piece: LogPiece) -> None:
    """Appends a piece at its own place: the end of the log, behind a blank at that end, too; or any
    place if the log has no file yet. After a kill some of its first entries are there.

    :raises OSError: the disk is full. :raises CannotWrite: no new file can be made. The log is
        unchanged.
    """
    if not log.files.entries:
        log.write_offset = log.flushed_where = piece.physical_offset
    if log.write_offset < piece.physical_offset:
        _pass_blank(log, piece.physical_offset)
    if log.write_offset != piece.physical_offset:
        reason = f"a piece from {piece.physical_offset} for a log that ends at {log.write_offset}"
        raise InternalError(reason=reason)
    if piece.is_blank:
        _append_blank(log, piece)
    else:
        _append_records(log, piece)


def _pass_blank(log: CommitLogWriter, next_file: int) -> None:
    """Goes on behind a blank before which opening has ended the log, because no file was behind it:
    the master has one from ``next_file`` (physical offset) on."""
    mapped, position = log.locate(log.write_offset)
    entry = read_entry_of(mapped, position)
    if isinstance(entry, Blank) and entry.physical_offset + entry.total_size == next_file:
        log.advance(mapped, mapped.size, log.store_timestamp, next_file)


def _append_records(log: CommitLogWriter, piece: LogPiece) -> None:
    data, heads = memoryview(piece.data), piece.heads
    mapped, position = log.file_for(len(data))
    for head, end in zip(heads, (*heads[1:], len(data)), strict=True):
        # One by one, as they were put: so a kill never leaves a later record behind a gap.
        log.store(mapped, position + head, data[head:end], piece.store_timestamp)


def _append_blank(log: CommitLogWriter, piece: LogPiece) -> None:
    """Appends the blank with all bytes behind its head: Java's writer does not clear them."""
    mapped, position = log.locate(piece.physical_offset)
    data = piece.data
    if piece.physical_offset < log.stale_end:
        mapped.clear(position)
    length = len(data.rstrip(b"\0"))
    mapped.reserve(position, max(length, END_FILE_MIN_BLANK_LENGTH))
    buffer = log.buffer_of(mapped)
    buffer[position + RECORD_HEAD : position + length] = data[RECORD_HEAD:length]
    buffer[position : position + RECORD_HEAD] = data[:RECORD_HEAD]
    log.advance(mapped, mapped.size, log.store_timestamp, piece.end_offset)
