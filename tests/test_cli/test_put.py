"""put and flush: rows, statuses, streams, and what bad input leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from formats.text import encode_properties
from rmqctl.cli.lines import LineSource
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.fields import FIELDS
from rmqctl.engine.record.message import parse_host
from rmqctl.engine.record.record import Record
from rmqctl.engine.write.bulk import PlainMessage
from rmqctl.engine.write.storeflusher import StoreFlusher
from rmqctl.errors import BadInputLine, CannotRead, CannotWrite
from rmqctl.operations.change.messagemaker import MessageMaker
from rmqctl.operations.change.putstream import BulkPut, put_lines
from tests.test_cli.conftest import BORN, BROKER_CONF, CONFIG, Cli, state

PUT = ("put", "--topic", "orders", "--format", "ndjson")
RESULT_FIELDS = [
    *("type", "status", "msg_id", "topic", "queue_id"),
    *("wrote_offset", "wrote_bytes", "queue_offset", "store_timestamp"),
]


def ndjson(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize("option", ["--topic", "--tag", "--key", "--property", "--body"])
def test_a_text_that_is_no_utf_8_is_refused(cli: Cli, tmp_path: Path, option: str) -> None:
    """An argument may hold any bytes. Of them a record would have question marks, and the directory
    of a topic would have another name than its records."""
    text = os.fsdecode(b"a=\xff")
    given = (*PUT, "--create", "--body", "x", option, text)
    for more in ((), ("--dry-run",)):
        done = cli(*given, *more, store=tmp_path / "new")
        assert done.code == 2 and "'a=\\udcff' is not UTF-8" in done.err
    assert not (tmp_path / "new").exists()


def test_put_one_then_read_it(cli: Cli, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert cli(*PUT, "--body", "x", store=new).code == 3
    done = cli(
        *(*PUT, "--create", "--queue-id", "2", "--tags", "paid", "--keys", "a b"),
        *("--property", "region=eu=west", "--body", "héllo", "--flag", "-7"),
        *("--born-host", "[::1]:9", "--born-timestamp", "123"),
        store=new,
    )
    assert done.code == 0
    result = done.rows[0]
    assert list(result) == RESULT_FIELDS
    assert (result["status"], result["wrote_offset"], result["queue_offset"]) == ("PUT_OK", 0, 0)
    line = ("message", result["msg_id"], "--body-as", "utf8", "--format", "ndjson")
    row = cli(*line, store=new).rows[0]
    assert row["body"] == "héllo"
    assert row["properties"] == {"TAGS": "paid", "KEYS": "a b", "region": "eu=west"}
    assert (row["flag"], row["born_host"], row["store_host"], row["born_timestamp"]) == (
        -7,
        "[::1]:9",
        "127.0.0.1:10911",
        123,
    )
    assert not (new / "abort").exists()


def test_put_delay_and_transaction(cli: Cli, store: Path) -> None:
    delayed = cli(*PUT, "--delay-level", "3", "--body", "x", store=store).rows[0]
    assert (delayed["topic"], delayed["queue_id"]) == ("SCHEDULE_TOPIC_XXXX", 2)
    prepared = cli(*PUT, "--transaction", "prepared", "--body", "x", store=store).rows[0]
    row = cli("message", prepared["wrote_offset"], "--format", "ndjson", store=store).rows[0]
    assert row["sys_flag"] == 4 and row["queue_offset"] == 0
    committed = cli(
        *(*PUT, "--transaction", "commit", "--body", "x"),
        *("--prepared-offset", prepared["wrote_offset"]),
        store=store,
    ).rows[0]
    row = cli("message", committed["wrote_offset"], "--format", "ndjson", store=store).rows[0]
    assert row["prepared_transaction_offset"] == prepared["wrote_offset"]


def test_put_body_file(cli: Cli, store: Path, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(bytes(range(256)))
    result = cli(*PUT, "--body-file", body, store=store).rows[0]
    row = cli(
        *("message", result["msg_id"], "--body-as", "hex", "--format", "ndjson"), store=store
    ).rows[0]
    assert bytes.fromhex(row["body"]) == bytes(range(256))


@pytest.mark.parametrize(
    "options",
    [
        ("--topic", "../../x"),
        ("--topic", ""),
        ("--topic", "t", "--property", "novalue"),
        ("--topic", "t", "--property", "a\x01b=c"),
        ("--topic", "t", "--property", "a=b\x02"),
        ("--topic", "t", "--tags", "a\x02b"),
        ("--topic", "t", "--tags", "a", "--property", "TAGS=b"),
        ("--topic", "t", "--queue-id", "-1"),
        ("--topic", "t", "--queue-id", "1e3"),
        ("--topic", "t", "--born-host", "nowhere:1"),
        ("--topic", "t", "--body", "x", "--body-file", "/dev/null"),
        ("--body", "no topic"),
    ],
)
def test_put_refuses_before_it_changes_anything(
    options: tuple[str, ...], cli: Cli, store: Path
) -> None:
    before = state(store)
    done = cli("put", *options, store=store)
    assert done.code == 2 and "error: " in done.err and done.out == ""
    assert state(store) == before
    assert sorted(p.name for p in store.parent.iterdir()) == ["broker.conf", "store"]


def test_a_status_other_than_put_ok_is_a_row_and_exit_5(cli: Cli, store: Path) -> None:
    done = cli(*PUT, "--body", "x" * 3000, store=store)
    assert done.code == 5 and "MESSAGE_ILLEGAL" in done.err
    assert done.rows[0]["status"] == "MESSAGE_ILLEGAL" and done.rows[0]["wrote_offset"] is None
    assert cli("put", "--topic", "t" * 128, store=store).code == 5


def test_a_refused_put_shows_no_empty_fields(cli: Cli, store: Path) -> None:
    """A table; a row has all fields (null)."""
    one = ("put", "--topic", "orders", "--queue-id", "3", "--body", "x" * 3000)
    done = cli(*one, store=store)
    assert done.code == 5
    assert done.err.endswith(". Mend the message, then try again.\n"), "nothing was put before it"
    (row,) = cli(*one, "--dry-run", "--format", "ndjson", store=store).rows
    assert (row["topic"], row["queue_id"], row["wrote_offset"]) == ("orders", 3, None)
    shown = [line.split(maxsplit=1) for line in done.out.splitlines()]
    assert [name for name, _ in shown] == ["status", "topic", "queue_id", "reason"]
    assert [value for _, value in shown[:3]] == ["MESSAGE_ILLEGAL", "orders", "3"]


def test_put_from_stores_every_field(cli: Cli, store: Path, tmp_path: Path) -> None:
    source = ndjson(
        tmp_path / "in",
        {"topic": "a", "body": "plain", "tags": "t", "keys": "k1 k2"},
        {"topic": "a", "keys": ["k3", "k4"], "body_base64": "AAH/", "queue_id": 1},
        {
            "topic": "a",
            "properties": {"p": "ü"},
            "flag": -1,
            "sys_flag": 1,
            "born_timestamp": BORN,
            "born_host": "1.2.3.4:5",
            "store_host": "[fe80::1]:7",
            "reconsume_times": 2,
            "prepared_transaction_offset": 0,
            "transaction": "none",
            "delay_level": 0,
        },
        {"body": "default topic"},
    )
    done = cli(*PUT, "--from", source, store=store)
    assert done.code == 0
    *results, summary = done.rows
    assert [list(row) for row in results] == [RESULT_FIELDS] * 4
    assert summary == {"type": "summary", "messages": 4}
    assert [row["topic"] for row in results] == ["a", "a", "a", "orders"]
    found = cli(
        "index", "query", "--topic", "a", "--key", "k4", "--body-as", "hex", "--json", store=store
    )
    assert json.loads(found.out)[0]["body"] == "0001ff"
    row = cli("message", results[2]["msg_id"], "--format", "ndjson", store=store).rows[0]
    assert (row["born_host"], row["store_host"], row["sys_flag"], row["flag"]) == (
        "1.2.3.4:5",
        "[fe80::1]:7",
        33,
        -1,
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"topic": "a", "boddy": ""}', "unknown field 'boddy'"),
        ("[" * 1024 + "]" * 1024, "not a JSON object but an array"),
        ('{"topic": 7}', "topic must be a string, not 7"),
        ('{"topic": []}', "topic must be a string, not an array"),
        ('{"topic": {}}', "topic must be a string, not an object"),
        (f'{{"topic": {"[" * 1000}{"]" * 1000}}}', "topic must be a string, not an array"),
        (f'{{"{"x" * 70000}": 1}}', f"unknown field '{'x' * 56}... (known: "),
        (f'{{"topic": "a", "transaction": "{"x" * 70000}"}}', "x... is none of"),
        ('{"body": "x"}', "topic is missing"),
        ('{"topic": "../../x"}', "path separator"),
        ('{"topic": "a", "queue_id": 18446744073709551616}', "whole number of 64 bits"),
        ('{"topic": "a", "queue_id": true}', "whole number of 64 bits"),
        ('{"topic": "a", "queue_id": -1}', "not within 0 to"),
        ('{"topic": "a", "flag": 2147483648}', "not within"),
        ('{"topic": "a", "body": "", "body_base64": ""}', "exclude each other"),
        ('{"topic": "a", "body_base64": "A"}', "body_base64 is not base64"),
        ('{"topic": "a", "body": 7}', "body must be a string, not 7"),
        ('{"topic": "a", "keys": 7}', "keys must be a string, not 7"),
        ('{"topic": null}', "topic is missing"),
        ('{"topic": "a", "boddy": null}', "unknown field 'boddy'"),
        ('{"topic": "a", "body": "A", "body_encoding": "base64"}', "body is not base64"),
        ('{"topic": "a", "body": "fffg", "body_encoding": "hex"}', "body is not hex"),
        ('{"topic": "a", "body": "a", "body_encoding": "utf16"}', "none of utf8, base64, hex"),
        ('{"topic": "a", "status": "damage"}', "status 'damage' is none of ok, unchecked, "),
        ('{"topic": "a", "type": "finding"}', "a row of type 'finding' is no message"),
        ('{"topic": "a", "type": []}', "type must be a string, not an array"),
        ("[", "--format ndjson prints a row a line"),
        ('{"topic": "a", "properties": {"a": 1}}', "must be a string"),
        ('{"topic": "a", "properties": {"": "x"}}', "empty name"),
        ('{"topic": "a", "tags": "a\\u0001b"}', "separate properties"),
        ('{"topic": "a", "tags": "a\\u0000b"}', "0x00 counts as damage"),
        ('{"topic": "a", "keys": "\\u0000"}', "0x00 counts as damage"),
        ('{"topic": "a", "properties": {"b\\u0000": "c"}}', "0x00 counts as damage"),
        ('{"topic": "a", "tags": "a", "properties": {"TAGS": "b"}}', "exclude each other"),
        ('{"topic": "a", "born_host": "x"}', "not ADDRESS:PORT"),
        ('{"topic": "a", "born_host": "10.0.0.1:65536"}', "a port of at most 65535"),
        ('{"topic": "a", "store_host": "[::1]:70000"}', "a port of at most 65535"),
        (f'{{"topic": "a", "store_host": "1.2.3.4:{"9" * 5000}"}}', "a port of at most 65535"),
        ('{"topic": "a", "sys_flag": 1, "body": "plain"}', "incorrect header check"),
        ('{"topic": "a", "sys_flag": 1025, "body": "plain"}', "no such compression"),
        ('{"topic": "a", "transaction": "maybe"}', "none of"),
    ],
    ids=lambda text: text[:60],
)
def test_a_bad_line_names_its_number_and_loses_nothing(
    line: str, reason: str, cli: Cli, store: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    good = '{"topic": "a", "body": "x", "keys": "k"}\n'
    source.write_text(good + "\n" + good + line + "\n" + good)
    done = cli("put", "--from", source, "--format", "ndjson", store=store)
    assert done.code == 2
    assert f"{source}, line 4: " in done.err and reason in done.err
    assert "The messages before it are stored (2)" in done.err
    (tmp_path / "first").write_text(line + "\n" + good)
    first = cli("put", "--from", tmp_path / "first", store=store)
    assert first.code == 2 and "line 1: " in first.err
    assert "Nothing was stored: correct the line and try again." in first.err
    assert [row["type"] for row in done.rows] == ["append_result"] * 2
    pulled = cli(
        "pull",
        "--topic",
        "a",
        "--queue-id",
        "0",
        "--offset",
        "0",
        "--format",
        "ndjson",
        store=store,
    )
    assert pulled.rows[-1]["messages"] == 2


WRONG_TYPES: list[object] = [True, 1.5, [], {}, [1], {"a": "b"}, [[]], {"a": []}, [None]]


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_a_wrong_type_is_named(name: str, store: Path) -> None:
    """Whatever other fields there are, and whatever came before on the quick way."""
    right: dict[str, tuple[object, ...]] = {"keys": ([],), "properties": ({}, {"a": "b"})}
    ends = ("id", "flag", "level", "times", "timestamp", "crc", "length")
    numbers = {n for n in FIELDS if n.endswith(ends)}
    wrong = [value for value in WRONG_TYPES if value not in right.get(name, ())]
    wrong.append("1" if name in numbers | {"prepared_transaction_offset", "properties"} else 1)
    for value in wrong:
        for given in ({"topic": "a"}, {}):
            lines = [b'{"topic": "a"}', json.dumps({**given, name: value}).encode()]
            run = BulkPut("input")
            with (
                MessageStore(store, CONFIG, writable=True) as opened,
                pytest.raises(BadInputLine, match=f"input, line 2: {name}|property") as told,
            ):
                list(put_lines(opened, iter(lines), run))
            assert told.value.stored == 1


def no_buffer(*_: object) -> None:
    raise orjson.JSONDecodeError("Not enough memory to allocate buffer for parsing", "", 0)


def no_memory(*_: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("batch", [(), ("--batch", "2")])
@pytest.mark.parametrize("where", ["parser", "message", "input"])
def test_a_line_for_which_there_is_no_memory_is_not_said_to_be_wrong(
    cli: Cli,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    batch: tuple[str, ...],
) -> None:
    """What was put before it is stored, and the error says where to go on."""
    taken: list[object] = []

    def until_third(call: Any, refuse: Any) -> Any:
        def called(*given: Any) -> Any:
            taken.append(None)
            return refuse() if len(taken) > 2 else call(*given)

        return called

    rows = [{"topic": "a", "body": str(number)} for number in range(5)]
    source = ndjson(tmp_path / "in", *rows)
    monkeypatch.setenv("RMQCTL_KERNEL", "pure")
    if where == "parser":
        monkeypatch.setattr(orjson, "loads", until_third(orjson.loads, no_buffer))
    elif where == "message":
        monkeypatch.setattr(MessageMaker, "make", until_third(MessageMaker.make, no_memory))
    else:
        pieces = iter(source.read_bytes().splitlines(keepends=True))
        read = until_third(lambda source: next(pieces, b""), no_memory)
        monkeypatch.setattr(LineSource, "_read", read)
    done = cli("put", "--from", source, *batch, "--format", "ndjson", store=store)
    assert done.code == 5 and len(done.err.splitlines()) == 1
    assert f"{source}, line 3: there is not enough memory for it. The messages before" in done.err
    assert "are stored (2)" in done.err and done.err.rstrip().endswith("`tail -n +3`.")
    assert sum(row.get("messages", 1) for row in done.rows) == 2
    with MessageStore(store, CONFIG) as opened:
        queue = opened.consume_queue("a", 0)
        assert queue is not None and queue.max_offset == 2


@pytest.mark.parametrize("kind", [CannotRead, CannotWrite])
def test_a_close_that_fails_behind_a_bad_line_hides_neither(
    cli: Cli,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[CannotRead | CannotWrite],
) -> None:
    """The advice of the close alone would have the input put again from its first line."""

    def refuse(*_: object, **__: object) -> None:
        raise kind(path="file", reason="Input/output error")

    source = tmp_path / "in"
    source.write_text('{"topic": "a"}\n{"topic": 1}\n')
    monkeypatch.setattr(StoreFlusher, "flush", refuse)
    done = cli("put", "--from", source, "--format", "ndjson", store=store)
    first, second = done.err.splitlines()
    assert done.code == 5 and "line 2: topic" in first and "`tail -n +2`" in first
    assert "what was put is stored" in second and "Do not put it again" in second


@pytest.mark.parametrize("reason", ["Cannot allocate memory", "Input/output error"])
def test_what_helps_follows_from_the_systems_words(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def refuse(*_: object) -> None:
        raise CannotRead(path="file", reason=reason)

    monkeypatch.setattr(CommitLogWriter, "file_for", refuse)
    done = cli("put", "--topic", "a", "--body", "x", store=store)
    told = {"Cannot allocate memory": "`ulimit -v`", "Input/output error": "ddrescue"}
    assert done.code == 5 and told[reason] in done.err and "free space" not in done.err


def test_a_refused_message_ends_a_stream(cli: Cli, store: Path, tmp_path: Path) -> None:
    rows = [{"topic": "a", "body": "x"}, {"topic": "a", "body": "x" * 3000}, {"topic": "a"}]
    done = cli("put", "--from", ndjson(tmp_path / "in", *rows), "--format", "ndjson", store=store)
    assert done.code == 5 and "line 2: MESSAGE_ILLEGAL" in done.err
    assert str(store) in done.err and "Mend the message" in done.err
    assert [row["status"] for row in done.rows] == ["PUT_OK", "MESSAGE_ILLEGAL"]


def test_a_file_in_the_place_of_a_queue_is_named_with_one_next_step(
    cli: Cli, store: Path, tmp_path: Path
) -> None:
    (store / "consumequeue" / "new").mkdir(parents=True)
    (store / "consumequeue" / "new" / "0").touch()
    wrong = f"cannot write into {store}/consumequeue/new/0: it is no directory."
    told = f"CREATE_MAPEDFILE_FAILED: {wrong} See what it is (`ls -ld`)."
    done = cli("put", "--topic", "new", "--queue-id", "0", "--body", "x", store=store)
    assert (done.code, done.err) == (5, f"error: {store}: {told}\n")
    lines = ndjson(tmp_path / "in", *({"topic": name, "body": "x"} for name in ("a", "new", "b")))
    done = cli("put", "--from", str(lines), "--format", "ndjson", store=store)
    stored = "What was put before it is stored: go on from line 2."
    assert (done.code, done.err) == (5, f"error: {store}: line 2: {told} {stored}\n")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["topic"], row["queue_id"]) for row in rows] == [("a", 0), ("new", 0)]


def test_plain_lines_and_full_messages_store_the_same_bytes(tmp_path: Path) -> None:
    """What the hurried path writes is what a single put writes."""
    lines = [
        {"topic": f"t{n % 3}", "queue_id": n % 2, "body": "x" * (n % 50)}
        | ({"tags": f"tag{n % 5}"} if n % 4 else {})
        | ({"keys": f"k{n} é"} if n % 3 else {})
        for n in range(400)
    ]
    stores = []
    for name in ("stream", "single"):
        clock = iter(range(BORN, BORN + 10**6))
        maker = MessageMaker(clock=lambda: BORN)
        with MessageStore(
            tmp_path / name, CONFIG, writable=True, create=True, clock=partial(next, clock)
        ) as store:
            if name == "stream":
                assert type(maker.make(lines[0])) is not PlainMessage  # its topic is new
                assert type(maker.make(lines[0])) is PlainMessage
                data = (json.dumps(line).encode() for line in lines)
                for rows in put_lines(store, data, BulkPut("test"), maker=maker):
                    list(rows)
            else:
                for line in lines:
                    store.put_message(maker.make_full(line))
        stores.append(
            {
                path: data
                for path, (data, _) in state(tmp_path / name).items()
                if not path.startswith("index/")
            }
        )
        indexes = [data for path, (data, _) in state(tmp_path / name).items() if "index/" in path]
        stores[-1]["index"] = b"".join(indexes)
    assert stores[0] == stores[1]


def test_the_hurried_properties_are_in_javas_order() -> None:
    maker = MessageMaker()
    for given in ({"keys": "k", "tags": "t"}, {"keys": "k"}, {"tags": "t"}, {}):
        maker.make({"topic": "a"})
        made = maker.make({"topic": "a"} | given)
        assert isinstance(made, PlainMessage)
        names = {name.upper(): value for name, value in given.items()}
        assert made.properties_bytes == encode_properties(names)
    assert parse_host("127.0.0.1:10911") == made.store_host


def test_a_pause_in_the_input_is_answered(store: Path) -> None:
    """The writer of a pipe that waits for its answer gets it."""
    line = b'{"topic": "a", "body": "x"}\n'
    command = [sys.executable, "-m", "rmqctl", "put", "--from", "-", "--format", "ndjson"]
    (store / "broker.conf").write_text("maxHashSlotNum=50\nmaxIndexNum=200\n")
    command += ["--store", str(store), "--broker-conf", str(store / "broker.conf")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for number in range(3):
            process.stdin.write(line)
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["queue_offset"] == number
        process.send_signal(2)
        assert process.wait(60) == 130
    assert not (store / "abort").exists()


def test_symbolic_links_are_refused_for_writing(cli: Cli, store: Path, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    (store / "consumequeue" / "orders").rename(real)
    (store / "consumequeue" / "orders").symlink_to(real)
    before = state(real)
    done = cli(*PUT, "--body", "x", store=store)
    assert done.code == 5 and "symbolic link" in done.err
    assert state(real) == before


def test_flush_advances_the_checkpoint(cli: Cli, store: Path) -> None:
    done = cli("flush", "--format", "ndjson", store=store)
    assert done.code == 0
    *flushed, row = done.rows
    assert [one["structure"] for one in flushed] == ["commitlog", "queues", "index"]
    assert {one["type"] for one in flushed} == {"flush"}
    assert len({one["from_offset"] for one in flushed}) == 1, "a store that was closed has it all"
    assert row["type"] == "checkpoint" and row["physic_msg_timestamp"] == BORN + 1059


def test_flush_of_one_structure_says_what_a_crash_may_have_lost(cli: Cli, store: Path) -> None:
    (store / "abort").touch()
    flushed, checkpoint = cli(
        "flush", "--structure", "commitlog", "--format", "ndjson", store=store
    ).rows
    assert (flushed["type"], flushed["structure"]) == ("flush", "commitlog")
    assert flushed["from_offset"] < flushed["to_offset"]
    assert checkpoint["type"] == "checkpoint"
    assert cli("flush", "--structure", "checkpoint", store=store).code == 2


def lines_of(store: Path) -> list[tuple[str, int, int]]:
    with MessageStore(store, CONFIG) as opened:
        return [
            (entry.topic, entry.queue_id, entry.queue_offset)
            for entry in opened.commit_log.walk()
            if isinstance(entry, Record)
        ]


def test_put_in_batches(cli: Cli, store: Path, tmp_path: Path) -> None:
    """Up to N lines of one queue that follow each other; a delayed one goes by itself."""
    rows: list[dict[str, object]] = [{"topic": "n", "body": f"{at}"} for at in range(7)]
    rows += [{"topic": "n", "queue_id": 1}, {"topic": "n"}, {"topic": "n", "delay_level": 2}]
    rows += [{"topic": "n"}, {"topic": "n", "body": "x" * 1500}, {"topic": "n", "body": "x" * 1500}]
    line = ("put", "--batch", "3", "--format", "ndjson")
    done = cli(*line, "--from", ndjson(tmp_path / "in", *rows), store=store)
    assert done.code == 0, done.err
    *results, summary = done.rows
    assert summary == {"type": "summary", "messages": 13}
    assert [row["messages"] for row in results] == [3, 3, 1, 1, 1, 1, 2, 1]
    assert [len(row["msg_id"].split(",")) for row in results] == [3, 3, 1, 1, 1, 1, 2, 1]
    first = [row for row in results if row["topic"] == "n" and row["queue_id"] == 0]
    assert [row["queue_offset"] for row in first] == [0, 3, 6, 7, 8, 10]
    for msg_id in results[0]["msg_id"].split(","):
        assert cli("message", msg_id, "--format", "ndjson", store=store).code == 0
    assert lines_of(store)[-13:][:3] == [("n", 0, 0), ("n", 0, 1), ("n", 0, 2)]


def test_a_bad_line_ends_batches_after_what_came_before(
    cli: Cli, store: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.write_text('{"topic": "n"}\n' * 4 + "{\n")
    done = cli("put", "--batch", "3", "--from", source, "--format", "ndjson", store=store)
    assert done.code == 2 and "line 5" in done.err and "are stored (4)" in done.err
    assert [row["messages"] for row in done.rows] == [3, 1]
    source.write_text(json.dumps({"topic": "n", "body": "x" * 3000}) + "\n")
    done = cli("put", "--batch", "3", "--from", source, "--format", "ndjson", store=store)
    assert done.code == 5 and "MESSAGE_ILLEGAL" in done.err


@pytest.mark.parametrize(
    "how",
    [
        ("--flush", "sync"),
        ("--flush", "async"),
        ("--flush", "none"),
        ("--flush", "async", "--transient-store-pool"),
        ("--flush", "none", "--transient-store-pool", "--batch", "5"),
    ],
)
def test_however_it_is_flushed_all_is_there(
    how: tuple[str, ...], cli: Cli, store: Path, tmp_path: Path
) -> None:
    rows = [{"topic": "n", "queue_id": at // 40, "body": "x" * at} for at in range(200)]
    source = ndjson(tmp_path / "in", *rows)
    done = cli("put", *how, "--from", source, "--format", "ndjson", "--stats", store=store)
    assert done.code == 0 and done.rows[-1]["messages"] == 200
    assert "stats: topic n: 200 messages" in done.err and "flushes of the log" in done.err
    (line,) = [line for line in done.err.splitlines() if "puts by time: [<=0ms]:" in line]
    assert line.split()[-1].startswith("[10s~]:")
    assert sum(int(part.rpartition(":")[2]) for part in line.split()[4:]) > 0
    assert [line for line in lines_of(store) if line[0] == "n"] == [
        ("n", at // 40, at % 40) for at in range(200)
    ]
    assert cli("verify", store=store).code == 0
    assert not (store / "abort").exists()


def test_a_slow_disk_is_a_status(cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fdatasync

    def slow(descriptor: int) -> None:
        time.sleep(0.02)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    done = cli(*PUT, "--body", "x", "--sync-flush-timeout", "1", store=store)
    assert done.code == 5 and "FLUSH_DISK_TIMEOUT" in done.err
    (row,) = done.rows
    assert row["status"] == "FLUSH_DISK_TIMEOUT" and row["wrote_offset"] is not None
    assert "do not put it again" in done.err
    assert cli(*PUT, "--body", "x", "--sync-flush-timeout", "5000", store=store).code == 0


@pytest.mark.parametrize(
    "line",
    [
        ("--batch", "3"),
        ("--transient-store-pool",),
        ("--flush", "later"),
        ("--sync-flush-timeout", "0"),
        ("--from", "-", "--batch", "0"),
    ],
)
def test_options_that_do_not_go_together(line: tuple[str, ...], cli: Cli, store: Path) -> None:
    before = state(store)
    assert cli("put", "--topic", "t", *line, store=store).code == 2
    assert state(store) == before


FEW_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from rmqctl.__main__ import main
main()
"""


def test_a_small_soft_limit_of_open_files_is_raised(store: Path, tmp_path: Path) -> None:
    """As Java does; the hard one remains."""
    lines = [json.dumps({"topic": f"t{number}", "body": "x"}) for number in range(60)]
    (tmp_path / "in").write_text("\n".join(lines))
    words = ["put", "--from", str(tmp_path / "in"), "--store", str(store), "-q"]
    command = [sys.executable, "-c", FEW_FILES, *words, "--broker-conf", str(tmp_path / "conf")]
    (tmp_path / "conf").write_text(BROKER_CONF)
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
