"""Finding messages: by filter, by time, by unique key; and bodies as a consumer gets them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore

from .conftest import BORN, CONFIG, NASTY, Cli, message, state

NDJSON = ("--format", "ndjson")
PULL = ("pull", "--topic", "orders", "--queue-id", "0", *NDJSON)
OFFSET = ("offset", "--topic", "orders", "--queue-id", "0", *NDJSON)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Ten messages in one queue, some stored at one time, of which two have one unique key."""
    path = tmp_path / "store"
    times = [1000, 1000, 2000, 2000, 2000, 3000, 4000, 5000, 5000, 9000]
    clock = iter([BORN + time for time in times])
    with MessageStore(
        path, CONFIG, writable=True, create=True, clock=lambda: next(clock)
    ) as opened:
        for number in range(10):
            properties = {"n": str(number), "UNIQ_KEY": f"key{number // 9 * 3 or number}"}
            more: dict[str, Any] = {}
            if number == 4:
                properties["n"] = NASTY
            if number == 5:
                more = {"body": zlib.compress(b"x" * 1000), "sys_flag": 1}
            if number == 6:
                more = {"body": zlib.compress(b"x" * 1000)[:-4], "sys_flag": 1}
            opened.put_message(message(number, queue_id=0, properties=properties, **more))
    return path


def test_pull_filters_by_sql(cli: Cli, store: Path) -> None:
    done = cli(*PULL, "--filter", "n BETWEEN 3 AND 6 AND UNIQ_KEY <> 'key5'", store=store)
    *rows, summary = done.rows
    assert [row["queue_offset"] for row in rows] == [3, 6]
    assert (done.code, summary["status"], summary["filter_errors"]) == (0, "FOUND", 1)
    assert "the filter failed on 1 message, which counts as no match" in done.err
    assert cli(*PULL, "--filter", "n IS NULL", store=store).code == 1


def test_walk_filters_by_sql(cli: Cli, store: Path) -> None:
    walk = ("walk", "commitlog", *NDJSON)
    done = cli(*walk, "--filter", "UNIQ_KEY IN ('key1', 'key7')", store=store)
    assert [row["queue_offset"] for row in done.rows[:-1]] == [1, 7]
    assert done.code == 0
    assert cli(*walk, "--filter", "n IS NULL", store=store).code == 1


def test_a_filter_compares_all_keys_at_once(cli: Cli, tmp_path: Path) -> None:
    """As a broker: ``MessageEvaluationContext#get`` gives the property as it is."""
    path = tmp_path / "keys"
    with MessageStore(path, CONFIG, writable=True, create=True) as opened:
        opened.put_message(message(1, properties={"KEYS": "a b"}))
    walk = ("walk", "commitlog", "-q")
    assert cli(*walk, "--filter", "KEYS = 'a'", store=path).code == 1
    assert cli(*walk, "--filter", "KEYS = 'a b'", store=path).code == 0
    for key in "ab":
        query = ("index", "query", "--topic", "orders", "--key", key, "-q")
        assert cli(*query, store=path).code == 0


def test_a_wrong_filter_is_a_usage_error_with_its_place(cli: Cli, store: Path) -> None:
    done = cli(*PULL, "--filter", "n > 'x'", store=store)
    assert (done.code, done.out) == (2, "")
    assert "filter, character 3" in done.err
    assert cli(*PULL, "--filter", "n > 5", "--tag", "a", store=store).code == 2


@pytest.mark.parametrize(
    ("time", "boundary", "offset"),
    [
        (2000, "first", 2),
        (2000, "last", 4),
        (2000, "floor", 4),
        (2000, "ceil", 2),
        (2500, "first", None),
        (2500, "floor", 4),
        (2500, "ceil", 5),
        (2500, "nearest", 4),
        (2501, "nearest", 5),
        (999, "floor", None),
        (9001, "ceil", None),
    ],
)
@pytest.mark.parametrize("scan", [False, True])
def test_offset_by_time(
    time: int, boundary: str, offset: int | None, scan: bool, cli: Cli, store: Path
) -> None:
    line = (*OFFSET, "--time", str(BORN + time), "--boundary", boundary)
    done = cli(*line, *(["--scan"] if scan else []), store=store)
    (row,) = done.rows
    assert (done.code, row["queue_offset"]) == (int(offset is None), offset)
    assert (row["min_offset"], row["max_offset"]) == (0, 10)
    assert row["boundary"] == boundary
    assert (row["physical_offset"] is None) is (offset is None)


def test_offset_of_a_queue_that_is_not_there(cli: Cli, store: Path) -> None:
    done = cli("offset", "--topic", "x", "--queue-id", "0", "--time", "0", *NDJSON, store=store)
    assert (done.code, done.rows[0]["queue_offset"], done.rows[0]["max_offset"]) == (1, None, 0)


@pytest.mark.parametrize("topic", [(), ("--topic", "orders")])
def test_messages_of_a_unique_key(topic: tuple[str, ...], cli: Cli, store: Path) -> None:
    before = state(store)
    done = cli("message", "--unique-key", "key3", *topic, *NDJSON, store=store)
    assert [row["queue_offset"] for row in done.rows[:-1]] == [9, 3]
    assert (done.code, done.rows[-1]["messages"]) == (0, 2)
    assert state(store) == before


@pytest.mark.parametrize(
    "line",
    [
        ("offset", "--topic", "orders", "--queue-id", "0", "--time", "1795165806"),
        ("walk", "commitlog", "--since", "1795165806"),
        ("index", "query", "--topic", "orders", "--key", "k", "--until", "9999999999"),
    ],
    ids=lambda line: line[0],
)
def test_seconds_are_not_taken_for_milliseconds(
    line: tuple[str, ...], cli: Cli, store: Path
) -> None:
    done = cli(*line, store=store)
    assert done.code == 2
    assert f"{line[-1]} is in seconds" in done.err and f"give {line[-1]}000 for 2" in done.err


def test_what_is_said_instead_of_seconds_is_taken(cli: Cli, store: Path) -> None:
    """Both times that a number of ten digits may mean can be given."""
    err = cli(*OFFSET, "--time", "1795165806", store=store).err
    assert "give 1795165806000 for 2026-11-20T09:10:06.000Z" in err
    assert "or 1970-01-21T18:39:25.806Z if you mean that" in err
    for text, number in (
        ("1795165806000", 1795165806000),
        ("2026-11-20T09:10:06.000Z", 1795165806000),
        ("1970-01-21T18:39:25.806Z", 1795165806),
        ("999999999", 999999999),
        ("10000000000", 10000000000),
    ):
        assert cli(*OFFSET, "--time", text, store=store).rows[0]["timestamp"] == number


def test_an_unknown_unique_key_exits_1(cli: Cli, store: Path) -> None:
    done = cli("message", "--unique-key", "key33", *NDJSON, store=store)
    assert (done.code, done.rows) == (1, [{"type": "summary", "topics": 1, "messages": 0}])
    assert cli("message", "--unique-key", "key3", "--topic", "x", store=store).code == 1
    assert cli("message", "0", "--unique-key", "key3", store=store).code == 2
    assert cli("message", "0", "--topic", "x", store=store).code == 2
    assert cli("message", store=store).code == 2


def test_keys_are_no_unique_keys(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with MessageStore(path, CONFIG, writable=True, create=True) as opened:
        opened.put_message(message(1, properties={"KEYS": "key"}))
    assert cli("message", "--unique-key", "key", store=path).code == 1


def test_decompressed_bodies(cli: Cli, store: Path) -> None:
    line = (*PULL, "--offset", "4", "--max-messages", "3", "--body-as", "utf8", "--decompress")
    plain, packed, damaged, _ = cli(*line, store=store).rows
    assert (plain["body"], plain["body_status"], plain["body_compression"]) == (
        "body 4",
        "stored",
        "none",
    )
    assert (packed["body"], packed["body_status"]) == ("x" * 1000, "decompressed")
    assert packed["body_length"] < 100
    assert (damaged["body"], damaged["body_status"]) == (None, "damaged")
    assert damaged["body_reason"] == "the compressed bytes end too early"
    _, packed, *_ = cli(*line, "--decompress-limit", "999", store=store).rows
    assert (packed["body"], packed["body_status"]) == (None, "over-limit")


@pytest.mark.parametrize(
    "command",
    [
        ("message", "--unique-key", "key5"),
        ("walk", "commitlog", "--filter", "n = 5"),
        ("pull", "--topic", "orders", "--queue-id", "0", "--offset", "5", "--max-messages", "1"),
        ("index", "query", "--topic", "orders", "--key", "key5"),
    ],
    ids=lambda command: command[0],
)
def test_every_command_that_shows_bodies_decompresses_them(
    command: tuple[str, ...], cli: Cli, store: Path
) -> None:
    row, _ = cli(*command, "--body-as", "utf8", "--decompress", *NDJSON, store=store).rows
    assert row["body"] == "x" * 1000
    assert cli(*command, "--decompress", store=store).code == 2


def test_following_options_need_follow(cli: Cli, store: Path) -> None:
    assert cli(*PULL, "--from-end", store=store).code == 2
    assert cli("walk", "commitlog", "--from-end", store=store).code == 2
    assert cli(*PULL, "--follow", "--from-end", "--offset", "1", store=store).code == 2
    assert cli("walk", "commitlog", "--follow", "--interval", "0", store=store).code == 2


def test_the_brokers_memory_can_be_told(cli: Cli, store: Path) -> None:
    *rows, summary = cli(*PULL, "--physical-memory", "0", store=store).rows
    assert len(rows) == 8
    assert summary["suggest_pulling_from_slave"] is True
    assert summary["next_begin_offset"] == 8


def test_offset_tells_time_and_place_of_the_message(cli: Cli, store: Path) -> None:
    with MessageStore(store, CONFIG) as opened:
        queue = opened.consume_queue("orders", 0)
        assert queue is not None
        places = [unit.physical_offset for _, unit in queue.units(0, 10)]
    for time, boundary, at, stored in ((2500, "ceil", 5, 3000), (2500, "floor", 4, 2000)):
        line = (*OFFSET, "--time", str(BORN + time), "--boundary", boundary)
        (row,) = cli(*line, store=store).rows
        assert (row["timestamp"], row["store_timestamp"]) == (BORN + time, BORN + stored)
        assert row["physical_offset"] == places[at]


def test_offset_begins_at_the_first_message_that_is_left(cli: Cli, store: Path) -> None:
    with MessageStore(store, CONFIG, writable=True, clock=lambda: BORN + 10_000) as opened:
        opened.put_messages([message(number, queue_id=0) for number in range(20)])
    files = sorted((store / "commitlog").iterdir())
    files[0].unlink()
    (row,) = cli(*OFFSET, "--time", "0", "--boundary", "ceil", store=store).rows
    assert 0 < row["min_offset"] == row["queue_offset"] < row["max_offset"] == 30
    assert cli(*OFFSET, "--time", "0", "--boundary", "floor", store=store).code == 1


def test_offset_by_scan_is_right_where_the_clock_was_set_back(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "back"
    clock = iter([BORN + time for time in (10, 20, 5, 6, 7, 8, 9, 30)])
    with MessageStore(
        path, CONFIG, writable=True, create=True, clock=lambda: next(clock)
    ) as opened:
        for number in range(8):
            opened.put_message(message(number, queue_id=0))
    line = (*OFFSET, "--time", str(BORN + 10), "--boundary", "first")
    assert cli(*line, "--scan", store=path).rows[0]["queue_offset"] == 0
    # A bisection does not look there: it answers what holds for times that rise.
    assert cli(*line, store=path).rows[0]["queue_offset"] is None


def test_many_keys(cli: Cli, store: Path, tmp_path: Path) -> None:
    query = ("index", "query", "--topic", "orders")
    file = tmp_path / "keys"
    file.write_bytes(b"key7\r\n\nnobody\nkey3")
    done = cli(*query, "--keys-from", file, *NDJSON, store=store)
    assert done.code == 1
    *rows, summary = done.rows
    assert [row["queue_offset"] for row in rows if row["type"] == "message"] == [7, 3, 9]
    assert rows[1] == {
        "type": "absent_key",
        "topic": "orders",
        "key": "nobody",
        "collisions": 0,
        "missing": 0,
    }
    assert summary["keys"] == 3 and summary["absent_keys"] == 1 and summary["messages"] == 3
    where = ("--store", str(store), "--broker-conf", str(store.parent / "broker.conf"))
    line = [sys.executable, "-m", "rmqctl", *query, "--keys-from", "-", *NDJSON, *where]
    piped = subprocess.run(line, input=b"key1\nkey2\n", capture_output=True)
    said = [json.loads(line) for line in piped.stdout.splitlines()]
    assert [row.get("queue_offset") for row in said] == [1, 2, None]
    assert (piped.returncode, piped.stderr) == (0, b"")
    done = cli(*query, "--keys-from", file, "--format", "csv", store=store)
    assert len(done.out.splitlines()) == 4 and "absent_key left out" in done.err
    file.write_bytes(b"")
    done = cli(*query, "--keys-from", file, *NDJSON, store=store)
    assert done.code == 0 and [row["keys"] for row in done.rows] == [0]


def test_many_keys_of_a_store_without_an_index(cli: Cli, store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "index")
    file = tmp_path / "keys"
    file.write_bytes(b"key1\n")
    done = cli("index", "query", "--topic", "orders", "--keys-from", file, store=store)
    assert done.code == 1 and "rmqctl rebuild index" in done.err


def test_keys_come_from_one_place(cli: Cli, store: Path, tmp_path: Path) -> None:
    query = ("index", "query", "--topic", "orders")
    for more in ((), ("--key", "a", "--keys-from", "-")):
        done = cli(*query, *more, store=store)
        assert done.code == 2 and "one of --key and --keys-from" in done.err
    done = cli(*query, "--keys-from", "-", "--raw", store=store)
    assert done.code == 2 and "--key" in done.err
    done = cli(*query, "--keys-from", tmp_path / "none", store=store)
    assert done.code == 2 and "Give a file of keys" in done.err


@pytest.mark.parametrize("digits", [32, 56])
def test_a_unique_key_given_as_a_message_id_is_told_how_it_is_found(
    cli: Cli, tmp_path: Path, digits: int
) -> None:
    """Clients and consoles call it a message id, and it has as many digits as one."""
    key = "7F0000016E175FFD2B2763BFF8960003".rjust(digits, "0")
    with MessageStore(tmp_path / "s", CONFIG, writable=True, create=True) as writer:
        writer.put_message(message(1, properties={"UNIQ_KEY": key}))
    done = cli("message", key, store=tmp_path / "s")
    assert done.code == 5 and key in done.err
    (line,) = re.findall(r"`rmqctl (message --unique-key [^`]*)`", done.err)
    found = cli(*shlex.split(line), *NDJSON)
    assert (found.code, found.rows[0]["physical_offset"]) == (0, 0)
