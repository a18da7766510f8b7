"""Properties of many records as the buffers of an Arrow map: what the kernel makes of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rmqctl import kernel
from rmqctl.engine.scan.columns import Bytes, Ints


class MapBuffers(NamedTuple):
    """Maps of ``(n,)`` records. Offsets are int32, one more than there are rows, or entries, and
    begin with 0; names and values are UTF-8, one behind the other.

    ``tags_codes`` (int64, of shape ``(n,)``) are the hashes of the TAGS, 0 without. The maps of
    ``odd_rows`` (int64, ascending) are empty here: ``decode_properties`` has to say what is in
    them, for they are no UTF-8, or have more entries than the kernel takes.
    """

    row_offsets: bytearray
    name_offsets: bytearray
    names: bytes
    value_offsets: bytearray
    values: bytes
    tags_codes: Ints
    odd_rows: Ints


def map_buffers(data: Bytes, start: Ints, length: Ints) -> MapBuffers | None:
    """The properties at places of ``data`` (uint8), of shape ``(n,)``, int64, in any order. None
    where there is no kernel, or an Arrow array does not hold them all."""
    module = kernel.module()
    if module is None:
        return None
    places = (np.ascontiguousarray(numbers, np.int64) for numbers in (start, length))
    made = module.property_maps(data, *(numbers.view(np.uint8) for numbers in places))
    if made is None:
        return None
    *buffers, codes, odd = made
    return MapBuffers._make(
        (*buffers, np.frombuffer(codes, np.int64), np.frombuffer(odd, np.int64))
    )
