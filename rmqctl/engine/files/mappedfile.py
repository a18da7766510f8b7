"""``MappedFile``: the one mmap engine under log, queues and index.

A file has a fixed size and is mapped whole, which costs nothing until its pages are touched.
New files are sparse and have their full length at once; file and name are synced when it is made,
unless the caller does that. Before bytes are stored through the map, their blocks are allocated. So
a full disk is an ``OSError`` of that call, and never a SIGBUS at the store.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rmqctl.engine.files import writing
from rmqctl.engine.files.advice import expect_zeros, want_all
from rmqctl.engine.files.dirty import DirtyRange, Unsynced
from rmqctl.engine.files.durable import force, raise_lost
from rmqctl.engine.files.extents import (
    ZEROS,
    allocate,
    end_of_first_data,
    extents,
    length_of_data,
    write_at,
)
from rmqctl.engine.files.paths import open_listed
from rmqctl.engine.files.writing import Forced
from rmqctl.errors import CannotRead, CannotWrite, RmqctlError

PAGE = mmap.PAGESIZE
#: Bytes of the largest chunk that is allocated at once.
_RESERVE_CHUNK = 1 << 18
#: Bytes of one ``pread`` in a search: malloc gets larger buffers from the system each time.
_LOOKED_AT = 1 << 16
#: Bytes of pages behind an append that are dropped together.
_FORGOTTEN_AT_ONCE = 1 << 20


def reserved_chunk(position: int) -> tuple[int, int]:
    """Start and end of the chunk that is allocated when ``position`` of a file is stored into.

    A chunk has the largest power of two that is not larger than ``position``, at least a page and
    at most 256 KiB. So a queue of a few units takes one page, and 100,000 of them 400 MiB.
    """
    size = min(max(1 << position.bit_length() >> 1, PAGE), _RESERVE_CHUNK)
    start = position // size * size
    return start, start + size


class MappedFile:
    """One file of the store, mapped whole.

    ``buffer`` is the map; an empty file has an empty one. It is valid until :meth:`close`, which
    only the file's sole user calls; otherwise map and file are closed with the last reference, even
    when the name is gone. Positions count from the start of the file, and ``file_from_offset`` is
    the offset of its first byte. In a ``framed`` file (DLedger) a header stands before each record.
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
        """Maps the open file ``descriptor``, which is closed with this object.

        :param unsynced: the file is noted here as soon as it is stored into.
        :raises CannotRead: the system refuses to map it. :raises CannotWrite: the same, of a
            ``writable`` one.
        """
        self.path = path
        self.file_from_offset = file_from_offset
        self.descriptor = descriptor
        self._reserved: set[int] = set()
        self._allocated = (0, 0)  # The range of the chunks that were reserved last.
        self._forgotten = 0
        self._unsynced = Unsynced() if unsynced is None else unsynced
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
        except BaseException as error:
            os.close(descriptor)
            if not isinstance(error, OSError | ValueError):
                raise
            reason = error.strerror if isinstance(error, OSError) else str(error)
            refused = CannotWrite if writable else CannotRead
            raise refused(path=str(path), reason=reason) from error
        self._close_descriptor = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def open(cls, path: Path, file_from_offset: int = 0) -> MappedFile:
        """Maps an existing file for reading."""
        return cls(path, open_listed(path), file_from_offset, False)

    @classmethod
    def head(cls, path: Path, size: int) -> bytes | None:
        """The first ``size`` bytes of a file; None when it is absent, or shorter.

        :raises CannotRead: the system refuses to read it.
        """
        if not path.exists():
            return None
        mapped = cls.open(path)
        try:
            data = mapped.read(0, size)
        finally:
            mapped.close()
        return data if len(data) == size else None

    @classmethod
    def open_writable(
        cls, root: Path, path: Path, file_from_offset: int = 0, unsynced: Unsynced | None = None
    ) -> MappedFile:
        """Maps an existing file for writing; no link below ``root`` is followed."""
        return cls(path, writing.open_for_writing(root, path), file_from_offset, True, unsynced)

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
        """Makes a sparse file of ``size`` bytes, ``head`` and zeros, and maps it for writing. If it
        cannot be mapped, nothing is left of it."""
        descriptor = writing.create_file(root, path, size, head, forced)
        try:
            mapped = cls(path, descriptor, file_from_offset, True, unsynced)
            expect_zeros(mapped.buffer)
        except BaseException:
            with suppress(RmqctlError):
                writing.remove_file(root, path)
            raise
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
        """:meth:`create`, but the file has no name before :meth:`give_name`. None where the file
        system has no unnamed files."""
        descriptor = writing.create_unnamed(root, path, size, forced)
        if descriptor < 0:
            return None
        mapped = cls(path, descriptor, file_from_offset, True, unsynced)
        expect_zeros(mapped.buffer)
        return mapped

    def give_name(self, root: Path, head: bytes, forced: Forced) -> None:
        """Stores ``head`` at the start of an unnamed file and gives it its name."""
        if head:
            self.reserve(0, len(head))
            self.write(0, head)
        writing.name_file(root, self.path, self.descriptor, forced)

    def load(self, start: int, end: int) -> None:
        """Called before a range is read through :attr:`buffer`. Does nothing here; a file that is
        fetched piece by piece (a URL) overrides it."""

    def load_entry(self, position: int) -> None:
        """Called before the fields of a log entry are read; :meth:`load` without its body."""

    def read(self, position: int, size: int) -> bytes:
        """A copy of up to ``size`` bytes, short at the end of the file. By ``pread``, not the map:
        :mod:`rmqctl.engine.files.holes` says why."""
        return self.read_aside(max(position, 0), max(size, 0))

    def read_aside(self, position: int, size: int) -> bytes:
        """:meth:`read` for a position and a size that are not negative."""
        try:
            return os.pread(self.descriptor, size, position)
        except OSError as error:
            raise CannotRead(path=str(self.path), reason=error.strerror) from error

    def occurrences(self, needle: bytes, start: int, end: int) -> Iterator[int]:
        """Positions at which all of ``needle`` stands in a range, in order.

        ``mmap.find`` is not used: before Python 3.11.4 it reads beyond the map (gh-105235).
        """
        for low in range(start, end, _LOOKED_AT):
            size = min(low + _LOOKED_AT + len(needle) - 1, end) - low
            piece = self.read_aside(low, size)
            # Behind a log's end are only zeros. Comparing takes a tenth of the time of a search.
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
                allocate(self.descriptor, start, min(at, self.size) - start)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                # The chunk does not fit, but the range itself still may. It is widened to whole
                # pages: a dirty page is written with all of its blocks.
                low = position // PAGE * PAGE
                high = min(-(-(position + size) // PAGE) * PAGE, self.size)
                allocate(self.descriptor, low, high - low)
                return
            self._reserved.update(chunks)
        self._allocated = start, at

    def room_behind(self, position: int) -> int:
        """Where the blocks end that were allocated together with those of ``position``, by the last
        call of :meth:`reserve`; at least ``position``."""
        low, high = self._allocated
        return min(high, self.size) if low <= position < high else position

    @property
    def dirty(self) -> DirtyRange:
        """The range stored into since the last :meth:`flush`; :meth:`mark_dirty` widens it."""
        return self._dirty

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Stores ``data``; the range must lie in the file and be reserved."""
        end = position + len(data)
        # Noted first: after an interrupt a flush must know of every byte.
        self.mark_dirty(position, end)
        self.buffer[position:end] = data  # type: ignore[index]

    def write_aside(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """:meth:`write` by ``pwrite``, of a range that need not be reserved: for files that nobody
        else reads yet. It saves the page fault that each page costs through a new file's map.

        :raises OSError: the disk is full; a part may have been stored.
        """
        write_at(self.descriptor, data, position)
        self.mark_dirty(position, position + len(data))

    def mark_dirty(self, start: int, end: int) -> None:
        """Notes a range that was stored through the buffer, for :meth:`flush`."""
        dirty = self._dirty
        if not dirty.end:
            # A file may be mapped twice, when a cache has dropped a map that is still in use. Both
            # share one range, or what was stored through one of them would never be forced.
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

        :raises OSError: the disk failed, now or before; the bytes must not be taken for durable.
        """
        raise_lost(self._unsynced)
        start, end = self._dirty.start, self._dirty.end
        if not end:
            return
        try:
            self._unsynced.clean(self.path)
            # As good as msync of these pages; mmap.flush would hold the GIL meanwhile.
            force(self.descriptor, self._unsynced)
        except BaseException:
            self.mark_dirty(start, end)
            raise

    def forget(self, start: int, end: int) -> None:
        """Drops the pages of a range from this process's memory (``MADV_DONTNEED``). They stay in
        the page cache and come back when they are touched. Pages locked in memory stay mapped."""
        first, last = -(-start // PAGE) * PAGE, end // PAGE * PAGE
        if isinstance(self.buffer, mmap.mmap) and last > first:
            try:
                self.buffer.madvise(mmap.MADV_DONTNEED, first, last - first)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise

    def touch(self, start: int, end: int) -> None:
        """Faults in all pages of a reserved range at once, because it will be stored into soon.
        Does nothing for less than a page."""
        # The first page is there already when its start was stored into.
        first, last = -(-start // PAGE) * PAGE, min(-(-end // PAGE) * PAGE, self.size)
        if isinstance(self.buffer, mmap.mmap) and last - first >= PAGE:
            want_all(self.buffer, self.descriptor, first, last)

    def forget_behind(self, position: int, start: int = 0) -> None:
        """Drops the pages from ``start`` up to ``position``, a MiB or more at a time, so that a
        file which is filled from start to end takes little memory."""
        low = max(self._forgotten, start)
        if position - low >= _FORGOTTEN_AT_ONCE:
            self.forget(low, position)
            self._forgotten = position // PAGE * PAGE

    def close(self) -> None:
        """Unmaps and closes the file. Does not :meth:`flush`: the kernel writes it back later."""
        if self.descriptor < 0:
            return
        if isinstance(self.buffer, mmap.mmap):
            try:
                self.buffer.close()
            except BufferError:
                # Somebody holds a view of the map, which is unmapped with the last view.
                self.buffer = b""
        self._close_descriptor()
        self.descriptor = -1

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """:func:`~rmqctl.engine.files.extents.extents` of the file: parts of a range with data."""
        return extents(self.descriptor, start, end)

    def end_of_first_data(self) -> int:
        """:func:`~rmqctl.engine.files.extents.end_of_first_data` of the file."""
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
        """Position behind the last byte from ``start`` on that is not zero; ``start`` without."""
        for low, high in reversed(list(self.extents(start, self.size))):
            for end in range(high, low, -_LOOKED_AT):
                first = max(end - _LOOKED_AT, low)
                # By pread: through the map each page allocated ahead would be faulted in.
                length = length_of_data(self.read_aside(first, end - first))
                if length:
                    return first + length
        return start

    def clear(self, start: int) -> None:
        """Stores zeros over all data from ``start`` on; holes stay holes.

        The first two bytes are cleared first: from then on a reader finds no size there, even after
        a kill. The rest is cleared from the end backwards, so that a kill leaves no zeros in front
        of bytes that were to go.

        :raises OSError: the disk is full, or refuses otherwise.
        """
        ranges = [*self.extents(start, self.size), (start, min(start + 2, self.size))]
        for low, high in reversed(ranges):
            for at in reversed(range(low, high, len(ZEROS))):
                zeros = ZEROS[: min(len(ZEROS), high - at)]
                if self.read_aside(at, len(zeros)) != zeros:
                    self.reserve(at, len(zeros))
                    self.write(at, zeros)
