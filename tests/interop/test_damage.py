"""Damaged stores: for whatever the engine loses, does not give out or refuses, verify has a
finding."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.verify import CODES, ERROR, Finding, Summary, verify
from rmqctl.operations.verify.findings import finding
from tests.golden_data import apply_damage, copy_tree
from tests.interop.conftest import StartEngine
from tests.interop.damage import random_damage
from tests.interop.engine import Row
from tests.interop.losses import Rows, Verdict, unexplained, with_what_lies_behind
from tests.interop.stores import Messages, config_of, settings

CASES = 16


def verdict_of(root: Path, config: MessageStoreConfig) -> Verdict:
    *findings, summary = verify(root, config)
    assert isinstance(summary, Summary)
    return Verdict([found for found in findings if isinstance(found, Finding)], summary)


@pytest.fixture(scope="module")
def sound(
    start_engine: StartEngine, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Row, Rows]:
    """A sound store that the engine has written, and what the engine says of it."""
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
    config = config_of(values)
    verdict = verdict_of(root, config)
    engine = start_engine()
    store = engine.open(root, values)
    if not store.is_open:
        if store.is_loaded:
            engine.kill()
        assert any(found.severity == ERROR for found in verdict.findings), (store.why, verdict)
        return
    said = with_what_lies_behind(before, store.dump(), store)
    store.shutdown()
    lost = list(unexplained(base, config.index_geometry, before, said, verdict))
    assert not lost, (lost[:3], len(lost), verdict)


def test_an_unexplained_loss_would_be_seen(sound: tuple[Path, Row, Rows]) -> None:
    root, values, said = sound
    config = config_of(values)
    clean = verdict_of(root, config)
    # Findings at other places explain nothing, however many there are.
    others = set(CODES) - {"log-starts-late", "unclean-shutdown"}
    elsewhere = [finding(code, path="x", physical_offset=1 << 40, position=1) for code in others]
    for verdict in (clean, clean._replace(findings=clean.findings + elsewhere)):
        assert not list(unexplained(root, config.index_geometry, said, said, verdict))
        for kind in ("message", "unit", "query"):
            without = {**said, kind: [row for row in said[kind] if row is not said[kind][5]]}
            assert list(unexplained(root, config.index_geometry, said, without, verdict)), kind
