"""Advice to the kernel about the pages of a map: which are wanted soon, and whether to read ahead.

The bytes that are stored and read are the same without any of it.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress

from rmqctl.engine.files.extents import ZEROS, holes

#: What mmap has no name for (Linux 5.14).
_MADV_POPULATE_WRITE = 23


def expect_zeros(memory: mmap.mmap | bytes) -> None:
    """Turns read-ahead off, for a new file: all of it is zeros.

    A disk may be set to read megabytes ahead, and the first unit of each queue waited for them.
    """
    _advise(memory, mmap.MADV_RANDOM)


def expect_readers(memory: mmap.mmap | bytes) -> None:
    """Turns read-ahead on, for a file that is complete and will be read in order.

    Without read-ahead the disk brings single pages, which takes thirty times as long.
    """
    _advise(memory, mmap.MADV_NORMAL)


def want_all(memory: mmap.mmap, descriptor: int, start: int, end: int) -> None:
    """Brings all pages of a range into memory at once, because they will be stored into soon.

    :param start: position of the first byte, ``end`` that behind the last one; both are multiples
        of the page size, and the range has its disk blocks.
    """
    # Many pages come faster together, those of a new file too.
    _advise(memory, mmap.MADV_NORMAL)
    # An older kernel does not know this advice, memory may be short, and a disk may refuse. The
    # pages are then faulted in one by one as they are stored into.
    with suppress(OSError):
        if os.major(os.fstat(descriptor).st_dev):
            _write_zeros(descriptor, start, end)
        else:  # No disk lies below, as with tmpfs.
            memory.madvise(_MADV_POPULATE_WRITE, start, end - start)


def _write_zeros(descriptor: int, start: int, end: int) -> None:
    """Writes zeros into the holes of a range of a file.

    A store through the map into a page without data makes the file system look the block up, clear
    it and claim it, page by page. That takes five times as long as this write.
    """
    for low, high in list(holes(descriptor, start, end)):
        for at in range(low, high, len(ZEROS)):
            os.pwrite(descriptor, memoryview(ZEROS)[: high - at], at)


def _advise(memory: mmap.mmap | bytes, advice: int) -> None:
    """Gives advice where the system takes it: some small systems and sandboxes refuse."""
    if isinstance(memory, mmap.mmap):
        with suppress(OSError):
            memory.madvise(advice)
