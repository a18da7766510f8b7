"""Properties of many records as the buffers of an Arrow map: what the kernel makes of them.

The other columns are as fast by numpy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rmqctl import kernel
from rmqctl.engine.scan.columns import Bytes, Ints


class Texts(NamedTuple):
    """Values of any length, one behind the other, and their offsets: int32, one more than there are
    values, from 0 on."""

    offsets: bytearray
    data: bytes


class MapBuffers(NamedTuple):
    """Maps of ``(n,)`` records, whose offsets are as those of :class:`Texts`, which are UTF-8 here.

    ``tags_codes`` (int64, of shape ``(n,)``) are the hashes of the TAGS, 0 without. The maps of
    ``odd_rows`` (int64, ascending) are empty here: ``decode_properties`` has to say what is in
    them, for they are no UTF-8, or have more entries than the kernel takes.
    """

    row_offsets: bytearray
    names: Texts
    values: Texts
    tags_codes: Ints
    odd_rows: Ints


def map_buffers(data: Bytes, start: Ints, length: Ints) -> MapBuffers | None:
    """The properties at places of ``data``, int64 of shape ``(n,)``, in any order; None where there
    is no kernel, or an Arrow array does not hold them all."""
    module = kernel.module()
    if module is None:
        return None
    made = module.property_maps(data, _bytes(start), _bytes(length))
    if made is None:
        return None
    rows, name_offsets, names, value_offsets, values, codes, odd = made
    return MapBuffers(
        rows,
        Texts(name_offsets, names),
        Texts(value_offsets, values),
        np.frombuffer(codes, np.int64),
        np.frombuffer(odd, np.int64),
    )


def _bytes(numbers: Ints) -> Bytes:
    return np.ascontiguousarray(numbers, np.int64).view(np.uint8)
