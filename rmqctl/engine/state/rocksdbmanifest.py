"""Finds out whether ``MANIFEST-*``, a RocksDB database's list of its own files, was cut.

The library takes a list that ends in the middle of an entry for one that a crash has torn, and
opens the part before. So if a disk or a copy has cut the list, all tables may be missing without an
error.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from struct import Struct

#: ``db/log_format.h``: a log of records in blocks. Before each piece of a record stand a checksum,
#: its length and its kind. A shorter rest of a block is unused.
_BLOCK = 1 << 15
_HEADER = Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = range(1, 5)
#: The most bytes of a list that are read. A broker's list is shorter.
_LONGEST = 64 << 20


def is_cut(log: bytes) -> bool:
    """Whether a log of records ends in the middle of a record."""
    at, goes_on = 0, False
    while at < len(log):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER.size:
            at += left
            continue
        if len(log) - at < _HEADER.size:
            return any(log[at:]) or goes_on
        _, length, kind = _HEADER.unpack_from(log, at)
        if not kind and not length:  # Preallocated room.
            return goes_on
        if not _FULL <= kind <= _LAST:
            return False  # The library reports other damage.
        at += _HEADER.size + length
        if at > len(log):
            return True
        goes_on = kind in (_FIRST, _MIDDLE)
    return goes_on


def lost_tables(directory: Path, known: Iterable[str]) -> list[str]:
    """Existing tables that the library does not know, if the list of files was cut.

    None are reported if a log has content: after a kill a new table may be missing in the list, but
    its content is still in the log.

    :param known: table names from the library. :raises OSError: the system refuses a file.
    """
    names = {path.name: path for path in directory.iterdir()}
    lost = {name for name in names if name.endswith(".sst")} - {one.lstrip("/") for one in known}
    if not lost or any(one.stat().st_size for one in names.values() if one.suffix == ".log"):
        return []
    current = names["CURRENT"].read_bytes()[:100].decode("ascii", "replace").strip()
    with names[current].open("rb") as file:
        return sorted(lost) if is_cut(file.read(_LONGEST)) else []
