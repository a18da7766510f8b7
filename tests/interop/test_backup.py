"""Backups of a store that the engine writes to: when one is restored the engine starts on it, and
has every message up to the place that the backup names, at the same offsets."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.operations.backup.create import Wanted, create
from rmqctl.operations.backup.restore import plan_restore, restore
from rmqctl.operations.verify import Finding, verify
from tests.golden_data import tree_content
from tests.interop.engine import Engine
from tests.interop.stores import Messages, config_of, settings

NAMES = ("topic", "queueId", "queueOffset", "physicalOffset")


@pytest.mark.proves("backup")
def test_a_store_that_the_engine_writes_meanwhile(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    values = {**settings(chance, light_queues=False), "mappedFileSizeCommitLog": 16384}
    config, root = config_of(values), tmp_path / "store"
    store = engine.open(root, values)
    messages = Messages(chance, values, engine.version)
    store.put(messages.take(150))
    pieces = 0

    def happens(done: int, total: int) -> None:
        nonlocal pieces
        pieces += 1
        if pieces % 7 == 0:
            store.put(messages.take(5))

    places = [tmp_path / "full.tar.zst", tmp_path / "more"]
    base: str | None = None
    for place in places:
        made = create(Wanted(root, config, str(place), base), happens)
        assert made.manifest.head.is_live
        base = str(place)
        store.put(messages.take(30))
    store.settle()
    said = store.dump()
    store.shutdown()
    end = made.manifest.head.physical_offset
    assert end is not None and end < said["store"][0]["maxPhyOffset"]

    new = tmp_path / "new" / "store"
    new.parent.mkdir()
    restore(plan_restore([str(place) for place in places], new))
    worse = {row.severity for row in verify(new, config) if isinstance(row, Finding)} - {"info"}
    assert worse <= {"warning"}  # Some messages were not dispatched yet.
    copied = engine.open(new, values)
    assert copied.is_open, copied.why
    copied.settle()
    theirs = copied.dump()
    copied.shutdown()
    assert theirs["store"][0]["maxPhyOffset"] == end
    before = [row for row in said["message"] if row["physicalOffset"] < end]
    assert theirs["message"] == before and before
    for rows in (said, theirs):
        rows["unit"] = [row for row in rows["unit"] if row["physicalOffset"] < end]
    places_of = [{tuple(row[name] for name in NAMES) for row in r["unit"]} for r in (said, theirs)]
    assert places_of[0] == places_of[1]


@pytest.mark.proves("backup")
def test_a_store_that_the_engine_has_closed(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    values = settings(chance, light_queues=False)
    config, root, new = config_of(values), tmp_path / "store", tmp_path / "new"
    store = engine.open(root, values)
    store.put(Messages(chance, values, engine.version).take(60))
    store.settle()
    said = store.dump()
    store.shutdown()
    made = create(Wanted(root, config, str(tmp_path / "full.tar.zst")))
    assert not made.manifest.head.is_live
    restore(plan_restore([str(tmp_path / "full.tar.zst")], new))
    before = {name: data for name, data in tree_content(root).items() if name != "lock"}
    assert tree_content(new) == before
    copied = engine.open(new, values)
    assert copied.is_open, copied.why
    copied.settle()
    assert copied.dump() == said
    copied.shutdown()
