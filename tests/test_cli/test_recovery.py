"""What a command that writes says of a store that crashed: before, by --dry-run, and after."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.state.checkpoint import read_checkpoint
from tests.golden_data import broker_conf_text
from tests.test_cli.conftest import CONFIG, Cli
from tests.test_safety.support import assert_clean, tree

DRY_RUNS = [
    ("put", "--topic", "A", "--body", "x"),
    ("flush",),
    ("schedule", "deliver"),
    ("transaction", "rollback", "0"),
    ("clean",),
    ("rebuild", "all", "--missing"),
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two messages of A, two of B; of the last one half is there, and its unit."""
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        for number, topic in enumerate("AABB"):
            properties = {"KEYS": f"k{number}"}
            put = writer.put_message(MessageExtBrokerInner(topic, b"x" * 90, properties=properties))
        last = put.append
    assert last is not None
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    middle = last.wrote_offset + last.wrote_bytes // 2
    data[middle:] = bytes(len(data) - middle)
    path.write_bytes(data)
    return root


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("line", DRY_RUNS, ids=lambda line: " ".join(line[:2]))
def test_a_dry_run_says_what_would_be_brought_in_order(
    cli: Cli, store: Path, line: tuple[Any, ...], abort: bool
) -> None:
    if abort:
        (store / "abort").touch()
    before = tree(store)
    done = cli(*line, "--dry-run", "--format", "ndjson", store=store)
    assert tree(store) == before
    (row,) = [row for row in done.rows if row["type"] == "recovery"]
    assert row["clean_shutdown"] is not abort
    assert (row["queues_cut"], row["units_removed"]) == (1, 1)
    assert (row["index_files_changed"], row["index_items_removed"]) == (1, 1)
    assert row["bytes_to_scan"] == (row["log_end"] if abort else 0)
    assert row["scan_why"] == ("first-file" if abort else None)


@pytest.mark.parametrize("line", DRY_RUNS, ids=lambda line: " ".join(line[:2]))
def test_of_a_store_in_order_there_is_nothing_to_say(
    cli: Cli, tmp_path: Path, line: tuple[Any, ...]
) -> None:
    with MessageStore(tmp_path / "s", CONFIG, writable=True, create=True) as writer:
        assert writer.put_message(MessageExtBrokerInner("A", b"x")).is_ok
    done = cli(*line, "--dry-run", "--format", "ndjson", store=tmp_path / "s")
    assert not [row for row in done.rows if row["type"] == "recovery"]


@pytest.mark.parametrize(
    "line",
    [("flush",), ("schedule", "deliver"), ("transaction", "rollback", "0")],
    ids=lambda line: " ".join(line[:2]),
)
def test_a_dry_run_is_refused_where_the_command_is(
    cli: Cli, tmp_path: Path, line: tuple[Any, ...]
) -> None:
    """A file of a queue is too short, and nothing else is wrong."""
    root = tmp_path / "s"
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        assert writer.put_message(MessageExtBrokerInner("A", b"x")).is_ok
    (path,) = (root / "consumequeue/A/0").iterdir()
    os.truncate(path, path.stat().st_size // 2)
    dry, done = (cli(*line, *more, store=root) for more in (("--dry-run",), ()))
    assert dry.code == done.code == 5 and not dry.out
    (error,) = (one for one in dry.err.splitlines() if one.startswith("error: "))
    assert error in done.err and path.name in error


@pytest.mark.parametrize(
    "line",
    [
        ("clean", "--now", "0"),
        ("group", "set-offset", "g", "--topic", "TopicA", "--to", "begin", "--new"),
    ],
    ids=lambda line: line[0],
)
@pytest.mark.parametrize("abort", [False, True])
def test_an_index_of_a_wrong_length_is_no_matter_to_who_changes_no_index(
    cli: Cli, copy_store: Callable[[str], Path], line: tuple[Any, ...], abort: bool
) -> None:
    """As long as there is nothing to bring in order. The dry run ends as the command does."""
    root = copy_store("basic")
    conf = root.with_name("broker.conf")
    conf.write_text(broker_conf_text("basic"))
    os.truncate(max((root / "index").iterdir()), 500)
    if abort:
        (root / "abort").touch()
    where = ("--store", root, "--broker-conf", conf)
    dry, done = (cli(*line, more, *where) for more in ("--dry-run", "--yes"))
    assert dry.code == done.code == 5 * abort, (dry.err, done.err)


@pytest.mark.parametrize("abort", [False, True])
def test_a_put_says_what_it_brought_in_order(cli: Cli, store: Path, abort: bool) -> None:
    if abort:
        (store / "abort").touch()
    done = cli("put", "--topic", "A", "--body", "new", "--keys", "new", store=store)
    assert done.code == 0
    assert "brought in order" in done.err and "1 unit is gone that had no record" in done.err
    assert ("was not closed cleanly" in done.err) is abort
    assert not (store / "abort").exists()
    assert_clean(store, CONFIG)
    with MessageStore(store, CONFIG) as found:
        ends = {topic: found.consume_queue(topic, 0) for topic in "AB"}
        assert {t: q.max_offset for t, q in ends.items() if q is not None} == {"A": 3, "B": 1}
        assert [hit.matches for hit in found.query_message("A", "new")] == [True]
        assert not list(found.query_message("B", "k3"))
    again = cli("put", "--topic", "A", "--body", "again", store=store)
    assert again.code == 0 and not again.err


def test_a_put_that_a_start_would_lose_is_refused(cli: Cli, store: Path) -> None:
    """A hole in a queue: a start drops the units behind it, and what is put there with them."""
    path = store / "consumequeue/A/0" / f"{0:020d}"
    path.write_bytes(bytes(20) + path.read_bytes()[20:])
    before = tree(store)
    for line in (("put", "--topic", "A", "--body", "x"), ("flush", "--dry-run"), ("flush",)):
        done = cli(*line, store=store)
        if line[0] == "flush":  # Of that queue nothing is written.
            assert done.code == 0
            continue
        assert done.code == 5 and "'A'" in done.err and "rebuild queues" in done.err
        assert {n: d for n, d in tree(store).items() if n.startswith("consumequeue/A")} == {
            n: d for n, d in before.items() if n.startswith("consumequeue/A")
        }


def test_messages_behind_damage_are_not_written_over(cli: Cli, store: Path, tmp_path: Path) -> None:
    """A broker deletes them at its start."""
    with MessageStore(store, CONFIG, writable=True) as writer:
        assert writer.put_message(MessageExtBrokerInner("A", b"y" * 90)).is_ok
    path = store / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[90] ^= 1  # in the first body
    path.write_bytes(data)
    (store / "abort").touch()
    before = tree(store)
    for line in (("put", "--topic", "A", "--body", "x"), ("put", "--topic", "A", "--dry-run")):
        done = cli(*line, store=store)
        assert done.code == 5 and "a broker deletes them" in done.err
        assert {**tree(store), "lock": b""} == {**before, "lock": b""}


def test_the_messages_of_a_dry_run_are_checked(cli: Cli, store: Path, tmp_path: Path) -> None:
    source = tmp_path / "messages.ndjson"
    lines = [{"topic": "A", "body": "x"}, {"topic": "A" * 200}, {"topic": "A"}]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = tree(store)
    done = cli("put", "--from", source, "--dry-run", "--format", "ndjson", store=store)
    rows = [row for row in done.rows if row["type"] == "append_result"]
    assert [row["status"] for row in rows] == ["PUT_OK", "MESSAGE_ILLEGAL"]
    assert done.code == 5 and "line 2" in done.err
    assert {row["wrote_offset"] for row in rows} == {None}
    assert tree(store) == before


def test_a_checkpoint_of_the_future_becomes_true(cli: Cli, store: Path) -> None:
    with MessageStore(store, CONFIG) as found:
        newest = max(e.store_timestamp for e in [found.look_message_by_offset(0)])
    raw = (newest + 10**9).to_bytes(8, "big") * 3
    path = store / "checkpoint"
    path.write_bytes(raw + path.read_bytes()[24:])
    assert cli("rebuild", "all", "--in-place", "--yes", store=store).code == 0
    checkpoint = read_checkpoint(path)
    assert checkpoint is not None and max(checkpoint[:3]) < newest + 10**6


@pytest.mark.parametrize(
    "line",
    [
        ("rebuild", "index", "--in-place"),
        ("rebuild", "queues", "--in-place", "--topic", "A"),
        ("group", "set-offset", "g", "--topic", "A", "--to", "begin", "--new"),
        ("clean",),
    ],
    ids=lambda line: " ".join(line[:2]),
)
@pytest.mark.parametrize("abort", [False, True])
def test_what_was_brought_in_order_beside_the_work_is_said(
    cli: Cli, store: Path, line: tuple[Any, ...], abort: bool
) -> None:
    """Units of B go: the command was not asked about B."""
    if abort:
        (store / "abort").touch()
    done = cli(*line, "--yes", store=store)
    assert done.code == 0
    assert "brought in order" in done.err and "1 unit is gone that had no record" in done.err
    assert ("was not closed cleanly" in done.err) is abort
    assert "brought in order" not in cli(*line, "--yes", store=store).err


@pytest.mark.parametrize("size", [0, 24])
def test_a_checkpoint_that_was_cut_is_whole_after_a_flush_also_without_messages(
    cli: Cli, tmp_path: Path, size: int
) -> None:
    """As the advice of verify says; a start makes one of zeros of it, too."""
    root = tmp_path / "store"
    MessageStore(root, CONFIG, writable=True, create=True).close()
    (root / "checkpoint").write_bytes(bytes(size))
    found = cli("verify", "--format", "ndjson", store=root)
    assert [row.get("code") for row in found.rows] == ["checkpoint-unreadable", None]
    assert cli("flush", store=root).code == 0
    assert (root / "checkpoint").read_bytes() == bytes(4096)
    assert cli("verify", store=root).code == 0


@pytest.mark.parametrize("behind", [0, 2])
@pytest.mark.parametrize("state", ["abort", "not dispatched", "far from dispatched"])
def test_a_delay_that_no_broker_reads_is_in_the_way(
    cli: Cli, tmp_path: Path, state: str, behind: int
) -> None:
    """A start reads over it, and deletes it and what follows: nothing is written behind it. The
    message itself is whole, and is not written over."""
    root, size = tmp_path / "s", 1 << 20
    config = replace(CONFIG, mapped_file_size_commit_log=size, max_message_size=size // 2)
    with MessageStore(root, config, writable=True, create=True) as writer:
        assert writer.put_message(MessageExtBrokerInner("A", b"x")).is_ok
        delayed = MessageExtBrokerInner("A", b"x", properties={"DELAY": "2", "KEYS": "k"})
        if state == "far from dispatched":
            for results in writer.put_stream([MessageExtBrokerInner("A", bytes(size // 3))] * 20):
                assert all(result.is_ok for result in results)
        place = writer.put_message(delayed).append
        for _ in range(behind):
            assert writer.put_message(MessageExtBrokerInner("A", b"x")).is_ok
    assert place is not None
    path = root / "commitlog" / f"{place.wrote_offset // size * size:020d}"
    path.write_bytes(path.read_bytes().replace(b"DELAY\x012", b"DELAY\x01x"))
    if state == "abort":
        (root / "abort").touch()
    else:
        # The dispatch begins behind the first message.
        shutil.rmtree(root / "consumequeue/SCHEDULE_TOPIC_XXXX")
        queue = root / "consumequeue/A/0"
        for other in sorted(queue.iterdir())[1:]:
            other.unlink()
        first = queue / f"{0:020d}"
        first.write_bytes(first.read_bytes()[:20].ljust(first.stat().st_size, b"\0"))
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"mappedFileSizeCommitLog={size}\nmaxHashSlotNum={CONFIG.max_hash_slot_num}\n"
        f"mappedFileSizeConsumeQueue={CONFIG.mapped_file_size_consume_queue}\n"
        f"maxIndexNum={CONFIG.max_index_num}\n"
    )
    here, before = ("--store", root, "--broker-conf", conf), tree(root)
    for line in (*DRY_RUNS, ("put", "--topic", "B", "--body", "x"), ("flush",)):
        dry = ("--dry-run",) if line in DRY_RUNS else ()
        done = cli(*line, *dry, *here)
        assert done.code == 5 and "DELAY" in done.err and str(place.wrote_offset) in done.err
        assert tree(root) == before
    done = cli("walk", "commitlog", "--format", "ndjson", *here)
    assert done.rows[-1]["messages"] == behind + (22 if "far" in state else 2)


@pytest.mark.parametrize("wrong", ["counts 3 less", "counts all", "ends later"])
def test_an_index_header_that_cannot_be_is_mended_before_a_put(
    cli: Cli, tmp_path: Path, wrong: str
) -> None:
    """After a clean stop, too: what is put would be indexed nowhere, or over others."""
    root, line = tmp_path / "s", ("put", "--topic", "A", "--body", "x", "--keys")
    for number in range(6):
        create = ("--create",) if not number else ()
        assert cli(*line, f"k{number}", *create, store=root).code == 0
    (path,) = (root / "index").iterdir()
    header = struct.Struct(">qqqqii")
    data = path.read_bytes()
    *fields, end, slots, count = header.unpack_from(data)
    if wrong == "ends later":
        end = 1 << 60
    else:
        count = count - 3 if "less" in wrong else 1 << 30
    path.write_bytes(header.pack(*fields, end, slots, count) + data[header.size :])
    done = cli(*line, "new", store=root)
    assert done.code == 0 and "brought in order" in done.err
    with MessageStore(root, CONFIG) as found:
        for key in (*(f"k{number}" for number in range(6)), "new"):
            assert [hit.matches for hit in found.query_message("A", key)] == [True], key
    assert_clean(root, CONFIG)
    again = cli(*line, "again", store=root)
    assert again.code == 0 and not again.err


def test_a_flush_with_nothing_to_bring_in_order_says_so(cli: Cli, store: Path) -> None:
    told = "nothing has to be brought in order"
    done = cli("flush", "--dry-run", store=store)
    assert done.code == 0 and done.out and told not in done.err
    assert cli("flush", store=store).code == 0
    done = cli("flush", "--dry-run", store=store)
    assert (done.code, done.out) == (0, "") and told in done.err
