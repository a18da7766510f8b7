"""Pages that stay in memory: ``MappedFile#mlock`` and ``#munlock`` by the C library.

Python's ``mmap`` has neither. The system may refuse (RLIMIT_MEMLOCK); as for a broker that costs
speed and nothing else.
"""

from __future__ import annotations

import mmap


def mlock(memory: mmap.mmap) -> bool:
    """Keeps a map in memory; whether the system did."""
    memory.madvise(mmap.MADV_WILLNEED)
    return _call("mlock", memory)


def munlock(memory: mmap.mmap) -> bool:
    """Lets a map go again; whether the system did."""
    return _call("munlock", memory)


def _call(name: str, memory: mmap.mmap) -> bool:
    import ctypes

    function = getattr(ctypes.CDLL(None), name)
    first = ctypes.c_char.from_buffer(memory)
    try:
        address = ctypes.c_void_p(ctypes.addressof(first))
        return bool(function(address, ctypes.c_size_t(len(memory))) == 0)
    finally:
        del first  # It exports the map, which could not be closed.
