"""The kinds of faults: each draws a place of a sound store, damages it, and can undo the damage."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.faults.anatomy import STRUCTURES, UNWRITTEN, Anatomy, structure_of
from tests.golden_data import data_extents

_PAGE = 4096
_WILD = (0, 1, -1, 1 << 15, 1 << 30, -(1 << 31), (1 << 31) - 1, 1 << 40, (1 << 63) - 1)
#: How often each structure is drawn, as weights among those that a store has.
_WEIGHTS = {"log": 40, "queues": 25, "index": 25, "checkpoint": 4, "extension": 6}


class Fault(NamedTuple):
    """What is done to a file. ``what`` is what stands at ``position``, and ``data`` are the bytes
    that are written there; None: nothing is written, the kind says what happens to the file, and
    to ``other`` where it needs a second one."""

    kind: str
    path: str
    position: int
    what: str
    data: bytes | None = None
    other: str = ""

    @property
    def structure(self) -> str:
        return structure_of(self.path)


def draw(chance: random.Random, anatomy: Anatomy) -> Fault:
    """A random fault, which changes at least one byte. Every store has one: a draw that would
    change nothing is repeated."""
    while True:
        kind = chance.choice(list(KINDS))
        structures = [name for name in STRUCTURES.values() if anatomy.files(name)]
        weights = [_WEIGHTS[name] for name in structures]
        (structure,) = chance.choices(structures, weights)
        fault = KINDS[kind](chance, anatomy, anatomy.files(structure))
        if fault is not None:
            return fault._replace(kind=kind)


def _anywhere(chance: random.Random, anatomy: Anatomy, files: list[str]) -> tuple[str, int]:
    """A random file, and a random position in its data."""
    path = chance.choice(files)
    written = anatomy.written[path]
    (extent,) = chance.choices(written, [end - start for start, end in written])
    return path, chance.randrange(*extent)


def _read(anatomy: Anatomy, path: str, position: int, length: int) -> bytes:
    with (anatomy.root / path).open("rb") as file:
        return os.pread(file.fileno(), length, position)


def _written(anatomy: Anatomy, path: str, position: int, data: bytes) -> Fault | None:
    if _read(anatomy, path, position, len(data)) == data:
        return None
    return Fault("", path, position, anatomy.at(path, position), data)


def _bit(chance: random.Random, anatomy: Anatomy, files: list[str]) -> Fault | None:
    path, position = _anywhere(chance, anatomy, files)
    (byte,) = _read(anatomy, path, position, 1)
    return _written(anatomy, path, position, bytes((byte ^ 1 << chance.randrange(8),)))


def _byte(chance: random.Random, anatomy: Anatomy, files: list[str]) -> Fault | None:
    path, position = _anywhere(chance, anatomy, files)
    return _written(anatomy, path, position, chance.randbytes(1))


def _page(chance: random.Random, anatomy: Anatomy, files: list[str]) -> Fault | None:
    path, position = _anywhere(chance, anatomy, files)
    start = position // _PAGE * _PAGE
    length = min(_PAGE, (anatomy.root / path).stat().st_size - start)
    fault = _written(anatomy, path, start, bytes(length))
    return fault and fault._replace(what="a page")


def _field(chance: random.Random, anatomy: Anatomy, files: list[str]) -> Fault | None:
    """Writes another number into a field of a record, unit, item, slot or header."""
    path = chance.choice(files)
    places = [p for p in anatomy.places[path] if p.end - p.start in (1, 2, 4, 8)]
    slots = [p for p in anatomy.places[path] if p.what == "slot"]
    if slots and chance.random() < 0.2:
        start, size = chance.randrange(slots[0].start, slots[0].end, 4), 4
    elif places:
        place = chance.choice(places)
        start, size = place.start, place.end - place.start
    else:
        return None
    number = chance.choice((*_WILD, chance.randrange(1 << 8 * size)))
    data = (number % (1 << 8 * size)).to_bytes(size, "big")
    return _written(anatomy, path, start, data)


def _truncated(chance: random.Random, anatomy: Anatomy, files: list[str]) -> Fault | None:
    path = chance.choice(files)
    size = (anatomy.root / path).stat().st_size
    end = anatomy.written[path][-1][1]
    length = chance.choice((0, chance.randrange(end), chance.randrange(size)))
    what = "its data" if length < end else UNWRITTEN
    return Fault("", path, length, what)


def _lost(chance: random.Random, anatomy: Anatomy, files: list[str]) -> Fault | None:
    path = chance.choice(files)
    # What the last files are is not what the ones before are.
    same = [one for one in files if Path(one).parent == Path(path).parent]
    what = "the only one" if len(same) == 1 else "one of several"
    if len(same) > 1 and path in (min(same), max(same)):
        what = "the first one" if path == min(same) else "the last one"
    return Fault("", path, 0, what)


def _swapped(chance: random.Random, anatomy: Anatomy, files: list[str]) -> Fault | None:
    if len(files) < 2:
        return None
    path, other = chance.sample(files, 2)
    one, two = anatomy.root / path, anatomy.root / other
    if one.stat().st_size == two.stat().st_size and list(data_extents(one)) == list(
        data_extents(two)
    ):
        return None
    return Fault("", path, 0, "two files", other=other)


KINDS: dict[str, Callable[[random.Random, Anatomy, list[str]], Fault | None]] = {
    "bit": _bit,
    "byte": _byte,
    "zeroed page": _page,
    "wild field": _field,
    "truncated file": _truncated,
    "lost file": _lost,
    "swapped files": _swapped,
}


# --- doing it, and undoing it ----------------------------------------------------------------


@contextmanager
def done(fault: Fault, root: Path) -> Iterator[None]:
    """Inside, the store has the fault."""
    path = root / fault.path
    with ExitStack() as undo:
        if fault.data is not None:
            undo.callback(_write, path, [(fault.position, _old(path, fault))])
            _write(path, [(fault.position, fault.data)])
        elif fault.kind == "truncated file":
            size = path.stat().st_size
            kept = [
                (at, data) for at, data in data_extents(path) if at + len(data) > fault.position
            ]
            undo.callback(_write, path, kept)
            undo.callback(os.truncate, path, size)
            os.truncate(path, fault.position)
        elif fault.kind == "lost file":
            away = root.parent / "away"
            undo.callback(os.rename, away, path)
            os.rename(path, away)
        else:
            undo.callback(_swap, path, root / fault.other)
            _swap(path, root / fault.other)
        yield


def _old(path: Path, fault: Fault) -> bytes:
    with path.open("rb") as file:
        return os.pread(file.fileno(), len(fault.data or b""), fault.position)


def _write(path: Path, parts: list[tuple[int, bytes]]) -> None:
    with path.open("r+b") as file:
        for position, data in parts:
            os.pwrite(file.fileno(), data, position)


def _swap(one: Path, other: Path) -> None:
    away = one.with_name("away")
    os.rename(one, away)
    os.rename(other, one)
    os.rename(away, other)
