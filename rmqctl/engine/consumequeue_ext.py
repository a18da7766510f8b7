"""``ConsumeQueueExt``: what a queue unit's tags code points to when it is an address.

Read only: rmqctl writes plain tags codes, which every broker reads.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from formats import layouts
from formats.constants import MAX_ADDR, MIN_EXT_UNIT_SIZE
from rmqctl.engine.mappedfile import MappedFileQueue

_UNIT = Struct(layouts.QUEUE_EXT_UNIT.format)
_LONG_MIN = -(2**63)


def is_ext_addr(tags_code: int) -> bool:
    """Whether a unit's tags code is an address (``ConsumeQueueExt#isExtAddr``)."""
    return tags_code <= MAX_ADDR


class ExtUnit(NamedTuple):
    """One extension unit; ``size`` counts all of its bytes."""

    size: int
    tags_code: int
    msg_store_time: int
    bit_map: bytes


class ConsumeQueueExt:
    """The extension files of one queue."""

    def __init__(self, directory: Path) -> None:
        self.files = MappedFileQueue(directory, 0, keep=1)

    def get(self, address: int) -> ExtUnit | None:
        """The unit at an address; None when nothing whole stands there."""
        offset = address - _LONG_MIN
        mapped = self.files.find(offset)
        if mapped is None:
            return None
        position = offset - mapped.file_from_offset
        if position + MIN_EXT_UNIT_SIZE > mapped.size:
            return None
        size, tags_code, store_time, bit_map_size = _UNIT.unpack_from(mapped.buffer, position)
        if size < MIN_EXT_UNIT_SIZE or size != MIN_EXT_UNIT_SIZE + bit_map_size:
            return None
        if position + size > mapped.size:
            return None
        bit_map = mapped.read(position + MIN_EXT_UNIT_SIZE, bit_map_size)
        return ExtUnit(size, tags_code, store_time, bit_map)

    def close(self) -> None:
        self.files.close()
