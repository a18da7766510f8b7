"""verify --only: the findings of what was asked for, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.operations.verify import STRUCTURES, Finding, Summary, verify
from tests.conftest import Golden
from tests.golden_data import apply_damage, broker_conf, copy_tree, damage_case
from tests.test_cli import conftest as command_line
from tests.test_cli.conftest import Cli

cli, store = command_line.cli, command_line.store

#: A damage case, and the structure that it is of.
CASES = {
    "flip-body-early": "commitlog",
    "cq-wrong-unit": "queues",
    "index-bad-slot": "index",
    "checkpoint-missing": "checkpoint",
}
CODES = {"body-crc-mismatch", "unit-mismatch", "index-slot-mismatch", "checkpoint-missing"}


@pytest.mark.parametrize("name", CASES)
def test_only_what_is_asked_for(name: str, golden: Golden, tmp_path: Path) -> None:
    case = damage_case(name)
    root, config = copy_tree(golden(case["base"]), tmp_path / "store"), broker_conf(case["base"])
    apply_damage(root, case["ops"])
    *everything, whole = verify(root, config)
    assert isinstance(whole, Summary) and whole.units and whole.index_items
    for only in STRUCTURES:
        *found, summary = verify(root, config, only=[only])
        assert isinstance(summary, Summary) and summary.records == whole.records
        assert bool(summary.units) == (only == "queues")
        assert bool(summary.index_items) == (only == "index")
        assert [one for one in everything if one in found] == found
        of_case = [one for one in found if isinstance(one, Finding) and one.code in CODES]
        assert bool(of_case) == (only == CASES[name])
    assert list(verify(root, config, only=list(STRUCTURES))) == [*everything, whole]


def test_the_option(cli: Cli, store: Path) -> None:
    (store / "checkpoint").unlink()
    conf = store.parent / "broker.conf"
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=200\n")
    where = ("--store", str(store), "--broker-conf", str(conf), "-q")
    assert cli("verify", *where, "--only", "queues", "--only", "index").code == 0
    assert cli("verify", *where, "--only", "checkpoint").code == 1
    done = cli("verify", *where, "--only", "index", "--master", "local[1]")
    assert done.code == 2 and "--only and --master exclude each other" in done.err


ALL = ("commitlog", "queues", "index", "timer", "checkpoint")


def test_the_verdict_is_of_what_was_checked(cli: Cli, store: Path) -> None:
    conf = store.parent / "broker.conf"
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=200\n")
    (store / "checkpoint").unlink()
    where = ("verify", "--store", str(store), "--broker-conf", str(conf))
    sound = cli(*where, "--only", "index", "--only", "queues").out
    assert sound.startswith("OK: nothing wrong in queues, index; nothing else was checked")
    assert "queues=0, units=0, index_files=1," in cli(*where, "--only", "index").out
    assert " (only checkpoint checked)\n" in cli(*where, "--only", "checkpoint").out
    everything = [text for name in ALL[:-1] for text in ("--only", name)]
    whole = cli(*where, *everything, "--only", ALL[-1]).out
    assert "only" not in whole.split("\n")[0]
