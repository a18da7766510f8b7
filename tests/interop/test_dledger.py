"""Stores whose log is that of a DLedger group: rmqctl says of them what their broker says, and the
broker goes on with queues and index that rmqctl has rebuilt."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rmqctl.operations.mend.plainstore import write_plain_store
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from tests.golden_data import index_contents, tree_content
from tests.interop.conftest import StartEngine
from tests.interop.engine import Engine, Row
from tests.interop.golden import DLEDGER
from tests.interop.stores import (
    CUT_SHORT,
    KILLED,
    Messages,
    assert_agree,
    assert_clean,
    config_of,
    settings,
)


def settings_of_a_member(chance: random.Random) -> Row:
    return {**settings(chance, light_queues=False), "mappedFileSizeCommitLog": 16384, **DLEDGER}


@pytest.mark.proves("dledger")
def test_a_member_reads_and_goes_on_with_what_is_rebuilt(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    """Also a store whose broker was in no group before."""
    values = settings_of_a_member(chance)
    root, config = tmp_path / "store", config_of(values)
    messages = Messages(chance, values, engine.version)
    plain = {name: value for name, value in values.items() if name not in DLEDGER}
    store = engine.open(root, plain)
    # 5.3.3's next start would index a last message again that has no unit.
    store.put([*messages.take(39), messages.plain()])
    store.shutdown()
    store = engine.open(root, values)
    store.put(messages.take(60))
    store.put(messages.batch(), batch=True)
    assert_agree(store, values)
    store.shutdown()
    summary = assert_clean(root, config)
    assert summary.records > 100 and summary.blanks

    before = {name: tree_content(root / name) for name in ("commitlog", "dledger-n0")}
    rebuilt = tmp_path / "rebuilt"
    rebuild_to(plan_rebuild(root, config, "all"), rebuilt)
    assert tree_content(rebuilt / "consumequeue") == tree_content(root / "consumequeue")
    assert index_contents(rebuilt / "index") == index_contents(root / "index")
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    done = rebuild_in_place(plan_rebuild(root, config, "all"))
    assert not done.not_in_order
    assert {name: tree_content(root / name) for name in before} == before

    store = engine.open(root, values)
    store.put(messages.take(10))
    said = assert_agree(store, values)
    assert len(said["message"]) == summary.records + 10
    store.shutdown()
    assert_clean(root, config)

    exported = tmp_path / "plain-store"
    assert write_plain_store(root, config, exported).messages == summary.records + 10
    store = engine.open(exported, plain)
    store.put(messages.take(10))
    assert len(assert_agree(store, plain)["message"]) == summary.records + 20
    store.shutdown()


@pytest.mark.proves("dledger")
def test_a_member_that_was_killed_leaves_what_any_killed_broker_leaves(
    start_engine: StartEngine, chance: random.Random, tmp_path: Path
) -> None:
    engine = start_engine()
    values = settings_of_a_member(chance)
    root = tmp_path / "store"
    store = engine.open(root, values)
    results = store.put(Messages(chance, values, engine.version).take(60))
    assert all(row["status"] == "PUT_OK" for row in results)
    engine.kill()
    assert assert_clean(root, config_of(values), allowed=KILLED + CUT_SHORT).records == 60
