"""``TransientStorePool``: buffers off the page cache that appends go to first.

With it a record is in three places one after the other: stored in the buffer of its log file,
committed (written to the file), flushed (on disk).
"""

from __future__ import annotations

import mmap
from collections import deque


class WriteBuffer:
    """The buffer of one log file; ``end`` is the position after the last byte stored in it."""

    __slots__ = ("buffer", "end")

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer = buffer
        self.end = 0


class TransientStorePool:
    """Up to ``pool_size`` buffers of ``file_size`` bytes each, made when they are first borrowed.

    A broker locks its buffers in memory (``mlock``), which touches every page. These are not
    locked, so a buffer costs no memory before it is used.
    """

    def __init__(self, pool_size: int, file_size: int) -> None:
        self.pool_size = pool_size
        self.file_size = file_size
        self._made = 0
        self._available: deque[mmap.mmap] = deque()

    def borrow_buffer(self) -> mmap.mmap | None:
        """A buffer, which still holds the bytes of its last file; None when all are in use."""
        if self._available:
            return self._available.popleft()
        if self._made == self.pool_size:
            return None
        buffer = mmap.mmap(-1, self.file_size)
        self._made += 1
        return buffer

    def return_buffer(self, buffer: mmap.mmap) -> None:
        self._available.appendleft(buffer)

    def destroy(self) -> None:
        """Unmaps the buffers that are not in use."""
        while self._available:
            self._available.pop().close()
            self._made -= 1
