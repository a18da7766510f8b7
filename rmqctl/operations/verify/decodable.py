"""Finds records that are sound for the store but that a Java client's decoder refuses.

``MessageDecoder#decode`` gives up a message with an invalid port (``InetSocketAddress``), or with a
compressed body that does not decompress (``UtilAll#uncompress``). All other fields may have any
value, or are checked by the store itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from formats import layouts
from formats.constants import COMPRESSED_FLAG, HOST_V6_MASK
from rmqctl.engine.record.bodies import undecodable
from rmqctl.engine.record.message import MAX_PORT
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import take

_PORTS = [
    (flags, field.name.removesuffix("_port"), field.offset, np.dtype(f">{field.code}"))
    for flags, layout in layouts.RECORD_PREFIX.items()
    for field in layout.fields
    if field.name.endswith("_port")
]


def not_decodable(batch: Batch) -> Iterator[tuple[int, str, str]]:
    """``(row, expected, found)`` for each field at which a client gives up a message of a batch.

    A body with a wrong CRC is left to the check of the log.
    """
    yield from _ports(batch)
    is_compressed = (batch.sys_flag & COMPRESSED_FLAG != 0) & batch.crc_matches
    for row in np.flatnonzero(is_compressed & (batch.body_length > 0)).tolist():
        low = int(batch.body_position[row])
        high = low + int(batch.body_length[row])
        with memoryview(batch.mapped.buffer) as view, view[low:high] as stored:
            reason = undecodable(stored, int(batch.sys_flag[row]))
        if reason:
            yield row, "a compressed body", reason


def _ports(batch: Batch) -> Iterator[tuple[int, str, str]]:
    data = np.frombuffer(batch.mapped.buffer, np.uint8)
    looked_at = np.arange(len(batch)) if batch.odd_port_rows is None else batch.odd_port_rows
    hosts = batch.sys_flag[looked_at] & HOST_V6_MASK
    for flags, name, offset, dtype in _PORTS:
        rows = looked_at[hosts == flags]
        ports = take(data, batch.position[rows] + offset, dtype)
        for at in np.flatnonzero((ports < 0) | (ports > MAX_PORT)).tolist():
            expected = f"a {name} host's port of 0 to {MAX_PORT}"
            yield int(rows[at]), expected, str(int(ports[at]))
