"""Stores of forms that nobody but their own brokers writes: every writing command refuses, says
why, and changes nothing; reading commands say what they do not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_cli.conftest import BROKER_CONF, Cli, state

WRITING: list[tuple[str, ...]] = [
    ("put", "--topic", "orders", "--body", "x"),
    ("put", "--topic", "orders", "--body", "x", "--dry-run"),
    ("flush",),
    ("flush", "--dry-run"),
    ("clean", "--yes"),
    ("clean", "--dry-run"),
    ("group", "set-offset", "g", "--topic", "orders", "--to", "3", "--new", "--yes"),
    ("group", "set-offset", "g", "--topic", "orders", "--to", "3", "--new", "--dry-run"),
    ("rebuild", "all", "--in-place", "--yes"),
    ("rebuild", "all", "--in-place"),
    ("rebuild", "queues", "--in-place", "--dry-run"),
    ("rebuild", "all", "--missing"),
    ("rebuild", "all", "--missing", "--dry-run"),
    ("schedule", "deliver"),
    ("schedule", "deliver", "--dry-run"),
    ("timer", "rebuild", "--yes"),
    ("timer", "deliver"),
    ("transaction", "commit", "0"),
    ("transaction", "rollback", "0", "--dry-run"),
]
#: What makes a store one of these: a file in it; what an error says, and what ``info`` says is not
#: read.
FORMS = {
    "dledger": ("dledger-n0/data/README", "DLedger", ""),
    "epochs": ("epochFileCheckpoint", "controller", ""),
    "identity": ("brokerIdentity", "controller", ""),
    "config-v2": ("config/rdb/CURRENT", "RocksDB", "config/rdb"),
    "config-v1": ("config/topics/CURRENT", "RocksDB", "config/topics"),
    "single-db": ("config/metadata/CURRENT", "RocksDB", "config/metadata"),
    "queues": ("consumequeue/CURRENT", "RocksDB", "consumequeue"),
}


def made(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")


@pytest.mark.parametrize("form", FORMS)
def test_writing_commands_refuse(cli: Cli, store: Path, form: str) -> None:
    name, why, shown = FORMS[form]
    made(store, name)
    before = state(store)
    for line in WRITING:
        if form == "dledger" and "--in-place" in line:
            continue  # Queues and index are a member's own.
        done = cli(*line, store=store)
        assert done.code == 5 and why in done.err, (line, done)
        assert "Nothing was changed." in done.err and "broker" in done.err
        assert "Traceback" not in done.err and not done.rows, (line, done)
    assert state(store) == before
    named = [shown] if shown else []
    (row,) = cli("info", "--format", "ndjson", store=store).rows
    assert [one.split(":")[0] for one in row["not_understood"]] == named
    rows = cli("verify", "--format", "ndjson", store=store).rows
    codes = "not-understood", "rocksdb-not-compared"
    assert [one["path"] for one in rows if one.get("code") in codes] == named


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("enableDLegerCommitLog=true", "DLedger"),
        ("enableControllerMode=true", "controller"),
        ("configManagerVersion=v2", "RocksDB"),
        ("storeType=DefaultRocksDB", "RocksDB"),
    ],
)
def test_a_broker_conf_that_says_so_counts(
    cli: Cli, store: Path, tmp_path: Path, setting: str, why: str
) -> None:
    """Its broker may not have made any file of it yet."""
    conf = tmp_path / "other.conf"
    conf.write_text(f"{BROKER_CONF}{setting}\n")
    before = state(store)
    for line in WRITING:
        if why == "DLedger" and "--in-place" in line:
            continue  # Queues and index are a member's own.
        done = cli(*line, "--store", store, "--broker-conf", conf)
        assert done.code == 5 and why in done.err, (line, done)
        assert not done.rows, (line, done)
    assert state(store) == before


def test_a_group_that_has_no_entry_yet_has_the_log(cli: Cli, store: Path) -> None:
    """An empty directory counts: from when it is there on the broker appends nowhere else."""
    (store / "dledger-n0" / "data").mkdir(parents=True)
    before = state(store)
    pull = ("pull", "--topic", "orders", "--queue-id", "0")
    for line in (("walk", "commitlog"), pull, ("stats",), ("queues",)):
        done = cli(*line, store=store)
        assert done.code == 0 and done.out
    assert cli("put", "--topic", "orders", "--body", "x", store=store).code == 5
    assert state(store) == before


def test_what_is_only_called_so_stops_nobody(cli: Cli, store: Path) -> None:
    """5.x makes empty directories of things that nobody has switched on."""
    for name in ("config/rdb", "config/metadata", "dledger-n0"):
        (store / name).mkdir(parents=True)
    assert cli("put", "--topic", "orders", "--body", "x", store=store).code == 0
