"""Batch queues of 5.3.3 are queues: to `find`, `info`, `groups`, `config check`, `group
set-offset`, `repair`, `clean` and `diff`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests import golden_data
from tests.test_cli.conftest import Cli
from tests.test_cli.test_batch_queues import CONF, TOPIC, call

#: Where a group stands, in a record of several messages of queue 0, and in queue 1.
AT = {0: 57, 1: 5}


@pytest.fixture
def root(golden_directory: Path, tmp_path: Path) -> Path:
    golden = golden_data.unpacked("batch-queues", golden_directory, golden_data.LATER)
    (tmp_path / "conf").write_text(CONF)
    copy = golden_data.copy_tree(golden, tmp_path / "store")
    (copy / "config").mkdir()
    consumes(copy, AT)
    return copy


def consumes(root: Path, offsets: dict[int, int]) -> None:
    content = {"offsetTable": {f"{TOPIC}@g": offsets, "Plain@g": {0: 4, 1: 2}}}
    (root / "config/consumerOffset.json").write_text(json.dumps(content))


def test_keys_of_all_topics_are_found(cli: Cli, root: Path) -> None:
    row, summary = call(cli, root, "find", "k11").rows
    assert (row["topic"], row["found_by"], summary["topics"]) == (TOPIC, "key", 2)


def test_info_counts_what_queues_lists(cli: Cli, root: Path) -> None:
    (row,) = call(cli, root, "info").rows
    *_, summary = call(cli, root, "queues").rows
    assert (row["topics"], row["queues"]) == (2, summary["queues"])


def test_how_far_a_group_has_read(cli: Cli, root: Path) -> None:
    *rows, summary = call(cli, root, "groups", "--queues", "--topic", TOPIC).rows
    told = [(row["max_offset"], row["lag"], row["state"]) for row in rows]
    assert told == [(60, 3, "ok"), (20, 15, "ok")] and summary["lag"] == 18
    # What is unread of a record was stored with it.
    pulled = call(cli, root, "pull", "--topic", TOPIC, "--queue-id", "0", "--offset", "57").rows[0]
    assert rows[0]["next_store_timestamp"] == pulled["store_timestamp"]
    assert rows[0]["behind_milliseconds"] == 0
    consumes(root, {0: 57})
    row, _ = call(cli, root, "groups", "--topic", TOPIC).rows
    assert row["queues_without_offset"] == 1
    done = call(cli, root, "config", "check")
    assert done.code == 0 and "consumer-offset-without-queue" not in done.out


def test_a_group_is_set(cli: Cli, root: Path) -> None:
    def new_offsets(place: str) -> list[int]:
        line = "group", "set-offset", "g", "--topic", TOPIC, "--to", place, "--yes"
        return [row["new_offset"] for row in call(cli, root, *line).rows[:-1]]

    def answer(queue_id: int, time: int) -> int:
        line = "offset", "--topic", TOPIC, "--queue-id", str(queue_id), "--time", str(time)
        (row,) = call(cli, root, *line, "--boundary", "ceil").rows
        return int(row["queue_offset"])

    assert new_offsets("begin") == [0, 0] and new_offsets("end") == [60, 20]
    row = call(cli, root, "pull", "--topic", TOPIC, "--queue-id", "1", "--offset", "9").rows[0]
    time = row["store_timestamp"]
    assert new_offsets(f"@{time}") == [answer(0, time), answer(1, time)] != [0, 0]


def test_a_group_behind_the_end_is_mended(cli: Cli, root: Path, tmp_path: Path) -> None:
    consumes(root, {0: 99, 1: 5})
    rows = call(cli, root, "config", "check").rows
    expected = {row["code"]: row["expected"] for row in rows if row["type"] == "finding"}
    assert expected["consumer-offset-past-queue"] == "0 to 60"
    assert call(cli, root, "repair", "--plan", tmp_path / "plan").code == 0
    assert call(cli, root, "repair", "--apply", tmp_path / "plan", "--yes").code == 0
    assert call(cli, root, "config", "check").code == 0
    *rows, _ = call(cli, root, "groups", "--queues", "--topic", TOPIC).rows
    assert rows[0]["consumer_offset"] == 60


def test_what_a_group_loses_is_said(cli: Cli, root: Path) -> None:
    consumes(root, {0: 1, 1: 1})
    rows = call(cli, root, "clean", "--dry-run", "--disk-ratio", "99").rows
    lost = {row["queue_id"]: row["lost"] for row in rows if row.get("topic") == TOPIC}
    shutil.copytree(root, root.parent / "after")
    (root.parent / f"after/commitlog/{0:020d}").unlink()
    left = call(cli, root.parent / "after", "queues", "--topic", TOPIC).rows[:-1]
    assert lost == {row["queue_id"]: row["min_offset"] - 1 for row in left}
    assert rows[-1]["lost"] == sum(lost.values()) > 0 and rows[-1]["losing_groups"] == 1


def test_stores_differ_by_them(cli: Cli, root: Path) -> None:
    other = root.parent / "other"
    shutil.copytree(root, other)
    assert call(cli, root, "diff", other).code == 0
    path = other / f"batchconsumequeue/{TOPIC}/0/{0:020d}"
    content = bytearray(path.read_bytes())
    content[46 + 12 + 8] ^= 1  # In the second unit.
    path.write_bytes(content)
    done = call(cli, root, "diff", other)
    row, summary = done.rows
    assert done.code == 1 and summary["queues"] == 1
    told = row["structure"], row["kind"], row["topic"], row["queue_id"], row["messages"]
    assert told == ("queue", "units-differ", TOPIC, 0, 1)
    assert row["queue_offset"] == 2  # The first record has two messages.
    shutil.rmtree(other / f"batchconsumequeue/{TOPIC}/1")
    kinds = [row["kind"] for row in call(cli, root, "diff", other).rows[:-1]]
    assert kinds == ["units-differ", "only-in-a"]
