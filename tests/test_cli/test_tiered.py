"""tiered: what it says of stores that brokers of 5.3.3 have left is what these gave back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqctl.cli.output import FORMATS
from rmqctl.engine.tiered.metadata import FILE, LOCAL_INDEX
from tests import golden_data
from tests.test_cli.conftest import NASTY, Cli

#: What differs between a record and the uploaded one.
_OF_THE_PLACE = ("physical_offset", "msg_id")
_PARTS = ("config", "tiered", LOCAL_INDEX)


class Left(NamedTuple):
    """A golden store, and what its broker said: units of each queue, items of some keys."""

    root: Path
    pulled: list[tuple[str, int, list[dict[str, Any]]]]
    queried: list[tuple[str, str, list[dict[str, Any]]]]


@pytest.fixture(scope="module", params=["tiered", "tiered-killed"])
def left(request: pytest.FixtureRequest, golden_directory: Path) -> Iterator[Left]:
    root = golden_data.unpacked(request.param, golden_directory, golden_data.LATER)
    said = json.loads((golden_data.LATER / f"{request.param}.json").read_text("utf-8"))
    before = golden_data.state(root)
    yield Left(root, said["pulled"], said["queried"])
    assert golden_data.state(root) == before


@pytest.fixture
def copied(left: Left, tmp_path: Path) -> Path:
    """A copy of what tiered storage has of the store."""
    for name in _PARTS:
        if (left.root / name).is_dir():
            shutil.copytree(left.root / name, tmp_path / "store" / name)
    return tmp_path / "store"


def rows_of(cli: Cli, *words: str | Path, code: int = 0) -> list[dict[str, Any]]:
    done = cli("tiered", *words, "--format", "ndjson")
    assert (done.code, done.err) == (code, "")
    return done.rows


def test_messages_are_those_of_the_log(left: Left, cli: Cli) -> None:
    """But for their places, and those that were too old for the upload."""
    words = ("walk", "commitlog", "--body-as", "base64", "--format", "ndjson")
    logged = cli(*words, "--store", left.root)
    by_place = {
        (row["topic"], row["queue_id"], row["queue_offset"]): _elsewhere(row)
        for row in logged.rows
        if row["type"] == "message"
    }
    *rows, summary = rows_of(cli, "walk", "--store", left.root, "--body-as", "base64")
    assert len(rows) == summary["messages"] == sum(len(one[2]) for one in left.pulled)
    for row in rows:
        assert row["status"] == "ok"
        place = row["topic"], row["queue_id"], row["queue_offset"]
        assert _elsewhere(row) == by_place[place]


def _elsewhere(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _OF_THE_PLACE}


def test_a_query_gives_the_messages_with_the_key(left: Left, cli: Cli) -> None:
    for topic, key, items in left.queried:
        words = ("query", "--store", left.root, "--topic", topic, "--key", key)
        *rows, summary = rows_of(cli, *words, code=int(not items))
        found = {(row["queue_id"], row["physical_offset"]) for row in rows}
        assert found == {(one["queueId"], one["physicalOffset"]) for one in items}
        assert all(key in row["properties"]["KEYS"].split() for row in rows)
        assert (summary["messages"], summary["lost"]) == (len(rows), 0)


def test_a_query_gives_the_newest(left: Left, cli: Cli) -> None:
    words = ("query", "--store", left.root, "--topic", "orders", "--key", "fourth")
    every = rows_of(cli, *words)[:-1]
    assert len(every) > 3
    assert rows_of(cli, *words, "--limit", "3")[:-1] == every[:3]
    since = every[1]["store_timestamp"]
    some = rows_of(cli, *words, "--since", str(since))[:-1]
    assert some == [row for row in every if row["store_timestamp"] >= since]


def test_ls_counts_what_is_there(left: Left, cli: Cli) -> None:
    *rows, summary = rows_of(cli, "ls", "--store", left.root)
    queues = [row for row in rows if row["type"] == "tiered_queue"]
    assert [
        (row["topic"], row["queue_id"], row["min_offset"], row["max_offset"]) for row in queues
    ] == [
        (topic, queue_id, records[0]["queueOffset"], records[-1]["queueOffset"] + 1)
        for topic, queue_id, records in left.pulled
    ]
    assert {row["cluster"] for row in queues} == {"DefaultCluster"}
    segments = [row for row in rows if row["type"] == "tiered_segment"]
    assert {row["state"] for row in segments} == {"ok"}
    assert summary["segments"] == len(segments)
    assert {row["kind"] for row in segments} == {"COMMIT_LOG", "CONSUME_QUEUE", "INDEX"}
    files = [row for row in rows if row["type"] == "tiered_index_file"]
    is_killed = left.root.name == "tiered-killed"
    assert [row["state"] for row in files] == ["uploaded"] * 2 + ["local"] * is_killed
    assert {row["slots"] for row in files} == {20}


def test_nothing_is_wrong(left: Left, cli: Cli) -> None:
    (summary,) = rows_of(cli, "verify", "--store", left.root)
    messages = sum(len(one[2]) for one in left.pulled)
    assert (summary["units"], summary["errors"], summary["warnings"]) == (messages, 0, 0)
    assert summary["index_items"] > messages


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "words", ["ls", "walk", "query --topic orders --key fourth", "verify"], ids=str
)
def test_every_format(words: str, format: str, left: Left, cli: Cli) -> None:
    done = cli("tiered", *words.split(), "--store", left.root, "--format", format)
    assert (done.code, done.err) == (0, "") or (format == "csv" and done.code == 0)
    assert done.out or (words, format) == ("verify", "csv")


def test_the_files_alone_tell(copied: Path, left: Left, cli: Cli) -> None:
    """Of a broker whose disk is lost, with no metadata."""
    *rows, _ = rows_of(cli, "walk", "--store", copied / "tiered")
    assert len(rows) == sum(len(one[2]) for one in left.pulled)
    assert rows_of(cli, "verify", "--store", copied / "tiered")[-1]["errors"] == 0
    *found, _ = rows_of(
        *(cli, "query", "--store", copied / "tiered", "--topic", "orders", "--key", "k1-3")
    )
    assert [row["queue_offset"] for row in found] == [3]


def test_the_files_may_lie_elsewhere(copied: Path, cli: Cli, tmp_path: Path) -> None:
    """Without a word they are missing; an option names them, or the broker's own file."""
    elsewhere = (copied / "tiered").rename(tmp_path / "elsewhere")
    done = cli("tiered", "ls", "--store", copied, "--format", "ndjson")
    assert done.code == 1 and "--files" in done.err
    assert done.rows[-1]["not_ok"] == done.rows[-1]["segments"] > 0
    lost = cli("tiered", "verify", "--store", copied)
    assert lost.code == 3 and "tieredStoreFilePath" in lost.err
    assert rows_of(cli, "verify", "--store", copied, "--files", elsewhere)[-1]["errors"] == 0
    conf = tmp_path / "broker.conf"
    conf.write_text(f"tieredStoreFilePath={elsewhere}\n")
    assert rows_of(cli, "verify", "--store", copied, "--broker-conf", conf)[-1]["errors"] == 0
    absent = cli("tiered", "ls", "--store", copied, "--files", tmp_path / "absent")
    assert absent.code == 3 and "there is no such directory" in absent.err
    (deeper,) = elsewhere.iterdir()
    done = cli("tiered", "ls", "--store", copied, "--files", deeper)
    assert done.code == 3 and "none of a cluster's directories is in it" in done.err


def test_what_the_index_has_and_the_log_has_lost(copied: Path, cli: Cli) -> None:
    """Is counted, and a note says it; of what is there nothing is left out."""
    words = ("query", "--store", copied, "--topic", "orders", "--key", "fourth")
    *before, _ = rows_of(cli, *words)
    next(copied.glob("tiered/*/interop/orders/1/COMMIT_LOG/*")).unlink()
    done = cli("tiered", *words, "--format", "ndjson")
    *rows, summary = done.rows
    assert rows == [row for row in before if row["queue_id"] == 0]
    assert (done.code, summary["lost"]) == (0, len(before) - len(rows)) and "not there" in done.err


def test_a_store_without_it(store: Path, cli: Cli) -> None:
    done = cli("tiered", "ls", store=store)
    assert (done.code, done.out) == (3, "") and "no broker with tiered storage" in done.err
    absent = cli("tiered", "ls", "--store", store / "absent")
    assert absent.code == 3


def test_what_is_chosen_and_not_there(left: Left, cli: Cli) -> None:
    for words in (("ls", "--topic", "absent"), ("walk", "--topic", "absent")):
        (summary,) = rows_of(cli, *words, "--store", left.root, code=1)
        assert summary["queues"] == 0


def test_metadata_that_is_broken_leaves_the_files(copied: Path, left: Left, cli: Cli) -> None:
    (copied / "config" / FILE).write_text("{")
    (copied / "config" / f"{FILE}.bak").write_text("{")
    done = cli("tiered", "walk", "--store", copied, "--format", "ndjson")
    assert done.code == 0 and "the metadata is not read" in done.err
    assert len(done.rows) - 1 == sum(len(one[2]) for one in left.pulled)


def test_names_of_anybody_stay_where_they_are(copied: Path, cli: Cli) -> None:
    """What the metadata names becomes no path, and nothing of it reaches a terminal raw."""
    entry = {"path": "x", "type": 0, "baseOffset": 0, "size": 9, "status": 0}
    paths = ["../../../etc/passwd", f"{NASTY}/{NASTY}/0", "a/b/c", "/", "interop/../0"]
    table = {"commitLogFileSegmentTable": {path: {"0": entry} for path in paths}}
    for name in (FILE, f"{FILE}.bak"):
        (copied / "config" / name).write_text(json.dumps(table))
    (copied / "tiered" / "212d6b50_DefaultCluster" / NASTY / "t" / "0").mkdir(parents=True)
    for words in ("ls", "verify", "walk"):
        done = cli("tiered", words, "--store", copied)
        assert done.code == int(words != "walk")
        assert not set("\x1b\x07\x9b\u202e") & set(done.out + done.err)
        assert "root:" not in done.out
