"""What is asked for in vain: the answer names what there is, once, and before anything long."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.test_cli.conftest import Cli, state


def exits(cli: Cli, *command: str) -> dict[int, str]:
    """The exit codes that a command's help lists."""
    text = cli(*command, "--help").out.partition("Exit status:\n")[2]
    return {int(code): told for code, told in re.findall(r"^ +(\d+) +(.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("command", ["corrupt", "export", "sql", "verify", "salvage", "import"])
def test_help_says_what_6_means(command: str, cli: Cli) -> None:
    assert re.fullmatch("refused: --(output|store) holds something", exits(cli, command)[6])


@pytest.mark.parametrize("line", ["corrupt --output OUT", "export --format ndjson --output OUT"])
def test_a_place_that_holds_something_is_6(
    line: str, cli: Cli, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").touch()
    words = [str(tmp_path / "out") if word == "OUT" else word for word in line.split()]
    assert cli(*words, store=store).code == 6


def test_a_file_in_place_of_a_store_is_no_new_one(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in ("ls", "verify", "walk"):
        done = cli("tiered", command, "--store", tmp_path / "file")
        assert done.code == 3 and "it is a file" in done.err and "--create" not in done.err
        assert "there is no directory" in cli("tiered", command, "--store", tmp_path / "absent").err


def test_a_torn_store_is_told_of_once(cli: Cli, store: Path) -> None:
    file = sorted((store / "commitlog").iterdir())[-1]
    os.truncate(file, 1000)
    done = cli("clean", "--dry-run", store=store)
    assert done.code == 0 and done.err.count(file.name) == 1


@pytest.mark.parametrize("hours", ["25", "4;24", "noon", "", ";", "-1", "4 ;5", "04:00", "123"])
def test_hours_that_never_come(hours: str, cli: Cli, store: Path) -> None:
    done = cli("clean", "--dry-run", "--delete-when", hours, store=store)
    assert done.code == 2 and "'04;16'" in done.err


@pytest.mark.parametrize(
    "more", [("--level", "99"), ("--skip", "19:4"), ("--level", "19")], ids=repr
)
def test_a_delay_level_that_there_is_not(more: tuple[str, ...], cli: Cli, store: Path) -> None:
    before = state(store)
    done = cli("schedule", "deliver", *more, store=store)
    assert done.code == 2 and "has 1 to 18" in done.err and state(store) == before
    assert cli("schedule", "deliver", "--level", "18", "--dry-run", store=store).code == 0
    conf = store.parent / "own.conf"
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=200\nmessageDelayLevel=1s 5s\n")
    line = ("schedule", "deliver", "--level", "3", "--store", store, "--broker-conf", conf)
    assert "has 1 to 2" in cli(*line).err


def test_a_queues_end_is_the_same_for_all(cli: Cli, store: Path) -> None:
    line = ("queues", "--topic", "orders", "--queue-id", "0", "--format", "ndjson")
    assert cli(*line, store=store).rows[0]["max_offset"] == 30
    done = cli("dump", "unit", "orders", "0", "5000", store=store)
    assert done.code == 2 and "from offset 0 to 30, which the next message gets" in done.err
    moved = cli(
        *("group", "set-offset", "g", "--topic", "orders", "--queue-id", "0", "--to", "5000"),
        *("--new", "--dry-run"),
        store=store,
    )
    assert "from offset 0 to 30" in moved.err


@pytest.mark.parametrize("name", ["absent", "absent/*", "file:/absent"])
def test_an_import_of_nothing_starts_no_spark(
    name: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rmqctl.cli.commands.import_.spark_session", None)
    done = cli("import", "--store", tmp_path / "new", "--from", name)
    assert done.code == 2 and "nothing has that name" in done.err and "export" in done.err


def test_a_backup_of_no_directory_is_told_before_it_is_made(
    cli: Cli, store: Path, tmp_path: Path
) -> None:
    done = cli("backup", "create", "--output", tmp_path / "no" / "x.tar.zst", store=store)
    assert done.code == 5 and "there is no directory for it" in done.err
    assert not (tmp_path / "no").exists()
