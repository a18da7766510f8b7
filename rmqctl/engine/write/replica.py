"""What a slave does to its store: it appends what its master's log has (``CommitLog#appendData``).

Queues and index are its own, by the dispatch of every put.
"""

from __future__ import annotations

from formats.constants import END_FILE_MIN_BLANK_LENGTH
from rmqctl.engine.log.commitlog import RECORD_HEAD
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.record.pieces import LogPiece
from rmqctl.errors import InternalError


def append_piece(log: CommitLogWriter, piece: LogPiece) -> None:
    """Appends a piece at its own place, which is the end of the log, or any one where the log has
    no file yet. A kill leaves its first entries, however many.

    :raises OSError: the disk is full. :raises CannotWrite: no new file can be made. The log is as
        it was.
    """
    if not log.files.entries:
        log.write_offset = log.flushed_where = piece.physical_offset
    if log.write_offset != piece.physical_offset:
        reason = f"a piece from {piece.physical_offset} for a log that ends at {log.write_offset}"
        raise InternalError(reason=reason)
    if piece.is_blank:
        _append_blank(log, piece)
    else:
        _append_records(log, piece)


def _append_records(log: CommitLogWriter, piece: LogPiece) -> None:
    data, heads = memoryview(piece.data), piece.heads
    mapped, position = log.file_for(len(data))
    for head, end in zip(heads, (*heads[1:], len(data)), strict=True):
        # One by one, as they were put: nothing newer stands behind a place that a kill left empty.
        log.store(mapped, position + head, data[head:end], piece.store_timestamp)


def _append_blank(log: CommitLogWriter, piece: LogPiece) -> None:
    """The blank with whatever stands behind its head: Java's writer leaves there what was there."""
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
