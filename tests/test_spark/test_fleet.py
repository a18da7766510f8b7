"""fleet on Spark says what it says without, however the stores are packed or split."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.cli.commands import fleet as commands
from rmqctl.cli.main import run
from rmqctl.operations.fleet.looking import Task
from rmqctl.operations.fleet.run import Asked, Planned, Run
from rmqctl.operations.fleet.stores import FleetStore
from rmqctl.spark.procedures import fleet
from rmqctl.spark.procedures.fleettask import looked_at
from rmqctl.spark.remote.remote import RemoteStore
from tests import golden_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

Golden = Callable[[str], Path]


@pytest.fixture(scope="module")
def stores(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> list[FleetStore]:
    """Sound and damaged ones, one at a URL, one that is none, and one with a wrong broker.conf."""
    top = tmp_path_factory.mktemp("fleet")
    hole = golden_data.copy_tree(golden("basic"), top / "hole")
    golden_data.apply_damage(hole, golden_data.damage_case("hole")["ops"])
    places = {
        "hole": str(hole),
        "basic": str(golden("basic")),
        "crash": str(golden("crash")),
        "none": str(top),
        "url": f"local://{golden('basic')}",
        "wrong": str(golden("ipv6")),
    }
    conf = top / "wrong.conf"
    conf.write_text("mappedFileSizeCommitLog=4096\n")
    return [
        FleetStore(name, place, place, str(conf) if name == "wrong" else None)
        for name, place in places.items()
    ]


def without_time(row: Any) -> dict[str, Any]:
    return {**row, "seconds": 0}


@pytest.mark.parametrize(
    ("verb", "is_split"), [("verify", False), ("verify", True), ("stats", True)]
)
def test_rows_are_those_without_spark(
    verb: str,
    is_split: bool,
    spark: SparkSession,
    stores: list[FleetStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if is_split:
        monkeypatch.setattr(fleet, "LARGE", -1)
        stores = [one for one in stores if one.name in ("hole", "none", "url")]
    planned = Run(stores, Asked(verb), RemoteStore)
    expected = [without_time(looked_at(one.task)) for one in planned.left]
    found = dict(fleet.each(spark, planned.left))
    assert [without_time(found[at]) for at in range(len(stores))] == expected
    codes = {one["store"]: one["exit_code"] for one in expected}
    assert codes["none"] == 3 and codes["hole"] == 1
    assert codes["url"] == (2 if verb == "verify" else 0)


def ends_at_crash(task: Task) -> Any:
    if task.store.name == "crash":
        os._exit(9)
    return looked_at(task)


def test_a_task_that_ends_is_one_stores_error(
    spark: SparkSession, stores: list[FleetStore]
) -> None:
    planned = Run(stores[:4], Asked("du", False), RemoteStore)
    found = dict(fleet.each(spark, planned.left, ends_at_crash))
    rows = {found[at]["store"]: found[at] for at in found}
    assert len(rows) == 4
    assert "was ended from outside" in (rows["crash"]["error"] or "")
    assert {name: one["exit_code"] for name, one in rows.items()} == {
        "hole": 0,
        "basic": 0,
        "crash": 5,
        "none": 3,
    }


def test_a_bug_in_a_large_store_is_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(fleet, "_counted", broken)
    store = FleetStore("a", "/a", "/a")
    no_session: Any = None
    task: Any = Task(store, "stats", None)  # type: ignore[arg-type]
    found = fleet._large(no_session, task)
    assert found["exit_code"] == 70 and "KeyError" in (found["error"] or "")


def test_small_stores_are_packed_many_to_a_task() -> None:
    def plan(*sizes: int) -> list[list[list[int]]]:
        store = FleetStore("a", "/a", "/a")
        task: Any = Task(store, "verify", None)  # type: ignore[arg-type]
        left = [Planned(n, task, size, None) for n, size in enumerate(sizes)]
        return [[[at for at, _ in one.items] for one in job] for job in fleet.packed(left, 2)]

    kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
    assert plan() == []
    assert plan(2 * gib, 9 * kib, kib) == [[[1], [2]]]
    # Jobs of two tasks each, for a job's rows are kept when it ends; a task has 256 MiB.
    assert plan(200 * mib, 100 * mib, 90 * mib, 1) == [[[0], [1]], [[2], [3]]]
    many = plan(*([kib] * 300))
    assert [len(one) for job in many for one in job][:-1] == [16] * 18
    assert sorted(at for job in many for one in job for at in one) == list(range(300))


def test_the_command_uses_one_session(
    spark: SparkSession,
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun = []

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        begun.append(1)
        yield spark

    monkeypatch.setattr(commands, "spark_session", session)
    (tmp_path / "list").write_text(f"a={golden('basic')}\nb={golden('ipv6')}\nc={tmp_path}\n")
    line = ["fleet", "verify", "--stores", f"{tmp_path}/list", "--format", "ndjson"]
    told = []
    for more in (["--jobs", "1"], ["--master", "local[2]", "--state", f"{tmp_path}/state"]):
        assert run([*line, *more]) == 3
        told.append([json.loads(text) for text in capsys.readouterr().out.splitlines()])
    here, there = ([without_time(row) for row in rows] for rows in told)
    assert here == there and len(begun) == 1
    (tmp_path / "list").write_text(f"a={golden('basic')}\nb={golden('ipv6')}\n")
    assert run([*line, *more]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["kept"] == 2
    assert len(begun) == 1, "nothing is left to do"
    assert run([*line, "--jobs", "2", "--master", "local[2]"]) == 2
