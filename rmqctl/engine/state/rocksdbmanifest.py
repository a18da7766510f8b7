"""A RocksDB database's list of its own files, ``MANIFEST-*``, as far as a cut shows in it.

The library takes a list that ends in the middle of an entry for one that a crash has torn, and
opens what stands before that. So of a list that was cut, by a disk or a copy, all tables may be
gone, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from struct import Struct

#: ``db/log_format.h``: a log of records in blocks. Each piece of a record has a checksum, its
#: length and its kind in front of it; less than that at the end of a block is nothing.
_BLOCK = 1 << 15
_HEADER = Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)
#: A list of more bytes is of no broker's.
_LONGEST = 64 << 20


def is_cut(log: bytes) -> bool:
    """Whether a log of records ends in the middle of one."""
    at, goes_on = 0, False
    while at < len(log):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER.size:
            at += left
            continue
        if len(log) - at < _HEADER.size:
            return any(log[at:]) or goes_on
        _, length, kind = _HEADER.unpack_from(log, at)
        if not kind and not length:  # Room that was made ahead.
            return goes_on
        if not _FULL <= kind <= _LAST:
            return False  # What else may be wrong the library says.
        at += _HEADER.size + length
        if at > len(log):
            return True
        goes_on = kind in (_FIRST, _MIDDLE)
    return goes_on


def lost_tables(directory: Path, known: Iterable[str]) -> list[str]:
    """Tables that are there, and not among those that the library knows, where the list of files
    was cut. None where a log has what was written last: a kill between a table and the list leaves
    that there.

    :param known: names as the library tells them. :raises OSError: the system refuses a file.
    """
    names = {path.name: path for path in directory.iterdir()}
    lost = {name for name in names if name.endswith(".sst")} - {one.lstrip("/") for one in known}
    if not lost or any(one.stat().st_size for one in names.values() if one.suffix == ".log"):
        return []
    current = names["CURRENT"].read_bytes()[:100].decode("ascii", "replace").strip()
    with names[current].open("rb") as file:
        return sorted(lost) if is_cut(file.read(_LONGEST)) else []
