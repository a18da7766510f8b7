"""The chain of a DLedger log: from one entry's header to the next, with a record in each.

This is :func:`~rmqctl.engine.scan.chain.chain` for such logs. The headers are followed one by one:
that costs little compared with reading the records.
"""

from __future__ import annotations

import numpy as np

from formats import constants, layouts
from rmqctl.engine.record.entries import HEADER, header_problem
from rmqctl.engine.record.record import BLANK, TAILS
from rmqctl.engine.scan.columns import Bytes, Ints
from rmqctl.engine.scan.tuning import DEFAULT, ScanTuning

_MAGIC_CODE_AT = layouts.RECORD_MAGIC_CODE.offset
_LEAST = HEADER.size + constants.MIN_RECORD_SIZE


def framed_chain(
    data: Bytes,
    position: int,
    limit: int,
    file_from_offset: int,
    tuning: ScanTuning = DEFAULT,
) -> Ints:
    """Positions of the records in consecutive sound entries from ``position`` on and below
    ``limit``: int64, ascending.

    ``position`` is that of an entry or of its record. ``data`` is the file (uint8), of which only
    the heads of entries are read that begin before ``limit``.
    """
    positions: list[int] = []
    size_limit = len(data)
    with data.data as view:
        if _is_record(view, position, size_limit):
            if position >= limit:
                return np.empty(0, np.int64)
            size = BLANK.unpack_from(view, position)[0]
            if size < constants.MIN_RECORD_SIZE or position + size > size_limit:
                return np.empty(0, np.int64)
            positions.append(position)
            position += size
        while position + HEADER.size < limit and position + _LEAST <= size_limit:
            header = bytes(view[position : position + HEADER.size])
            magic, size, *_ = HEADER.unpack(header)
            record = position + HEADER.size
            if (
                magic != constants.DLEDGER_MAGIC_CODE
                or header_problem(header, file_from_offset + position) is not None
                or size < _LEAST
                or position + size > size_limit
                or not _is_record(view, record, size_limit)
                or BLANK.unpack_from(view, record)[0] + HEADER.size != size
            ):
                break
            positions.append(record)
            position += size
    return np.array(positions, np.int64)


def _is_record(view: memoryview, position: int, size_limit: int) -> bool:
    """Whether a record's magic code stands at its place for a record at ``position``."""
    at = position + _MAGIC_CODE_AT
    return position + BLANK.size <= size_limit and (
        int.from_bytes(view[at : at + layouts.RECORD_MAGIC_CODE.size], "big") in TAILS
    )
