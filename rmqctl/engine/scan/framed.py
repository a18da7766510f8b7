"""The chain of a DLedger log: from one entry's header to the next, and in each a record.

What :func:`~rmqctl.engine.scan.chain.chain` is to a log of records alone. The headers are followed
one by one: what a record takes to be read costs far more.
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
    """Positions below ``limit`` of the records of the sound entries that follow each other from
    ``position`` on, an entry's place or the one of its record: int64, ascending. ``data`` is the
    file, uint8; what is read of it are heads of entries that begin before ``limit``."""
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
    """Whether the magic code of a record stands in its place."""
    at = position + _MAGIC_CODE_AT
    return position + BLANK.size <= size_limit and (
        int.from_bytes(view[at : at + layouts.RECORD_MAGIC_CODE.size], "big") in TAILS
    )
