"""Starts writing dirty pages to disk without waiting (Linux' ``sync_file_range``), so that a later
``fsync`` finds most of them there.

This is advice: it makes nothing durable, and an error of the disk is reported by that ``fsync``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

_WRITE = 2  # SYNC_FILE_RANGE_WRITE
#: Bytes for which writing is started at once.
_AT_ONCE = 32 << 20
#: Bytes before a file's end where pages are dropped from the page cache: a second time for those
#: that were still dirty the first time.
_DISTANCES = 128 << 20, 256 << 20


def begin_writing(descriptor: int, start: int, end: int) -> None:
    """Starts writing a range of a file to disk."""
    function = _function()
    if function is not None:
        function(descriptor, start, end - start, _WRITE)


class PagesBehind:
    """Writes the pages far behind the end of a growing file to disk and drops them from the page
    cache. For files that are not read again: gigabytes of them would push out of the cache what
    others need, such as a broker, and the kernel would reclaim a page for each one written."""

    def __init__(self, descriptor: int, end: int) -> None:
        """:param end: where the file ends so far."""
        self._descriptor = descriptor
        self._start = self._begun = end

    def grown(self, end: int) -> None:
        """Called when the file was written up to ``end``."""
        if end - self._begun < _AT_ONCE:
            return
        begin_writing(self._descriptor, self._begun, end)
        for distance in _DISTANCES:
            first, last = max(self._begun - distance, self._start), end - distance
            if last > first:
                with suppress(OSError):
                    os.posix_fadvise(self._descriptor, first, last - first, os.POSIX_FADV_DONTNEED)
        self._begun = end


@cache
def _function() -> Callable[..., Any] | None:
    """The C library's ``sync_file_range``; None where it has none."""
    import ctypes

    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function
