"""What verify, lint and config check advise for the damage cases: every command line parses, and
where one claims to cure, the finding is gone when it was run with consent."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import click
import pytest

from rmqctl.cli.advice import command_of
from rmqctl.cli.main import cli as program
from rmqctl.operations.verify import CODES, Finding
from rmqctl.operations.verify.findings import SALVAGED
from tests import golden_data
from tests.conftest import Golden
from tests.golden_data import DAMAGE_CASES
from tests.test_cli.conftest import Cli
from tests.test_operations.broken_store import break_store, make_sound_store
from tests.test_operations.small_store import CONFIG

SOURCES = (("verify",), ("lint",), ("config", "check"))
#: Findings for whose command the log is too damaged: it says so, and changes nothing.
REFUSED_BY_DAMAGE = {"unclean-shutdown", "checkpoint-zero", "checkpoint-missing"}


def parses(words: list[str]) -> None:
    """Every option of a command line exists, and takes its value."""
    command: click.Command = program
    arguments = words[1:]
    while isinstance(command, click.Group):
        if arguments[0].isdigit():  # `dump OFFSET` is short for `dump record OFFSET`.
            arguments.insert(0, "record")
        found = command.get_command(click.Context(command), arguments[0])
        assert found is not None, arguments
        command, arguments = found, arguments[1:]
    command.make_context("rmqctl", arguments)


def found_by(cli: Cli, where: list[str | Path], sources: Any = SOURCES) -> list[dict[str, Any]]:
    rows = []
    for source in sources:
        done = cli(*source, *where, "--format", "ndjson")
        assert done.code in (0, 1), (source, done.err)
        rows += [row for row in done.rows if row["type"] == "finding"]
    return rows


def is_cure(row: dict[str, Any]) -> bool:
    found = Finding(**{name: row[name] for name in Finding._fields})
    command = command_of(found)
    return command is not None and command.cures and not command.is_of_system


def cured(cli: Cli, words: list[str], code: str, codes: set[str]) -> bool:
    """Runs a command line with consent; False: it says why it does not cure this."""
    done = cli(*words[1:])
    if done.code == 6 and "--yes" in done.err:
        done = cli(*words[1:], "--yes")
    if done.code == 5:
        assert codes & SALVAGED and code in REFUSED_BY_DAMAGE, (words, done.err)
        return False
    assert done.code in (0, 1), (words, done.err)
    if "--plan" not in words:
        return True
    plan = words[words.index("--plan") + 1]
    where = words[words.index("--store") :]
    steps = cli("repair", "--apply", plan, "--dry-run", *where, "--format", "ndjson").rows
    if not any(code in row["mends"] for row in steps if row["type"] == "repair_step"):
        return False
    assert cli("repair", "--apply", plan, "--yes", *where).code == 0
    return True


def check(cli: Cli, root: Path, conf: Path, *, only: set[str] | None = None) -> set[str]:
    """The codes that were cured, each in a copy of its own."""
    where: list[str | Path] = ["--store", root, "--broker-conf", conf]
    rows = found_by(cli, where)
    for row in rows:
        if row["command"] and shlex.split(row["command"])[0] == "rmqctl":
            parses(shlex.split(row["command"]))
    codes, done = {row["code"] for row in rows}, set()
    for row in rows:
        code = row["code"]
        if not is_cure(row) or row["command"] is None or code in done:
            continue
        if only is not None and code not in only:
            continue
        copied = root.with_name(f"{root.name}-{code}")
        if copied.exists():
            continue
        golden_data.copy_tree(root, copied)
        for plan in root.parent.glob("*.plan*.json"):
            plan.unlink()  # Of another finding with this code, which it did not cure.
        line = row["command"].replace(str(root), str(copied))
        if cured(cli, shlex.split(line), code, codes):
            again = found_by(cli, ["--store", copied, "--broker-conf", conf])
            same = [one for one in again if _place(one) == _place(row)]
            assert not same, (line, same)
            done.add(code)
        shutil.rmtree(copied)
    return done


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("code", "path", "topic", "queue_id", "position"))


#: Codes that several cases have are cured in one of them.
_CURED_ONCE: dict[str, str] = {"unclean-shutdown": "torn-tail"}


@pytest.mark.parametrize("case", DAMAGE_CASES)
def test_damage_cases(cli: Cli, golden: Golden, tmp_path: Path, case: str) -> None:
    damage = golden_data.damage_case(case)
    conf = tmp_path / "broker.conf"
    conf.write_text(golden_data.broker_conf_text(damage["base"]))
    root = golden_data.copy_tree(golden(damage["base"]), tmp_path / "store")
    golden_data.apply_damage(root, damage["ops"])
    others = {code for code, name in _CURED_ONCE.items() if name != case}
    cured_codes = check(cli, root, conf, only=set(CODES) - others)
    start = cli("simulate-start", "--store", root, "--broker-conf", conf, "--format", "ndjson")
    command = start.rows[-1]["command"]
    assert command or start.code == 0, "what costs messages says what is next"
    if command:
        parses(shlex.split(command))
    curable = {"cq-", "no-", "index-", "stale", "stray", "checkpoint"}
    assert cured_codes or not case.startswith(tuple(curable))


def test_everything_at_once(cli: Cli, tmp_path: Path) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    break_store(make_sound_store(root), is_cut=False)
    conf.write_text(
        f"mappedFileSizeCommitLog={CONFIG.mapped_file_size_commit_log}\n"
        f"mappedFileSizeConsumeQueue={CONFIG.mapped_file_size_consume_queue}\n"
        f"maxHashSlotNum={CONFIG.max_hash_slot_num}\nmaxIndexNum={CONFIG.max_index_num}\n"
        "enableLmq=true\nenableMultiDispatch=true\n"
    )
    assert check(cli, root, conf) >= {
        "foreign-file",
        "torn-tail",
        "unit-mismatch",
        "queue-missing",
        "index-slot-mismatch",
        "config-unreadable",
        "consumer-offset-past-queue",
        "checkpoint-unreadable",
    }
