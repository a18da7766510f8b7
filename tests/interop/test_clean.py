"""Retention: what ``clean`` deletes is what the engine deletes, file for file."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.golden_data import copy_tree
from tests.interop.commands import Rmqctl
from tests.interop.engine import Engine, Row
from tests.interop.stores import (
    Messages,
    as_4_9_3_answers,
    assert_clean,
    assert_same,
    config_of,
    put_by_rmqctl,
    rows_of,
    settings,
)

PARTS = ("commitlog", "consumequeue", "consumequeue_ext", "index")
HOURS = 4
RULES = {
    "the hour has come": ";".join(map(str, range(24))),
    "an operator asks": "99",
}


def files(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for part in PARTS
        for path in (root / part).rglob("*")
        if path.is_file()
    }


def make_old(chance: random.Random, *roots: Path) -> None:
    """Gives the log files of each store the same ages: the first ones have expired, and there may
    be a young one between them."""
    names = sorted(path.name for path in (roots[0] / "commitlog").iterdir())
    now = time.time()
    expired = chance.randrange(len(names) // 3, len(names))
    for number, name in enumerate(names):
        is_old = number < expired and (number == 0 or chance.random() < 0.98)
        age = 3600 * (HOURS + 1 if is_old else HOURS - 1)
        for root in roots:
            os.utime(root / "commitlog" / name, (now - age, now - age))


@pytest.mark.parametrize("rule", RULES)
def test_clean_deletes_what_the_engine_deletes(
    engine: Engine, chance: random.Random, tmp_path: Path, rule: str
) -> None:
    values: Row = {
        **settings(chance, light_queues=chance.random() < 0.5 or None),
        "mappedFileSizeCommitLog": 4096 * chance.choice((2, 3)),
        "maxIndexNum": 201,
        "enableConsumeQueueExt": chance.random() < 0.5,
        "mappedFileSizeConsumeQueueExt": 20 * chance.choice((10, 30)),
        "fileReservedTime": HOURS,
        "deleteWhen": RULES[rule],
        "diskMaxUsedSpaceRatio": 95,
        "cleanFileForciblyEnable": False,
    }
    root, config = tmp_path / "store", config_of(values)
    put_by_rmqctl(root, config, Messages(chance, values, engine.version), 600)
    by_engine = copy_tree(root, tmp_path / "by-engine")
    make_old(chance, root, by_engine)
    before = files(root)

    # The engine deletes in rounds; its waiting between them is left out.
    rounds = 3
    store = engine.open(by_engine, {**values, "deleteCommitLogFilesInterval": 0})
    assert store.is_open
    manual = rule == "an operator asks"
    engine.ask("clean", store=store.name, manual=manual, rounds=rounds)
    left = files(by_engine)
    store.shutdown()
    assert left < before

    options = ["--manual"] if manual else []
    run = Rmqctl(root, values)
    planned = run("clean", "--dry-run", "--rounds", str(rounds), *options)
    assert files(root) == before
    done = run("clean", "--yes", "--rounds", str(rounds), *options)
    assert files(root) == left
    for rows in (planned, done):
        assert {row["path"] for row in rows if row["type"] == "file"} == before - left

    # The engine goes on with what rmqctl left, and so does rmqctl.
    assert_clean(root, config, allowed=("log-starts-late",))
    store = engine.open(root, values)
    assert store.is_open
    said = store.dump()
    store.shutdown()
    if engine.version != "4.9.3":
        said = as_4_9_3_answers(said)
    found = rows_of(root, config, said)
    log_min = said["store"][0]["minPhyOffset"]
    assert log_min == int(min(path.name for path in (root / "commitlog").iterdir()))
    for row in found["query"]:  # index files reach further back than the log
        row["physicalOffsets"] = [at for at in row["physicalOffsets"] if at >= log_min]
    assert_same(without_gone_queues(found, found), without_gone_queues(said, found))


def without_gone_queues(
    rows: dict[str, list[Row]], found: dict[str, list[Row]]
) -> dict[str, list[Row]]:
    """The rows without the ends of those queues of which the log has no message any more. For these
    the engine leaves the first offset as it was (0 after a start), and rmqctl sets it to the
    queue's end."""
    gone = {
        (row["topic"], row["queueId"])
        for row in found["queue"]
        if row["minOffset"] == row["maxOffset"]
    }
    kept = {
        kind: [row for row in rows[kind] if (row["topic"], row["queueId"]) not in gone]
        for kind in ("queue", "get", "unit")
    }
    return {**rows, **kept}
