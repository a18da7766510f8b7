"""The rows of messages as input: what is taken, what is passed over, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.fields import FIELDS

from .conftest import BROKER_CONF, CONFIG, Cli, message, state
from .test_bodies import damage

NDJSON = ("--format", "ndjson")
WALK = ("walk", "commitlog", "--body-as", "utf8", *NDJSON)
OWN = {"physical_offset", "store_timestamp", "msg_id"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Four messages, the last of which was delivered after a delay."""
    path = tmp_path / "store"
    with MessageStore(path, CONFIG, writable=True, create=True) as opened:
        for number in range(3):
            opened.put_message(message(number, body=b"body %d" % number))
        delivered = {"KEYS": "k", "DELAY": "3"}
        opened.put_message(message(3, properties=delivered, was_stored=True))
    return path


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def messages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name not in OWN}
        for row in rows
        if row["type"] == "message"
    ]


def test_rows_of_find_go_in_as_they_are(cli: Cli, store: Path, tmp_path: Path) -> None:
    rows = cli("find", "body", "--scan", "--body-as", "utf8", *NDJSON, store=store).rows
    assert {row.get("found_by") for row in rows} == {"body", None}
    new = tmp_path / "new"
    source = write(tmp_path / "rows", rows)
    done = cli("put", "--create", "--from", source, *NDJSON, store=new)
    assert (done.code, done.rows[-1]["messages"]) == (0, len(rows) - 1), done.err


def test_rows_of_walk_go_in_as_they_are(cli: Cli, store: Path, tmp_path: Path) -> None:
    """One that was delivered after a delay is not delayed again."""
    rows = cli(*WALK, store=store).rows
    source = write(tmp_path / "rows", rows)
    new = tmp_path / "new"
    done = cli("put", "--create", "--from", source, *NDJSON, store=new)
    assert (done.code, done.err, done.rows[-1]["messages"]) == (0, "", 4)
    assert messages(cli(*WALK, store=new).rows) == messages(rows)
    assert messages(rows)[-1]["properties"]["DELAY"] == "3"


def test_a_delay_level_delays_a_row(cli: Cli, store: Path, tmp_path: Path) -> None:
    (row,) = cli("message", "0", "--body-as", "utf8", *NDJSON, store=store).rows
    again = [row | {"delay_level": 2}, {**row, "type": None, "properties": {"DELAY": "4"}}]
    done = cli("put", "--from", write(tmp_path / "rows", again), *NDJSON, store=store)
    assert [(one["topic"], one["queue_id"]) for one in done.rows[:-1]] == [
        ("SCHEDULE_TOPIC_XXXX", 1),
        ("SCHEDULE_TOPIC_XXXX", 3),
    ]


def test_rows_of_other_types_are_passed_over(cli: Cli, store: Path, tmp_path: Path) -> None:
    kinds = ["summary", "blank", "damage", "moved", "index_item", "damage"]
    others = [{"type": kind, "physical_offset": 1} for kind in kinds]
    rows: list[dict[str, Any]]
    rows = [*others, {"topic": "a", "body": "x"}, {"type": "summary", "messages": 1}]
    for more in ((), ("--dry-run",), ("--batch", "3")):
        source = write(tmp_path / "rows", rows)
        done = cli("put", "--from", source, *more, *NDJSON, store=store)
        assert done.code == 0
        assert [row["status"] for row in done.rows if "status" in row] == ["PUT_OK"]
        assert "2 rows of type damage were passed over" in done.err
    source = write(tmp_path / "rows", [{"type": "finding"}, {"topic": "a", "body": ""}])
    assert cli("put", "--from", source, store=store).code == 2
    assert cli("put", "--from", source, "--ignore-unknown", store=store).code == 0


def test_a_byte_order_mark_is_taken(cli: Cli, store: Path, tmp_path: Path) -> None:
    source = tmp_path / "rows"
    source.write_bytes(b'\xef\xbb\xbf{"topic": "a", "body": "x"}\n')
    assert cli("put", "--from", source, store=store).code == 0
    source.write_bytes(b'{"topic": "a", "body": "x"}\n' + source.read_bytes())
    assert "line 2: not JSON" in cli("put", "--from", source, store=store).err
    source.write_bytes(b'\xef\xbb\xbf{"topic": "a", "body": "x", "keys": "k"}')
    assert cli("put", "--from", source, store=store).code == 0
    keys = tmp_path / "keys"
    keys.write_bytes(b"\xef\xbb\xbfk\r\n")
    assert cli("index", "query", "--topic", "a", "--keys-from", keys, store=store).code == 0
    stores = tmp_path / "stores"
    stores.write_bytes(f"\ufeff{store}\n".encode())
    row = cli("fleet", "du", "--disk", "--stores", stores, *NDJSON).rows[0]
    assert row["path"] == str(store)


def test_null_is_absent(cli: Cli, store: Path, tmp_path: Path) -> None:
    row = {"topic": "a"} | dict.fromkeys(name for name in FIELDS if name != "topic")
    done = cli("put", "--from", write(tmp_path / "rows", [row]), *NDJSON, store=store)
    assert done.code == 0, done.err
    (stored,) = cli("message", done.rows[0]["msg_id"], *NDJSON, store=store).rows
    assert (stored["queue_id"], stored["body_length"], stored["properties"]) == (0, 0, {})


def test_unknown_fields_are_errors_unless_told(cli: Cli, store: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "rows", [{"topic": "a", "body": "x", "boddy": "y"}])
    done = cli("put", "--from", source, store=store)
    assert done.code == 2 and "unknown field 'boddy'" in done.err and "--ignore-unknown" in done.err
    assert cli("put", "--from", source, "--ignore-unknown", store=store).code == 0


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--batch", "2")])
def test_a_damaged_body_is_refused_unless_told(
    more: tuple[str, ...], cli: Cli, store: Path, tmp_path: Path
) -> None:
    damage(store, 1)
    rows = cli(*WALK, store=store).rows
    new = tmp_path / "new"
    cli("put", "--create", "--topic", "first", "--body", "x", store=new)
    put = ("put", "--from", write(tmp_path / "rows", rows), *more, *NDJSON)
    done = cli(*put, store=new)
    assert done.code == 2 and "line 2: the body is not what was stored" in done.err
    assert "--ignore-body-crc" in done.err
    assert len(done.rows) == 1
    for row in rows:
        row.pop("status", None)
    write(tmp_path / "rows", rows)
    done = cli(*put, store=new)
    assert done.code == 2 and "not what was stored: its CRC-32 is " in done.err
    assert cli(*put, "--ignore-body-crc", store=new).code == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"body": "body 1"}, "its CRC-32 is "),
        ({"body": "longer than it was"}, "the body has 18 bytes, and body_length says 6"),
        ({"body": None}, "the body of 6 bytes is missing"),
        ({"body": "", "body_length": None}, "its CRC-32 is 0"),
        ({"body": None, "body_status": "damaged"}, "could not be decompressed (damaged)"),
        ({"body_status": "decompressed", "status": "body-crc-mismatch"}, "has the status"),
        ({"body_encoding": "base64"}, "body is not base64"),
    ],
)
def test_a_body_that_does_not_agree_with_its_row(
    changes: dict[str, Any], reason: str, cli: Cli, store: Path, tmp_path: Path
) -> None:
    (row,) = cli("message", "0", "--body-as", "utf8", *NDJSON, store=store).rows
    before = state(store)
    source = write(tmp_path / "rows", [row | changes])
    done = cli("put", "--dry-run", "--from", source, store=store)
    assert done.code == 2 and "line 1: " in done.err and reason in done.err
    assert state(store) == before


def test_rows_without_bodies_are_refused(cli: Cli, store: Path, tmp_path: Path) -> None:
    rows = cli("walk", "commitlog", *NDJSON, store=store).rows
    done = cli(*("put", "--ignore-body-crc", "--from", write(tmp_path / "rows", rows)), store=store)
    assert done.code == 2 and "is missing: print the rows with --body-as base64" in done.err


def test_the_crc_of_an_empty_body_may_be_any(cli: Cli, store: Path, tmp_path: Path) -> None:
    """The engine does not look at it either."""
    row = {"type": "message", "topic": "a", "body": "", "body_length": 0, "body_crc": 7}
    assert cli("put", "--from", write(tmp_path / "rows", [row]), store=store).code == 0


def test_a_checksum_of_the_old_record_is_left_out(cli: Cli, store: Path, tmp_path: Path) -> None:
    row = {"type": "message", "topic": "a", "properties": {"__CRC32#": "0123456789", "a": "b"}}
    done = cli("put", "--from", write(tmp_path / "rows", [row]), *NDJSON, store=store)
    (stored,) = cli("message", done.rows[0]["msg_id"], *NDJSON, store=store).rows
    assert stored["properties"] == {"a": "b"}


def test_options_of_streams_go_with_from(cli: Cli, store: Path) -> None:
    for option in ("--ignore-body-crc", "--ignore-unknown"):
        done = cli("put", "--topic", "a", "--body", "x", option, store=store)
        assert done.code == 2 and f"{option} goes with --from" in done.err


def put_one(store: Path, *more: str, **given: Any) -> subprocess.CompletedProcess[bytes]:
    """``put --topic t`` as a process of its own."""
    conf = store.parent / "broker.conf"
    conf.write_text(BROKER_CONF)
    line = [sys.executable, "-m", "rmqctl", "put", "--topic", "t", "--store", str(store)]
    return subprocess.run(
        [*line, "--broker-conf", str(conf), *more], capture_output=True, check=False, **given
    )


def bodies(cli: Cli, store: Path) -> list[str]:
    pulled = cli(
        "pull", "--topic", "t", "--queue-id", "0", "--body-as", "hex", *NDJSON, store=store
    )
    return [row["body"] for row in pulled.rows[:-1]]


def test_standard_input_is_the_body(cli: Cli, store: Path) -> None:
    assert put_one(store, input=b"hi\n\xff\0").returncode == 0
    assert put_one(store, stdin=subprocess.DEVNULL).returncode == 0
    assert put_one(store, "--body", "", input=b"not read").returncode == 0
    assert put_one(store, "--body-file", "-", input=b"file").returncode == 0
    assert put_one(store, "--dry-run", input=b"x" * 3000).returncode == 5
    assert bodies(cli, store) == ["68690aff00", "", "", "66696c65"]


def test_without_a_body_a_terminal_is_not_read(cli: Cli, store: Path) -> None:
    before = state(store)
    main, terminal = os.openpty()
    try:
        for more in ((), ("--dry-run",)):
            done = put_one(store, *more, stdin=terminal, timeout=60)
            assert done.returncode == 2 and b"give --body TEXT, --body-file FILE" in done.stderr
    finally:
        os.close(main)
        os.close(terminal)
    closed = put_one(store, preexec_fn=lambda: os.close(0))
    assert closed.returncode == 2 and b"give --body TEXT" in closed.stderr
    assert state(store) == before


def test_a_body_without_end_is_refused(store: Path) -> None:
    before = state(store)
    for more in ((), ("--body-file", "-")):
        with open("/dev/zero", "rb") as zeros:
            done = put_one(store, *more, stdin=zeros)
        assert done.returncode == 2 and b"is longer than 67108864 bytes" in done.stderr
    assert state(store) == before


def test_messages_are_taken_out_of_a_damaged_log(cli: Cli, store: Path, tmp_path: Path) -> None:
    """As docs/how-to/broker-will-not-start.md has it: what is damaged is told, and left out."""
    damage(store, 1)
    with (store / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.write(b"\xff")  # The first record can no longer be read.
    walked = cli(*WALK, store=store)
    assert walked.code == 1 and walked.rows[-1]["body_crc_mismatches"] == 1
    assert walked.rows[0]["type"] == "damage"
    sound = [row for row in walked.rows if row.get("status") != "body-crc-mismatch"]
    new = tmp_path / "new"
    put = ("put", "--create", "--from", write(tmp_path / "rows", sound), "--flush", "none", "-q")
    assert cli(*put, store=new).code == 0
    assert cli("verify", "-q", store=new).code == 0
    assert [row["body_crc"] for row in messages(cli(*WALK, store=new).rows)] == [
        row["body_crc"] for row in messages(sound)
    ]
