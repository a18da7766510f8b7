"""Having the system begin to write to disk what was stored, without waiting for it: who forces the
file to disk later finds most of it there. Linux' ``sync_file_range``, which Python does not have.

It is advice. What goes wrong then is told to who forces the file to disk, and nothing is durable
before that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

_WRITE = 2  # SYNC_FILE_RANGE_WRITE


def begin_writing(descriptor: int, start: int, end: int) -> None:
    """Begins with the bytes of a file in a range."""
    function = _function()
    if function is not None:
        function(descriptor, start, end - start, _WRITE)


@cache
def _function() -> Callable[..., Any] | None:
    """The C library's; None where it has none."""
    import ctypes

    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function
