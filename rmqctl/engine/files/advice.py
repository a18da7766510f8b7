"""What the system is told of the pages of a map: when they are wanted, and that nothing is ahead.

All of it is advice. What is stored, and what is read, is the same without.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress

from rmqctl.engine.files.extents import ZEROS, holes

#: What mmap has no name for (Linux 5.14).
_MADV_POPULATE_WRITE = 23


def expect_zeros(memory: mmap.mmap | bytes) -> None:
    """A new file is all zeros: nothing is worth reading ahead of a page that is stored into. Disks
    may be set to megabytes of that, and the first unit of each queue waited for all of them."""
    _advise(memory, mmap.MADV_RANDOM)


def expect_readers(memory: mmap.mmap | bytes) -> None:
    """A file has all that it will have: what is ahead of who reads it is wanted next. Without, a
    disk brings it page by page, which takes thirty times as long."""
    _advise(memory, mmap.MADV_NORMAL)


def want_all(memory: mmap.mmap, descriptor: int, start: int, end: int) -> None:
    """All of a range of whole pages of a file, whose disk space is reserved, will be stored into
    soon: they come at once."""
    # Many come sooner together, also those of a new file.
    _advise(memory, mmap.MADV_NORMAL)
    # An older system knows the advice not, one without memory says so, and a disk may refuse. Who
    # stores into the pages then takes them as ever.
    with suppress(OSError):
        if os.major(os.fstat(descriptor).st_dev):
            _write_zeros(descriptor, start, end)
        else:  # No disk is below it: such as a file system in memory.
            memory.madvise(_MADV_POPULATE_WRITE, start, end - start)


def _write_zeros(descriptor: int, start: int, end: int) -> None:
    """Writes zeros into the holes of a range. To store into a page of none through a map has the
    disk's file system look for it, clear it and claim it, page by page, which takes five times as
    long as to write them."""
    for low, high in list(holes(descriptor, start, end)):
        for at in range(low, high, len(ZEROS)):
            os.pwrite(descriptor, memoryview(ZEROS)[: high - at], at)


def _advise(memory: mmap.mmap | bytes, advice: int) -> None:
    """Systems without advice, as some for small devices, and others in sandboxes, refuse it."""
    if isinstance(memory, mmap.mmap):
        with suppress(OSError):
            memory.madvise(advice)
