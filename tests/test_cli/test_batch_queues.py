"""Batch queues of 5.3.3: nothing but their broker puts into them, and nothing gives their topics
consume queues, with which no broker starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from tests import golden_data
from tests.test_cli.conftest import Cli, Done

TOPIC = "BatchTopic"
SAID = json.loads((golden_data.LATER / "batch-queues.json").read_text("utf-8"))
CONF = "".join(f"{name}={value}\n" for name, value in SAID["config"].items())


@pytest.fixture
def root(golden_directory: Path, tmp_path: Path) -> Path:
    golden = golden_data.unpacked("batch-queues", golden_directory, golden_data.LATER)
    (tmp_path / "conf").write_text(CONF)
    return golden_data.copy_tree(golden, tmp_path / "store")


def call(cli: Cli, root: Path, *line: str | Path) -> Done:
    more = ("--store", root, "--broker-conf", root.parent / "conf", "--format", "ndjson")
    return cli(*line, *more)


def queue_topics(root: Path) -> set[str]:
    return {path.name for path in (root / "consumequeue").iterdir()}


def test_puts_are_refused(cli: Cli, root: Path, tmp_path: Path) -> None:
    """One by one, in a stream behind others, by a program; others are stored."""
    before = golden_data.tree_content(root / "batchconsumequeue")
    done = call(cli, root, "put", "--topic", TOPIC, "--body", "x")
    assert done.code == 5 and "batch queues" in done.err
    lines = [{"topic": "Plain", "body": str(n), "properties": {"TAGS": "a"}} for n in range(40)]
    lines.insert(30, {**lines[0], "topic": TOPIC})
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = call(cli, root, "put", "--from", tmp_path / "lines")
    assert done.code == 5 and "line 31" in done.err
    with MessageStore(root, parse_broker_conf(CONF), writable=True) as store:
        plain = [MessageExtBrokerInner("Plain", b"x", 0, properties={"TAGS": "a"})] * 9
        other = MessageExtBrokerInner(TOPIC, b"x", 0, properties={"TAGS": "a"})
        results = [one for bulk in store.put_stream([*plain, other, *plain]) for one in bulk]
        assert [one.is_ok for one in results] == [True] * 9 + [False] + [True] * 9
        assert not store.put_message(other).is_ok
        assert not store.put_messages([other, other], batch=True)[0].is_ok
    assert queue_topics(root) == {"Plain"}
    assert golden_data.tree_content(root / "batchconsumequeue") == before
    assert call(cli, root, "verify").code == 0


def test_a_topic_that_has_no_queue_yet(cli: Cli, root: Path) -> None:
    """By its attribute in topics.json."""
    entry = {"attributes": {"queue.type": "BatchCQ"}, "readQueueNums": 1, "writeQueueNums": 1}
    (root / "config").mkdir()
    path = root / "config/topics.json"
    path.write_text(json.dumps({"topicConfigTable": {"new": entry, "other": {"attributes": {}}}}))
    assert call(cli, root, "put", "--topic", "new", "--body", "x").code == 5
    assert call(cli, root, "put", "--topic", "other", "--body", "x").code == 0
    path.write_text('{"BatchCQ')
    assert call(cli, root, "put", "--topic", "other", "--body", "x").code == 0


@pytest.mark.parametrize(
    "line",
    [
        ("rebuild", "all", "--in-place", "--yes"),
        ("rebuild", "queues", "--in-place", "--yes", "--jobs", "2"),
        ("rebuild", "all", "--missing"),
    ],
)
def test_a_rebuild_gives_their_topics_no_consume_queue(
    cli: Cli, root: Path, line: tuple[str, ...]
) -> None:
    assert call(cli, root, *line).code == 0
    assert queue_topics(root) == {"Plain"}
    assert call(cli, root, "verify").code == 0


def test_a_start_gives_their_topics_no_consume_queue(cli: Cli, root: Path) -> None:
    """After a crash all of the log is dispatched again."""
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    assert call(cli, root, "put", "--topic", "Plain", "--body", "x").code == 0
    assert queue_topics(root) == {"Plain"}
