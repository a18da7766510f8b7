"""A topic that is not there, mostly because its name is mistyped, is named with the one that was
meant; one that is there, or that nobody asked for, is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.engine.queue.queuetable import ConsumeQueueTable
from tests.test_cli.conftest import NASTY, Cli, state

LINES = [
    ("queues",),
    ("topics",),
    ("groups",),
    ("walk", "commitlog"),
    ("walk", "queue"),
    ("index", "query", "--key", "order-1"),
    ("index", "query", "--key", "order-1", "--raw"),
    ("pull", "--queue-id", "0"),
    ("offset", "--queue-id", "0", "--time", "0"),
    ("rebuild", "queues", "--in-place", "--dry-run"),
    ("find", "order-1"),
    ("du",),
]


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_the_topic_that_was_meant(line: tuple[str, ...], cli: Cli, store: Path) -> None:
    before = state(store)
    for typed, told in (
        ("ordres", "did you mean 'orders'?"),
        ("Orders", "did you mean 'orders'?"),
        ("payments", "`rmqctl "),
        (NASTY, "`rmqctl "),
    ):
        done = cli(*line, "--topic", typed, store=store)
        notes = [one for one in done.err.splitlines() if "of topic" in one]
        assert len(notes) == 1 and notes[0].startswith("note: ") and told in notes[0], done
        assert "\x1b" not in done.err
        assert "of topic" not in cli(*line, "-q", "--topic", typed, store=store).err
    assert "of topic" not in cli(*line, "--topic", "orders", store=store).err
    assert state(store) == before


def test_an_export_of_nothing_says_so(cli: Cli, store: Path) -> None:
    def err(topic: str, to: str, *more: str) -> str:
        line = ("export", "--format", "ndjson", "--topic", topic, "--output", store.parent / to)
        return cli(*line, *more, store=store).err

    assert "did you mean 'orders'?" in err("ordres", "one")
    assert "of topic" not in err("ordres", "two", "--quiet")
    assert "of topic" not in err("orders", "three")


def test_what_is_there_and_has_nothing_to_show_is_not_mistyped(cli: Cli, store: Path) -> None:
    (store / "config").mkdir(exist_ok=True)
    (store / "config/topics.json").write_text('{"topicConfigTable":{"idle":{}}}')
    for topic in ("orders", "idle"):
        done = cli("walk", "commitlog", "--topic", topic, "--key", "absent", store=store)
        assert done.code == 1 and "of topic" not in done.err
    (store / "config/topics.json").write_text("{")
    done = cli("walk", "commitlog", "--topic", "ordres", store=store)
    assert "did you mean 'orders'?" in done.err


def test_who_finds_something_asks_for_no_names(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def topics(table: ConsumeQueueTable) -> list[str]:
        asked.append(table)
        return []

    monkeypatch.setattr(ConsumeQueueTable, "topics", topics)
    for line in LINES[:-1]:
        cli(*line, "--topic", "orders", store=store)
    assert len(asked) <= 1, "groups, which has none here"
