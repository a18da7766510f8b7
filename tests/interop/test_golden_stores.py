"""The driver says of the golden stores what their rows say, so that rows from the driver can be
trusted elsewhere; and 5.3.3 reads what 4.9.3 has written."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from tests.golden_data import (
    DAMAGE_CASES,
    INDEX,
    STORES,
    apply_damage,
    damage_case,
    expected,
)
from tests.interop.conftest import StartEngine
from tests.interop.engine import Engine, Row
from tests.interop.golden import what_the_engine_did
from tests.interop.stores import as_4_9_3_answers, assert_same, config_of, pull_row

#: ``defaults`` takes 1.5 GB of address space and a second; ``crash`` is recovered by the start.
SMALL = [name for name in STORES if name != "defaults"]


@pytest.mark.proves("ext")
@pytest.mark.parametrize("name", SMALL)
def test_the_driver_says_what_the_golden_rows_say(
    engine: Engine, copy_store: Callable[[str], Path], name: str
) -> None:
    settings: Row = INDEX["stores"][name]["config"]
    store = engine.open(copy_store(name), settings)
    assert store.is_open
    said = store.dump()
    store.shutdown()
    if engine.version != "4.9.3":
        said = as_4_9_3_answers(said)
    wanted = dict(expected(name))
    asked = {pull_key(row): row for row in said["get"]}
    wanted["get"] = [row for row in wanted["get"] if pull_key(row) in asked]
    assert len(wanted["get"]) >= 20
    said["get"] = [asked[pull_key(row)] for row in wanted["get"]]
    keys = {(row["topic"], row["key"]) for row in said["query"]}
    wanted["query"] = [row for row in wanted["query"] if (row["topic"], row["key"]) in keys]
    assert_same(said, {kind: rows for kind, rows in wanted.items() if kind != "file"})


ONLY_4_9_3 = pytest.mark.parametrize(
    "version",
    [pytest.param("4.9.3", marks=pytest.mark.xdist_group("interop-4.9.3"))],
    indirect=True,
)


@ONLY_4_9_3
def test_who_looks_late_sees_the_same(engine: Engine, copy_store: Callable[[str], Path]) -> None:
    """Delayed messages in the golden stores were due long ago. 4.9.3 would deliver them a second
    after its start, so that on a slow machine the store would change during a dump."""
    store = engine.open(copy_store("delay"), INDEX["stores"]["delay"]["config"])
    said = store.dump()
    time.sleep(1.5)
    assert store.dump() == said
    store.shutdown()


@ONLY_4_9_3
@pytest.mark.parametrize("case", DAMAGE_CASES)
def test_the_driver_does_what_the_damage_cases_say(
    start_engine: StartEngine, copy_store: Callable[[str], Path], case: str
) -> None:
    description = damage_case(case)
    root = copy_store(description["base"])
    apply_damage(root, description["ops"])
    config: Row = INDEX["stores"][description["base"]]["config"]
    did, recorded = what_the_engine_did(start_engine(), root, config), dict(description["engine"])
    for row in (did, recorded):  # the names of index files are times
        files = row.pop("filesAfterStart", {})
        row["files"] = {n: length for n, length in files.items() if not n.startswith("index/")}
    assert did == recorded


def pull_key(row: Row) -> tuple[str, int, int]:
    return row["topic"], row["queueId"], row["offset"]


@pytest.mark.proves("pull", level={"5.3.3": "partly"})
def test_a_pull_is_answered_as_this_version_does(
    engine: Engine, copy_store: Callable[[str], Path]
) -> None:
    settings: Row = INDEX["stores"]["basic"]["config"]
    store = engine.open(copy_store("basic"), settings)
    rows = store.dump()["get"]
    store.shutdown()
    with MessageStore(store.root, config_of(settings)) as reader:
        different = {
            row["status"]: (row["nextBeginOffset"], found["nextBeginOffset"])
            for row in rows
            if (found := pull_row(reader, row)) != row
        }
    assert different.keys() == (set() if engine.version == "4.9.3" else {"OFFSET_OVERFLOW_BADLY"})
