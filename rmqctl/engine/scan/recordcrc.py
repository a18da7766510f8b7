"""Checks the checksum of a whole record, its last property in 5.x (``enabledAppendPropCRC``).

It is twenty bytes: ``__CRC32#``, 0x01, ten digits and 0x02, for everything before them
(``CommitLog#checkMessageAndReturnSize`` with ``forceVerifyPropCRC``). Most stores have none, so
first the name is searched in all records of a batch at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from formats import constants
from rmqctl.engine.record.form import CRC32_RESERVED_LENGTH
from rmqctl.engine.record.message import property_crc
from rmqctl.engine.scan.columns import Ints, take

if TYPE_CHECKING:
    from rmqctl.engine.scan.batch import Batch

_NAME = constants.PROPERTY_CRC32.encode()
#: The two halves of the name as numbers, which compare faster than bytes.
_WORD = np.dtype(np.uint64)
_FIRST, _SECOND = np.frombuffer(_NAME, np.uint32)
#: Some checksum, and the positions of name and separators in it.
_EMPTY = property_crc(b"")
_FIXED = [*range(len(_NAME) + 1), CRC32_RESERVED_LENGTH - 1]


def rows_with_property_crc(batch: Batch) -> Ints:
    """Rows (int64, ascending) whose properties may end with a checksum: at least half of its name
    is there, as the other half may be damaged."""
    if batch.property_crc_rows is not None:
        return batch.property_crc_rows
    rows = np.flatnonzero(batch.properties_length >= CRC32_RESERVED_LENGTH)
    if not len(rows):
        return rows
    end = batch.properties_position[rows] + batch.properties_length[rows]
    data = np.frombuffer(batch.mapped.buffer, np.uint8)
    name = take(data, end - CRC32_RESERVED_LENGTH, _WORD).view(np.uint32).reshape(-1, 2)
    found: Ints = rows[(name[:, 0] == _FIRST) | (name[:, 1] == _SECOND)]
    return found


def property_crc_mismatches(batch: Batch) -> list[tuple[int, bytes, bytes]]:
    """``(row, right last property, stored last property)`` of every record with a wrong
    checksum."""
    rows = rows_with_property_crc(batch)
    found = []
    with memoryview(batch.mapped.buffer) as view:
        starts = batch.position[rows].tolist()
        sizes = batch.total_size[rows].tolist()
        for row, start, size in zip(rows.tolist(), starts, sizes, strict=True):
            end = start + size
            with view[start : end - CRC32_RESERVED_LENGTH] as covered:
                wanted = property_crc(covered)
            stored = bytes(view[end - CRC32_RESERVED_LENGTH : end])
            if stored != wanted and _is_checksum(stored):
                found.append((row, wanted, stored))
    return found


def _is_checksum(stored: bytes) -> bool:
    """Whether a wrong last property is a checksum, and not another one with a similar name: at most
    one of the bytes may differ that are the same in every checksum."""
    damaged: int = sum(stored[at] != _EMPTY[at] for at in _FIXED)
    return damaged <= 1
