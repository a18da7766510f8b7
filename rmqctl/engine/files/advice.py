"""What the system is told of the pages of a map: when they are wanted, and that nothing is ahead.

All of it is advice. What is stored, and what is read, is the same without.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

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


def want_all(memory: mmap.mmap, start: int, end: int) -> None:
    """All of a range of whole pages will be stored into soon: they come at once."""
    # Many come sooner together, also those of a new file.
    _advise(memory, mmap.MADV_NORMAL)
    # An older system knows it not, one without memory says so. Who stores into the pages then takes
    # them as ever.
    with suppress(OSError):
        memory.madvise(_MADV_POPULATE_WRITE, start, end - start)


def _advise(memory: mmap.mmap | bytes, advice: int) -> None:
    """Systems without advice, as some for small devices, and others in sandboxes, refuse it."""
    if isinstance(memory, mmap.mmap):
        with suppress(OSError):
            memory.madvise(advice)
