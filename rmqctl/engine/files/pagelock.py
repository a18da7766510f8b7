"""``MappedFile#mlock`` and ``#munlock``, by the C library: Python's ``mmap`` has neither.

The system may refuse (RLIMIT_MEMLOCK). That costs speed and nothing else, as with a broker.
"""

from __future__ import annotations

import mmap


def mlock(memory: mmap.mmap) -> bool:
    """Locks a map's pages in memory; False when the system refuses."""
    memory.madvise(mmap.MADV_WILLNEED)
    return _call("mlock", memory)


def munlock(memory: mmap.mmap) -> bool:
    """Unlocks a map's pages; False when the system refuses."""
    return _call("munlock", memory)


def _call(name: str, memory: mmap.mmap) -> bool:
    import ctypes

    function = getattr(ctypes.CDLL(None), name)
    first = ctypes.c_char.from_buffer(memory)
    try:
        address = ctypes.c_void_p(ctypes.addressof(first))
        return bool(function(address, ctypes.c_size_t(len(memory))) == 0)
    finally:
        del first  # While it exists the map cannot be closed.
