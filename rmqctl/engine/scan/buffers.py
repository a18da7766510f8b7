"""Records of a batch as the buffers of Arrow arrays: what the kernel makes of them.

All wanted columns are made in one go, each of a few records at a time: what a record has is still
in the processor's cache when the next column is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqctl import kernel
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.columns import Bytes

#: The buffers of one column: of numbers the values, of texts offsets and values, of a map the
#: offsets of the rows, and both buffers of the names and of the values. Offsets are int32, one
#: more than there are values, from 0 on. Of maps and tags codes odd rows (int64, ascending) follow,
#: whose properties are no UTF-8, or more than the kernel takes: they are to be made elsewhere.
Buffers = Sequence[Any]


def column_buffers(batch: Batch, data: Bytes, names: Sequence[str]) -> dict[str, Buffers]:
    """Columns of ``batch``, whose file is ``data`` (uint8), by their names. Those that are not
    there have something odd in them, or are none that the kernel makes, or there is no kernel."""
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
