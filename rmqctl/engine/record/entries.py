"""Entries of a DLedger log: the header before each record, the blank behind the last one.

In such a file (:attr:`MappedFile.framed`) the first words at a place tell what stands there, as in
``DLedgerCommitLog#checkMessageAndReturnSize``. The place may be that of an entry or of the record
in it: units and index items name records. An entry is sound when its header agrees with itself,
with its place and with its record. Index and term are not checked here: only neighbouring entries
could contradict them.
"""

from __future__ import annotations

from struct import Struct

from formats import layouts
from formats.constants import DLEDGER_BLANK_MAGIC_CODE, DLEDGER_MAGIC_CODE
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.record.record import (
    TAILS,
    Blank,
    Damage,
    End,
    Entry,
    Record,
    find_next_record,
    read_plain_entry_of,
)

HEADER = Struct(layouts.DLEDGER_ENTRY.format)
_WORDS = Struct(layouts.DLEDGER_BLANK.format)
_MAGIC_BYTES = DLEDGER_MAGIC_CODE.to_bytes(4, "big")


def header_problem(header: bytes, physical_offset: int) -> tuple[str, str] | None:
    """``(expected, found)`` if an entry's header contradicts itself or its place; None when it is
    sound."""
    if len(header) < HEADER.size:
        return f"a header of {HEADER.size} bytes", f"{len(header)} bytes"
    _, size, _, _, pos, _, _, _, body_length = HEADER.unpack(header)
    if pos != physical_offset:
        return f"pos {physical_offset}", str(pos)
    if size != body_length + HEADER.size:
        return f"size {body_length + HEADER.size}", str(size)
    return None


def read_framed_entry_of(mapped: MappedFile, position: int) -> Entry:
    """:func:`~rmqctl.engine.record.record.read_entry_of` for a file of a DLedger log.

    The physical offset of a record is its own, behind the entry's header; that of an end is the
    entry's. A damaged header is 48 bytes of damage: the record behind it may be whole.
    """
    mapped.load_entry(position)
    physical_offset = mapped.file_from_offset + position
    header = mapped.read_aside(position, HEADER.size)
    if mapped.size - position < _WORDS.size or not header[: _WORDS.size].strip(b"\0"):
        return End(physical_offset)
    magic, size = _WORDS.unpack_from(header)
    if size & 0xFFFFFFFF in TAILS:
        return read_plain_entry_of(mapped, position)
    if magic == DLEDGER_BLANK_MAGIC_CODE:
        rest = mapped.size - position
        if size == rest:
            return Blank(physical_offset, size)
        return Damage(physical_offset, rest, "blank-size-mismatch", str(rest), str(size))
    if magic != DLEDGER_MAGIC_CODE:
        expected = f"{DLEDGER_MAGIC_CODE:#010x}"
        return Damage(physical_offset, 0, "bad-magic", expected, f"{magic & 0xFFFFFFFF:#010x}")
    problem = header_problem(header, physical_offset)
    if problem is not None:
        return Damage(physical_offset, 0, "dledger-header-mismatch", *problem)
    return _record_of(mapped, position, size)


def _record_of(mapped: MappedFile, position: int, size: int) -> Entry:
    """Reads the record of an entry with a sound header."""
    start, physical_offset = position + HEADER.size, mapped.file_from_offset + position
    entry = read_plain_entry_of(mapped, start)
    if isinstance(entry, Record):
        if entry.total_size + HEADER.size == size:
            return entry
        expected = f"size {entry.total_size + HEADER.size}"
        return Damage(physical_offset, 0, "dledger-header-mismatch", expected, str(size))
    if isinstance(entry, Damage):
        return entry._replace(physical_offset=physical_offset, length=0)
    found = "zeros" if isinstance(entry, End) else "a blank"
    return Damage(physical_offset, 0, "zeroed-records", "a record", found)


def entry_position(mapped: MappedFile, record: int) -> int:
    """Where the entry of the record at a position begins; the record's own position when no sound
    header stands before it."""
    start = record - HEADER.size
    if start < 0:
        return record
    header = mapped.read_aside(start, HEADER.size)
    is_sound = header.startswith(_MAGIC_BYTES) and not header_problem(
        header, mapped.file_from_offset + start
    )
    return start if is_sound else record


def find_next_framed(mapped: MappedFile, position: int) -> int:
    """:func:`~rmqctl.engine.record.record.find_next` for a file of a DLedger log: finds the next
    entry, record without a sound header, or blank, from ``position`` on."""
    record = position
    while True:
        record = find_next_record(mapped, record)
        start = entry_position(mapped, record) if record < mapped.size else record
        # Without a record the search ends at the file's end, which may lie before the position.
        if start >= position or record >= mapped.size:
            return _find_blank(mapped, position, start)
        record += 1


def next_place(mapped: MappedFile, position: int) -> int:
    """Position of the next record (with or without an entry's header) or blank, from ``position``
    on; the file's size when there is none."""
    entry = max(position - HEADER.size, 0)
    while True:
        entry = find_next_framed(mapped, entry)
        if entry >= mapped.size:
            return mapped.size
        place = entry + HEADER.size
        if place >= mapped.size or entry_position(mapped, place) != entry:
            place = entry
        if place >= position:
            return place
        entry += 1


def _find_blank(mapped: MappedFile, low: int, high: int) -> int:
    """Position of the blank that ends the file, if it begins in ``[low, high)``; else ``high``."""
    words = DLEDGER_BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True)
    for data, end in mapped.extents(low, high):
        for at in mapped.occurrences(words, data, end):
            _, size = _WORDS.unpack(mapped.read_aside(at, _WORDS.size).ljust(_WORDS.size, b"\0"))
            if size == mapped.size - at:
                return at
    return high
