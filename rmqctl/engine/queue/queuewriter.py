"""The writing half of :mod:`rmqctl.engine.queue.consumequeue`: appends units, one or many at a
time, and completes what a killed writer has left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from formats import constants
from rmqctl.engine.files.dirty import Unsynced
from rmqctl.engine.files.filequeuewriter import MappedFileQueueWriter
from rmqctl.engine.queue.consumequeue import (
    KEEP,
    MAX_ROWS_COPIED,
    UNIT,
    UNIT_SIZE,
    ConsumeQueue,
    Unit,
    is_ext_addr,
    is_part_of,
)
from rmqctl.engine.queue.outofplace import OutOfPlace
from rmqctl.engine.queue.storing import (
    append_units,
    append_unseen,
    clear_units,
    pack_units,
    store_units,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.queue.extension import ConsumeQueueExt, ConsumeQueueExtWriter

PRE_BLANK = UNIT.pack(*constants.PRE_BLANK_UNIT)
#: In place of a store time: the unit gets its tags code itself, not one in the extension.
NO_EXT = constants.LONG_MIN


class ConsumeQueueWriter(ConsumeQueue):
    """One queue, open for writing; it need not have files yet. If its extension is open for reading
    only, new units get their tags codes themselves."""

    files: MappedFileQueueWriter

    def __init__(
        self,
        directory: Path,
        topic: str,
        queue_id: int,
        file_size: int,
        root: Path,
        *,
        ext: ConsumeQueueExt | None = None,
        drops_empty: bool = False,
        unsynced: Unsynced | None = None,
    ) -> None:
        """:param root: the directory below which no link is followed. :param drops_empty: as in
            :class:`ConsumeQueue`, for :meth:`clear_from`. :param unsynced: as in
            :class:`MappedFileQueueWriter`.
        :raises FileLengthContradiction, NotAFile, CannotRead: a file is irregular.
        """
        files = MappedFileQueueWriter(directory, file_size, root, keep=KEEP, unsynced=unsynced)
        super().__init__(
            directory,
            topic,
            queue_id,
            file_size,
            ext=ext,
            files=files,
            strict=True,
            drops_empty=drops_empty,
        )
        self._ext: ConsumeQueueExtWriter | None = None
        if ext is not None:
            from rmqctl.engine.queue.extension import ConsumeQueueExtWriter

            self._ext = ext if isinstance(ext, ConsumeQueueExtWriter) else None
        #: The newest address, and whether it was looked for, which may read 900,000 units.
        self._newest: int | None = None
        self._knows_newest = False
        #: Gets the records whose unit cannot be put where they name it.
        self.out_of_place = OutOfPlace()

    def put_message_position_info(
        self,
        physical_offset: int,
        size: int,
        tags_code: int,
        queue_offset: int,
        *,
        max_gap: int = 0,
        store_timestamp: int | None = None,
    ) -> bool:
        """Appends one unit (``ConsumeQueue#putMessagePositionInfo``). False: the queue has it.

        :param max_gap: a gap of at most so many units before ``queue_offset`` is filled with
            pre-blank units. Behind a larger one the unit goes to the current end, as a broker's.
        :param store_timestamp: of the record (ms): the tags code goes to the extension, when the
            queue writes one. None: it stays in the unit.
        :raises OSError: the disk is full. :raises CannotWrite: no new file can be made.
        """
        if physical_offset + size <= self.max_physical_offset:
            return False
        expected = queue_offset * UNIT_SIZE
        is_first = not self.files.entries
        if not is_first:
            self._fill_pre_blank(expected)
        # RocketMQ does not compare a queue offset of 0: a queue may begin again with another unit.
        is_known = queue_offset != 0 or (self.unit(0) or ())[:2] == (physical_offset, size)
        if not is_first and expected < self._wrote and is_known:
            self.out_of_place.note((self.topic, self.queue_id), physical_offset, is_stored=False)
            return False
        gap = 0 if is_first else (expected - self._wrote) // UNIT_SIZE
        if 0 < gap <= max_gap:
            self._fill(gap)
        elif gap:
            self.out_of_place.note((self.topic, self.queue_id), physical_offset, is_stored=True)
        if store_timestamp is not None:
            tags_code = self._ext_address(tags_code, store_timestamp)
        unit = UNIT.pack(physical_offset, size, tags_code)
        if is_first:
            self._begin(expected, unit)
        else:
            self._append(unit)
        self.max_physical_offset = physical_offset + size
        return True

    def put_next(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> bool:
        """:meth:`put_message_position_info` for the common case: the unit goes to the queue's end,
        in a file that exists, and the queue writes no extension. False: not so, nothing was stored.

        :raises OSError: the disk is full.
        """
        place, files = queue_offset * UNIT_SIZE, self.files
        goes_on = place == self._wrote and physical_offset >= self.max_physical_offset >= 0
        if not goes_on or self._ext is not None or not files.is_durable:
            return False
        if (mapped := files.find(place)) is None:
            return False
        position = place - mapped.file_from_offset
        mapped.reserve(position, UNIT_SIZE)
        store_units(mapped, position, UNIT.pack(physical_offset, size, tags_code))
        self._wrote = place + UNIT_SIZE
        self.max_physical_offset = physical_offset + size
        return True

    def put_units(
        self,
        physical_offset: NDArray[np.int64],
        size: NDArray[np.int64],
        tags_code: NDArray[np.int64],
        queue_offset: NDArray[np.int64],
        *,
        max_gap: int = 0,
        store_timestamp: NDArray[np.int64] | None = None,
    ) -> None:
        """:meth:`put_message_position_info` for parallel int64 arrays in log order. Units that go
        on at the queue's end without a gap are stored as one block.

        :param store_timestamp: :data:`NO_EXT` for units whose tags code stays in the unit.
        """
        import numpy as np

        columns = [physical_offset, size, tags_code, queue_offset]
        if store_timestamp is not None:
            columns.append(store_timestamp)
        # Only leading units are skipped: a damaged size may put a later record's end too low.
        is_beyond = physical_offset + size > self.max_physical_offset
        known = int(is_beyond.argmax()) if is_beyond.any() else len(size)
        columns = [column[known:] for column in columns]
        physical_offset, size, tags_code, queue_offset = columns[:4]
        count, done = len(size), 0
        if count and (not self.files.entries or queue_offset[0] != self.max_offset):
            for row in zip(*(column.tolist() for column in columns), strict=True):
                self._put_row(row, max_gap)
                done += 1
                if done < count and queue_offset[done] == self.max_offset:
                    break
        if done == count:
            return
        columns = [column[done:] for column in columns]
        physical_offset, size, tags_code, queue_offset = columns[:4]
        # Not np.diff, which takes longer than all the rest for the few units of most queues.
        goes_on = (
            queue_offset[0] == self.max_offset
            and physical_offset[0] >= self.max_physical_offset
            and bool((queue_offset[1:] - queue_offset[:-1] == 1).all())
            and bool((physical_offset[1:] > physical_offset[:-1]).all())
        )
        if not goes_on:
            for row in zip(*(column.tolist() for column in columns), strict=True):
                self._put_row(row, max_gap)
            return
        if len(columns) > 4:
            rows = zip(tags_code.tolist(), columns[4].tolist(), strict=True)
            tags_code = np.array([self._ext_address(*row) for row in rows], np.int64)
        try:
            self._append(pack_units(physical_offset, size, tags_code))
        finally:
            # On a full disk only some of the files' worth of units may have been stored.
            self.max_physical_offset = self._max_physical_offset()

    def put_run(self, queue_offset: int, physical_offset: int, stored: bytes | memoryview) -> bool:
        """Appends stored units with consecutive queue offsets and ascending records, when they go
        on at the queue's end or begin the queue, and it has no extension. False: not so; they are
        for :meth:`put_units`, and at most the queue's first unit was stored.

        :param queue_offset: of the first unit. :param physical_offset: of its record.
        :raises OSError: the disk is full. :raises CannotWrite: no new file can be made.
        """
        if self.ext is not None:
            return False
        if not self.files.entries:
            first, size, tags_code = UNIT.unpack(stored[:UNIT_SIZE])
            self.put_message_position_info(first, size, tags_code, queue_offset)
            stored, queue_offset = stored[UNIT_SIZE:], queue_offset + 1
            if not stored:
                return True
            physical_offset = UNIT.unpack(stored[:UNIT_SIZE])[0]
        goes_on = queue_offset == self.max_offset and physical_offset >= self.max_physical_offset
        if goes_on:
            try:
                self._append(stored)
            except BaseException:  # On a full disk some of the units may have been stored.
                self.max_physical_offset = self._max_physical_offset()
                raise
            last = Unit._make(UNIT.unpack(stored[-UNIT_SIZE:]))
            self.max_physical_offset = last.physical_offset + last.size
        return goes_on

    def _put_row(self, row: tuple[int, ...], max_gap: int) -> None:
        store_timestamp = row[4] if row[4:] and row[4] != NO_EXT else None
        self.put_message_position_info(*row[:4], max_gap=max_gap, store_timestamp=store_timestamp)

    def _ext_address(self, tags_code: int, store_timestamp: int) -> int:
        """What stands for a tags code in the unit: the address of a new extension unit, or the code
        itself when none is written."""
        if store_timestamp == NO_EXT or self._ext is None:
            return tags_code
        if not self._knows_newest:
            self._newest, self._knows_newest = self.newest_address(), True
        address = self._ext.put(tags_code, store_timestamp, self._newest)
        if address is None:
            return tags_code
        self._newest = address
        return address

    def restore(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        """Completes a unit of which a killed writer has stored a part; others stay as they are."""
        wanted = UNIT.pack(physical_offset, size, tags_code)
        mapped = self.files.find(queue_offset * UNIT_SIZE)
        if mapped is None or queue_offset >= self.max_offset:
            return
        position = queue_offset * UNIT_SIZE - mapped.file_from_offset
        stored = mapped.read(position, UNIT_SIZE)
        if self._is_cut_address(queue_offset, stored, wanted):
            # The caller dispatches the record next: that puts unit and extension unit again.
            self._wrote -= UNIT_SIZE
            self.max_physical_offset = self._max_physical_offset()
        elif stored != wanted and is_part_of(stored, wanted):
            mapped.reserve(position, UNIT_SIZE)
            mapped.write(position, wanted)
            self.max_physical_offset = self._max_physical_offset()

    def _is_cut_address(self, queue_offset: int, stored: bytes, wanted: bytes) -> bool:
        """Whether the queue's last unit holds only the first half of its extension address."""
        if self._ext is None or queue_offset != self.max_offset - 1:
            return False
        unit = Unit._make(UNIT.unpack(stored))
        is_cut = stored[:12] == wanted[:12] and not any(stored[16:])
        return (
            is_cut
            and is_ext_addr(unit.tags_code)
            and self.tags_code(unit) != UNIT.unpack(wanted)[2]
        )

    def clear_from(self, queue_offset: int) -> None:
        """Removes the units from ``queue_offset`` on, and the files that have no others. In an
        empty file a broker would see a unit, since ``ConsumeQueue#truncateDirtyLogicFiles`` does
        not check the first place of a file. Goes from the last file back, so that a kill leaves no
        hole.

        :raises OSError: the disk failed. :raises CannotWrite: a file cannot be removed.
        """
        place = queue_offset * UNIT_SIZE
        self.files.remove_from(place)
        if (mapped := self.files.find(place)) is not None:
            clear_units(mapped, place - mapped.file_from_offset)
        self._wrote = place if self.files.entries else 0
        self.max_physical_offset = self._max_physical_offset()

    def _fill(self, count: int) -> None:
        """Appends pre-blank units, some thousands at a time."""
        while count > 0:
            self._append(PRE_BLANK * min(count, MAX_ROWS_COPIED))
            count -= MAX_ROWS_COPIED

    def _append(self, data: bytes | memoryview) -> None:
        """Stores whole units at the queue's end, in as many files as they take."""
        while data:
            self.files.close_gap(self._wrote)
            if self.files.entries and self._wrote == self.files.end_offset:
                # The file gets its units with its name: in an empty one a broker would see a unit.
                piece = data[: self.files.file_size]
                self._make_file(self._wrote, bytes(piece))
            else:
                mapped = self.files.find(self._wrote)
                assert mapped is not None, "a queue's first file comes with its first unit"
                position = self._wrote - mapped.file_from_offset
                piece = data[: mapped.size - position]
                if self.files.is_durable:
                    append_units(mapped, position, bytes(piece))
                else:
                    append_unseen(mapped, position, piece)
            self._wrote += len(piece)
            data = data[len(piece) :]

    def reserve(self, queue_offset: int) -> None:
        """Allocates the blocks of a unit before its record is stored. ``queue_offset`` is the
        queue's end, or lies behind it by the units that are not dispatched yet.

        :raises OSError: the disk is full. :raises CannotWrite: no new file can be made.
        """
        place, files = queue_offset * UNIT_SIZE, self.files
        files.close_gap(place)
        mapped, is_first = files.find(place), not files.entries
        if mapped is not None:
            mapped.reserve(place - mapped.file_from_offset, UNIT_SIZE)
        elif is_first or place >= files.end_offset:
            # The file gets its name with its first unit: in an empty one a broker would see a unit.
            start = place - place % files.file_size if is_first else place
            files.reserve_ahead(start, place - start + UNIT_SIZE)
            if is_first and files.entries:
                self._wrote = files.min_offset

    def _begin(self, expected: int, unit: bytes) -> None:
        """Makes the first file, with the queue's first unit behind the pre-blank units in front of
        it (``ConsumeQueue#fillPreBlank``). All are stored at once: a broker's start takes a queue
        that ends with pre-blank units for dispatched up to 2 GiB.

        :raises CannotWrite: it cannot be made.
        """
        before = expected % self.files.file_size
        head = PRE_BLANK * (before // UNIT_SIZE) + unit
        self._make_file(expected - before, head)
        # In this order: readers take everything between the two for units.
        self.min_offset = expected // UNIT_SIZE
        self._wrote = expected + len(unit)

    def _make_file(self, file_from_offset: int, units: bytes) -> None:
        """Makes the next file with its first units. They are on disk with the file, so the
        extension units that they point to are forced there before. Errors as in
        :meth:`MappedFileQueueWriter.append_file`."""
        if self._ext is not None and self.files.is_durable:
            self._ext.files.sync()
        self.files.append_file(file_from_offset, units).mark_dirty(0, len(units))

    def _fill_pre_blank(self, expected: int) -> None:
        """Stores the pre-blank units of a queue that has a file and no unit yet
        (``ConsumeQueue#fillPreBlank``). A killed writer may have stored some of them."""
        if self.max_physical_offset >= 0:
            return
        first = self.files.file(0)
        before = expected - first.file_from_offset
        if 0 < before < first.size and first.read(0, before) != PRE_BLANK * (before // UNIT_SIZE):
            self._wrote = first.file_from_offset
            first.reserve(0, before)
            first.write(0, PRE_BLANK * (before // UNIT_SIZE))
            self.min_offset = expected // UNIT_SIZE
            self._wrote = expected

    def flush(self) -> None:
        """Forces the queue to disk. :raises OSError: the disk failed, now or before."""
        if self._ext is not None:
            self._ext.files.sync()
        self.files.sync()
