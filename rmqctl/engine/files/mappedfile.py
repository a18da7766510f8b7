"""``MappedFile``: the one mmap engine under log, queues and index.

A file has a fixed size and is mapped whole, which costs nothing until its pages are touched.
New files are sparse, have their full length at once and are durable (file and directory entry are
synced, unless the caller does it). Before bytes are stored through the map their blocks are
allocated: a full disk is then an ``OSError`` at a known place, and never a SIGBUS.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from rmqctl.engine.files.advice import expect_zeros, want_all
from rmqctl.engine.files.dirty import DirtyRange, Unsynced
from rmqctl.engine.files.extents import ZEROS, end_of_first_data, extents, length_of_data, write_at
from rmqctl.engine.files.paths import (
    Forced,
    create_file,
    create_unnamed,
    name_file,
    open_for_reading,
    open_for_writing,
)
from rmqctl.errors import CannotRead

PAGE = mmap.PAGESIZE
#: Bytes that are allocated at once, at most.
_RESERVE_CHUNK = 1 << 18
#: Bytes that are looked at together: more is memory that the system is asked for, and takes back.
_LOOKED_AT = 1 << 16
#: Bytes behind what is being stored that are let go of at once.
_FORGOTTEN_AT_ONCE = 1 << 20


def reserved_chunk(position: int) -> tuple[int, int]:
    """The range, from its start to its end, that is allocated with a position of a file: as much as
    stands before it, but a page at least and 256 KiB at most. A queue of a few units takes a page,
    and a hundred thousand of them some hundred MiB."""
    size = min(max(1 << position.bit_length() >> 1, PAGE), _RESERVE_CHUNK)
    start = position // size * size
    return start, start + size


class MappedFile:
    """One file of the store, mapped whole.

    ``buffer`` is the map itself. It stays valid until :meth:`close`, which only a file's sole user
    calls; else file and map are closed with the last reference, whatever became of the name. An
    empty file has an empty buffer. Positions are relative to the file, ``file_from_offset`` is its
    first offset. In one that is ``framed`` each record stands behind the header of an entry.
    """

    framed = False
    __slots__ = (
        *("__weakref__", "_close_descriptor", "_allocated", "_dirty", "_forgotten", "_reserved"),
        *("_unsynced", "buffer", "descriptor", "file_from_offset", "path", "size", "whole"),
    )

    def __init__(
        self,
        path: Path,
        descriptor: int,
        file_from_offset: int,
        writable: bool,
        unsynced: Unsynced | None = None,
    ) -> None:
        """:param unsynced: gets this file when something was stored into it."""
        self.path = path
        self.file_from_offset = file_from_offset
        self.descriptor = descriptor
        self._reserved: set[int] = set()
        self._allocated = (0, 0)  # The last of them that were asked for together.
        self._forgotten = 0
        self._unsynced: Unsynced = {} if unsynced is None else unsynced
        self._dirty = self._unsynced.get(path) or DirtyRange()
        #: A range that is known to have no hole (:mod:`rmqctl.engine.files.holes`).
        self.whole = (0, 0)
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        try:
            self.size = os.fstat(descriptor).st_size
            # An empty file cannot be mapped.
            self.buffer: mmap.mmap | bytes = (
                mmap.mmap(descriptor, self.size, access=access) if self.size else b""
            )
        except (OSError, ValueError) as error:
            os.close(descriptor)
            raise CannotRead(path=str(path), reason=str(error)) from error
        self._close_descriptor = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def open(cls, path: Path, file_from_offset: int = 0) -> MappedFile:
        """Maps an existing file for reading."""
        return cls(path, open_for_reading(path), file_from_offset, False)

    @classmethod
    def open_writable(
        cls, root: Path, path: Path, file_from_offset: int = 0, unsynced: Unsynced | None = None
    ) -> MappedFile:
        """Maps an existing file for writing; no link below ``root`` is followed."""
        return cls(path, open_for_writing(root, path), file_from_offset, True, unsynced)

    @classmethod
    def create(
        cls,
        root: Path,
        path: Path,
        size: int,
        file_from_offset: int = 0,
        head: bytes = b"",
        forced: Forced = Forced.ALL,
        unsynced: Unsynced | None = None,
    ) -> MappedFile:
        """Makes a sparse file of ``size`` bytes, ``head`` and zeros, and maps it for writing."""
        descriptor = create_file(root, path, size, head, forced)
        mapped = cls(path, descriptor, file_from_offset, True, unsynced)
        expect_zeros(mapped.buffer)
        return mapped

    @classmethod
    def create_unnamed(
        cls,
        root: Path,
        path: Path,
        size: int,
        file_from_offset: int,
        forced: Forced,
        unsynced: Unsynced | None = None,
    ) -> MappedFile | None:
        """:meth:`create` of a file that has no name before :meth:`give_name`; None where the file
        system has no such files."""
        descriptor = create_unnamed(root, path, size, forced)
        if descriptor < 0:
            return None
        mapped = cls(path, descriptor, file_from_offset, True, unsynced)
        expect_zeros(mapped.buffer)
        return mapped

    def give_name(self, root: Path, head: bytes, forced: Forced) -> None:
        """The file begins with ``head``, and gets its name."""
        if head:
            self.reserve(0, len(head))
            self.write(0, head)
        name_file(root, self.path, self.descriptor, forced)

    def load(self, start: int, end: int) -> None:
        """Told before a range is read through :attr:`buffer`. Here all of the file is there; one
        that comes piece by piece fetches the range."""

    def load_entry(self, position: int) -> None:
        """Told before the fields of a log entry are read: :meth:`load` of them, not of the body."""

    def read(self, position: int, size: int) -> bytes:
        """A copy of up to ``size`` bytes; short at the end of the file. It does not go through the
        map: see :mod:`rmqctl.engine.files.holes`."""
        return self.read_aside(max(position, 0), max(size, 0))

    def read_aside(self, position: int, size: int) -> bytes:
        """:meth:`read` of a place that is one."""
        try:
            return os.pread(self.descriptor, size, position)
        except OSError as error:
            raise CannotRead(path=str(self.path), reason=error.strerror) from error

    def occurrences(self, needle: bytes, start: int, end: int) -> Iterator[int]:
        """Positions at which ``needle`` stands whole in a range, in order.

        Not by the map's own ``find``: before Python 3.11.4 that reads beyond the map (gh-105235).
        Nor through the map (:meth:`read_aside`).
        """
        for low in range(start, end, _LOOKED_AT):
            size = min(low + _LOOKED_AT + len(needle) - 1, end) - low
            piece = self.read_aside(low, size)
            # Behind a log's end that is all, and to see it takes a tenth of what to search it does.
            if ZEROS.startswith(piece) and needle[:1] > b"\0":
                continue
            at = piece.find(needle)
            while at >= 0:
                yield low + at
                at = piece.find(needle, at + 1)

    def reserve(self, position: int, size: int) -> None:
        """Allocates the blocks of a range, so that storing into it cannot fail.

        :raises OSError: the disk is full (ENOSPC, EDQUOT) or refuses otherwise.
        """
        low, high = self._allocated
        if low <= position and position + size <= high:
            return
        start = at = position
        while at < position + size:
            start, at = reserved_chunk(at)
            if start in self._reserved:
                continue
            chunks = [start]
            while at < position + size:
                following, behind = reserved_chunk(at)
                if following in self._reserved:
                    break
                chunks.append(following)
                at = behind
            try:
                os.posix_fallocate(self.descriptor, start, min(at, self.size) - start)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                # Not the whole chunk fits: what is really needed still may. That is whole pages,
                # for a page is stored with all of its blocks, however small these are.
                low = position // PAGE * PAGE
                high = min(-(-(position + size) // PAGE) * PAGE, self.size)
                os.posix_fallocate(self.descriptor, low, high - low)
                return
            self._reserved.update(chunks)
        self._allocated = start, at

    def room_behind(self, position: int) -> int:
        """Up to where blocks are known to be allocated behind a position whose own were asked for
        last; at least that position."""
        low, high = self._allocated
        return min(high, self.size) if low <= position < high else position

    @property
    def dirty(self) -> DirtyRange:
        """What was stored since the last :meth:`flush`; :meth:`mark_dirty` makes it grow."""
        return self._dirty

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Stores ``data``; the range must lie in the file and be reserved."""
        end = position + len(data)
        # First: an interrupt must not leave something that no flush knows of.
        self.mark_dirty(position, end)
        self.buffer[position:end] = data  # type: ignore[index]

    def write_aside(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """:meth:`write`, but not through the map, and of a range that need not be reserved: for
        files that nobody else looks at yet. A page that is stored into through a new file's map
        costs a fault; many at once cost next to nothing so.

        :raises OSError: the disk is full; a part may have been stored.
        """
        write_at(self.descriptor, data, position)
        self.mark_dirty(position, position + len(data))

    def mark_dirty(self, start: int, end: int) -> None:
        """Notes a range that was stored through the buffer, for :meth:`flush`."""
        dirty = self._dirty
        if not dirty.end:
            # Who lets go of a file that somebody still stores into maps it again: a file has one
            # range, whichever map it was stored through, or one of them would never be forced.
            known = self._unsynced.setdefault(self.path, dirty)
            if known is dirty:
                dirty.start, dirty.end = start, end
                return
            self._dirty = dirty = known
        if start < dirty.start:
            dirty.start = start
        if end > dirty.end:
            dirty.end = end

    def flush(self) -> None:
        """Forces what was stored since the last flush to disk (``MappedFile#flush``).

        :raises OSError: the disk failed; the bytes must not be taken for durable.
        """
        start, end = self._dirty.start, self._dirty.end
        if not end:
            return
        self._dirty.end = 0
        self._unsynced.pop(self.path, None)
        try:
            # What msync does to these pages; but mmap's flush keeps all other threads waiting.
            os.fdatasync(self.descriptor)
        except OSError:
            self.mark_dirty(start, end)
            raise

    def forget(self, start: int, end: int) -> None:
        """Says that a range will not be looked at again soon: its pages no longer count as this
        process's memory. They stay in the system's cache and come back when they are touched.
        Those that are locked in memory stay there."""
        first, last = -(-start // PAGE) * PAGE, end // PAGE * PAGE
        if isinstance(self.buffer, mmap.mmap) and last > first:
            try:
                self.buffer.madvise(mmap.MADV_DONTNEED, first, last - first)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise

    def touch(self, start: int, end: int) -> None:
        """Says that all of a range, which is reserved, will be stored into soon: its pages come at
        once, which takes less time than each by itself. Of less than a page nothing comes."""
        # A page that was stored into is there.
        first, last = -(-start // PAGE) * PAGE, min(-(-end // PAGE) * PAGE, self.size)
        if isinstance(self.buffer, mmap.mmap) and last - first >= PAGE:
            want_all(self.buffer, self.descriptor, first, last)

    def forget_behind(self, position: int, start: int = 0) -> None:
        """:meth:`forget` of what was stored from ``start`` on up to a position, where that is worth
        it: so a file that is stored into from its start to its end takes little memory."""
        low = max(self._forgotten, start)
        if position - low >= _FORGOTTEN_AT_ONCE:
            self.forget(low, position)
            self._forgotten = position // PAGE * PAGE

    @property
    def is_dirty(self) -> bool:
        """Whether something was stored since the last :meth:`flush`."""
        return self._dirty.end > 0

    def close(self) -> None:
        """Unmaps and closes; without :meth:`flush` the system writes when it likes."""
        if self.descriptor < 0:
            return
        if isinstance(self.buffer, mmap.mmap):
            try:
                self.buffer.close()
            except BufferError:
                # A caller still looks at the bytes: the map goes with its last view.
                self.buffer = b""
        self._close_descriptor()
        self.descriptor = -1

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of a range that hold data, in order; holes (all zeros) are left out."""
        return extents(self.descriptor, start, end)

    def end_of_first_data(self) -> int:
        """:func:`end_of_first_data` of the file."""
        return min(end_of_first_data(self.descriptor), self.size)

    def first_nonzero(self, start: int, end: int) -> int:
        """Position of the first byte in the range that is not zero; ``end`` when all are."""
        for low, high in self.extents(start, min(end, self.size)):
            for at in range(low, high, _LOOKED_AT):
                piece = self.read_aside(at, min(_LOOKED_AT, high - at))
                if not ZEROS.startswith(piece):
                    return at + len(piece) - len(piece.lstrip(b"\0"))
        return end

    def end_of_data(self, start: int) -> int:
        """Position after the last byte from ``start`` on that is not zero; ``start`` without."""
        for low, high in reversed(list(self.extents(start, self.size))):
            for end in range(high, low, -_LOOKED_AT):
                first = max(end - _LOOKED_AT, low)
                # Not through the map: what was allocated ahead would take its pages one by one.
                length = length_of_data(self.read_aside(first, end - first))
                if length:
                    return first + length
        return start

    def clear(self, start: int) -> None:
        """Stores zeros wherever something else stands from ``start`` on; holes stay holes.

        The first two bytes go first: from then on, also when it is killed, whoever reads a size
        there finds none. The others go from the end back, so that no zeros stand before bytes that
        are left.

        :raises OSError: the disk is full, or refuses otherwise.
        """
        ranges = [*self.extents(start, self.size), (start, min(start + 2, self.size))]
        for low, high in reversed(ranges):
            for at in reversed(range(low, high, len(ZEROS))):
                zeros = ZEROS[: min(len(ZEROS), high - at)]
                if self.read_aside(at, len(zeros)) != zeros:
                    self.reserve(at, len(zeros))
                    self.write(at, zeros)
