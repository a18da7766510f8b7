"""A store whose log lies elsewhere, or whose disk is not mounted: who reads it is told, and nobody
is advised to set offsets by what is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.queue.queuetable import ConsumeQueueTable
from tests.test_cli.conftest import BROKER_CONF, Cli

READING = [
    ("info",),
    ("queues",),
    ("topics",),
    ("groups",),
    ("du",),
    ("walk", "commitlog"),
    ("walk", "queue"),
    ("pull", "--topic", "orders", "--queue-id", "0"),
    ("message", "--unique-key", "k"),
    ("find", "order-1"),
    ("index", "query", "--topic", "orders", "--key", "order-1"),
    ("stats",),
    ("config", "check"),
]


@pytest.fixture
def elsewhere(store: Path) -> Path:
    """The store; its log is at ``disk`` beside it."""
    (store / "commitlog").rename(store.parent / "disk")
    (store / "config").mkdir(exist_ok=True)
    offsets = {"offsetTable": {"orders@g": {"0": 9_999}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    return store


@pytest.mark.parametrize("line", READING, ids=" ".join)
def test_who_reads_is_told_where_to_look(line: tuple[str, ...], cli: Cli, elsewhere: Path) -> None:
    done = cli(*line, store=elsewhere)
    assert done.err.count("note: the log has no file, and queues have units") == 1
    assert "storePathCommitLog" in done.err and "--broker-conf" in done.err
    assert "note" not in cli(*line, "-q", store=elsewhere).err
    conf = elsewhere.parent / "own.conf"
    conf.write_text(f"{BROKER_CONF}storePathCommitLog={elsewhere.parent / 'disk'},/absent\n")
    done = cli(*line, "--store", elsewhere, "--broker-conf", conf)
    assert "the log has no file" not in done.err


def test_a_store_without_messages_has_no_need_of_a_log(cli: Cli, elsewhere: Path) -> None:
    for file in (elsewhere / "consumequeue").rglob("0" * 20):
        file.unlink()
    assert "the log has no file" not in cli("queues", store=elsewhere).err


def test_who_writes_refuses_once(cli: Cli, elsewhere: Path) -> None:
    for line in (("put", "--topic", "orders"), ("flush",), ("clean", "--dry-run")):
        done = cli(*line, store=elsewhere)
        assert done.code == 5 and done.err.count("\n") == 1 and "storePathCommitLog" in done.err


def test_nobody_is_advised_to_set_offsets(cli: Cli, elsewhere: Path) -> None:
    def advised() -> tuple[str, dict[str, Any]]:
        rows = cli("config", "check", "--format", "ndjson", store=elsewhere).rows
        (found,) = [row for row in rows if row.get("code") == "consumer-offset-past-queue"]
        return cli("groups", store=elsewhere).err, found

    told, found = advised()
    assert "past the end" in told and "config check" not in told
    assert found["command"] is None and "storePathCommitLog" in found["advice"]
    (elsewhere.parent / "disk").rename(elsewhere / "commitlog")
    told, found = advised()
    assert "config check" in told and "repair --plan" in found["command"]


def test_no_queue_is_looked_at_where_there_is_a_log(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single pull opens one queue."""
    asked: list[object] = []
    monkeypatch.setattr(ConsumeQueueTable, "as_stored", lambda *where: asked.append(where))
    assert cli("pull", "--topic", "orders", "--queue-id", "0", store=store).code == 0
    assert not asked
    (store / "commitlog").rename(store.parent / "disk")
    cli("pull", "--topic", "orders", "--queue-id", "0", store=store)
    assert asked
