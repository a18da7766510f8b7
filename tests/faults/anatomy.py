"""What each byte of a sound store's files belongs to, named as in the table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from formats import layouts
from formats.constants import CQ_STORE_UNIT_SIZE, HOST_V6_MASK, INDEX_SIZE, PRE_BLANK_UNIT
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.record.record import Blank, Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from tests.golden_data import data_extents

#: The parts of a store that faults damage, by the directory or file that holds each.
STRUCTURES = {
    "commitlog": "log",
    "consumequeue": "queues",
    "consumequeue_ext": "extension",
    "index": "index",
    "checkpoint": "checkpoint",
}
#: Properties that a queue or the index holds, too, so that damage to them can be noticed.
_REPEATED = (b"TAGS", b"KEYS", b"UNIQ_KEY", b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET")
UNWRITTEN = "never written"


@dataclass
class Place:
    """A stretch of a file, and what it holds: a field, or a part that has no fields."""

    start: int
    end: int
    what: str


@dataclass
class Anatomy:
    """The places of each file of a store, in order, by the file's path within the store."""

    root: Path
    places: dict[str, list[Place]] = field(default_factory=dict)
    #: The stretches of each file that hold data; the last one ends with the last byte that is not
    #: zero.
    written: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def at(self, path: str, position: int) -> str:
        """What the byte at a position of a file belongs to."""
        places = self.places[path]
        number = bisect_right(places, position, key=lambda place: place.start) - 1
        if number >= 0 and position < places[number].end:
            return places[number].what
        return UNWRITTEN

    def files(self, structure: str) -> list[str]:
        """The files of a structure that hold any data."""
        return [path for path in self.places if structure_of(path) == structure]


def structure_of(path: str) -> str:
    return STRUCTURES[path.split("/", maxsplit=1)[0]]


def dissect(root: Path, config: MessageStoreConfig) -> Anatomy:
    """The anatomy of a store, which must be sound."""
    found = Anatomy(root)
    for top in STRUCTURES:
        paths = [root / top] if (root / top).is_file() else sorted((root / top).rglob("*"))
        for path in paths:
            written = _written(path) if path.is_file() else []
            if written:
                found.places[str(path.relative_to(root))] = []
                found.written[str(path.relative_to(root))] = written
    _log(found, config)
    for name, places in found.places.items():
        structure, end = structure_of(name), found.written[name][-1][1]
        if structure == "queues":
            places.extend(_units(root / name, end))
        elif structure == "index":
            places.extend(_index(root / name, config))
        elif structure == "checkpoint":
            places.extend(_fields(layouts.CHECKPOINT, 0))
        elif structure == "extension":
            places.append(Place(0, end, "extension unit"))
    return found


def _written(path: Path) -> list[tuple[int, int]]:
    extents = []
    for start, data in data_extents(path):
        length = len(data.rstrip(b"\0"))
        if length:
            extents.append((start, start + length))
    return extents


def _fields(layout: layouts.Layout, start: int) -> Iterator[Place]:
    for one in layout.fields:
        yield Place(start + one.offset, start + one.offset + one.size, one.name)


def _log(found: Anatomy, config: MessageStoreConfig) -> None:
    log = CommitLog(found.root / "commitlog", config.mapped_file_size_commit_log)
    try:
        for entry in log.walk():
            if not isinstance(entry, Record | Blank):
                continue
            mapped, position = log.locate(entry.physical_offset)
            places = found.places[str(mapped.path.relative_to(found.root))]
            if isinstance(entry, Record):
                places.extend(_record(entry, position))
            else:
                places.append(Place(position, position + 8, "blank"))
                places.append(Place(position + 8, mapped.size, "rest of a blank"))
    finally:
        log.close()


def _record(record: Record, position: int) -> Iterator[Place]:
    yield from _fields(layouts.RECORD_PREFIX[record.sys_flag & HOST_V6_MASK], position)
    body = record.body_position
    topic = body + record.body_length
    tail = layouts.TAIL[record.magic_code]
    named = topic + tail.topic_length.size
    properties = named + len(record.topic_bytes)
    yield Place(body, topic, "body")
    yield Place(topic, named, "topic length")
    yield Place(named, properties, "topic")
    at = properties + tail.properties_length.size
    yield Place(properties, at, "properties length")
    for part in record.properties_bytes.split(b"\2"):
        name = part.partition(b"\1")[0]
        what = name.decode() if name in _REPEATED else "other properties"
        yield Place(at, at + len(part) + 1, what)
        at += len(part) + 1


def _units(path: Path, end: int) -> Iterator[Place]:
    data = path.read_bytes()[:end]
    for at in range(0, end, CQ_STORE_UNIT_SIZE):
        unit = data[at : at + CQ_STORE_UNIT_SIZE]
        size = int.from_bytes(unit[8:12], "big")
        if (int.from_bytes(unit[:8], "big"), size) == tuple(PRE_BLANK_UNIT[:2]):
            yield Place(at, at + CQ_STORE_UNIT_SIZE, "filler before the first unit")
        elif size:
            yield from _fields(layouts.QUEUE_UNIT, at)


def _index(path: Path, config: MessageStoreConfig) -> Iterator[Place]:
    geometry = config.index_geometry
    yield from _fields(layouts.INDEX_HEADER, 0)
    with path.open("rb") as file:
        count = int.from_bytes(file.read(layouts.INDEX_HEADER.size)[-4:], "big")
    first = geometry.item_position(1)
    yield Place(layouts.INDEX_HEADER.size, first - INDEX_SIZE, "slot")
    yield Place(first - INDEX_SIZE, first, "item 0, which is not used")
    for number in range(1, count):
        yield from _fields(layouts.INDEX_ITEM, geometry.item_position(number))
