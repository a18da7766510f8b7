"""Random damage to a store, as operations in the form of the golden damage cases."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

from tests.interop.engine import Row


def _files(root: Path, part: str) -> list[Path]:
    return sorted(path for path in (root / part).rglob("*") if path.is_file())


def _write(root: Path, path: Path, position: int, data: bytes) -> list[Row]:
    where = str(path.relative_to(root))
    return [{"op": "write", "path": where, "position": position, "hex": data.hex()}]


def _flip(chance: random.Random, root: Path, part: str, end: int | None = None) -> list[Row]:
    """Flips one bit of a byte that is not zero, so that it is in something that was written."""
    path = chance.choice(_files(root, part))
    data = path.read_bytes()[:end]
    written = [at for at, byte in enumerate(data) if byte]
    at = chance.choice(written)
    return _write(root, path, at, bytes((data[at] ^ 1 << chance.randrange(8),)))


def flip_log(chance: random.Random, root: Path) -> list[Row]:
    return _flip(chance, root, "commitlog")


def flip_queue(chance: random.Random, root: Path) -> list[Row]:
    return _flip(chance, root, "consumequeue")


def flip_index(chance: random.Random, root: Path) -> list[Row]:
    return _flip(chance, root, "index")


def zero_log(chance: random.Random, root: Path) -> list[Row]:
    path = chance.choice(_files(root, "commitlog"))
    length = chance.choice((4, 64, 1024))
    return _write(root, path, chance.randrange(path.stat().st_size - length), bytes(length))


def truncate_log(chance: random.Random, root: Path) -> list[Row]:
    path = _files(root, "commitlog")[-1]
    length = chance.randrange(path.stat().st_size)
    return [{"op": "truncate", "path": str(path.relative_to(root)), "length": length}]


def delete_log_file(chance: random.Random, root: Path) -> list[Row]:
    path = chance.choice(_files(root, "commitlog"))
    return [{"op": "delete", "path": str(path.relative_to(root))}]


def delete_queues(chance: random.Random, root: Path) -> list[Row]:
    """Deletes a file of a queue, a queue, all queues of a topic, or all queues."""
    path = chance.choice(_files(root, "consumequeue"))
    for _ in range(chance.randrange(4)):
        path = path.parent
    return [{"op": "delete", "path": str(path.relative_to(root))}]


def delete_index(chance: random.Random, root: Path) -> list[Row]:
    path = chance.choice([root / "index", *_files(root, "index")])
    return [{"op": "delete", "path": str(path.relative_to(root))}]


def change_checkpoint(chance: random.Random, root: Path) -> list[Row]:
    path = root / "checkpoint"
    if chance.random() < 0.3:
        return [{"op": "delete", "path": "checkpoint"}]
    return _write(root, path, 0, chance.choice((bytes(24), b"\x7f" * 24)))


def stray_file(chance: random.Random, root: Path) -> list[Row]:
    name = chance.choice(("notes.txt", "00000000000000000000.bak"))
    return [{"op": "create", "path": f"commitlog/{name}", "hex": "00"}]


KINDS: list[Callable[[random.Random, Path], list[Row]]] = [
    *(flip_log, flip_log, flip_queue, flip_index, zero_log, truncate_log, delete_log_file),
    *(delete_queues, delete_index, change_checkpoint, stray_file),
]


def random_damage(chance: random.Random, root: Path) -> tuple[str, list[Row]]:
    """The damage in words, and its operations; half of the stores also look as if killed."""
    kind = chance.choice(KINDS)
    ops = kind(chance, root)
    killed = chance.random() < 0.5
    if killed:
        ops.append({"op": "create", "path": "abort", "hex": ""})
    state = "abort present" if killed else "clean shutdown"
    return f"{state}; {kind.__name__.replace('_', ' ')}", ops


def swap_log_files(chance: random.Random, root: Path) -> list[Row]:
    """Swaps the content of two files of the log."""
    one, other = chance.sample(_files(root, "commitlog"), 2)
    return [
        *_write(root, one, 0, other.read_bytes()),
        *_write(root, other, 0, one.read_bytes()),
    ]


def zero_page(chance: random.Random, root: Path) -> list[Row]:
    """Zeros a page of a file, as if it had never been written to disk."""
    parts = [path for part in ("commitlog", "consumequeue", "index") for path in _files(root, part)]
    path = chance.choice([path for path in parts if path.stat().st_size > _PAGE])
    pages = path.stat().st_size // _PAGE
    return _write(root, path, chance.randrange(pages) * _PAGE, bytes(_PAGE))


def wild_field(chance: random.Random, root: Path) -> list[Row]:
    """Writes any number into one of the first fields of a record, or of a unit."""
    if chance.random() < 0.5:
        path = chance.choice(_files(root, "commitlog"))
        data = path.read_bytes()
        magic = [at for at in range(len(data)) if data.startswith(_MAGIC, at)]
        field, size = chance.choice(((-4, 4), (8, 4), (16, 8), (24, 8), (32, 4), (52, 8)))
        return _write(root, path, chance.choice(magic) + field, _anything(chance, size))
    path = chance.choice(_files(root, "consumequeue"))
    units = path.stat().st_size // 20
    field, size = chance.choice(((0, 8), (8, 4)))
    return _write(root, path, chance.randrange(units) * 20 + field, _anything(chance, size))


def _anything(chance: random.Random, size: int) -> bytes:
    number = chance.choice((0, 1, -1, chance.randrange(1 << 16), chance.randrange(1 << 28)))
    return number.to_bytes(size, "big", signed=True)


def truncate_any(chance: random.Random, root: Path) -> list[Row]:
    parts = [path for part in ("commitlog", "consumequeue", "index") for path in _files(root, part)]
    path = chance.choice([*parts, root / "checkpoint"])
    length = chance.choice((0, chance.randrange(path.stat().st_size)))
    return [{"op": "truncate", "path": str(path.relative_to(root)), "length": length}]


#: Where a unit may point: to a range in which no record lies, inside the log or outside.
ODD_UNITS = (
    *("zeros", "no size", "amid a record", "a blank", "the log's first bytes"),
    *("past the log's end", "past the files", "over the end of a file", "far away"),
    *("before the log", "a negative size", "the largest size"),
)


def odd_unit(chance: random.Random, root: Path, kind: str) -> list[Row]:
    """A unit of a queue that others follow in its file becomes one of :data:`ODD_UNITS`."""
    units = [
        (path, at)
        for path in _files(root, "consumequeue")
        for at in range(0, path.stat().st_size - 20, 20)
        if path.read_bytes()[at + 20 : at + 40].strip(b"\0")
    ]
    path, chosen = chance.choice(units)
    place, size, code = struct.unpack_from(">qiq", path.read_bytes(), chosen)
    logs = _files(root, "commitlog")
    file_size = logs[0].stat().st_size
    log_end = int(logs[-1].name) + file_size
    values = {
        "zeros": (0, 0, 0),
        "no size": (place, 0, code),
        "amid a record": (place + 4, size, code),
        "a blank": (logs[0].read_bytes().rfind(_BLANK_MAGIC) - 4, 8, code),
        "the log's first bytes": (0, size, code),
        "past the log's end": (log_end - size - 1, size, code),
        "past the files": (log_end, size, code),
        "over the end of a file": (place, file_size, code),
        "far away": (place | 1 << 62, size, code),
        "before the log": (-chance.choice((1, 100, 5000)), size, code),
        "a negative size": (place, -size, code),
        "the largest size": (place, (1 << 31) - 1, code),
    }
    return _write(root, path, chosen, struct.pack(">qiq", *values[kind]))


_PAGE = 4096
_BLANK_MAGIC = bytes.fromhex("cbd43194")
_MAGIC = bytes.fromhex("daa320a7")
FAULTS = [*KINDS, swap_log_files, zero_page, wild_field, wild_field, truncate_any]


def random_fault(chance: random.Random, root: Path) -> tuple[str, list[Row]]:
    """As :func:`random_damage`, with more kinds; a store that looks as if killed may also have
    another checkpoint."""
    kind = chance.choice(FAULTS)
    ops = kind(chance, root)
    killed = chance.random() < 0.5
    if killed:
        ops.append({"op": "create", "path": "abort", "hex": ""})
        if chance.random() < 0.4 and kind not in (change_checkpoint, truncate_any):
            ops += change_checkpoint(chance, root)
    state = "abort present" if killed else "clean shutdown"
    return f"{state}; {kind.__name__.replace('_', ' ')}", ops
