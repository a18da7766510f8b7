"""Changes to the files of a store, byte by byte, as a crash, a lost file or an operator makes
them."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

UNIT = struct.Struct(">qiq")
EXT_UNIT = struct.Struct(">hqqh")
#: Bytes of the bit map in a unit of the queues' extension.
BIT_MAP = 32
INDEX_HEADER = struct.Struct(">qqqqii")
CHECKPOINT_SIZE = 4096
LOG_DIRECTORIES = ("commitlog", "log-a", "log-b")


class UnitPlace(NamedTuple):
    """A unit and where it stands."""

    path: Path
    position: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


# --- the log ---------------------------------------------------------------------------------


def log_files(root: Path) -> list[Path]:
    """The files of the log in order, from all directories that it may be spread over."""
    found = [path for name in LOG_DIRECTORIES for path in (root / name).glob("*")]
    return sorted(found, key=lambda path: path.name)


def log_bytes(root: Path) -> int:
    """The physical offset at which the last log file ends."""
    last = log_files(root)[-1]
    return int(last.name) + last.stat().st_size


def write_log(root: Path, physical_offset: int, data: bytes) -> None:
    """Writes over the log; bytes that do not fit into a file go on in the next one."""
    for path in log_files(root):
        start = physical_offset - int(path.name)
        if data and 0 <= start < path.stat().st_size:
            piece = data[: path.stat().st_size - start]
            write(path, start, piece)
            physical_offset, data = physical_offset + len(piece), data[len(piece) :]


def zero_log(root: Path, start: int, end: int | None = None) -> None:
    """Writes zeros from ``start`` to ``end``, or to the end of the last file."""
    end = log_bytes(root) if end is None else end
    write_log(root, start, bytes(end - start))


def drop_log_files(root: Path, start: int) -> None:
    """Removes the log files that begin at ``start`` or behind it."""
    for path in log_files(root):
        if int(path.name) >= start:
            path.unlink()


# --- queues ----------------------------------------------------------------------------------


def queue_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "consumequeue").glob("*/*/*") if path.is_file())


def units(root: Path) -> Iterator[UnitPlace]:
    """Every unit that was written, queue by queue."""
    for path in queue_files(root):
        data = path.read_bytes()
        topic, queue_id = path.parts[-3], int(path.parts[-2])
        for position in range(0, len(data), UNIT.size):
            unit = UNIT.unpack_from(data, position)
            if unit[1]:
                queue_offset = (int(path.name) + position) // UNIT.size
                yield UnitPlace(path, position, topic, queue_id, queue_offset, *unit)


def zero_units(root: Path, wanted: Callable[[UnitPlace], bool]) -> int:
    """Zeros these units, as if they were never written; gives their number."""
    count = 0
    for unit in list(units(root)):
        if wanted(unit):
            write(unit.path, unit.position, bytes(UNIT.size))
            count += 1
    drop_empty_queue_files(root)
    return count


def drop_empty_queue_files(root: Path) -> None:
    """Removes queue files of zeros only, as if they were not made yet; each queue keeps its first
    file."""
    for path in queue_files(root):
        is_first = path == min(path.parent.iterdir())
        if not is_first and not path.read_bytes().strip(b"\0"):
            path.unlink()


def ext_units(room: int, chance: random.Random) -> bytes:
    """Units of the queues' extension with bit maps, up to the end of a file (which the engine marks
    with a size of -1)."""
    data = b""
    while len(data) + EXT_UNIT.size + BIT_MAP + 4 <= room:
        size = EXT_UNIT.size + BIT_MAP
        data += EXT_UNIT.pack(size, chance.randrange(1 << 31), chance.randrange(1 << 40), BIT_MAP)
        data += bytes(chance.randrange(1, 128) for _ in range(BIT_MAP))
    return (data + b"\xff\xff")[:room]


# --- the rest --------------------------------------------------------------------------------


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").glob("*"))


class IndexHeader(NamedTuple):
    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int


def index_header(path: Path) -> IndexHeader:
    return IndexHeader._make(INDEX_HEADER.unpack_from(path.read_bytes()))


def write_checkpoint(root: Path, physic: int, logics: int, index: int) -> None:
    """Writes the first three fields of the checkpoint; those that 5.x has behind them stay."""
    path = root / "checkpoint"
    if not path.exists():
        path.write_bytes(bytes(CHECKPOINT_SIZE))
    write(path, 0, struct.pack(">qqq", physic, logics, index))


def write_abort(root: Path, version: str) -> None:
    """Writes the file ``abort`` as a killed broker of the version leaves it."""
    (root / "abort").write_text("" if version == "4.9.3" else "12345")


def write(path: Path, position: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, data, position)
    finally:
        os.close(descriptor)
