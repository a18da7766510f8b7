"""Damaged stores: whatever the engine then loses, keeps back or refuses stands behind a finding."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from formats.constants import TRANSACTION_COMMIT_TYPE, TRANSACTION_TYPE_MASK
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.operations.verify import ERROR, INFO, Finding, verify
from tests.golden_data import apply_damage, copy_tree
from tests.interop.conftest import StartEngine
from tests.interop.damage import random_damage
from tests.interop.engine import Row
from tests.interop.stores import Messages, config_of, settings

Rows = dict[str, list[Row]]
CASES = 16


def findings_of(root: Path, config: MessageStoreConfig) -> list[Finding]:
    return [found for found in verify(root, config) if isinstance(found, Finding)]


def identity(row: Row) -> tuple[object, ...]:
    """What makes a message: of a prepared or rolled back one, whose topic and queue nothing in the
    store repeats, its place and body."""
    names = ["physicalOffset", "bodySha256"]
    if row["sysFlag"] & TRANSACTION_TYPE_MASK in (0, TRANSACTION_COMMIT_TYPE):
        names += ["topic", "queueId"]
    return tuple(row[name] for name in names)


def lost_messages(sound: Rows, said: Rows) -> list[Row]:
    kept = {row["physicalOffset"]: row for row in said.get("message", [])}
    return [
        row
        for row in sound["message"]
        if row["physicalOffset"] not in kept
        or identity(row) != identity({**kept[row["physicalOffset"]], "sysFlag": row["sysFlag"]})
    ]


def lost_units(sound: Rows, said: Rows) -> list[Row]:
    """Units of messages that a consumer does not get any more from their place in the queue."""
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


def explains_log(found: Finding, offset: int) -> bool:
    """Whether a finding says that the record at ``offset``, or one before it, is lost or will be.

    Where the log's last file is gone, only the queues still know of its messages.
    """
    if found.code == "log-starts-late":  # as after the retention's deletion
        return offset < (found.physical_offset or 0)
    if found.severity == INFO:
        return False
    if found.physical_offset == offset:
        return True
    if found.structure not in ("commitlog", "directory"):
        return found.code == "unit-points-past-log-end" and (found.physical_offset or 0) <= offset
    return found.physical_offset is None or found.physical_offset <= offset


def explains_queue(found: Finding, row: Row) -> bool:
    if found.code in ("consumequeue-missing", "dispatch-behind"):
        return True
    if found.structure not in ("queue", "directory"):
        return False
    where = f"consumequeue/{row['topic']}/{row['queueId']}"
    at = found.topic, found.queue_id
    return at == (row["topic"], row["queueId"]) or (found.path or "").startswith(where)


def explain(sound: Rows, said: Rows, findings: list[Finding]) -> Iterable[str]:
    """What the engine lost and no finding explains."""
    gone = set()
    for row in lost_messages(sound, said):
        gone.add(row["physicalOffset"])
        if not any(explains_log(found, row["physicalOffset"]) for found in findings):
            yield f"message at {row['physicalOffset']}"
    for row in lost_units(sound, said):
        if row["physicalOffset"] not in gone:
            gone.add(row["physicalOffset"])
            if not any(explains_queue(found, row) for found in findings):
                yield f"unit {row}"
    for topic, key, offset in lost_keys(sound, said):
        if offset not in gone and not any(found.structure == "index" for found in findings):
            yield f"key {key} of {topic} at {offset}"


@pytest.fixture(scope="module")
def sound(
    start_engine: StartEngine, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Row, Rows]:
    """A sound store of the engine's own, and what it says of it."""
    engine = start_engine()
    chance = random.Random(f"damage {engine.version}")
    values = {**settings(chance, light_queues=False), "mappedFileSizeCommitLog": 16384}
    root = tmp_path_factory.mktemp("damage") / "store"
    store = engine.open(root, values)
    store.put(Messages(chance, values, engine.version).take(300))
    said = store.dump()
    store.shutdown()
    return root, values, said


@pytest.mark.proves("damage")
@pytest.mark.parametrize("number", range(CASES))
def test_whatever_the_engine_loses_stands_behind_a_finding(
    start_engine: StartEngine,
    sound: tuple[Path, Row, Rows],
    chance: random.Random,
    tmp_path: Path,
    number: int,
) -> None:
    base, values, before = sound
    root = copy_tree(base, tmp_path / "store")
    what, ops = random_damage(chance, root)
    print(what, ops)
    apply_damage(root, ops)
    findings = findings_of(root, config_of(values))
    engine = start_engine()
    store = engine.open(root, values)
    if not store.is_open:
        if store.is_loaded:
            engine.kill()
        assert any(found.severity == ERROR for found in findings), (store.why, findings)
        return
    said = store.dump()
    store.shutdown()
    unexplained = list(explain(before, said, findings))
    assert not unexplained, (unexplained[:3], len(unexplained), findings)


def test_an_unexplained_loss_would_be_seen(sound: tuple[Path, Row, Rows]) -> None:
    _, _, said = sound
    findings = findings_of(sound[0], config_of(sound[1]))
    assert not list(explain(said, said, findings))
    for kind in ("message", "unit", "query"):
        without = {**said, kind: [row for row in said[kind] if row is not said[kind][5]]}
        assert len(list(explain(said, without, findings))) >= 1
