"""Stores units into a queue's file, one or many at once, and clears them."""

from __future__ import annotations

from mmap import mmap
from typing import TYPE_CHECKING

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.writeback import begin_writing
from rmqctl.engine.queue.consumequeue import SIZE_AT, SIZE_BYTES, UNIT_SIZE, unit_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rmqctl.engine.queue.queuewriter import ConsumeQueueWriter

_NO_SIZE = bytes(SIZE_BYTES)
#: Bytes of units from which on writing to disk is started at once.
_WORTH_BEGINNING = 1 << 16


def store_units(mapped: MappedFile, position: int, data: bytes) -> None:
    """Stores whole units over zeros, their sizes last. A place whose size is 0 is the queue's end
    to every start, so a kill leaves no torn unit."""
    # Noted first: after an interrupt a flush must know of every unit.
    mapped.mark_dirty(position, position + len(data))
    if len(data) == UNIT_SIZE:
        end, size_at, buffer = position + UNIT_SIZE, position + SIZE_AT, mapped.buffer
        assert isinstance(buffer, mmap)
        buffer[position:end] = data[:SIZE_AT] + _NO_SIZE + data[SIZE_AT + SIZE_BYTES :]
        buffer[size_at : size_at + SIZE_BYTES] = data[SIZE_AT : SIZE_AT + SIZE_BYTES]
        return
    from rmqctl.kernel import module as compiled

    kernel = compiled()
    if kernel is not None:
        kernel.store_units(mapped.buffer, position, data)
        return
    import numpy as np

    units = np.frombuffer(data, unit_dtype()).copy()
    sizes = units["size"].copy()
    units["size"] = 0
    mapped.write(position, units.tobytes())
    stored = np.frombuffer(mapped.buffer, unit_dtype(), len(units), position)
    stored["size"] = sizes


def append_units(mapped: MappedFile, position: int, data: bytes) -> None:
    """:func:`store_units` behind a queue's last unit; allocates their blocks first.

    :raises OSError: the disk is full.
    """
    mapped.reserve(position, len(data))
    mapped.touch(position, position + len(data))
    store_units(mapped, position, data)
    mapped.forget_behind(position)


def append_unseen(mapped: MappedFile, position: int, data: bytes | memoryview) -> None:
    """Appends units to a queue that nobody reads before it is complete.

    :raises OSError: the disk is full.
    """
    mapped.write_aside(position, data)
    if len(data) >= _WORTH_BEGINNING:
        begin_writing(mapped.descriptor, position, position + len(data))


def clear_units(mapped: MappedFile, position: int) -> None:
    """Stores zeros over all units from a position on. The size of the first one is cleared first,
    so that a kill leaves a place that every start takes for the queue's end. A unit with a size and
    half of its offset would point to some older record.

    :raises OSError: the disk is full, or refuses otherwise.
    """
    size_at = position + SIZE_AT
    if mapped.read_aside(size_at, SIZE_BYTES) != _NO_SIZE:
        mapped.reserve(size_at, SIZE_BYTES)
        mapped.write(size_at, _NO_SIZE)
    mapped.clear(position)


def pack_units(
    physical_offset: NDArray[np.int64], size: NDArray[np.int64], tags_code: NDArray[np.int64]
) -> bytes:
    import numpy as np

    units = np.empty(len(size), unit_dtype())
    units["physical_offset"], units["size"], units["tags_code"] = physical_offset, size, tags_code
    return units.tobytes()


def restore_units(
    queue: ConsumeQueueWriter,
    physical_offset: NDArray[np.int64],
    size: NDArray[np.int64],
    tags_code: NDArray[np.int64],
    queue_offset: NDArray[np.int64],
) -> None:
    """:meth:`ConsumeQueueWriter.restore` for parallel int64 arrays in log order."""
    import numpy as np

    wanted = np.frombuffer(pack_units(physical_offset, size, tags_code), unit_dtype())
    breaks = np.flatnonzero(np.diff(queue_offset) != 1) + 1
    for start, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(size)], strict=True):
        at = start
        while at < end and len(window := queue.window(int(queue_offset[at]), end - at)):
            for row in (at + np.flatnonzero(window != wanted[at : at + len(window)])).tolist():
                columns = (physical_offset, size, tags_code, queue_offset)
                queue.restore(*(int(column[row]) for column in columns))
            at += len(window)
