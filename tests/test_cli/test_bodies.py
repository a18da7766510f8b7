"""Bodies that are shown: how they are spelled, and whether they are what was stored."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record

from .conftest import CONFIG, Cli, message, state

NDJSON = ("--format", "ndjson")
COMMANDS: dict[str, tuple[str, ...]] = {
    "walk": ("walk", "commitlog"),
    "walk --follow": ("walk", "commitlog", "--follow", "--limit", "4"),
    "pull": ("pull", "--topic", "orders", "--queue-id", "0"),
    "pull --follow": (
        *("pull", "--topic", "orders", "--queue-id", "0"),
        *("--follow", "--max-messages", "4"),
    ),
    "index query": ("index", "query", "--topic", "orders", "--key", "all"),
    "find": ("find", "all", "--scan"),
    "message --unique-key": ("message", "--unique-key", "u"),
}
BODIES = (b"plain", "h\u00e9llo \0 \U0001f4e6".encode(), b"\xff\x00not UTF-8", b"")
NUMBERS = range(len(BODIES))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Four messages of one queue, with bodies of all kinds."""
    path = tmp_path / "store"
    with MessageStore(path, CONFIG, writable=True, create=True) as opened:
        for number, body in enumerate(BODIES):
            properties = {"KEYS": "all", "UNIQ_KEY": "u"}
            opened.put_message(message(number, queue_id=0, body=body, properties=properties))
    return path


def damage(store: Path, number: int) -> int:
    """Changes the first byte of a body; the physical offset of its record."""
    with MessageStore(store, CONFIG) as opened:
        entries = [entry for entry in opened.commit_log.walk() if isinstance(entry, Record)]
    position = entries[number].body_position
    file = store / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[position] ^= 0x20
    file.write_bytes(data)
    return entries[number].physical_offset


def messages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [row for row in rows if row["type"] == "message"]
    return sorted(found, key=lambda row: int(row["physical_offset"]))


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_body_says_how_it_is_spelled(command: tuple[str, ...], cli: Cli, store: Path) -> None:
    done = cli(*command, "--body-as", "utf8", *NDJSON, store=store)
    rows = messages(done.rows)
    assert done.code == 0 and done.err == ""
    assert [row["body_encoding"] for row in rows] == ["utf8", "utf8", "base64", "utf8"]
    assert [row["body"].encode() for row in rows if row["body_encoding"] == "utf8"] == [
        BODIES[0],
        BODIES[1],
        BODIES[3],
    ]
    assert b64decode(rows[2]["body"]) == BODIES[2]
    assert {row["status"] for row in rows} == {"ok"}
    assert "body_crc_mismatches" not in done.rows[-1]
    for spelling in ("hex", "base64"):
        rows = messages(cli(*command, "--body-as", spelling, *NDJSON, store=store).rows)
        assert {row["body_encoding"] for row in rows} == {spelling}


@pytest.mark.parametrize("decompress", [(), ("--decompress",)], ids=["", "decompress"])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_body_that_is_not_what_was_stored_is_told(
    command: tuple[str, ...], decompress: tuple[str, ...], cli: Cli, store: Path
) -> None:
    damage(store, 1)
    before = state(store)
    done = cli(*command, *decompress, "--body-as", "base64", *NDJSON, store=store)
    mismatch = "body-crc-mismatch"
    assert done.code == 1
    assert [row["status"] for row in messages(done.rows)] == ["ok", mismatch, "ok", "ok"]
    assert done.rows[-1]["body_crc_mismatches"] == 1
    assert "one body is not what was stored (status body-crc-mismatch)" in done.err
    assert cli(*command, *decompress, "--body-as", "hex", "--quiet", store=store)[::2] == (1, "")
    assert "body-crc-mismatch" in cli(*command, "--body-as", "utf8", store=store).out, "the table"
    plain = cli(*command, *NDJSON, store=store)
    assert plain.code == 0 and "status" not in messages(plain.rows)[1], "it was not looked at"
    assert state(store) == before


def test_one_message_whose_body_has_changed(cli: Cli, store: Path) -> None:
    offset = damage(store, 2)
    done = cli("message", str(offset), "--body-as", "utf8", *NDJSON, store=store)
    assert (done.code, done.rows[0]["status"]) == (1, "body-crc-mismatch")
    assert done.rows[0]["body_encoding"] == "base64"
    assert "one body is not what was stored" in done.err
    assert cli("message", str(offset), store=store).code == 0


def test_the_crc_of_an_empty_body_is_not_looked_at(cli: Cli, store: Path) -> None:
    """As in ``CommitLog#checkMessageAndReturnSize``."""
    with MessageStore(store, CONFIG) as opened:
        (record,) = [e for e in opened.commit_log.walk() if isinstance(e, Record)][3:]
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(record.physical_offset + 8)
        file.write(b"\0\0\0\7")
    done = cli("message", str(record.physical_offset), "--body-as", "hex", *NDJSON, store=store)
    assert (done.code, done.rows[0]["body_crc"], done.rows[0]["status"]) == (0, 7, "ok")


def test_bodies_that_nobody_decompresses_have_no_spelling(cli: Cli, store: Path) -> None:
    with MessageStore(store, CONFIG, writable=True) as opened:
        wrong = message(9, queue_id=0, body=b"not zlib", sys_flag=1)
        (put,) = opened.put_messages([wrong])
    assert put.append is not None
    line = ("message", str(put.append.wrote_offset), "--body-as", "utf8", "--decompress", *NDJSON)
    (row,) = cli(*line, store=store).rows
    assert (row["body"], row["body_encoding"], row["status"]) == (None, None, "ok")
    assert row["body_status"] == "damaged"
