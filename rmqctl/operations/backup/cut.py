"""Cuts the queues and the index of a store that is being written at one place in its log."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files.filequeue import is_offset_name
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.paths import FileGone
from rmqctl.engine.index.indexfile import IndexFile
from rmqctl.engine.index.indexfilewriter import IndexFileWriter
from rmqctl.engine.index.indexservice import is_index_name
from rmqctl.engine.index.mending import keep
from rmqctl.engine.index.recovery import items_before
from rmqctl.engine.queue.batchqueue import BATCH_UNIT, BatchUnit
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE
from rmqctl.engine.queue.extension import SIZE as EXT_SIZE
from rmqctl.engine.queue.extension import ext_offset
from rmqctl.operations.backup.content import Content
from rmqctl.operations.backup.listing import Opener, SourceFile

if TYPE_CHECKING:
    from struct import Struct

    from formats.geometry import Geometry
    from rmqctl.engine.log.commitlog import CommitLog

#: Units that are read at once.
_AT_ONCE = 4096


def log_before(end: int, file: SourceFile) -> Opener:
    """An opener of a file of the log, up to a physical offset; a file that begins at it, or behind
    it, is left out."""

    def opened(mapped: MappedFile) -> Content | None:
        name = file.place.name
        if not is_offset_name(name):
            return Content(mapped)
        return Content(mapped, end - int(name)) if int(name) < end else None

    return opened


class QueueCuts:
    """Cuts queues behind their units of records before a physical offset, and the extension behind
    what these units point to. The files of a queue have to come newest first, and those of its
    extension after them."""

    def __init__(self, limit: int, *, has_extension: bool) -> None:
        self._limit = limit
        self._has_extension = has_extension
        #: ``topic/queue`` as the directories spell it → the extension address of its last unit.
        self._addresses: dict[str, int] = {}

    def units(self, file: SourceFile) -> Opener:
        """An opener of a file of a queue; a file without units before the limit is left out."""
        return partial(self._units, file)

    def _units(self, file: SourceFile, mapped: MappedFile) -> Content | None:
        queue = _queue_of(file)
        if queue is None:
            return Content(mapped)
        end = _end(mapped, UNIT, self._is_before)
        if self._has_extension and queue not in self._addresses:
            address = _last_address(mapped, end)
            if address is not None:
                self._addresses[queue] = address
        return Content(mapped, end) if end else None

    def _is_before(self, fields: tuple[int, ...]) -> bool:
        """Whether a unit is of a record before the limit."""
        return fields[0] < self._limit

    def batch_units(self, file: SourceFile) -> Opener:
        """An opener of a file of a batch queue (5.x), by the same rule."""

        def opened(mapped: MappedFile) -> Content | None:
            if _queue_of(file) is None:
                return Content(mapped)
            end = _end(mapped, BATCH_UNIT, self._is_whole_before)
            return Content(mapped, end) if end else None

        return opened

    def _is_whole_before(self, fields: tuple[int, ...]) -> bool:
        # Its place shifts from unit to unit, so that of the last one half an offset may be there.
        return self._is_before(fields) and BatchUnit._make(fields[:-2]).is_written

    def extension(self, file: SourceFile) -> Opener:
        """An opener of a file of a queue's extension."""
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


def _end(mapped: MappedFile, layout: Struct, is_wanted: Callable[[tuple[int, ...]], bool]) -> int:
    """Position behind the last unit that is wanted."""
    size = layout.size
    end = min(-(-mapped.end_of_data(0) // size), mapped.size // size) * size
    while end:
        low = max(end - _AT_ONCE * size, 0)
        data = mapped.read(low, end - low)
        for at in range(len(data) // size * size - size, -1, -size):
            if is_wanted(layout.unpack_from(data, at)):
                return low + at + size
        end = low
    return 0


def _queue_of(file: SourceFile) -> str | None:
    """The queue that a file belongs to, as ``topic/queue``; None: it belongs to none."""
    _, *queue, name = file.path.split("/")
    return "/".join(queue) if len(queue) == 2 and is_offset_name(name) else None


def _last_address(mapped: MappedFile, end: int) -> int | None:
    """The address of the last unit before ``end`` that has one; None: no unit has one."""
    while end:
        low = max(end - _AT_ONCE * UNIT_SIZE, 0)
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
    """An opener of an index file, with the items of records before a physical offset.

    A file without a byte has just been made, and is left out. A full file whose records are all
    before the offset does not change any more, and is taken as it is. Of any other file a copy is
    cut. Its items, slots and header may have been written at different moments: only the items are
    kept, and the rest is made from them.

    :param copied: copies a file, the header first, so that the items that it counts are in the
        copy.
    """

    def opened(mapped: MappedFile) -> Content | None:
        if not is_index_name(file.place.name):
            return Content(mapped)
        if mapped.size != geometry.file_size:
            return Content(mapped) if mapped.size else None
        index = IndexFile(mapped, geometry)
        if index.is_full and index.header.end_phy_offset < limit:
            return Content(mapped)
        try:
            index = IndexFileWriter(copied(mapped), geometry)
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
    try:
        record = log.find_record(physical_offset)
    except FileGone:
        return None
    return None if record is None else record.store_timestamp


def scratch_copy(directory: Path | None, mapped: MappedFile) -> MappedFile:
    """Copies a file, from its beginning to its end, into a temporary file without a name."""

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
