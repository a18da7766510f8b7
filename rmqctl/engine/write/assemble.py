"""A new commit log from runs of records that were encoded side by side.

A run holds records in order, encoded except for their places: PHYSICALOFFSET is 0, and QUEUEOFFSET
counts from 0 in each queue of the run. A record's place depends on all records before it, but only
on their sizes and counts. So all places are found from these first, and then each file of the log
can be written by itself (:func:`cut_into_files`, :func:`write_log_file`). ``CommitLog#putMessage``
would make the same files from the same records in the same order.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formats import constants, layouts
from formats.text import join_properties, split_properties
from rmqctl.engine.files import paths, writing
from rmqctl.engine.files.filequeue import FILE_NAME_DIGITS
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.record.form import room_of
from rmqctl.engine.record.record import BLANK, TAILS, Record, read_entry
from rmqctl.engine.scan.columns import Bytes, Ints, take

if TYPE_CHECKING:
    from rmqctl.engine.dispatch.rules import Dispatcher

#: One row for each record of a run: its size in bytes, the number of its queue in the run (-1: it
#: is in no queue), and whether its properties name offsets in further queues.
ROW = np.dtype([("size", "<i4"), ("queue", "<i4"), ("is_multi", "?")])
Rows = NDArray[np.void]
_LONG = np.dtype(f">{layouts.RECORD_PHYSICAL_OFFSET.code}")
_TOTAL_SIZE = Struct(f">{layouts.RECORD_TOTAL_SIZE.code}")
_TOTAL_SIZE_AT = layouts.RECORD_TOTAL_SIZE.offset
_QUEUE_OFFSET = layouts.RECORD_QUEUE_OFFSET.offset
_PHYSICAL_OFFSET = layouts.RECORD_PHYSICAL_OFFSET.offset
_STEP = 1 << 18
_OFFSETS_NAME = constants.PROPERTY_INNER_MULTI_QUEUE_OFFSET.encode()


@dataclass(frozen=True)
class Run:
    """A run that is kept in two files. ``counts`` are how many queue offsets it takes in each of
    its ``queues`` (topic, queue id)."""

    path: str
    queues: tuple[tuple[str, int], ...]
    counts: tuple[int, ...]
    records: int
    has_multi: bool = False

    @property
    def size(self) -> int:
        """Bytes of its records, without the blanks between log files."""
        return os.path.getsize(f"{self.path}.records")

    def rows(self, first: int = 0, end: int | None = None) -> Rows:
        count = (self.records if end is None else end) - first
        return np.fromfile(f"{self.path}.rows", ROW, count, offset=first * ROW.itemsize)


class RunWriter:
    """Writes the two files of a run, in a directory that exists.

    :raises OSError: the disk is full, or the run exists already.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.records = 0
        self.has_multi = False
        self._records_file = open(f"{path}.records", "xb")  # noqa: SIM115 (closed by close)
        self._rows_file = open(f"{path}.rows", "xb")  # noqa: SIM115

    def add(self, records: bytes | memoryview, rows: Rows) -> None:
        self._records_file.write(records)
        self._rows_file.write(rows.tobytes())
        self.records += len(rows)
        self.has_multi |= bool(rows["is_multi"].any())

    def close(self) -> None:
        self._records_file.close()
        self._rows_file.close()

    def discard(self) -> None:
        """Closes and removes the two files."""
        try:
            self.close()
        finally:
            for file in (self._records_file, self._rows_file):
                os.unlink(file.name)


def first_offsets(runs: Iterable[Run]) -> list[Ints]:
    """For each run the first queue offset of each of its queues (int64, by the queue's number),
    and a last 0 for records with the number -1."""
    ends: dict[tuple[str, int], int] = {}
    firsts = []
    for run in runs:
        firsts.append(np.array([*(ends.get(queue, 0) for queue in run.queues), 0], np.int64))
        for queue, count in zip(run.queues, run.counts, strict=True):
            ends[queue] = ends.get(queue, 0) + count
    return firsts


class Piece(NamedTuple):
    """Records ``[first, end)`` of a run: its ``length`` bytes from ``start`` on. They go to
    ``position`` in a log file."""

    run: int
    first: int
    end: int
    start: int
    length: int
    position: int


class LogFile(NamedTuple):
    """The pieces of a log file, and the position of its blank; -1: it has none."""

    file_from_offset: int
    pieces: list[Piece]
    blank_position: int


def cut_into_files(runs: Iterable[Ints], file_size: int) -> Iterator[LogFile]:
    """Cuts runs, given as the sizes of their records (in bytes), into files of the log.

    A record that would leave no room for a blank starts the next file
    (``DefaultAppendMessageCallback#doAppend``).

    :raises ValueError: a record is larger than a file.
    """
    room = room_of(file_size)
    file_from_offset, position = 0, 0
    pieces: list[Piece] = []
    for number, sizes in enumerate(runs):
        ends = np.cumsum(sizes, dtype=np.int64)
        first = start = 0
        while first < len(ends):
            end = int(np.searchsorted(ends, start + room - position, "right"))
            if end > first:
                length = int(ends[end - 1]) - start
                pieces.append(Piece(number, first, end, start, length, position))
                position += length
                start += length
                first = end
            elif position == 0:
                raise ValueError(f"a record of {sizes[first]} bytes, a file holds {room}")
            if first < len(ends):
                yield LogFile(file_from_offset, pieces, position)
                file_from_offset, position, pieces = file_from_offset + file_size, 0, []
    if pieces:
        yield LogFile(file_from_offset, pieces, -1)


def write_log_file(
    root: Path, aside: Path, file_size: int, plan: LogFile, runs: list[Run], firsts: list[Ints]
) -> None:
    """Writes one log file of the store ``root``, durably.

    It is built in ``aside``, a directory below ``root``, and gets its name when it is whole. So
    writing it twice, even at the same time, does no harm.

    :raises CannotWrite: the disk is full.
    """
    building = aside / f"building-{uuid.uuid4().hex}"
    place = root / paths.COMMIT_LOG / f"{plan.file_from_offset:0{FILE_NAME_DIGITS}d}"
    mapped = MappedFile.create(root, building, file_size, plan.file_from_offset)
    try:
        data: Bytes = np.frombuffer(mapped.buffer, np.uint8)
        for piece in plan.pieces:
            mapped.reserve(piece.position, piece.length)
            _read(f"{runs[piece.run].path}.records", piece.start, data, piece)
            _place(data, piece, plan.file_from_offset, runs[piece.run], firsts[piece.run])
            mapped.mark_dirty(piece.position, piece.position + piece.length)
        del data
        if plan.blank_position >= 0:
            blank = BLANK.pack(file_size - plan.blank_position, constants.BLANK_MAGIC_CODE)
            mapped.reserve(plan.blank_position, len(blank))
            mapped.write(plan.blank_position, blank)
        elif (end := max(p.position + p.length for p in plan.pieces)) < file_size:
            # Readers of the log look here for the next record, and a full tmpfs has no page for a
            # hole.
            mapped.reserve(end, min(BLANK.size, file_size - end))
        mapped.flush()
        mapped.close()
        os.replace(building, place)
    except BaseException as error:
        mapped.close()
        building.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise writing.writing_error(place, error) from error
        raise


def _read(path: str, start: int, data: Bytes, piece: Piece) -> None:
    """Reads a range of a file straight into its place, without the interpreter's lock."""
    place = data[piece.position : piece.position + piece.length].data
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        done = 0
        while done < piece.length:
            count = os.preadv(descriptor, [place[done:]], start + done)
            if not count:
                raise OSError(errno.EIO, f"{path} is shorter than its rows say")
            done += count
    finally:
        os.close(descriptor)


def _place(data: Bytes, piece: Piece, file_from_offset: int, run: Run, first: Ints) -> None:
    """Stores the physical offsets of a piece's records, and adds the first queue offsets."""
    count = len(data) - _LONG.itemsize + 1
    longs: NDArray[np.int64] = np.ndarray((count,), _LONG, data, 0, (1,))
    position = piece.position
    for low in range(piece.first, piece.end, _STEP):
        rows = run.rows(low, min(low + _STEP, piece.end))
        ends = np.cumsum(rows["size"], dtype=np.int64)
        places = position + ends - rows["size"]
        longs[places + _PHYSICAL_OFFSET] = file_from_offset + places
        before = first[rows["queue"]]
        if before.any():
            longs[places + _QUEUE_OFFSET] = take(data, places + _QUEUE_OFFSET, _LONG) + before
        position += int(ends[-1])


def settle_multi(run: Run, first: Ints, dispatcher: Dispatcher) -> Run:
    """Makes the INNER_MULTI_QUEUE_OFFSET properties of a run count in the whole store.

    This changes lengths, so it comes before the cut into files. It returns a new run each time, so
    doing it twice, even at the same time, does no harm; the run itself when nothing changes.

    :param first: the first queue offset of each queue of the run (int64).
    :raises ValueError: the properties of a record become too long.
    """
    if not run.has_multi or not first.any():
        return run
    first_of = dict(zip(run.queues, first.tolist(), strict=False))
    writer = RunWriter(f"{run.path}-settled-{uuid.uuid4().hex}")
    try:
        _write_settled(run, first_of, dispatcher, writer)
        writer.close()
    except BaseException:
        writer.discard()
        raise
    return replace(run, path=writer.path)


def _write_settled(
    run: Run, first_of: dict[tuple[str, int], int], dispatcher: Dispatcher, writer: RunWriter
) -> None:
    rows = run.rows()
    with closing(MappedFile.open(Path(f"{run.path}.records"))) as source:
        ends = np.cumsum(rows["size"], dtype=np.int64)
        done = 0
        for row in np.flatnonzero(rows["is_multi"]).tolist():
            at = int(ends[row]) - int(rows["size"][row])
            before = int(ends[done - 1]) if done else 0
            writer.add(source.read(before, at - before), rows[done:row])
            record = read_entry(source.buffer, at, source.size, 0)
            assert isinstance(record, Record)
            settled = _settled(source.read(at, record.total_size), record, first_of, dispatcher)
            rows["size"][row] = len(settled)
            writer.add(settled, rows[row : row + 1])
            done = row + 1
        before = int(ends[done - 1])
        writer.add(source.read(before, int(ends[-1]) - before), rows[done:])


def _settled(
    data: bytes, record: Record, first_of: dict[tuple[str, int], int], dispatcher: Dispatcher
) -> bytes:
    """The record with its offsets in further queues counted in the store instead of its run."""
    offsets = constants.MULTI_DISPATCH_QUEUE_SPLITTER.join(
        str(first_of[name, queue_id] + offset)
        for name, queue_id, offset in dispatcher.named_queues(record.properties, record.queue_id)
    ).encode()
    properties = join_properties(
        (name, offsets if name == _OFFSETS_NAME else value)
        for name, value in split_properties(record.properties_bytes)
    )
    tail = TAILS[record.magic_code]
    if len(properties) > tail.longest_properties:
        raise ValueError(f"with its queue offsets a message has {len(properties)} properties bytes")
    rest = len(record.properties_bytes) + tail.properties_length.size
    head = bytearray(data[:-rest])
    size = len(data) - len(record.properties_bytes) + len(properties)
    _TOTAL_SIZE.pack_into(head, _TOTAL_SIZE_AT, size)
    return bytes(head) + tail.properties_length.pack(len(properties)) + properties
