"""The files of a member of a DLedger group beside its log: ``dledger-*/checkpoint`` has the end of
the log and of its committed part, and ``dledger-*/currterm`` the current term.

Both are ``java.util.Properties`` with a ``.bak``, and are read when the member starts
(``DLedgerMmapFileStore#loadCheckPoint``, ``MemberState#loadTerm``).
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from formats import layouts
from formats.constants import DLEDGER_MAGIC_CODE, LONG_MAX, LONG_MIN
from rmqctl.engine.files.filequeue import MappedFileQueue
from rmqctl.engine.files.paths import read_start
from rmqctl.engine.settings.filesizes import dledger_index_file_size
from rmqctl.engine.settings.properties import properties
from rmqctl.errors import BrokerConfError

CHECKPOINT, CURRENT_TERM = "checkpoint", "currterm"
INDEX = "index"
#: The most bytes of a file.
_MOST_BYTES = 1 << 16
_MOST_DIGITS = 20
_UNIT = Struct(layouts.DLEDGER_INDEX_UNIT.format)


class DLedgerState(NamedTuple):
    """The numbers of a member; None where a file lacks one."""

    end_index: int | None
    committed_index: int | None
    current_term: int | None
    #: Existing files that lack their number.
    unreadable: tuple[str, ...]


def dledger_state(member: Path) -> DLedgerState:
    """Reads the files in a member's directory. :raises CannotRead: one cannot be read."""
    checkpoint, term = (_read(member / name) for name in (CHECKPOINT, CURRENT_TERM))
    end, committed = (_number(checkpoint, name) for name in ("endIndex", "committedIndex"))
    current = _number(term, "currTerm")
    said = (CHECKPOINT, checkpoint, committed), (CURRENT_TERM, term, current)
    unreadable = tuple(name for name, read, it in said if read is not None and it is None)
    return DLedgerState(end, committed, current, unreadable)


def entry_place(member: Path, number: int) -> int | None:
    """Physical offset of the entry with an index ``number``, by the member's own index files; None
    if they lack it. :raises CannotRead: they cannot be read."""
    index = MappedFileQueue(member / INDEX, dledger_index_file_size(member / INDEX), keep=1)
    try:
        place = number * _UNIT.size
        mapped = index.find(place) if 0 <= place <= LONG_MAX else None
        at = place - mapped.file_from_offset if mapped is not None else 0
        if mapped is None or at + _UNIT.size > mapped.size:
            return None
        stored = mapped.read(at, _UNIT.size)
        if len(stored) < _UNIT.size:  # The file has been cut since it was opened.
            return None
        magic, pos, _, found, _ = _UNIT.unpack(stored)
        is_unit = magic == DLEDGER_MAGIC_CODE and found == number and pos >= 0
        return int(pos) if is_unit else None
    finally:
        index.close()


def _read(path: Path) -> dict[str, str] | None:
    """The entries of a file; empty if it is malformed or far too large; None without a file."""
    if not path.exists():
        return None
    data = read_start(path, _MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        return {}
    try:
        return {one.name: one.value for one in properties(data.decode("latin-1"), str(path))}
    except BrokerConfError:
        return {}


def _number(entries: dict[str, str] | None, name: str) -> int | None:
    """An entry that is a Java long; else None."""
    text = "" if entries is None else entries.get(name, "")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _MOST_DIGITS:
        return None
    number = int(text)
    return number if LONG_MIN <= number <= LONG_MAX else None
