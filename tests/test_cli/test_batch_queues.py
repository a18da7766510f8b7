"""Batch queues of 5.3.3: nothing but their broker puts into them, and nothing gives their topics
consume queues, with which no broker starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
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


def record_of(properties: dict[str, str], root: Path) -> Record:
    """A record of the topic, of a store that does not know that it has batch queues."""
    message = MessageExtBrokerInner(TOPIC, b"x", 0, properties=properties)
    with MessageStore(root, parse_broker_conf(CONF), writable=True, create=True) as store:
        assert store.put_message(message).is_ok
        return store.look_message_by_offset(0)


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
        ("rebuild", "index", "--in-place", "--yes"),
    ],
)
def test_a_rebuild_gives_their_topics_no_consume_queue(
    cli: Cli, root: Path, line: tuple[str, ...]
) -> None:
    before = golden_data.tree_content(root / "batchconsumequeue")
    done = call(cli, root, *line)
    assert done.code == 0
    # What leaves batch queues as they are says so.
    assert ("batch queues (5.x)" in done.err) == ("--missing" in line)
    assert queue_topics(root) == {"Plain"}
    assert golden_data.tree_content(root / "batchconsumequeue") == before
    assert call(cli, root, "verify").code == 0


@pytest.mark.parametrize("narrowed", [(), ("--topic", TOPIC), ("--queue-id", "1")])
def test_a_rebuild_gives_the_bytes_of_the_engine(
    cli: Cli, root: Path, tmp_path: Path, narrowed: tuple[str, ...]
) -> None:
    """Aside, and in place of queues that are gone."""
    whole = golden_data.tree_content(root / "batchconsumequeue")
    one = f"{TOPIC}/1/" if "1" in narrowed else ""
    wanted = {path: content for path, content in whole.items() if path.startswith(one)}
    done = call(cli, root, "rebuild", "queues", "--output", tmp_path / "out", *narrowed)
    assert done.code == 0
    assert golden_data.tree_content(tmp_path / "out/batchconsumequeue") == wanted
    for path in wanted:
        (root / "batchconsumequeue" / path).unlink()
    done = call(cli, root, "rebuild", "queues", "--in-place", "--yes", *narrowed)
    assert done.code == 0 and "batchconsumequeue" in done.rows[-1]["structures"]
    assert golden_data.tree_content(root / "batchconsumequeue") == whole
    assert call(cli, root, "verify").code == 0


@pytest.mark.parametrize(
    "properties",
    [
        {"INNER_NUM": "3"},
        {"INNER_NUM": "x", "INNER_BASE": "0"},
        {"INNER_NUM": "3", "INNER_BASE": "-1"},
        {"INNER_NUM": "40000", "INNER_BASE": "0"},
        {"INNER_NUM": "9" * 500, "INNER_BASE": "1"},
        {"INNER_NUM": "\u2463", "INNER_BASE": "1"},
    ],
)
def test_numbers_that_are_none(tmp_path: Path, properties: dict[str, str]) -> None:
    """One without the other counts for nothing; with what is no number a record has no unit."""
    record = record_of(properties, tmp_path / "other")
    unit = Dispatcher(parse_broker_conf(CONF), frozenset({TOPIC})).batch_unit(record)
    if "INNER_BASE" in properties:
        assert unit is None
    else:
        assert unit is not None and (unit.base_offset, unit.batch_size) == (0, 1)


def test_a_start_gives_their_topics_no_consume_queue(cli: Cli, root: Path) -> None:
    """After a crash all of the log is dispatched again."""
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    assert call(cli, root, "put", "--topic", "Plain", "--body", "x").code == 0
    assert queue_topics(root) == {"Plain"}


@pytest.mark.parametrize("line", ["salvage", "export --format store"])
def test_a_new_store_has_them_too(cli: Cli, root: Path, tmp_path: Path, line: str) -> None:
    conf = "--broker-conf", tmp_path / "conf"
    output = tmp_path / "new"
    assert cli(*line.split(), "--store", root, *conf, "--output", output).code == 0
    assert queue_topics(output) == {"Plain"}
    made, had = (golden_data.tree_content(one / "batchconsumequeue") for one in (output, root))
    assert made == had
    assert not list(output.glob("rmqctl-*"))
    assert cli("verify", "--store", output, *conf).code == 0


def test_a_rebuild_keeps_where_a_queue_ended(cli: Cli, root: Path, tmp_path: Path) -> None:
    """Of a queue of which the log has nothing any more its last file stays, as a broker's retention
    leaves it: its next message goes on with the numbers."""
    (root / f"commitlog/{0:020d}").unlink()
    had = golden_data.tree_content(root / "batchconsumequeue")
    ends = [row.get("max_offset") for row in call(cli, root, "queues").rows]
    last = f"{TOPIC}/0/{1380:020d}"
    output = tmp_path / "out"
    assert call(cli, root, "rebuild", "queues", "--output", output).code == 0
    made = golden_data.tree_content(output / "batchconsumequeue")
    assert set(made) == {last, f"{TOPIC}/1/{0:020d}"} and made[last] == had[last]
    assert call(cli, root, "rebuild", "queues", "--in-place", "--yes").code == 0
    assert golden_data.tree_content(root / "batchconsumequeue") == made
    assert [row.get("max_offset") for row in call(cli, root, "queues").rows] == ends
    assert call(cli, root, "verify").code == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_nothing_is_put_behind_what_a_batch_queue_lacks(
    cli: Cli, root: Path, is_clean: bool
) -> None:
    """A broker would never dispatch it then."""
    # The newest of all records but for one of `Plain`, which goes, too.
    path = root / f"batchconsumequeue/{TOPIC}/1/{460:020d}"
    whole = golden_data.tree_content(root / "batchconsumequeue")
    path.write_bytes(path.read_bytes()[: 9 * 46] + bytes(46))
    for queue in (root / "consumequeue/Plain").iterdir():
        (queue / f"{0:020d}").write_bytes(bytes(1000))
    if not is_clean:
        (root / "abort").touch()
        (root / "checkpoint").unlink()
    before = golden_data.tree_content(root)
    for line in (
        ("put", "--topic", "Plain", "--body", "x"),
        ("rebuild", "all", "--missing"),
        ("rebuild", "all", "--missing", "--dry-run"),
    ):
        done = call(cli, root, *line)
        assert done.code == 5 and "rebuild queues --in-place" in done.err
        assert "physical offset 16384" in done.err
        assert golden_data.tree_content(root) == before
    assert call(cli, root, "rebuild", "queues", "--in-place", "--yes").code == 0
    assert golden_data.tree_content(root / "batchconsumequeue") == whole
    assert call(cli, root, "put", "--topic", "Plain", "--body", "x").code == 0
    assert call(cli, root, "verify").code == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_nothing_takes_the_place_of_what_the_log_has_lost(
    cli: Cli, root: Path, is_clean: bool
) -> None:
    """A loss of power took the newest records, and left their units: the queue would lead to what
    is put there, and a broker would never take the unit away."""
    (root / f"commitlog/{16384:020d}").write_bytes(bytes(16384))
    if not is_clean:
        (root / "abort").touch()
    before = golden_data.tree_content(root)
    for line in (("put", "--topic", "Plain", "--body", "x"), ("flush",)):
        done = call(cli, root, *line)
        assert done.code == 5 and "rebuild queues --in-place" in done.err
        assert f"queue 1 of topic '{TOPIC}'" in done.err and "16384" in done.err
        assert golden_data.tree_content(root) == before
    assert call(cli, root, "rebuild", "queues", "--in-place", "--yes").code == 0
    assert call(cli, root, "put", "--topic", "Plain", "--body", "x").code == 0
    rows = call(cli, root, "queues").rows[:-1]
    assert [row["max_offset"] for row in rows if row["topic"] == TOPIC] == [60, 19]
    assert call(cli, root, "verify").code == 0


@pytest.mark.parametrize("number", [0, 9])
def test_a_plan_leaves_them_to_a_rebuild(cli: Cli, root: Path, tmp_path: Path, number: int) -> None:
    """No step of it makes one: the plan says so, and its other steps are done."""
    path = root / f"batchconsumequeue/{TOPIC}/1/{460:020d}"
    units = path.read_bytes()
    path.write_bytes(units[: number * 46] + bytes(46) + units[number * 46 + 46 :])
    (root / "checkpoint").unlink()
    plan = tmp_path / "plan"
    done = call(cli, root, "repair", "--plan", plan)
    steps = [row["action"] for row in done.rows if row["type"] == "repair_step"]
    assert steps == ["set-checkpoint"]
    left = [row for row in done.rows if row["type"] == "left"]
    assert left and all("rmqctl rebuild queues --in-place" in row["why"] for row in left)
    assert call(cli, root, "repair", "--apply", plan, "--yes").code in (0, 1)
    one = ("--topic", TOPIC, "--queue-id", "1")
    assert call(cli, root, "rebuild", "queues", "--in-place", "--yes", *one).code == 0
    assert path.read_bytes() == units
    assert call(cli, root, "verify").code == 0


def test_a_plan_of_repair_holds_no_step_that_it_could_not_do(
    cli: Cli, root: Path, tmp_path: Path
) -> None:
    """A stranger in the place of a batch queue's file is left: no plan moves anything there."""
    path = min((root / "batchconsumequeue" / TOPIC / "0").iterdir())
    path.unlink()
    os.mkfifo(path)
    plan = tmp_path / "plan"
    done = call(cli, root, "repair", "--plan", plan)
    assert done.code == 1, done.err
    assert json.loads(plan.read_text())["steps"] == []
    (left,) = [row for row in done.rows if row.get("code") == "foreign-file"]
    assert left["path"] == str(path.relative_to(root))
    assert call(cli, root, "repair", "--apply", plan, "--dry-run").code == 0
