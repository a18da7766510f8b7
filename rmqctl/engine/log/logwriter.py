"""``CommitLog``, its writing half: appended to, committed, flushed.

It has three physical offsets, none larger than the one before. ``write_offset`` is where the next
record goes. Up to ``committed_where`` the files hold the records, which without a transient store
pool is ``write_offset``. Up to ``flushed_where`` they are on disk. The caller makes sure that one
thread appends at a time; others may commit and flush meanwhile.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from formats.constants import BLANK_MAGIC_CODE, END_FILE_MIN_BLANK_LENGTH
from rmqctl.engine.files import writing
from rmqctl.engine.files.durable import raise_lost, sync_files
from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.filequeue import FileEntry
from rmqctl.engine.files.filequeuewriter import MappedFileQueueWriter
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.log.commitlog import RECORD_HEAD, CommitLog
from rmqctl.engine.log.end import NEAR, LogEnd, check_blank_fits, check_end
from rmqctl.engine.record.record import BLANK, Record

if TYPE_CHECKING:
    from rmqctl.engine.files.bufferpool import TransientStorePool, WriteBuffer

_PAGE = mmap.PAGESIZE


def is_able(done: int, reached: int, size: int, least_pages: int) -> bool:
    """Whether a file of ``size`` bytes that is flushed (or committed) up to ``done`` and written up
    to ``reached`` has ``least_pages`` pages to flush, is full, or with 0 has any byte
    (``MappedFile#isAbleToFlush``, ``#isAbleToCommit``)."""
    if reached == size:
        return True
    if least_pages > 0:
        return reached // _PAGE - done // _PAGE >= least_pages
    return reached > done


class CommitLogWriter(CommitLog):
    """The log of a store that is open for writing.

    :param root: the store; no link below it is followed.
    :param pool: buffers for new files (``transientStorePoolEnable``).
    :param warm_pages: touch each page of a new file and lock it in memory
        (``warmMapedFileEnable``), with a flush every so many pages; 0: without a flush. None: new
        files are sparse.
    """

    files: MappedFileQueueWriter

    def __init__(
        self,
        directory: Path,
        file_size: int,
        root: Path,
        *,
        files: MappedFileQueueWriter | None = None,
        pool: TransientStorePool | None = None,
        warm_pages: int | None = None,
    ) -> None:
        files = files or MappedFileQueueWriter(directory, file_size, root)
        super().__init__(directory, file_size, files=files)
        self.write_offset = -1
        #: Store time (ms) of the last record appended; 0: not known.
        self.store_timestamp = 0
        self.flushed_where = -1
        #: Store time (ms) of the last record that a flush up to the end covered.
        self.flushed_timestamp = 0
        #: Called after each flush with its duration in ms.
        self.on_flush: Callable[[float], None] | None = None
        #: Up to this offset, old bytes may stand behind the end: a torn append, or a truncation's.
        self.stale_end = -1
        self._pool = pool
        self._warm_pages = warm_pages
        self._write_buffers: dict[int, WriteBuffer] = {}
        #: A reference to the file that is appended to, so that it stays mapped and its pages
        #: locked.
        self._appended_to: MappedFile | None = None
        self._committed = (-1, 0)
        self._commit_lock = threading.Lock()
        self._flush_lock = threading.Lock()
        #: What the disk has said when a flush failed.
        self.lost: OSError | None = None

    @property
    def read_offset(self) -> int:
        """Up to where the files hold what was appended (``getReadPosition``)."""
        return self._reached()[0]

    @property
    def committed_where(self) -> int:
        return self.read_offset

    def _reached(self) -> tuple[int, int]:
        """:attr:`read_offset`, and a store time that is not later than that of the last record
        before it."""
        while not self._write_buffers:
            timestamp = self.store_timestamp  # Set after the offset, so it is never ahead of it.
            reached = self.write_offset
            # A record appended meanwhile may lie in a buffer only, which was there before it.
            if not self._write_buffers:
                return reached, timestamp
        return self._committed

    # --- appending -----------------------------------------------------------------------

    def start_writing(self, end: LogEnd, *, is_unread: bool = False) -> None:
        """Takes ``end`` as the place of the next append; errors as in :func:`check_end`."""
        check_end(end)
        self.is_unread, self.store_timestamp = is_unread, end.store_timestamp
        self.write_offset = self.flushed_where = end.offset
        mapped = self.files.find(end.offset)
        if mapped is not None:
            position = end.offset - mapped.file_from_offset
            near = min(position + NEAR, mapped.size)
            # As in the search for the end, only the next MiB is read, and not gigabytes of zeros.
            if mapped.first_nonzero(position, near) < near:
                self.stale_end = mapped.file_from_offset + mapped.end_of_data(position)

    def clear_behind(self) -> None:
        """Clears what an append that was interrupted has stored behind the end."""
        mapped = self.files.find(self.write_offset)
        if mapped is not None and self.stale_end <= self.write_offset:
            position = self.write_offset - mapped.file_from_offset
            if mapped.first_nonzero(position, position + NEAR) < position + NEAR:
                mapped.clear(position)

    def doubt_flushed(self, timestamp: int) -> None:
        """Moves ``flushed_where`` back after an unclean stop, to the start of the newest file whose
        first record is older than ``timestamp`` (the checkpoint's, ms)."""
        for entry in reversed(self.files.entries):
            if entry.file_from_offset < self.flushed_where:
                self.flushed_where = entry.file_from_offset
                first = self.find_record(entry.file_from_offset)
                if isinstance(first, Record) and first.store_timestamp < timestamp:
                    return

    def file_for(self, size: int) -> tuple[MappedFile, int]:
        """File and position for the next ``size`` bytes of records. Rolls to a new file when they
        do not fit.

        As in ``DefaultAppendMessageCallback#doAppend``: when ``size + 8`` exceeds what is left, a
        blank fills the file and the next one is made.

        :raises OSError: the disk is full; :raises CannotWrite: no new file can be made. The log
            is as it was, or ends with a blank, both valid.
        :raises DamagedStore: the file has no room left for a blank, which every writer leaves.
        """
        mapped = self.files.find(self.write_offset)
        if mapped is None:
            mapped = self._append_file(self.write_offset)
        self._appended_to = mapped
        position = self.write_offset - mapped.file_from_offset
        if size + END_FILE_MIN_BLANK_LENGTH <= mapped.size - position:
            mapped.reserve(position, size + END_FILE_MIN_BLANK_LENGTH)
            return mapped, position
        following = mapped.file_from_offset + mapped.size
        check_blank_fits(following, mapped.size - position)
        mapped.reserve(position, END_FILE_MIN_BLANK_LENGTH)
        blank = BLANK.pack(mapped.size - position, BLANK_MAGIC_CODE)
        self.buffer_of(mapped)[position : position + len(blank)] = blank
        self.advance(mapped, position + len(blank), self.store_timestamp, following)
        if self._warm_pages is not None and isinstance(mapped.buffer, mmap.mmap):
            from rmqctl.engine.files.pagelock import munlock

            munlock(mapped.buffer)
        fresh = self.files.find(following) or self._append_file(following)
        fresh.reserve(0, size)
        return fresh, 0

    def _append_file(self, file_from_offset: int) -> MappedFile:
        """Makes the next file, with a buffer when there is a pool.

        When the pool has no buffer left, the ones in use are committed first, which frees them; the
        file is made only after that. RocketMQ stores into the file itself then, and a kill would
        leave records behind a hole.

        :raises OSError: the disk refuses a commit, or the file. No file was made.
        """
        buffer = self._borrowed_buffer()
        if buffer is not None:
            from rmqctl.engine.files.bufferpool import WriteBuffer

            # Before there is a file: after an interrupt it is never without its buffer.
            with self._commit_lock:
                if not self._write_buffers:
                    self._committed = file_from_offset, self.store_timestamp
                self._write_buffers[file_from_offset] = WriteBuffer(buffer)
        try:
            fresh = self.files.append_file(file_from_offset)
        except BaseException:
            if buffer is not None and self.files.end_offset <= file_from_offset:
                with self._commit_lock:
                    del self._write_buffers[file_from_offset]
                assert self._pool is not None
                self._pool.return_buffer(buffer)
            raise
        if buffer is None and self._warm_pages is not None:
            self._warm(fresh, self._warm_pages)
        return fresh

    def _borrowed_buffer(self) -> mmap.mmap | None:
        """A buffer of the pool for the next file; None without a pool, or when none is left."""
        if self._pool is None:
            return None
        buffer = self._pool.borrow_buffer()
        if buffer is None and self._write_buffers:
            self.commit_all()
            buffer = self._pool.borrow_buffer()
        return buffer

    def _warm(self, mapped: MappedFile, force_pages: int) -> None:
        """Touches each page before the first record needs it (``MappedFile#warmMappedFile``)."""
        mapped.reserve(0, mapped.size)
        buffer = mapped.buffer
        assert isinstance(buffer, mmap.mmap)
        step = force_pages * _PAGE or mapped.size
        for start in range(0, mapped.size, step):
            for position in range(start, min(start + step, mapped.size), _PAGE):
                buffer[position] = 0
            if force_pages:
                sync_files([mapped.path], loser=self)
        from rmqctl.engine.files.pagelock import mlock

        mlock(buffer)

    def buffer_of(self, mapped: MappedFile) -> mmap.mmap:
        """What the records of a file are stored into: its write buffer, or its map."""
        held = self._write_buffers.get(mapped.file_from_offset) if self._write_buffers else None
        buffer = mapped.buffer if held is None else held.buffer
        assert isinstance(buffer, mmap.mmap)
        return buffer

    def advance(self, mapped: MappedFile, position: int, timestamp: int, offset: int) -> None:
        """Moves the end of the log: the file holds records up to ``position``, and the next record
        goes to ``offset`` (physical). ``timestamp`` is the last record's store time (ms)."""
        held = self._write_buffers.get(mapped.file_from_offset) if self._write_buffers else None
        if held is not None:
            held.end = position
        self.write_offset = offset
        self.store_timestamp = timestamp

    def store(
        self, mapped: MappedFile, position: int, encoded: bytes | memoryview, timestamp: int
    ) -> int:
        """Stores one encoded record where :meth:`file_for` said; returns its physical offset.

        Size and magic code are stored last, by one store of eight bytes that no kill can tear. So a
        kill leaves a whole record or none: nothing else would tell whether topic and properties are
        complete.
        """
        offset, end = mapped.file_from_offset + position, position + len(encoded)
        if offset < self.stale_end:
            self._clear(mapped, position, end)
        buffer = self.buffer_of(mapped)
        buffer[position + RECORD_HEAD : end] = memoryview(encoded)[RECORD_HEAD:]
        buffer[position : position + RECORD_HEAD] = encoded[:RECORD_HEAD]
        self.advance(mapped, end, timestamp, mapped.file_from_offset + end)
        return offset

    @staticmethod
    def _clear(mapped: MappedFile, *positions: int) -> None:
        """Stores zeros at positions where a crash, or a truncation by a broker, has left bytes. So
        the log ends behind its last record, and does not go on with old ones."""
        for position in positions:
            zeros = bytes(min(RECORD_HEAD, mapped.size - position))
            if mapped.read(position, RECORD_HEAD) != zeros:
                mapped.write(position, zeros)

    # --- committing and flushing ---------------------------------------------------------

    def commit(self, least_pages: int = 0) -> bool:
        """Writes what one buffer holds to its file (``MappedFileQueue#commit``); whether there was
        something to write. The buffer of a full file goes back to the pool.

        :raises OSError: the disk failed; the bytes stay in the buffer.
        """
        with self._commit_lock:
            if not self._write_buffers:
                return False
            timestamp, written, where = self.store_timestamp, self.write_offset, self._committed[0]
            entry = self._entry_from(where)
            if entry is None or where >= written:
                return False
            end = min(written, entry.file_from_offset + entry.size)
            position, reached = where - entry.file_from_offset, end - entry.file_from_offset
            if not is_able(position, reached, entry.size, least_pages):
                return False
            held = self._write_buffers.get(entry.file_from_offset)
            if held is not None:
                is_full = reached == entry.size
                self._write(entry, held.buffer, position, held.end if is_full else reached)
            self._committed = end, timestamp if end == written else self._committed[1]
            if held is not None and is_full:
                del self._write_buffers[entry.file_from_offset]
                assert self._pool is not None
                self._pool.return_buffer(held.buffer)
            return True

    def commit_all(self) -> None:
        """:meth:`commit` until the files hold everything."""
        while self.commit():
            pass

    def _write(self, entry: FileEntry, buffer: mmap.mmap, start: int, end: int) -> None:
        """Writes a range of a buffer to its file: first everything but size and magic code of each
        record, then those in order. A kill leaves whole records, with zeros behind the last."""
        data = bytearray(buffer[start:end])
        heads = []
        at = 0
        while at + RECORD_HEAD <= len(data):
            head = bytes(data[at : at + RECORD_HEAD])
            data[at : at + RECORD_HEAD] = bytes(RECORD_HEAD)
            heads.append((start + at, head))
            at += max(BLANK.unpack(head)[0], RECORD_HEAD)
        descriptor = writing.open_for_writing(self.files.root_of(entry.path), entry.path)
        try:
            write_at(descriptor, data, start)
            with mmap.mmap(descriptor, entry.size) as file:
                for position, head in heads:
                    file[position : position + RECORD_HEAD] = head
        finally:
            os.close(descriptor)

    def flush(self, least_pages: int = 0) -> bool:
        """Forces one file to disk, the one at :attr:`flushed_where` (``MappedFileQueue#flush``);
        whether it did. Records in two files take two calls.

        :raises OSError: the disk failed, now or in an earlier call. The kernel reports a page that
            it could not write only once and may drop it, so a later fsync proves nothing. A limit
            of open files makes only this call fail.
        """
        with self._flush_lock:
            raise_lost(self)
            readable, timestamp = self._reached()
            if self.flushed_where == readable:
                # The flush before this may have met a put whose time was not set yet.
                self.flushed_timestamp = timestamp
            entry = self._entry_from(self.flushed_where)
            if entry is None or self.flushed_where >= readable:
                return False
            end = min(readable, entry.file_from_offset + entry.size)
            # If a file is missing here, the next one is flushed from its start.
            position = max(self.flushed_where - entry.file_from_offset, 0)
            if not is_able(position, end - entry.file_from_offset, entry.size, least_pages):
                return False
            started = time.perf_counter()
            sync_files([entry.path], loser=self)
            if self.on_flush is not None:
                self.on_flush((time.perf_counter() - started) * 1000)
            self.flushed_where = end
            if end == readable:
                self.flushed_timestamp = timestamp
            return True

    def force(self, offset: int | None = None) -> bool:
        """Commits and flushes everything, or everything before ``offset``; whether it is on disk.

        RocketMQ stops after two files, which is enough for a message, but not for a bulk.

        :raises OSError: the disk failed.
        """
        wanted = self.write_offset if offset is None else offset
        if self.read_offset < wanted:
            self.commit_all()
        while self.flushed_where < wanted and self.flush():
            pass
        return self.flushed_where >= wanted

    def _entry_from(self, offset: int) -> FileEntry | None:
        """The file that holds an offset, or the next one when it is missing. Only the list of files
        is used, since other threads map and unmap files meanwhile."""
        found = None
        for entry in reversed(self.files.entries):
            if entry.file_from_offset + entry.size <= offset:
                break
            found = entry
        return found

    def close(self) -> None:
        self._appended_to = None
        super().close()
        if self._pool is not None:
            with self._commit_lock:
                # What was not committed is given up; a later flush must not count it.
                self.write_offset = self.read_offset
                for held in self._write_buffers.values():
                    self._pool.return_buffer(held.buffer)
                self._write_buffers = {}
                self._pool.destroy()
