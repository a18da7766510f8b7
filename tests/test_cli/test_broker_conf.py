"""The store, and where its log lies, by a ``broker.conf`` that is named once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.test_cli.conftest import BROKER_CONF, Cli, state

NDJSON = ("--format", "ndjson")


@pytest.fixture
def conf(store: Path) -> Path:
    """A broker.conf that names the store."""
    path = store.parent / "named.conf"
    path.write_text(f"{BROKER_CONF}storePathRootDir={store}\n")
    return path


def test_the_file_names_the_store(
    cli: Cli, store: Path, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = cli("queues", *NDJSON, "--broker-conf", conf)
    assert asked.code == 0 and asked.rows[-1]["messages"] == 60
    monkeypatch.setenv("RMQCTL_BROKER_CONF", str(conf))
    assert cli("queues", *NDJSON) == asked
    done = cli("put", "--topic", "orders", "--body", "x", *NDJSON)
    assert done.code == 0, done.err
    assert cli("index", "info", *NDJSON).rows[0]["max_index_num"] == 200
    # What is said more plainly comes first.
    other = store.parent / "other"
    shutil.copytree(store, other)
    assert cli("info", "--store", other, *NDJSON).rows[0]["path"] == str(other)
    monkeypatch.setenv("RMQCTL_STORE", str(other))
    assert cli("info", *NDJSON).rows[0]["path"] == str(other)


def test_without_a_store_the_error_says_what_to_give(cli: Cli, tmp_path: Path) -> None:
    done = cli("queues")
    assert done.code == 2 and "--store" in done.err and "--broker-conf" in done.err
    conf = tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF)
    done = cli("queues", "--broker-conf", conf)
    assert done.code == 2 and "has no storePathRootDir" in done.err
    done = cli("queues", "--broker-conf", tmp_path / "absent")
    assert done.code == 2 and "No such file" in done.err
    conf.write_text(f"storePathRootDir={tmp_path}/absent\n")
    assert cli("queues", "--broker-conf", conf).code == 3


def test_a_log_on_a_disk_of_its_own(cli: Cli, store: Path, conf: Path) -> None:
    """``storePathCommitLog`` without a comma, which counts for the broker's own store."""
    before = cli("walk", "commitlog", *NDJSON, "--broker-conf", conf)
    disk = store.parent / "disk"
    (store / "commitlog").rename(disk)
    assert "commitlog-missing" in cli("verify", "--broker-conf", conf).out
    conf.write_text(conf.read_text() + f"storePathCommitLog {disk}\n")
    assert cli("walk", "commitlog", *NDJSON, "--broker-conf", conf) == before
    assert cli("verify", "-q", "--broker-conf", conf).code == 0
    log_file = max(disk.iterdir())
    done = cli("put", "--topic", "orders", "--body", "x" * 1500, *NDJSON, "--broker-conf", conf)
    assert done.code == 0, done.err
    assert max(disk.iterdir()) > log_file and not (store / "commitlog").exists()
    assert cli("verify", "-q", "--broker-conf", conf).code == 0


def test_a_copy_has_its_own_log(cli: Cli, store: Path, conf: Path) -> None:
    """A copied store, and the file of the original: nothing is written there."""
    disk = store.parent / "disk"
    copy = store.parent / "copy"
    shutil.copytree(store, copy)
    (store / "commitlog").rename(disk)
    conf.write_text(conf.read_text() + f"storePathCommitLog={disk}\n")
    before = state(disk)
    where = ("--store", copy, "--broker-conf", conf)
    assert cli("put", "--topic", "orders", "--body", "x", *NDJSON, *where).code == 0
    assert cli("queues", *NDJSON, *where).rows[-1]["messages"] == 61
    assert state(disk) == before


def test_an_own_log_that_the_file_does_not_name(cli: Cli, store: Path, conf: Path) -> None:
    (store.parent / "disk").mkdir()
    conf.write_text(conf.read_text() + f"storePathCommitLog={store.parent}/disk\n")
    done = cli("queues", "--broker-conf", conf)
    assert done.code == 5 and "storePathCommitLog" in done.err
    conf.write_text(conf.read_text() + f"storePathCommitLog={store}/commitlog/\n")
    assert cli("queues", "--broker-conf", conf).code == 0
