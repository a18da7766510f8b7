"""What the engine lost of a damaged store, and whether a finding of verify explains each loss: one
at the same place, or one at the place where the engine cut. Findings elsewhere explain nothing."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from formats.constants import TRANSACTION_COMMIT_TYPE, TRANSACTION_TYPE_MASK
from formats.geometry import Geometry
from formats.text import index_key_hash
from rmqctl.engine.index.indexservice import IndexService
from rmqctl.operations.verify import INFO, Finding, Summary
from tests.interop.engine import EngineError, EngineStore, Row

Rows = dict[str, list[Row]]

_LENGTH = re.compile(r"\((\d+) bytes to the next record\)")
_LAST = re.compile(r"up to the record at (\d+)")


class IndexPlace(NamedTuple):
    """The place of an index item in the sound store."""

    path: str
    slot: int
    index_no: int


class Verdict(NamedTuple):
    """What verify said of the damaged store, before the engine was started on it."""

    findings: list[Finding]
    summary: Summary


def index_places(root: Path, geometry: Geometry) -> dict[tuple[int, int], list[IndexPlace]]:
    """(key hash, physical offset) → the places of the index items that hold both."""
    service = IndexService(root / "index", geometry)
    places = defaultdict(list)
    for file in service.files():
        for number in range(1, file.item_count + 1):
            item = file.item(number)
            slot = item.key_hash % geometry.hash_slot_num
            place = IndexPlace(f"index/{file.path.name}", slot, number)
            places[item.key_hash, item.physical_offset].append(place)
    service.close()
    return dict(places)


# --- what is lost ----------------------------------------------------------------------------


def identity(row: Row) -> tuple[object, ...]:
    """The values by which a message counts as the same: its place and body, and its topic and
    queue. Of a prepared or rolled back message, topic and queue do not count, for no queue has
    it, so that damage to them cannot be noticed."""
    names = ["physicalOffset", "bodySha256"]
    if row["sysFlag"] & TRANSACTION_TYPE_MASK in (0, TRANSACTION_COMMIT_TYPE):
        names += ["topic", "queueId"]
    return tuple(row[name] for name in names)


def with_what_lies_behind(sound: Rows, said: Rows, store: EngineStore) -> Rows:
    """``said``, completed with the messages and keys behind the first place that the engine cannot
    read: a dump of the engine ends there."""
    known = {row["physicalOffset"] for row in said.get("message", [])}
    messages = list(said.get("message", []))
    asked = {(row["topic"], row["key"]) for row in said.get("query", [])}
    queries = list(said.get("query", []))
    for row in sound["message"]:
        if row["physicalOffset"] not in known:
            with suppress(EngineError):
                message = store.look(row["physicalOffset"])
                messages += [message] if message is not None else []
    for row in sound["query"]:
        if (row["topic"], row["key"]) not in asked:
            queries.append(store.query(row["topic"], row["key"]))
    return {**said, "message": messages, "query": queries}


def lost_messages(sound: Rows, said: Rows) -> list[Row]:
    kept = {row["physicalOffset"]: row for row in said.get("message", [])}
    return [
        row
        for row in sound["message"]
        if row["physicalOffset"] not in kept
        or identity(row) != identity({**kept[row["physicalOffset"]], "sysFlag": row["sysFlag"]})
    ]


def lost_units(sound: Rows, said: Rows) -> list[Row]:
    """The units whose message a consumer no longer gets at that place in the queue."""
    names = ("topic", "queueId", "queueOffset", "physicalOffset", "size")
    kept = {tuple(row[name] for name in names) for row in said.get("unit", [])}
    return [row for row in sound["unit"] if tuple(row[name] for name in names) not in kept]


def lost_keys(sound: Rows, said: Rows) -> list[tuple[str, str, int]]:
    def hits(rows: Rows) -> set[tuple[str, str, int]]:
        return {
            (row["topic"], row["key"], offset)
            for row in rows.get("query", [])
            for offset in row["physicalOffsets"]
        }

    return sorted(hits(sound) - hits(said))


# --- what explains it ------------------------------------------------------------------------


def explains_log(found: Finding, offset: int, verdict: Verdict, engine_end: int) -> bool:
    """Whether a finding says that the record at ``offset`` is lost, or that the engine cuts the log
    before it, at ``engine_end``."""
    place = found.physical_offset
    if place is None:
        return False
    if found.code == "log-starts-late":  # as after the retention's deletion
        return offset < place
    if found.severity == INFO:
        return False
    if found.code == "unit-points-past-log-end":
        # When the log's last files are gone, only queues and index still tell of their messages.
        return min(verdict.summary.max_offset, engine_end) <= offset
    if place == offset:  # a record of another topic, as its queue and the index tell
        return True
    if found.structure != "commitlog":
        return False
    length = _LENGTH.search(found.found or "")
    if length and place <= offset < place + int(length[1]):
        return True
    return place == engine_end <= offset


def explains_queue(found: Finding, row: Row) -> bool:
    """Whether a finding says that the unit is lost, or a unit before it in the same queue, at which
    the engine cuts the queue."""
    place = found.physical_offset
    if found.code in ("consumequeue-missing", "dispatch-behind"):
        return place is not None and place <= row["physicalOffset"]
    if found.structure not in ("queue", "directory"):
        return False
    if (found.topic, found.queue_id) == (row["topic"], row["queueId"]):
        return found.queue_offset is None or found.queue_offset <= row["queueOffset"]
    return (found.path or "").startswith(f"consumequeue/{row['topic']}/{row['queueId']}/")


def explains_key(
    found: Finding,
    offset: int,
    places: list[IndexPlace],
    geometry: Geometry,
    items: dict[tuple[str, int], int],
) -> bool:
    """Whether a finding is about the key's message, its slot, an item of this slot, or the header
    or the whole of its index file. ``items`` has the slot of each item by (file, number)."""
    if found.structure not in ("index", "directory"):
        return False
    if found.physical_offset is not None:
        last = _LAST.search(found.found or "")
        if found.physical_offset <= offset <= (int(last[1]) if last else found.physical_offset):
            return True
    for place in places:
        if found.path == "index" or (found.path == place.path and found.position is None):
            return True
        if found.path != place.path or found.position is None:
            continue
        if found.position < geometry.slot_position(0):
            return True
        if found.position < geometry.item_position(0):
            return found.position // 4 == geometry.slot_position(place.slot) // 4
        number = (found.position - geometry.item_position(0)) // 20
        if items.get((found.path, number)) == place.slot:
            return True
    return False


def unexplained(
    root: Path, geometry: Geometry, sound: Rows, said: Rows, verdict: Verdict
) -> Iterator[str]:
    """What the engine lost and no finding explains; ``root`` is the store before the damage."""
    findings = verdict.findings
    end = said["store"][0]["maxPhyOffset"]
    gone = set()
    for row in lost_messages(sound, said):
        offset = row["physicalOffset"]
        gone.add(offset)
        if not any(explains_log(found, offset, verdict, end) for found in findings):
            yield f"message at {offset}; the engine's log ends at {end}"
    for row in lost_units(sound, said):
        if row["physicalOffset"] not in gone:
            gone.add(row["physicalOffset"])
            if not any(explains_queue(found, row) for found in findings):
                yield f"unit {row}"
    lost = [one for one in lost_keys(sound, said) if one[2] not in gone]
    if lost:
        yield from _unexplained_keys(root, geometry, lost, findings)


def _unexplained_keys(
    root: Path,
    geometry: Geometry,
    lost: Iterable[tuple[str, str, int]],
    findings: list[Finding],
) -> Iterator[str]:
    known = index_places(root, geometry)
    items = {(p.path, p.index_no): p.slot for places in known.values() for p in places}
    last = max((path for path, _ in items), default="")
    # After a crash the engine throws away an index file that is newer than the checkpoint, and then
    # indexes only those messages again that its recovery reads; the finding says so.
    thrown = any(found.code == "unclean-shutdown" for found in findings)
    for topic, key, offset in lost:
        places = known.get((index_key_hash(topic, key), offset), [])
        if thrown and any(place.path == last for place in places):
            continue
        if not any(explains_key(f, offset, places, geometry, items) for f in findings):
            yield f"key {key} of {topic} at {offset}, in {places}"
