"""``rmqctl repair``: consent, exit codes, and what is shown."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.lock import StoreLock
from rmqctl.engine.files.unfinished import is_amid_repair
from tests.conftest import Golden
from tests.golden_data import apply_damage, broker_conf_text, copy_tree, damage_case
from tests.test_cli.conftest import NASTY, Cli, state

CONSUMERS = "config/consumerOffset.json"


@pytest.fixture
def broken(store: Path) -> Path:
    """One wrong unit, a foreign file with a nasty name, and an offset that lies nowhere."""
    unit = store / "consumequeue/orders/0" / ("0" * 20)
    data = bytearray(unit.read_bytes())
    data[0] = 1
    unit.write_bytes(data)
    (store / "commitlog" / NASTY).write_text("x")
    (store / "config").mkdir()
    (store / CONSUMERS).write_text('{"offsetTable":{"orders@g":{0:3,1:999}}}')
    return store


def test_the_way_of_a_repair(cli: Cli, broken: Path, tmp_path: Path) -> None:
    before, plan = state(broken), tmp_path / "plan.json"
    done = cli("repair", "--plan", plan, store=broken)
    assert done.code == 0 and done.out.startswith("3 steps\n")
    assert NASTY not in done.out and "\x1b" not in done.out + plan.read_text()
    assert state(broken) == before
    lines = [line.strip() for line in done.out.splitlines() if line.startswith("  rmqctl repair")]
    assert len(lines) == 2 and lines[1].startswith(f"rmqctl repair --apply {plan} --yes --store")
    assert cli("repair", "--plan", plan, store=broken).code == 6, "no plan is overwritten"

    asked = cli("repair", "--apply", plan, store=broken)
    assert asked.code == 6 and "in 3 steps" in asked.err
    shown = cli("repair", "--apply", plan, "--dry-run", "--format", "ndjson", store=broken)
    assert [row["action"] for row in shown.rows[:-1]] == [
        *("quarantine", "rebuild-queue", "set-offset")
    ]
    assert shown.code == 0 and state(broken) == before

    done = cli("repair", "--apply", plan, "--yes", "--format", "ndjson", store=broken)
    assert done.code == 0 and {row["state"] for row in done.rows} == {"applied"}
    backup = broken / done.rows[-1]["backup"]
    assert [path.name for path in (backup / "old/1/commitlog").iterdir()] == [NASTY]
    assert cli("verify", store=broken).code == 0 == cli("config", "check", store=broken).code
    offsets = json.loads(re.sub(r"(\d+):", r'"\1":', (broken / CONSUMERS).read_text()))
    assert offsets == {"offsetTable": {"orders@g": {"0": 3, "1": 29}}}
    again = cli("repair", "--apply", plan, "--yes", store=broken)
    assert again.code == 6 and "does not fit" in again.err

    asked = cli("repair", "--undo", store=broken)
    assert asked.code == 6 and asked.err.endswith("Nothing was changed. Say --yes to do it.\n")
    assert cli("repair", "--undo", "--yes", store=broken).code == 0
    left = state(broken)
    left.pop("lock")
    before.pop("lock", None)
    assert left == before
    assert cli("repair", "--undo", "--yes", store=broken).code == 1
    none = cli("repair", "--resume", store=broken)
    assert none.code == 1 and "`rmqctl repair --plan FILE --store " in none.err


def test_lint_says_no_more_than_it_has_looked_at(cli: Cli, store: Path) -> None:
    """A log that is damaged inside is in order by its names and lengths."""
    log = store / "commitlog" / ("0" * 20)
    log.write_bytes(log.read_bytes().replace(b"\xda\xa3\x20\xa7", bytes(4)))
    first = cli("lint", store=store).out.splitlines()[0]
    assert first.startswith("OK: ") and "names, lengths and rights" in first
    assert "agree" not in first


def test_a_sound_store_needs_none(cli: Cli, store: Path, tmp_path: Path) -> None:
    done = cli("repair", "--plan", tmp_path / "plan", store=store)
    assert done.code == 0 and done.out.startswith("OK: nothing is to be repaired\n")
    before = state(store)
    assert cli("repair", "--apply", tmp_path / "plan", "--yes", store=store).code == 0
    assert state(store) == before


def test_what_is_left_says_what_is_next(cli: Cli, store: Path, tmp_path: Path) -> None:
    log = store / "commitlog" / ("0" * 20)
    data = bytearray(log.read_bytes())
    data[4:8] = b"\xff" * 4
    log.write_bytes(data)
    done = cli("repair", "--plan", tmp_path / "a", "--format", "ndjson", store=store)
    assert done.code == 1
    left = [row for row in done.rows if row["type"] == "left"]
    assert left and left[0]["command"].startswith("rmqctl salvage --output ")
    assert done.rows[-1]["steps"] == 0 and done.rows[-1]["left"] == len(left)
    out = cli("repair", "--plan", tmp_path / "b", store=store).out
    assert "left: bad-magic" in out and "  rmqctl salvage --output " in out
    assert json.loads((tmp_path / "b").read_text())["left"]


def test_a_damaged_log_is_salvaged_before_anything_is_made_from_it(
    golden: Golden, tmp_path: Path, cli: Cli
) -> None:
    """What the plan leaves alone for that reason has no command that would make it all the same,
    and none that makes the same plan again."""
    root, conf = copy_tree(golden("basic"), tmp_path / "store"), tmp_path / "broker.conf"
    apply_damage(root, damage_case("short-last-file")["ops"])
    with min((root / "commitlog").iterdir()).open("r+b") as log:
        log.seek(4)
        log.write(b"\xff\xff")
    conf.write_text(broker_conf_text("basic"))
    line = ("repair", "--store", root, "--broker-conf", conf, "--plan")
    done = cli(*line, tmp_path / "a", "--format", "ndjson")
    left = [row for row in done.rows if row["type"] == "left"]
    commands = {row["code"]: row["command"] for row in left}
    assert done.code == 1
    salvage = commands["bad-magic"]
    assert salvage.startswith("rmqctl salvage --output ")
    for code in ("file-length-mismatch", "torn-tail", "unit-points-past-log-end"):
        assert commands[code] is None
    lines = cli(*line, tmp_path / "b").out.splitlines()
    told = [one for one in lines if one.startswith("  rmqctl")]
    assert f"  {salvage}" in told
    assert not any("--in-place" in one or "--plan" in one for one in told)


@pytest.mark.parametrize(
    "line",
    [
        (),
        ("--plan", "a", "--undo"),
        ("--resume", "--undo"),
        ("--plan", "a", "--dry-run"),
        ("--apply", "a", "--yes", "--dry-run"),
        ("--plan", "store/plan.json"),
    ],
)
def test_usage(
    cli: Cli, store: Path, line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    before = state(store)
    done = cli("repair", *line, store=store)
    assert done.code == 2, done
    assert state(store) == before


def test_a_broker_that_runs_keeps_its_store(cli: Cli, broken: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert cli("repair", "--plan", plan, store=broken).code == 0
    lock = StoreLock(broken)
    try:
        for line in (("--apply", plan, "--yes"), ("--undo", "--yes")):
            assert cli("repair", *line, store=broken).code == 4
    finally:
        lock.release()


def test_a_plan_beside_a_broker_says_that_it_will_not_fit(
    cli: Cli, broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqctl.engine.files.lock.is_locked", lambda root: True)
    done = cli("repair", "--plan", tmp_path / "plan.json", store=broken)
    assert done.code == 0 and "does not fit when it has stopped" in done.err


def test_no_plan_is_told(cli: Cli, store: Path, tmp_path: Path) -> None:
    assert cli("repair", "--apply", tmp_path / "none", store=store).code == 5
    bad = tmp_path / "bad"
    bad.write_text(NASTY)
    done = cli("repair", "--apply", bad, store=store)
    assert done.code == 5 and "no plan of a repair" in done.err and "\x1b" not in done.err


def test_ctrl_c_between_two_moves_says_how_to_go_on(
    cli: Cli, broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "plan.json"
    assert cli("repair", "--plan", plan, store=broken).code == 0
    before, rename = state(broken), os.rename

    def interrupted(*names: Any, **more: Any) -> None:
        if is_amid_repair(broken) and "consumequeue" in str(names[0]):
            raise KeyboardInterrupt
        rename(*names, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", interrupted)
        done = cli("repair", "--apply", plan, "--yes", store=broken)
    assert done.code == 130 and "` takes it back" in done.err
    told = cli("lint", "--format", "ndjson", store=broken).rows
    (unfinished,) = (row for row in told if row.get("code") == "repair-unfinished")
    assert unfinished["command"].startswith("rmqctl repair --resume --store ")
    put = cli("put", "--topic", "orders", "--body", "x", store=broken)
    assert put.code == 5 and "a repair of" in put.err
    assert cli("repair", "--undo", store=broken).code == 0, "no consent is needed to go back"
    left = state(broken)
    left.pop("lock")
    before.pop("lock", None)
    assert left == before


def test_a_plan_without_a_directory_is_told_before_the_check(
    cli: Cli, broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes hours of a large store."""
    monkeypatch.setattr("rmqctl.operations.repair.plan.make_plan", None)
    (tmp_path / "text").touch()
    for place in ("none/plan.json", "text/plan.json"):
        done = cli("repair", "--plan", tmp_path / place, store=broken)
        assert done.code == 5 and done.out == "" and "no directory for it" in done.err
    # As root, too, where it is on a file system that is read-only: the store is not.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    done = cli("repair", "--plan", tmp_path / "plan.json", store=broken)
    assert done.code == 5 and done.out == "" and "no right to write" in done.err
