"""``ConsumeQueue`` in a played start: it is recovered, cut and appended to.

As in the engine, bytes behind the write position count: ``truncateDirtyLogicFiles`` reads a file
from its start, whatever end the recovery has found in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats.constants import INT_MAX
from formats.text import java_long_value
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE, unit_dtype, whole_units
from rmqctl.engine.queue.recovery import RECOVERED_FILES
from rmqctl.engine.rehearsal.brokerfiles import BrokerFile, BrokerFileQueue, Run
from rmqctl.engine.rehearsal.model import QueueState, StartFails

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rmqctl.engine.rehearsal.model import Deleted

#: Units that are read at once: few at first, because most queues are short.
_FIRST_UNITS, _MOST_UNITS = 1 << 6, 1 << 16


class _Piece(NamedTuple):
    """Consecutive units of a file, with their offsets and sizes (int64, parallel). For a run these
    are only those of the first and the last unit."""

    start: int
    units: int
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]


class BrokerQueue:
    """One queue. ``max_physical_offset`` is the engine's own, even if the units say otherwise.
    ``min_logic`` is a position in the queue, in bytes."""

    def __init__(
        self, topic: str, queue_id: int, directory: Path, file_size: int, deleted: list[Deleted]
    ) -> None:
        self.topic, self.queue_id, self.directory = topic, queue_id, directory
        self.queue = BrokerFileQueue(file_size, deleted)
        self.max_physical_offset = -1
        self.min_logic = 0
        self.cut_to = 0
        self.misplaced = 0

    @property
    def state(self) -> QueueState:
        return QueueState(
            self.topic,
            self.queue_id,
            self.directory,
            self.min_logic // UNIT_SIZE,
            self.queue.max_offset // UNIT_SIZE,
            self.max_physical_offset,
            self.cut_to,
            self.misplaced,
        )

    # --- reading -------------------------------------------------------------------------

    def _pieces(self, file: BrokerFile, start: int) -> Iterator[_Piece]:
        """The units of a file from number ``start`` in it on, including appended ones."""
        end = self.queue.file_size // UNIT_SIZE
        for run in file.runs:
            if start >= run.start + run.units:
                continue
            yield from self._stored(file, start, run.start)
            ends = np.array([run.first, run.last]), np.array([run.first_size, run.last_size])
            yield _Piece(
                max(run.start, start), run.start + run.units - max(run.start, start), *ends
            )
            start = run.start + run.units
        yield from self._stored(file, start, end)

    def _stored(self, file: BrokerFile, start: int, end: int) -> Iterator[_Piece]:
        if start >= end:
            return
        if file.is_new:
            nothing = np.zeros(end - start, np.int64)
            yield _Piece(start, end - start, nothing, nothing)
            return
        count = _FIRST_UNITS
        with file.reading() as read:
            while start < end:
                data = read(start * UNIT_SIZE, min(count, end - start) * UNIT_SIZE)
                units = np.frombuffer(whole_units(data), unit_dtype())
                if not len(units):
                    return
                offsets = units["physical_offset"].astype(np.int64)
                yield _Piece(start, len(units), offsets, units["size"].astype(np.int64))
                start, count = start + len(units), min(4 * count, _MOST_UNITS)

    def _unit(self, file: BrokerFile, index: int) -> tuple[int, int]:
        """Physical offset and size of a unit; within a run those of the run's first unit."""
        for run in file.runs:
            if run.start <= index < run.start + run.units:
                is_last = index == run.start + run.units - 1
                return (run.last, run.last_size) if is_last else (run.first, run.first_size)
        if file.is_new:
            return 0, 0
        with file.reading() as read:
            # What retention, or a rebuild, takes away meanwhile is zeros.
            data = read(index * UNIT_SIZE, UNIT_SIZE).ljust(UNIT_SIZE, b"\0")
            offset, size, _ = UNIT.unpack(data)
            return offset, size

    def _leading(
        self, file: BrokerFile, start: int, bound: int | None
    ) -> tuple[int, tuple[int, int] | None]:
        """How many units from number ``start`` on are valid and before ``bound``, and the last
        one."""
        count, last = 0, None
        for piece in self._pieces(file, start):
            good = (piece.offsets >= 0) & (piece.sizes > 0)
            if bound is not None:
                good &= piece.offsets < bound
            if good.all():
                count += piece.units
                last = int(piece.offsets[-1]), int(piece.sizes[-1])
                continue
            at = int(good.argmin())
            if at:
                count, last = count + at, (int(piece.offsets[at - 1]), int(piece.sizes[at - 1]))
            break
        return count, last

    # --- recovery ------------------------------------------------------------------------

    def recover(self) -> None:
        """``ConsumeQueue#recover``."""
        files = self.queue.files
        if not files:
            return
        number = max(len(files) - RECOVERED_FILES, 0)
        while True:
            count, last = self._leading(files[number], 0, None)
            if last is not None:
                self.max_physical_offset = java_long_value(sum(last))
            is_full = count * UNIT_SIZE == self.queue.file_size
            if not is_full or number + 1 == len(files):
                break
            number += 1
        end = files[number].file_from_offset + count * UNIT_SIZE
        self.queue.truncate_dirty(end, "behind-queue-end")

    def truncate(self, log_end: int) -> None:
        """``truncateDirtyLogicFiles``. :raises StartFails: files have one unit, so it never
        ends."""
        self.max_physical_offset = log_end
        files = self.queue.files
        while files:
            file = files[-1]
            offset, size = self._unit(file, 0)
            if offset >= log_end:
                self.queue.delete_last("behind-log-end")
                continue
            file.wrote = UNIT_SIZE
            self.max_physical_offset = java_long_value(offset + size)
            count, last = self._leading(file, 1, log_end)
            if last is not None:
                file.wrote += count * UNIT_SIZE
                self.max_physical_offset = java_long_value(sum(last))
            if self.queue.file_size == UNIT_SIZE:
                raise StartFails("queues whose files have one unit each are cut for ever")
            return

    def destroy(self) -> None:
        self.queue.destroy("log-missing")
        self.max_physical_offset, self.min_logic = -1, 0

    def correct_min(self, log_min: int, *, as_5: bool) -> None:
        """``correctMinOffset``."""
        if as_5:
            self._correct_min_5(log_min)
            return
        if not self.queue.files:
            return
        file = self.queue.files[0]
        for piece in self._pieces(file, 0):
            if piece.start >= file.wrote // UNIT_SIZE:
                return
            kept = piece.offsets >= log_min
            if kept.any():
                index = piece.start + int(kept.argmax())
                if index < file.wrote // UNIT_SIZE:
                    self.min_logic = file.file_from_offset + index * UNIT_SIZE
                return

    def _correct_min_5(self, log_min: int) -> None:
        """:raises StartFails: the last file has no unit, though the queue has some."""
        if self.min_logic >= self.queue.max_offset or not self.queue.files:
            return
        first, last = self.queue.files[0], self.queue.files[-1]
        if not last.wrote:  # It reads the unit in front of the file.
            name = f"{self.topic}/{self.queue_id}/{last.path.name}"
            raise StartFails(f"{name}: the queue ends before it", (self.topic, self.queue_id))
        offset, _ = self._unit(last, last.wrote // UNIT_SIZE - 1)
        if offset < log_min:
            self.min_logic = last.file_from_offset + last.wrote
            return
        start = self.min_logic - first.file_from_offset
        is_intact, start = start >= 0, max(start, 0)
        if start >= first.wrote:
            return
        base = start // UNIT_SIZE
        if is_intact and self._unit(first, base)[0] >= log_min:
            return
        low, high = base, first.wrote // UNIT_SIZE - 1
        while high - low > 1:
            middle = (low + high) // 2
            offset, _ = self._unit(first, middle)
            if offset == log_min:
                low = high = middle
            elif offset > log_min:
                high = middle
            else:
                low = middle
        for index in range(low, high + 1):
            if self._unit(first, index)[0] >= log_min:
                self.min_logic = first.file_from_offset + index * UNIT_SIZE
                return

    # --- dispatch ------------------------------------------------------------------------

    def put(self, offset: int, size: int, queue_offset: int) -> None:
        """``putMessagePositionInfo``."""
        if java_long_value(offset + size) <= self.max_physical_offset:
            return
        expected = java_long_value(queue_offset * UNIT_SIZE)
        file = self.queue.last_for(expected, self.directory)
        if file.is_first_created and queue_offset != 0 and file.wrote == 0:
            self.min_logic = expected
            blanks = max(expected, 0) % self.queue.file_size // UNIT_SIZE
            if blanks:
                self._append(file, blanks, (0, 0), (INT_MAX, INT_MAX))
        end = file.file_from_offset + file.wrote
        if queue_offset != 0 and expected < end:
            return
        # The engine logs `logic queue order maybe wrong`, and appends it all the same.
        self.misplaced += queue_offset != 0 and expected != end
        self.max_physical_offset = java_long_value(offset + size)
        self._append(file, 1, (offset, offset), (size, size))

    def put_all(
        self,
        offsets: NDArray[np.int64],
        sizes: NDArray[np.int64],
        queue_offsets: NDArray[np.int64],
    ) -> None:
        """:meth:`put` for the units of regular records, in log order: three parallel int64
        arrays."""
        ends = offsets + sizes
        at = int(np.searchsorted(ends, self.max_physical_offset, "right"))
        is_row = bool((np.diff(queue_offsets[at:]) == 1).all())
        while at < len(offsets):
            self.put(int(offsets[at]), int(sizes[at]), int(queue_offsets[at]))
            at += 1
            if not is_row or at == len(offsets):
                continue
            end, following = self.queue.max_offset // UNIT_SIZE, int(queue_offsets[at])
            if following < end:
                at += end - following  # The queue has them: the engine passes over them.
                continue
            file = self.queue.files[-1]
            room = min((self.queue.file_size - file.wrote) // UNIT_SIZE, len(offsets) - at)
            if following == end and room:
                last = at + room - 1
                ranges = (int(offsets[at]), int(offsets[last])), (int(sizes[at]), int(sizes[last]))
                self._append(file, room, *ranges)
                self.max_physical_offset = int(ends[last])
                at += room

    def _append(
        self, file: BrokerFile, count: int, offsets: tuple[int, int], sizes: tuple[int, int]
    ) -> None:
        run = Run(file.wrote // UNIT_SIZE, count, *offsets, *sizes)
        before = file.runs[-1] if file.runs else None
        if count > 1 and before is not None and before.units > 1 and before.last < run.first:
            # Two regular runs become one, however much is dispatched.
            run = Run(
                before.start,
                before.units + count,
                before.first,
                run.last,
                before.first_size,
                run.last_size,
            )
            file.runs[-1] = run
        else:
            file.runs.append(run)
        file.wrote += count * UNIT_SIZE
