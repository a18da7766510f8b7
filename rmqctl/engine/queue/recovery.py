"""What a broker's start does to one queue: where its units end, and which of them it cuts.

``ConsumeQueue#recover`` keeps the units of the last three files up to the first place without one;
``#truncateDirtyLogicFiles`` keeps those of records before the log's end. RocketMQ only moves
positions, so units that it has cut are there again at its next start. rmqctl clears them.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.queue.consumequeue import (
    SIZE_AT,
    SIZE_BYTES,
    UNIT_SIZE,
    ConsumeQueue,
    is_ext_addr,
    unit_dtype,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.files.mappedfile import MappedFile

#: Files that ``ConsumeQueue#recover`` reads, the last ones.
RECOVERED_FILES = 3


class WrittenUnits(NamedTuple):
    """The units of a queue that a start keeps: ``end`` is the queue offset of the first place
    without a unit, and ``goes_on`` says whether units stand behind that place."""

    end: int
    goes_on: bool


def passed_over(queue: ConsumeQueue, unit_offset: int) -> int:
    """How many places from ``unit_offset`` on (counted in the queue's files) a start passes over,
    because it makes units only behind the newest: those in front of the files that it reads, or in
    a lost file in front of units. 0 if the file of the first place has gone since the queue was
    opened: retention removes files while others are read."""
    files = queue.files
    number = files.index_of(unit_offset * UNIT_SIZE)
    if number < 0:
        return max(written_units(queue).end - unit_offset, 0)
    if not files.entries[number].path.exists():
        return 0
    read = files.entries[-RECOVERED_FILES:][0]
    return max(read.file_from_offset // UNIT_SIZE - unit_offset, 0)


def written_units(queue: ConsumeQueue) -> WrittenUnits:
    """Reads the last three files of a queue from front to back (``ConsumeQueue#recover``).

    RocketMQ would end the queue at the start of the first empty file of these. When a file in front
    of that is missing or does not end with a unit, the queue ends behind the last unit before it.
    """
    entries = queue.files.entries
    end, goes_on = None, False
    for number in range(max(len(entries) - RECOVERED_FILES, 0), len(entries)):
        first, count, mapped = _units_of(queue, number)
        written = _written_before(mapped, count)
        if end is not None:
            goes_on |= written.end > 0 or written.goes_on
        elif written.end < count:
            end, goes_on = first + written.end, written.goes_on
    if end is None:
        return WrittenUnits(queue.files.end_offset // UNIT_SIZE, False)
    return WrittenUnits(_in_front_of(queue, end), goes_on)


def _in_front_of(queue: ConsumeQueue, end: int) -> int:
    """``end``, or, when an empty file begins there, the end of the units in front of that file."""
    entries = queue.files.entries
    for number in range(len(entries) - 1, 0, -1):
        if end != entries[number].file_from_offset // UNIT_SIZE:
            continue
        first, count, mapped = _units_of(queue, number - 1)
        places = _is_written(_units(mapped, 0, count))
        if first + count == end and count and places[-1]:
            return end
        end = first + (int(places.nonzero()[0][-1]) + 1 if places.any() else 0)
    return end


def _units_of(queue: ConsumeQueue, number: int) -> tuple[int, int, MappedFile]:
    """For the ``number``-th file: its first queue offset, how many units it holds, and the file."""
    mapped = queue.files.file(number)
    first = mapped.file_from_offset // UNIT_SIZE
    return first, queue.units_from(first, mapped), mapped


def _written_before(mapped: MappedFile, count: int) -> WrittenUnits:
    """:class:`WrittenUnits` of the first ``count`` units of one file, counted from its start."""
    end, done = None, 0
    for low, high in unit_ranges(mapped, count):
        if end is None and low > done:
            end = done
        written = _is_written(_units(mapped, low, high))
        if end is not None:
            if written.any():
                return WrittenUnits(end, True)
        elif not written.all():
            at = int(written.argmin())
            end = low + at
            if written[at:].any():
                return WrittenUnits(end, True)
        done = high
    return WrittenUnits(done if end is None else end, False)


def first_beyond(queue: ConsumeQueue, log_end: int, end: int) -> int:
    """Queue offset of the first unit before ``end`` that a start cuts when the log ends at
    ``log_end``; ``end`` when it cuts none (``ConsumeQueue#truncateDirtyLogicFiles``)."""
    for number in range(len(queue.files.entries) - 1, -1, -1):
        mapped = queue.files.file(number)
        first = mapped.file_from_offset // UNIT_SIZE
        count = min(queue.units_from(first, mapped), end - first)
        if count <= 0:
            continue
        beyond = _units(mapped, 0, count)["physical_offset"] >= log_end
        if not beyond[0]:
            return first + int(beyond.argmax()) if beyond.any() else end
        end = first
    return end


def first_astray(queue: ConsumeQueue, log: CommitLog, start: int, end: int) -> int:
    """Queue offset of the first unit before ``end`` whose extension address does not lead to the
    extension unit of its message; ``end`` when there is none. Only units of records from physical
    offset ``start`` on are checked."""
    assert queue.ext is not None
    begin = end
    for entry in reversed(queue.files.entries):
        begin = entry.file_from_offset // UNIT_SIZE
        unit = queue.unit(begin)
        if unit is not None and unit.is_written and unit.physical_offset < start:
            break
    for queue_offset, unit in queue.units(begin, end):
        if unit.physical_offset < start or not is_ext_addr(unit.tags_code):
            continue
        found, record = queue.ext.get(unit.tags_code), log.find_record(unit.physical_offset)
        if record is not None and (found is None or found.msg_store_time != record.store_timestamp):
            return queue_offset
    return end


def has_hole(queue: ConsumeQueue) -> bool:
    """Whether a unit of the last three files stands behind a place without one, at which a start
    would cut the queue. Reads the data of these files once."""
    files, end = queue.files, queue.max_offset * UNIT_SIZE
    is_suspect = False
    for entry in files.entries[-RECOVERED_FILES:]:
        mapped = files.file(files.index_of(entry.file_from_offset))
        written = min(max(end - entry.file_from_offset, 0), mapped.size)
        is_suspect |= _holds_no_unit(mapped, written)
        is_suspect |= mapped.first_nonzero(written, mapped.size) < mapped.size
    return is_suspect and written_units(queue).goes_on


def has_unit_behind(queue: ConsumeQueue, log_end: int) -> bool:
    """Whether a start would cut units (:func:`first_beyond`). Reads the last file's units once."""
    mapped = queue.files.find((queue.max_offset - 1) * UNIT_SIZE)
    if mapped is None:
        return False
    count = queue.max_offset - mapped.file_from_offset // UNIT_SIZE
    data = mapped.read_aside(0, count * UNIT_SIZE)
    # Without numpy, as below.
    offsets = bytearray(len(data) // UNIT_SIZE * SIZE_AT)
    for at in range(SIZE_AT):
        offsets[at::SIZE_AT] = data[at::UNIT_SIZE]
    numbers = array("q", offsets)
    if sys.byteorder == "little":
        numbers.byteswap()
    return max(numbers, default=-1) >= log_end


def _holds_no_unit(mapped: MappedFile, end: int) -> bool:
    """Whether some place before position ``end`` holds no valid unit: zeros, a negative offset, or
    a size that is not positive."""
    done = 0
    for low, high in unit_ranges(mapped, end // UNIT_SIZE):
        if low > done:
            return True
        data = mapped.read_aside(low * UNIT_SIZE, (high - low) * UNIT_SIZE)
        # Without numpy, which takes longer to load: one byte column of all units at a time.
        first, *others = (data[at::UNIT_SIZE] for at in range(SIZE_AT, SIZE_AT + SIZE_BYTES))
        if not (data[::UNIT_SIZE].isascii() and first.isascii()):
            return True
        size = int.from_bytes(first)
        for part in others:
            size |= int.from_bytes(part)
        if 0 in size.to_bytes(len(first)):
            return True
        done = high
    return done < end // UNIT_SIZE


def unit_ranges(mapped: MappedFile, count: int) -> Iterator[tuple[int, int]]:
    """Ranges of the first ``count`` units of a file that hold data, in order, each unit once."""
    done = 0
    for low, high in mapped.extents(0, count * UNIT_SIZE):
        first, end = max(low // UNIT_SIZE, done), min(-(-high // UNIT_SIZE), count)
        if first < end:
            yield first, end
            done = end


def _units(mapped: MappedFile, low: int, high: int) -> NDArray[np.void]:
    """A copy of the units ``[low, high)`` of a file, counted from its start."""
    import numpy as np

    data = mapped.read_aside(low * UNIT_SIZE, (high - low) * UNIT_SIZE)
    return np.frombuffer(data[: len(data) // UNIT_SIZE * UNIT_SIZE], unit_dtype())


def _is_written(units: NDArray[np.void]) -> NDArray[np.bool_]:
    written: NDArray[np.bool_] = (units["physical_offset"] >= 0) & (units["size"] > 0)
    return written
