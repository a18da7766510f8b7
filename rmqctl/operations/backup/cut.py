"""Queues and index of a store that is being written, up to one place in its log."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files.filequeue import is_offset_name
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.index.indexservice import is_index_name
from rmqctl.engine.index.mending import keep
from rmqctl.engine.index.recovery import items_before
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE
from rmqctl.engine.queue.extension import SIZE as EXT_SIZE
from rmqctl.engine.queue.extension import ext_offset
from rmqctl.operations.backup.content import Content
from rmqctl.operations.backup.listing import Opener, SourceFile

if TYPE_CHECKING:
    from formats.geometry import Geometry
    from rmqctl.engine.log.commitlog import CommitLog

_AT_ONCE = 4096 * UNIT_SIZE


def log_before(end: int, file: SourceFile) -> Opener:
    """Opens a file of the log up to a physical offset; nothing of one that begins there."""

    def opened(mapped: MappedFile) -> Content | None:
        name = file.place.name
        if not is_offset_name(name):
            return Content(mapped)
        return Content(mapped, end - int(name)) if int(name) < end else None

    return opened


class QueueCuts:
    """The units of records before a physical offset, and what they point to in the extension. The
    files of a queue come from its newest one back, and those of its extension behind them."""

    def __init__(self, limit: int, *, has_extension: bool) -> None:
        self._limit = limit
        self._has_extension = has_extension
        #: By topic and queue number, as the directories spell them: the address of the last unit.
        self._addresses: dict[str, int] = {}

    def units(self, file: SourceFile) -> Opener:
        """Opens a file of a queue; nothing of one that holds later units, or none."""
        return partial(self._units, file)

    def _units(self, file: SourceFile, mapped: MappedFile) -> Content | None:
        queue = _queue_of(file)
        if queue is None:
            return Content(mapped)
        end = self._end(mapped)
        if self._has_extension and queue not in self._addresses:
            address = _last_address(mapped, end)
            if address is not None:
                self._addresses[queue] = address
        return Content(mapped, end) if end else None

    def _end(self, mapped: MappedFile) -> int:
        """Position behind the last unit of a record before the limit."""
        end = min(-(-mapped.end_of_data(0) // UNIT_SIZE), mapped.size // UNIT_SIZE) * UNIT_SIZE
        while end:
            low = max(end - _AT_ONCE, 0)
            data = mapped.read(low, end - low)
            for at in range(len(data) - UNIT_SIZE, -1, -UNIT_SIZE):
                if UNIT.unpack_from(data, at)[0] < self._limit:
                    return low + at + UNIT_SIZE
            end = low
        return 0

    def extension(self, file: SourceFile) -> Opener:
        """Opens a file of a queue's extension."""
        return partial(self._extension, file)

    def _extension(self, file: SourceFile, mapped: MappedFile) -> Content | None:
        queue = _queue_of(file)
        if queue is None:
            return Content(mapped)
        position = self._addresses.get(queue, -1) - int(file.place.name)
        if position >= mapped.size:
            return Content(mapped)
        if position < 0:
            return None
        data = mapped.read(position, EXT_SIZE.size)
        size = EXT_SIZE.unpack(data)[0] if len(data) == EXT_SIZE.size else 0
        return Content(mapped, position + max(size, 0))


def _queue_of(file: SourceFile) -> str | None:
    """Topic and number of the queue that a file is of; None of a file that is of none."""
    _, *queue, name = file.path.split("/")
    return "/".join(queue) if len(queue) == 2 and is_offset_name(name) else None


def _last_address(mapped: MappedFile, end: int) -> int | None:
    """Where the last unit before ``end`` that has an address leads in the extension."""
    while end:
        low = max(end - _AT_ONCE, 0)
        for _, _, tags_code in reversed([*UNIT.iter_unpack(mapped.read(low, end - low))]):
            if (address := ext_offset(tags_code)) is not None:
                return address
        end = low
    return None


def index_before(
    limit: int,
    file: SourceFile,
    geometry: Geometry,
    log: CommitLog,
    copied: Callable[[MappedFile], MappedFile],
) -> Opener:
    """Opens an index file with the items of records before a physical offset.

    A file that is full and all before it is as it will stay. Of another one a copy is cut: its
    items, slots and header may be of different moments, and only the items are taken as they are.

    :param copied: copies a file, the header first: the items that it counts are there then.
    """

    def opened(mapped: MappedFile) -> Content | None:
        if not is_index_name(file.place.name) or mapped.size != geometry.file_size:
            return Content(mapped)
        index = IndexFile(mapped, geometry)
        if index.is_full and index.header.end_phy_offset < limit:
            return Content(mapped)
        try:
            index = IndexFile(copied(mapped), geometry)
        finally:
            mapped.close()
        kept = items_before(index, limit)
        if not kept:
            index.mapped.close()
            return None
        keep(index, kept, partial(_store_timestamp_at, log))
        return Content(index.mapped)

    return opened


def _store_timestamp_at(log: CommitLog, physical_offset: int) -> int | None:
    record = log.find_record(physical_offset)
    return None if record is None else record.store_timestamp


def scratch_copy(directory: Path | None, mapped: MappedFile) -> MappedFile:
    """A copy of a file without a name, from the file's begin to its end, in this order."""

    with tempfile.TemporaryFile(dir=directory) as file:
        os.ftruncate(file.fileno(), mapped.size)
        content = Content(mapped)
        copy = MappedFile(mapped.path, os.dup(file.fileno()), 0, True)
        try:
            for position, data in content.pieces(content.extents(0, content.end)):
                copy.write_aside(position, data)
        except BaseException:
            copy.close()
            raise
        return copy
