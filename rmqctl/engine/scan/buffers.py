"""Buffers of Arrow arrays for the records of a batch, made by the kernel.

All wanted columns are made together, for a few records at a time: so the records are still in the
processor's cache when the next column is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqctl import kernel
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import Bytes

#: The buffers of one column. For numbers: the values. For texts: offsets and values. For a map: the
#: offsets of rows, then both buffers of the names and of the values. Offsets are int32, from 0 on,
#: and one more than the values. Maps and tags codes also have the odd rows (int64, ascending),
#: which the caller must make itself: their properties are no UTF-8, or too large for the kernel.
Buffers = Sequence[Any]


def column_buffers(batch: Batch, data: Bytes, names: Sequence[str]) -> dict[str, Buffers]:
    """Columns of ``batch`` by their names; ``data`` (uint8) is its file. A column is missing if it
    has something odd, the kernel does not make it, or there is no kernel."""
    module = kernel.module()
    if module is None or not len(batch):
        return {}
    wanted = [name for name in names if name in module.ARROW_COLUMNS]
    if not wanted:
        return {}
    numbers = [_bytes(getattr(batch, name)) for name in module.INT_COLUMNS]
    made = module.arrow_columns(data, numbers, batch.topics.texts(), wanted)
    if made is None:
        return {}
    found = zip(wanted, made, strict=True)
    return {name: buffers for name, buffers in found if buffers is not None}


def _bytes(numbers: NDArray[np.int64]) -> Bytes:
    return np.ascontiguousarray(numbers, np.int64).view(np.uint8)
