"""Having the system begin to write to disk what was stored, without waiting for it: who forces the
file to disk later finds most of it there. Linux' ``sync_file_range``, which Python does not have.

It is advice. What goes wrong then is told to who forces the file to disk, and nothing is durable
before that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

_WRITE = 2  # SYNC_FILE_RANGE_WRITE
#: Bytes that the system is told of at once.
_AT_ONCE = 32 << 20
#: Bytes before a file's end at which its pages are let go of: the second time those that were not
#: on disk the first time.
_DISTANCES = 128 << 20, 256 << 20


def begin_writing(descriptor: int, start: int, end: int) -> None:
    """Begins with the bytes of a file in a range."""
    function = _function()
    if function is not None:
        function(descriptor, start, end - start, _WRITE)


class PagesBehind:
    """Has what lies far behind the end of a file that grows, and is not looked at again, go to disk
    and out of the system's cache: a file of gigabytes would else push out of it what others need,
    such as a broker, and the system would look for pages to take for each that is written."""

    def __init__(self, descriptor: int, end: int) -> None:
        """:param end: where the file ends so far."""
        self._descriptor = descriptor
        self._start = self._begun = end

    def grown(self, end: int) -> None:
        """The file ends there now, and that was written to it."""
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
    """The C library's; None where it has none."""
    import ctypes

    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function
