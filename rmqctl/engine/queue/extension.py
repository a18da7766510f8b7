"""``ConsumeQueueExt``: the extension units that a queue unit's tags code may be the address of.

They are written with ``enableConsumeQueueExt`` only, and for the message's own queue, not for light
queues. When an extension unit cannot be written, as on a full disk, the queue unit gets the plain
tags code, which every broker reads.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from formats import layouts
from formats.constants import LONG_MIN, MAX_ADDR, MIN_EXT_UNIT_SIZE
from rmqctl.engine.files.dirty import Unsynced
from rmqctl.engine.files.filequeue import MappedFileQueue
from rmqctl.engine.files.filequeuewriter import MappedFileQueueWriter
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.queue.consumequeue import is_ext_addr
from rmqctl.errors import CannotWrite

_UNIT = Struct(layouts.QUEUE_EXT_UNIT.format)
#: The first field of a unit: its size, or what ends a file.
SIZE = Struct(f">{layouts.QUEUE_EXT_UNIT.fields[0].code}")
#: ``END_BLANK_DATA_LENGTH``: bytes that a file keeps for its end, a size of -1.
_END_BLANK_DATA_LENGTH = 4
_FILE_ENDS = b"\xff\xff"


def ext_offset(tags_code: int) -> int | None:
    """The offset (bytes) in the extension files that an address stands for
    (``ConsumeQueueExt#unDecorate``); None for a tags code that is no address."""
    return tags_code - LONG_MIN if is_ext_addr(tags_code) else None


class ExtUnit(NamedTuple):
    """One extension unit; ``size`` is that of the whole unit, in bytes."""

    size: int
    tags_code: int
    msg_store_time: int
    bit_map: bytes


class Astray(NamedTuple):
    """A place where the chain of sizes leaves its file; ``size`` is None when the file has no room
    for a size there."""

    path: Path
    position: int
    size: int | None


class ConsumeQueueExt:
    """The extension files of one queue, for reading."""

    def __init__(self, directory: Path, *, files: MappedFileQueue | None = None) -> None:
        """:param files: the files of ``directory``, when they are open for writing."""
        self.files = MappedFileQueue(directory, 0, keep=1) if files is None else files

    def sizes_astray(self) -> Astray | None:
        """The place at which a broker's start fails: it follows the sizes through all files,
        through old bytes as well (``ConsumeQueueExt#recover``). None when it gets to the end of
        each."""
        for number, entry in enumerate(self.files.entries):
            mapped = self.files.file(number)
            position = 0
            while position + SIZE.size <= mapped.size:
                (size,) = SIZE.unpack(mapped.read(position, SIZE.size))
                if position + max(size, 0) > mapped.size:
                    return Astray(entry.path, position, size)
                if size <= 0:
                    break
                position += size
            else:
                return Astray(entry.path, position, None)
        return None

    def get(self, address: int) -> ExtUnit | None:
        """The unit at an address; None when no complete unit stands there."""
        offset = address - LONG_MIN
        mapped = self.files.find(offset)
        if mapped is None:
            return None
        position = offset - mapped.file_from_offset
        if position + MIN_EXT_UNIT_SIZE > mapped.size:
            return None
        data = mapped.read(position, _UNIT.size)
        if len(data) < _UNIT.size:  # The file has been cut since it was opened.
            return None
        size, tags_code, store_time, bit_map_size = _UNIT.unpack(data)
        if size < MIN_EXT_UNIT_SIZE or size != MIN_EXT_UNIT_SIZE + bit_map_size:
            return None
        if position + size > mapped.size:
            return None
        bit_map = mapped.read(position + MIN_EXT_UNIT_SIZE, bit_map_size)
        return ExtUnit(size, tags_code, store_time, bit_map)

    def close(self) -> None:
        self.files.close()


class ConsumeQueueExtWriter(ConsumeQueueExt):
    """The extension files of one queue, open for writing.

    :param file_size: bytes of a new file. :param root: the directory below which no link is
        followed. :param unsynced: as in :class:`MappedFileQueueWriter`.
    """

    files: MappedFileQueueWriter

    def __init__(
        self, directory: Path, file_size: int, root: Path, *, unsynced: Unsynced | None = None
    ) -> None:
        files = MappedFileQueueWriter(directory, file_size, root, keep=1, unsynced=unsynced)
        super().__init__(directory, files=files)
        self._wrote = -1

    def put(self, tags_code: int, msg_store_time: int, newest: int | None) -> int | None:
        """Appends a unit without a bit map. Returns its address, or None when it cannot be written.

        The first put goes behind the unit at ``newest``, the address in the last queue unit that
        holds one (``ConsumeQueueExt#truncateByMaxAddress``); with None, behind the last unit here.
        What stands behind that belongs to no queue unit and is cleared: else a broker's start would
        walk from the new units into the middle of old ones.
        """
        size = MIN_EXT_UNIT_SIZE
        try:
            if self._wrote < 0:
                first = self._end(newest)
                self._clear(first)
                self._wrote = first
            if self._wrote + 2 * size > MAX_ADDR - LONG_MIN:
                return None
            mapped = self._file_at(self._wrote)
            position = self._wrote - mapped.file_from_offset
            if position + size > mapped.size - _END_BLANK_DATA_LENGTH:
                end = _FILE_ENDS[: mapped.size - position]
                mapped.reserve(position, len(end))
                mapped.write(position, end)
                self._wrote = mapped.file_from_offset + mapped.size
                mapped, position = self._file_at(self._wrote), 0
                if size > mapped.size - _END_BLANK_DATA_LENGTH:
                    return None
            mapped.reserve(position, size + _END_BLANK_DATA_LENGTH)
        except (CannotWrite, OSError):
            return None
        mapped.write(position, _UNIT.pack(size, tags_code, msg_store_time, 0))
        address = self._wrote + LONG_MIN
        self._wrote += size
        return address

    def _file_at(self, offset: int) -> MappedFile:
        """The file that holds an offset; made when there is none. A kill may have left it empty."""
        return self.files.find(offset) or self.files.append_file(offset)

    def _end(self, newest: int | None) -> int:
        """Offset (bytes) at which the next unit goes."""
        unit = self.get(newest) if newest is not None else None
        if unit is not None and newest is not None:
            return newest - LONG_MIN + unit.size
        if not self.files.entries:
            return 0
        mapped = self.files.file(len(self.files.entries) - 1)
        position = 0
        while (unit := self.get(mapped.file_from_offset + position + LONG_MIN)) is not None:
            position += unit.size
        # Units of older queue files may stand behind bytes that are no unit: go on in a new file.
        is_last = mapped.end_of_data(position) == position
        return mapped.file_from_offset + (position if is_last else mapped.size)

    def _clear(self, end: int) -> None:
        """Clears everything from an offset on, durably, so that no new unit can reach the disk
        while old bytes are still behind it.

        :raises OSError: the disk is full, or failed.
        """
        for number, entry in enumerate(self.files.entries):
            start = max(end - entry.file_from_offset, 0)
            if start < entry.size:
                mapped = self.files.file(number)
                mapped.clear(start)
                mapped.flush()
