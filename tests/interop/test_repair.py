"""A repaired store: the engine starts on it, after a crash, too, changes no byte of log and queues,
deletes no index file, and has every message at its offset."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.repair.apply import apply
from rmqctl.operations.repair.plan import make_plan
from tests.conftest import Golden
from tests.golden_data import INDEX, apply_damage, copy_tree, damage_case, tree_content
from tests.interop.engine import Engine
from tests.interop.stores import as_4_9_3_answers, assert_clean, assert_same, config_of, rows_of

#: Damage cases that are applied together: a wrong unit, a queue without files, and a foreign file.
CASES = ["cq-wrong-unit", "no-one-queue", "index-bad-slot", "stray-file"]


@pytest.mark.proves("repair")
@pytest.mark.parametrize("lost", [0, 1])
def test_the_engine_starts_on_a_log_whose_last_file_was_cut(
    engine: Engine, golden: Golden, tmp_path: Path, lost: int
) -> None:
    """The file was cut behind the last record, or inside it. After the repair the engine has every
    other message, and goes on behind them."""
    values = INDEX["stores"]["basic"]["config"]
    root, config = copy_tree(golden("basic"), tmp_path / "store"), config_of(values)
    with MessageStore(root, config) as cut:
        mapped, position = cut.commit_log.locate(cut.max_offset)
    os.truncate(mapped.path, position - lost)
    refused = engine.open(root, values)
    assert not refused.is_open
    apply(root, config, make_plan(root, config))
    assert_clean(root, config)
    before = tree_content(root / "commitlog")
    store = engine.open(root, values)
    assert store.is_open, store.why
    said = store.dump()
    store.shutdown()
    assert tree_content(root / "commitlog") == before
    if engine.version != "4.9.3":
        said = as_4_9_3_answers(said)
    assert_same(rows_of(root, config, said), said)


@pytest.mark.proves("repair")
@pytest.mark.parametrize("is_killed", [False, True])
def test_the_engine_starts_on_a_repaired_store(
    engine: Engine, golden: Golden, tmp_path: Path, is_killed: bool
) -> None:
    base, values = golden("basic"), INDEX["stores"]["basic"]["config"]
    root = copy_tree(base, tmp_path / "store")
    for case in CASES:
        damage = damage_case(case)
        assert damage["base"] == "basic"
        apply_damage(root, damage["ops"])
    if is_killed:
        (root / "checkpoint").unlink()
        (root / "abort").touch()
    config = config_of(values)
    apply(root, config, make_plan(root, config))
    # After a crash the start makes the queue without files anew, from the checkpoint on.
    assert_clean(root, config, ("unclean-shutdown", "dispatch-behind") if is_killed else ())
    names = ("commitlog", "consumequeue", "index")
    before = {name: tree_content(root / name) for name in names}
    store = engine.open(root, values)
    assert store.is_open, store.why
    said = store.dump()
    store.shutdown()
    if engine.version != "4.9.3":
        said = as_4_9_3_answers(said)
    for name, content in before.items():
        found = tree_content(root / name)
        assert found.keys() >= content.keys(), name
        if is_killed and name == "index":
            continue  # A start after a crash indexes the last message again; no file is deleted.
        # 4.9.3 makes a queue when it is asked for one that does not exist.
        assert {path: found[path] for path in content} == content, name
    assert_same(rows_of(root, config, said), said)
    rows = rows_of(base, config, said)
    for row in [*rows["query"], *said["query"]] if is_killed else ():
        row["physicalOffsets"] = sorted(set(row["physicalOffsets"]))
    assert_same(rows, said)
