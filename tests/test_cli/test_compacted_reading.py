"""What 5.3.3 keeps of a compacted topic, read: `queues`, `walk queue`, `pull`."""

from __future__ import annotations

import json
from pathlib import Path
from struct import Struct

import pytest

from formats import layouts
from tests import golden_data
from tests.test_cli.conftest import Cli, Done

TOPIC = "CompactTopic"
QUEUE = ("--topic", TOPIC, "--queue-id", "0")
UNIT = Struct(layouts.BATCH_QUEUE_UNIT.format)
SAID = json.loads((golden_data.LATER / "compaction.json").read_text("utf-8"))
CONF = "".join(f"{name}={value}\n" for name, value in SAID["config"].items())
KIND = "SparseConsumeQueue"
#: Queue offsets that the engine has kept in queue 0, file by file.
KEPT = [
    [8, 12, 17, 32, 36, 47, 50, 51, 52],
    [53, 56, 57, 58],
    [59, 60, 61, 62, 63, 65, 66, 67, 68],
    [69, 70, 71, 72, 73, 74, 75, 76, 77],
    [78, 79, 80, 81, 83],
]
ALL = [offset for of_file in KEPT for offset in of_file]


@pytest.fixture
def root(golden_directory: Path, tmp_path: Path) -> Path:
    golden = golden_data.unpacked("compaction", golden_directory, golden_data.LATER)
    return golden_data.copy_tree(golden, tmp_path / "store")


def call(cli: Cli, root: Path, *line: str | Path) -> Done:
    before = golden_data.tree_content(root)
    done = cli(*line, "--store", root, "--format", "ndjson")
    assert golden_data.tree_content(root) == before
    return done


def test_queues(cli: Cli, root: Path) -> None:
    *rows, summary = call(cli, root, "queues").rows
    told = [(row["topic"], row["queue_id"], row["messages"], row["queue_type"]) for row in rows]
    assert told == [
        (TOPIC, 0, 84, "SimpleCQ"), (TOPIC, 0, 36, KIND),
        (TOPIC, 1, 29, "SimpleCQ"), (TOPIC, 1, 27, KIND),
        ("Plain", 0, 6, "SimpleCQ"), ("Plain", 1, 1, "SimpleCQ"),
    ]  # fmt: skip
    kept = rows[1]
    assert (kept["min_offset"], kept["max_offset"], kept["max_physical_offset"]) == (8, 84, 19447)
    # A message that is kept is one of its queue.
    assert (summary["queues"], summary["messages"]) == (6, 120)
    *rows, _ = call(cli, root, "queues", "--topic", TOPIC, "--queue-id", "1").rows
    assert len(rows) == 2


def test_walk(cli: Cli, root: Path) -> None:
    *rows, summary = call(cli, root, "walk", "queue", *QUEUE).rows
    kept = [row for row in rows if row["type"] == "batch_unit"]
    assert [row["queue_offset"] for row in kept] == ALL
    assert {row["queue_type"] for row in kept} == {KIND} and rows[-36:] == kept
    assert (summary["queues"], summary["units"]) == (2, 120)
    some = ("--offset", "58", "--end-offset", "61")
    *rows, _ = call(cli, root, "walk", "queue", *QUEUE, *some).rows
    assert [row["queue_offset"] for row in rows] == [58, 59, 60, 58, 59, 60]
    *rows, summary = call(cli, root, "walk", "queue", *QUEUE, "--limit", "86").rows
    assert (len(rows), summary["units"]) == (86, 86)


def test_pull(cli: Cli, root: Path) -> None:
    """One answer has messages of one file of units; more are pulled again."""
    for offset, begins in ((0, 0), (8, 0), (18, 0), (53, 1), (55, 1), (83, 4)):
        *rows, answer = call(cli, root, "pull", *QUEUE, "--offset", str(offset)).rows
        expected = [one for one in KEPT[begins] if one >= offset]
        assert [row["queue_offset"] for row in rows] == expected
        assert (answer["status"], answer["next_begin_offset"]) == ("FOUND", expected[-1] + 1)
    assert (answer["min_offset"], answer["max_offset"]) == (8, 84)
    *rows, _ = call(cli, root, "pull", *QUEUE, "--limit", "100", "--body-as", "utf8").rows
    assert [row["queue_offset"] for row in rows] == ALL
    assert {row["status"] for row in rows} == {"ok"}
    latest = {row["properties"]["KEYS"]: row["body"].split()[0] for row in rows if row["body"]}
    assert latest["k2"] == "117"
    for offset, status, following in (
        (84, "OFFSET_OVERFLOW_ONE", 84),
        (900, "OFFSET_OVERFLOW_BADLY", 84),
    ):
        (answer,) = call(cli, root, "pull", *QUEUE, "--offset", str(offset)).rows
        assert (answer["status"], answer["next_begin_offset"]) == (status, following)
    where = ("--topic", TOPIC, "--queue-id", "7")
    (answer,) = call(cli, root, "pull", *where).rows
    assert answer["status"] == "NO_MATCHED_LOGIC_QUEUE"


def test_what_a_broker_does_not_do_is_refused(cli: Cli, root: Path) -> None:
    for more in (("--tag", "t1"), ("--filter", "TRUE"), ("--follow",)):
        done = cli("pull", *QUEUE, *more, "--store", root)
        assert (done.code, done.out) == (2, "") and "compacted (5.x)" in done.err


def test_puts_are_refused(cli: Cli, root: Path, tmp_path: Path) -> None:
    """One by one, in a stream behind others, and of a topic that has its policy and no files."""
    entry = {"attributes": {"cleanup.policy": "COMPACTION"}}
    (root / "config").mkdir()
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": {"new": entry}}))
    (tmp_path / "conf").write_text(CONF)
    where = ("--store", root, "--broker-conf", tmp_path / "conf")
    before = golden_data.tree_content(root / "compaction")
    for topic, code in ((TOPIC, 5), ("new", 5), ("Plain", 0)):
        done = cli("put", "--topic", topic, "--body", "x", *where)
        assert done.code == code and ("is compacted (5.x)" in done.err) == bool(code)
    lines = [{"topic": "Plain", "body": str(n), "properties": {"KEYS": "a"}} for n in range(40)]
    lines.insert(30, {**lines[0], "topic": TOPIC})
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = cli("put", "--from", tmp_path / "lines", *where)
    assert done.code == 5 and "line 31" in done.err
    assert golden_data.tree_content(root / "compaction") == before
    assert cli("verify", *where).code == 0


def test_no_topic_leads_out_of_the_directory(cli: Cli, root: Path) -> None:
    """topics.json says of any name that it is compacted."""
    entry = {"attributes": {"cleanup.policy": "COMPACTION"}}
    name = f"../compactionLog/{TOPIC}"
    (root / "config").mkdir()
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": {name: entry}}))
    done = cli("pull", "--topic", name, "--queue-id", "0", "--store", root)
    assert done.code == 2 and not done.out


def test_damage_is_passed_over(cli: Cli, root: Path) -> None:
    """A record that cannot be read, and one behind the log's end."""
    path = root / "compaction" / "compactionLog" / TOPIC / "0" / f"{2300:020d}"
    content = bytearray(path.read_bytes())
    content[4:8] = b"none"
    path.write_bytes(content)
    done = call(cli, root, "pull", *QUEUE, "--offset", "53")
    assert [row["queue_offset"] for row in done.rows[:-1]] == [56, 57, 58]
    assert done.rows[-1]["passed_over"] == 1 and done.code == 1
    units = root / "compaction" / "compactionCq" / TOPIC / "0" / f"{18400:020d}"
    content = bytearray(units.read_bytes())
    content[: UNIT.size] = UNIT.pack(1 << 40, 9, 0, 0, 78, 1, -1, 0)
    units.write_bytes(content)
    done = call(cli, root, "pull", *QUEUE, "--offset", "78")
    assert done.rows[-1]["status"] == "MESSAGE_WAS_REMOVING" and not done.rows[:-1]


def test_offset_says_which_queue_it_looks_in(cli: Cli, root: Path) -> None:
    told = "compacted topics (5.x): CompactTopic. Here their queues count as they were put"
    done = call(cli, root, "offset", *QUEUE, "--time", "0", "--boundary", "ceil")
    assert done.code == 0 and told in done.err
    done = call(cli, root, "offset", "--topic", "Plain", "--queue-id", "0", "--time", "now")
    assert "compacted" not in done.err
