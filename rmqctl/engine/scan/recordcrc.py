"""The checksum of a whole record that 5.x appends as its last property (``enabledAppendPropCRC``).

Twenty bytes: ``__CRC32#``, 0x01, ten digits, 0x02, over everything before them
(``CommitLog#checkMessageAndReturnSize`` with ``forceVerifyPropCRC``). Most stores have none, so a
batch is asked for the name first, all records at once.
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
#: The two halves of the name as numbers: those compare faster than bytes.
_WORD = np.dtype(np.uint64)
_FIRST, _SECOND = np.frombuffer(_NAME, np.uint32)
#: A checksum, and where its name and separators stand in it.
_EMPTY = property_crc(b"")
_FIXED = [*range(len(_NAME) + 1), CRC32_RESERVED_LENGTH - 1]


def rows_with_property_crc(batch: Batch) -> Ints:
    """Rows (int64, ascending) whose properties may end with a checksum: one half of its name is
    there, the other may be what is damaged."""
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
    """``(row, last property as it must be, as it is)`` of every record that is not as its checksum
    says."""
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
    """Whether a property that is not right is a checksum, and not one of nearly its name: of the
    bytes that are the same in every checksum one may be damaged."""
    damaged: int = sum(stored[at] != _EMPTY[at] for at in _FIXED)
    return damaged <= 1
