"""Commands that read: rows, formats, exit codes, and that they change nothing."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from rmqctl.cli.output import FORMATS
from rmqctl.engine.files.unfinished import BESIDE
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.operations.mend import onepass
from rmqctl.rows.field import fields_of
from rmqctl.rows.structures import MessageRow
from tests.test_cli.conftest import BORN, CONFIG, Cli, state

MESSAGE_FIELDS = [field.name for field in fields_of(MessageRow) if not field.is_optional]

PULL = ("pull", "--topic", "orders", "--queue-id", "0", "--offset", "0")
QUERY = ("index", "query", "--topic", "orders", "--key", "order-7")
READING = [
    PULL,
    QUERY,
    (*QUERY, "--raw"),
    ("index", "info"),
    ("message", "0"),
    ("message", "0", "0"),
    ("find", "order-7", "--scan"),
    ("walk", "commitlog", "--key", "order-7"),
    ("walk", "commitlog"),
    ("walk", "queue"),
    ("walk", "index"),
    ("queues",),
    ("topics",),
    ("info",),
    ("dump", "0"),
    ("dump", "unit", "orders", "0", "3"),
    ("dump", "checkpoint"),
    ("du", "--by", "topic,queue,tag,producer-host,day"),
    ("du", "--disk"),
    ("stats",),
    ("config", "check"),
    ("simulate-start",),
    ("checkpoint", "show"),
    ("checkpoint", "set", "--physic", "0", "--dry-run"),
    ("simulate-start", "--as", "5.3.3", "--now", "0"),
    ("offset", "--topic", "orders", "--queue-id", "0", "--time", "-2h"),
    (*PULL, "--filter", "TAGS = 'paid'"),
    ("walk", "commitlog", "--filter", "TAGS IS NOT NULL", "--decompress", "--body-as", "utf8"),
]
#: What finds nothing in the store of these tests, with its exit code.
FINDING_NOTHING = {
    ("message", "--unique-key", "absent"): 1,
    ("groups",): 0,
    ("lint",): 0,
    ("groups", "--queues"): 0,
    ("schedule", "ls"): 0,
    ("pop", "ls", "--all"): 0,
    ("pop", "ls", "--group", "absent"): 1,
    ("timer", "ls"): 0,
    ("timer", "deliver", "--dry-run"): 0,
    ("timer", "ls", "--topic", "absent"): 1,
    ("schedule", "deliver", "--dry-run"): 0,
    ("transaction", "ls"): 0,
    ("transaction", "ls", "--all"): 0,
    ("transaction", "ls", "--producer-group", "absent"): 1,
    ("transaction", "commit", "0", "--dry-run"): 1,
    ("transaction", "rollback", "0", "--dry-run"): 1,
    ("clean", "--dry-run"): 0,
    ("rebuild", "all", "--missing", "--dry-run"): 0,
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_every_command_in_every_format_changes_nothing(
    command: tuple[str, ...], format: str, cli: Cli, store: Path
) -> None:
    before = state(store)
    done = cli(*command, "--format", format, store=store)
    assert (done.code, done.err) == (0, "") or (format == "csv" and done.code == 0)
    assert state(store) == before
    if format == "ndjson":
        assert all("type" in row for row in done.rows)
    elif format == "json":
        assert isinstance(json.loads(done.out), list)
    elif format == "csv":
        header, *rows = csv.reader(io.StringIO(done.out))
        assert header[0] == "type" and rows
        assert {len(row) for row in rows} == {len(header)}
    else:
        assert done.out


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("command", "code"), FINDING_NOTHING.items(), ids=str)
def test_what_finds_nothing_says_so_and_changes_nothing(
    command: tuple[str, ...], code: int, format: str, cli: Cli, store: Path
) -> None:
    before = state(store)
    done = cli(*command, "--format", format, store=store)
    # Of what only 5.x has a note says that there can be none.
    err = "" if "note: no broker of 5.x has run" in done.err else done.err
    assert (done.code, err) == (code, "")
    assert state(store) == before
    if format == "ndjson":
        assert done.rows[-1]["type"] == "summary"
    elif format == "json":
        assert json.loads(done.out)[-1]["type"] == "summary"


def test_message_rows_have_the_documented_fields(cli: Cli, store: Path) -> None:
    done = cli(*PULL, "--format", "ndjson", store=store)
    first, *_, summary = done.rows
    assert list(first) == MESSAGE_FIELDS
    assert first["properties"] == {"KEYS": "order-0 all", "TAGS": "due"}
    assert first["store_timestamp"] == BORN + 1000
    assert first["born_host"] == "127.0.0.1:0"
    assert summary == {
        "type": "summary",
        "status": "FOUND",
        "next_begin_offset": 30,
        "min_offset": 0,
        "max_offset": 30,
        "messages": 30,
        "suggest_pulling_from_slave": False,
    }


def test_pull_beyond_one_answer_goes_on(cli: Cli, store: Path) -> None:
    done = cli(*PULL, "--max-messages", "1000", "--format", "ndjson", store=store)
    assert [row["queue_offset"] for row in done.rows[:-1]] == list(range(30))
    some = cli(*PULL, "--max-messages", "3", "--format", "ndjson", store=store)
    assert some.rows[-1]["next_begin_offset"] == 3


@pytest.mark.parametrize(
    ("offset", "status"),
    [(30, "OFFSET_OVERFLOW_ONE"), (99, "OFFSET_OVERFLOW_BADLY"), (-1, "OFFSET_TOO_SMALL")],
)
def test_pull_of_nothing_exits_1(offset: int, status: str, cli: Cli, store: Path) -> None:
    line = (*PULL[:-1], str(offset), "--format", "ndjson")
    done = cli(*line, store=store)
    assert done.code == 1
    assert [row["status"] for row in done.rows] == [status]


def test_pull_by_tag_and_bodies(cli: Cli, store: Path) -> None:
    done = cli(
        *PULL, "--tag", "due || none", "--body-as", "utf8", "--format", "ndjson", store=store
    )
    rows = done.rows[:-1]
    assert [row["body"] for row in rows] == [f"body {n}" for n in range(0, 60, 6)]
    for spelling, body in (("hex", "626f64792030"), ("base64", "Ym9keSAw")):
        line = (*PULL, "--max-messages", "1", "--body-as", spelling, "--format", "ndjson")
        assert cli(*line, store=store).rows[0]["body"] == body


def test_query_counts_and_missing_keys(cli: Cli, store: Path) -> None:
    done = cli(*QUERY[:-1], "all", "--max", "5", "--format", "ndjson", store=store)
    offsets = [row["physical_offset"] for row in done.rows[:-1]]
    assert len(offsets) == 5 and offsets == sorted(offsets)
    nothing = cli(*QUERY[:-1], "absent", "--format", "ndjson", store=store)
    assert nothing.code == 1
    assert nothing.rows[0]["messages"] == 0 and "missing" in nothing.rows[0]


def test_query_without_an_index_says_what_to_do(cli: Cli, store: Path) -> None:
    for file in (store / "index").iterdir():
        file.unlink()
    done = cli(*QUERY, store=store)
    assert done.code == 1
    assert "rmqctl rebuild index" in done.err and "walk commitlog" in done.err


def test_query_counts_what_the_log_does_not_have(cli: Cli, store: Path) -> None:
    first = sorted((store / "commitlog").iterdir())[0]
    first.unlink()
    done = cli(*QUERY[:-1], "order-0", "--format", "ndjson", store=store)
    assert done.code == 1 and done.rows[-1]["missing"] == 1
    assert done.err.startswith("note: one hit of the index cannot be read")
    keys = store.parent / "keys"
    keys.write_text("order-0\norder-1\norder-58\n")
    done = cli(*QUERY[:-2], "--keys-from", keys, "--format", "ndjson", store=store)
    missing = done.rows[-1]["missing"]
    assert missing > 1 and f"note: {missing} hits of the index cannot be read" in done.err
    done = cli("find", "order-0", "--format", "ndjson", store=store)
    assert done.code == 1 and done.rows[-1]["missing"] == 1
    assert "note: one hit of the index cannot be read" in done.err
    assert "hit" not in cli("find", "order-58", store=store).err


def test_message_by_id_and_by_offset(cli: Cli, store: Path) -> None:
    row = cli("message", "0", "--format", "ndjson", "--body-as", "utf8", store=store).rows[0]
    assert row["body"] == "body 0"
    again = cli("message", row["msg_id"], "--format", "ndjson", store=store).rows[0]
    assert again["physical_offset"] == 0
    wrong = cli("message", "5", store=store)
    assert wrong.code == 5 and f"starts at {row['total_size']}" in wrong.err
    assert cli("message", "not-an-id", store=store).code == 2
    assert cli("message", str(2**63), store=store).code == 2
    outside = cli("message", str(2**40), store=store)
    end = cli("info", "--format", "ndjson", store=store).rows[0]["max_physical_offset"]
    assert outside.code == 5 and f"the log has 0 to {end}." in outside.err


@pytest.mark.parametrize("line", [("message",), ("dump",), ("walk", "commitlog", "--start")])
def test_a_place_in_a_file_that_is_missing_or_cut(
    line: tuple[str, ...], cli: Cli, store: Path
) -> None:
    files = sorted((store / "commitlog").iterdir())
    assert len(files) == 4
    files[1].unlink()
    for offset in (2048, 4095):
        done = cli(*line, str(offset), store=store)
        assert (done.code, done.out) == (5, "")
        name = f"commitlog/{2048:020d}"
        assert f"{name}, which would hold it, is missing. The next one starts at 4096" in done.err
    with files[2].open("r+b") as file:
        file.truncate(100)
    done = cli(*line, "4200", store=store)
    assert done.code == 5 and f"{4096:020d} has only 100 bytes" in done.err
    files[0].unlink()
    end = cli("info", "--format", "ndjson", store=store).rows[0]["max_physical_offset"]
    done = cli(*line, "5", store=store)
    assert done.code == 5 and f"the log has 4096 to {end}." in done.err


def test_walk_commitlog_ranges_and_filters(cli: Cli, store: Path) -> None:
    everything = cli("walk", "commitlog", "--format", "ndjson", store=store).rows
    kinds = [row["type"] for row in everything]
    assert kinds.count("message") == 60 and kinds.count("blank") >= 2
    assert everything[-1]["damages"] == 0
    offsets = [row["physical_offset"] for row in everything if row["type"] == "message"]
    part = cli(
        "walk", "commitlog", "--start", offsets[5], "--end", offsets[9], "--json", store=store
    )
    assert [row.get("physical_offset") for row in json.loads(part.out)] == [*offsets[5:9], None]
    by_queue = cli(
        *("walk", "commitlog", "--topic", "orders", "--queue-id", "1", "--limit", "3"),
        *("--since", str(BORN + 1003), "--format", "ndjson"),
        store=store,
    ).rows
    assert [row["queue_offset"] for row in by_queue[:-1]] == [1, 2, 3]
    none = cli("walk", "commitlog", "--topic", "absent", "--format", "ndjson", store=store)
    assert none.code == 1 and none.rows[-1]["messages"] == 0


@pytest.mark.parametrize("form", FORMATS)
def test_walk_takes_a_damaged_topic_as_it_is_shown(cli: Cli, store: Path, form: str) -> None:
    """Topics have no checksum. ``verify`` advises to walk over such a one by the name it shows."""
    file = sorted((store / "commitlog").iterdir())[0]
    data = bytearray(file.read_bytes())
    data[data.index(b"\x06orders") + 1] ^= 0x80
    file.write_bytes(data)
    done = cli("walk", "commitlog", "--topic", "\ufffdrders", "--format", form, store=store)
    assert done.code == 0 and done.out.count("\ufffdrders") == 1


def test_walk_names_the_next_record(cli: Cli, store: Path) -> None:
    size = cli("message", "0", "--format", "ndjson", store=store).rows[0]["total_size"]
    done = cli("walk", "commitlog", "--start", "7", store=store)
    assert done.code == 5 and f"The next one starts at {size}." in done.err
    end = cli("info", "--format", "ndjson", store=store).rows[0]["max_physical_offset"]
    assert cli("walk", "commitlog", "--start", end, store=store).code == 0


def test_walk_goes_on_behind_damage(cli: Cli, store: Path) -> None:
    file = sorted((store / "commitlog").iterdir())[0]
    data = bytearray(file.read_bytes())
    size = int.from_bytes(data[:4], "big")
    data[size + 4] ^= 0xFF
    file.write_bytes(data)
    done = cli("walk", "commitlog", "--format", "ndjson", store=store)
    damage = [row for row in done.rows if row["type"] == "damage"]
    assert done.code == 1
    assert [(row["physical_offset"], row["reason"]) for row in damage] == [(size, "bad-magic")]
    assert sum(row["type"] == "message" for row in done.rows) == 59
    shown = cli("dump", size, "--format", "ndjson", store=store)
    assert shown.code == 1 and any("bad-magic" in p for p in shown.rows[-1]["problems"])
    assert "damage: physical_offset" in cli("walk", "commitlog", store=store).out
    behind = cli("walk", "commitlog", "--start", size, "--format", "ndjson", store=store).rows
    assert [row["physical_offset"] for row in behind[:-1]] == [
        row["physical_offset"] for row in done.rows[1:-1]
    ]
    assert behind[0]["type"] == "damage"


def test_pull_tells_of_messages_that_it_passes_over(cli: Cli, store: Path) -> None:
    line = ("pull", "--topic", "orders", "--queue-id", "0", "--format", "ndjson")
    sound = cli(*line, store=store)
    assert (sound.code, sound.err) == (0, "") and "passed_over" not in sound.rows[-1]
    second = sound.rows[1]["physical_offset"]
    file = sorted((store / "commitlog").iterdir())[0]
    data = bytearray(file.read_bytes())
    data[second + 4] ^= 0xFF
    file.write_bytes(data)
    done = cli(*line, store=store)
    assert (done.code, done.rows[-1]["passed_over"]) == (1, 1)
    assert [row["queue_offset"] for row in done.rows[:2]] == [0, 2]
    assert "one message was passed over" in done.err and "`rmqctl verify --store " in done.err


def test_walk_queue_shows_holes(cli: Cli, store: Path) -> None:
    file = store / "consumequeue" / "orders" / "0" / ("0" * 20)
    data = bytearray(file.read_bytes())
    data[5 * 20 : 7 * 20] = bytes(40)
    file.write_bytes(data)
    line = ("walk", "queue", "--topic", "orders", "--queue-id", "0", "--format", "ndjson")
    done = cli(*line, store=store)
    assert done.code == 1
    hole = next(row for row in done.rows if row["type"] == "damage")
    assert (hole["queue_offset"], hole["length"]) == (5, 2)
    assert done.rows[-1]["units"] == 28


def test_walk_queue_by_queue_offsets(cli: Cli, store: Path) -> None:
    file = store / "consumequeue" / "orders" / "0" / ("0" * 20)
    data = bytearray(file.read_bytes())
    data[5 * 20 : 7 * 20] = bytes(40)
    file.write_bytes(data)
    line = ("walk", "queue", "--topic", "orders", "--queue-id", "0", "--format", "ndjson")

    def offsets(*more: str) -> tuple[int, list[tuple[str, int]]]:
        done = cli(*line, *more, store=store)
        return done.code, [(row["type"], row["queue_offset"]) for row in done.rows[:-1]]

    units = [("unit", number) for number in range(30)]
    assert offsets("--offset", "20") == (0, units[20:])
    assert offsets("--offset", "3", "--end-offset", "5") == (0, units[3:5])
    assert offsets("--offset", "4", "--end-offset", "8", "--limit", "2") == (
        1,
        [("unit", 4), ("damage", 5)],
    )
    assert offsets("--offset", "6", "--end-offset", "8") == (1, [("damage", 6), ("unit", 7)])
    assert offsets("--end-offset", "0") == offsets("--offset", "30") == (1, [])
    assert cli(*line, "--offset", "2", "--end-offset", "1", store=store).code == 2
    third = cli(*line, "--offset", "3", "--limit", "1", store=store).rows[0]["physical_offset"]
    assert offsets("--start", str(third), "--end", str(third + 1), "--offset", "1") == (
        1,
        [("unit", 3), ("damage", 5)],
    )
    file.rename(file.with_name("00000000000000002000"))
    assert offsets("--offset", "0", "--end-offset", "9")[1] == []
    (file.parent / ("0" * 20)).write_bytes(data[:400])
    assert offsets("--offset", "20", "--end-offset", "30") == (1, [("damage", 20)])


def test_queues_and_info(cli: Cli, store: Path) -> None:
    rows = cli("queues", "--topic", "orders", "--format", "ndjson", store=store).rows
    assert [(row["queue_id"], row["max_offset"]) for row in rows[:-1]] == [(0, 30), (1, 29)]
    assert cli("queues", "--topic", "absent", store=store).code == 1
    (store / "kvStore").write_bytes(b"")
    row = cli("info", "--format", "ndjson", store=store).rows[0]
    assert (row["queues"], row["topics"], row["abort"], row["locked"]) == (3, 2, False, False)
    assert row["newest_store_timestamp"] == BORN + 1059
    assert row["not_understood"] == ["kvStore: pop in RocksDB (5.x)"]


def test_dump_explains_every_byte(cli: Cli, store: Path) -> None:
    rows = cli("dump", "0", "--format", "ndjson", store=store).rows
    fields = [row for row in rows if row["type"] == "field"]
    record = b"".join(bytes.fromhex(row["bytes"]) for row in fields)
    file = sorted((store / "commitlog").iterdir())[0]
    assert record == file.read_bytes()[: len(record)]
    assert {row["name"]: row["value"] for row in fields}["topic"] == "orders"
    assert rows[-1]["problems"] == []
    name = next((store / "index").iterdir()).name
    assert cli("dump", "index-header", name, store=store).code == 0
    item = cli("dump", "index-item", name, "1", "--format", "ndjson", store=store).rows
    assert [row["name"] for row in item[:-1]][:2] == ["key_hash", "physical_offset"]
    assert cli("dump", "index-header", "../../etc/passwd", store=store).code == 2
    assert cli("dump", "index-item", name, "200", store=store).code == 2
    assert cli("dump", "unit", "orders", "0", "9999", store=store).code == 2
    assert cli("dump", "unit", "../../x", "0", "0", store=store).code == 2
    assert cli("dump", "what", store=store).code == 2


def test_a_record_that_claims_much_is_dumped_in_little_memory(cli: Cli, store: Path) -> None:
    file = sorted((store / "commitlog").iterdir())[0]
    data = bytearray(file.read_bytes())
    data[0:4] = (0x7FFFFFFF).to_bytes(4, "big")
    data[84:88] = (0x7FFFFFF0).to_bytes(4, "big")
    file.write_bytes(data)
    done = cli("dump", "0", "--format", "ndjson", store=store)
    assert done.code == 1 and any("body_length" in p for p in done.rows[-1]["problems"])
    assert cli("walk", "commitlog", store=store).code == 1


def test_pull_starts_at_the_queues_first_message(cli: Cli, store: Path) -> None:
    line = ("pull", "--topic", "orders", "--queue-id", "0", "--format", "ndjson")
    assert cli(*line, store=store) == cli(*PULL, "--format", "ndjson", store=store)
    sorted((store / "commitlog").iterdir())[0].unlink()
    unit = next(
        row
        for row in cli("queues", "--topic", "orders", "--format", "ndjson", store=store).rows
        if row["queue_id"] == 0
    )
    pulled = cli(*line, store=store).rows
    assert pulled[0]["queue_offset"] == unit["min_offset"] > 0
    small = cli(*line, "--offset", "-7", store=store)
    assert small.code == 1 and small.rows[0]["status"] == "OFFSET_TOO_SMALL"
    absent = cli("pull", "--topic", "absent", "--queue-id", "0", "--format", "ndjson", store=store)
    assert absent.code == 1 and absent.rows[0]["status"] == "NO_MESSAGE_IN_QUEUE"


@pytest.mark.parametrize("command", [("pull",), ("offset", "--time", "0")], ids=" ".join)
def test_a_queue_that_is_not_there_is_named(
    command: tuple[str, ...], cli: Cli, store: Path
) -> None:
    line = (*command, "--queue-id", "0", "--format", "ndjson")
    mistyped = cli(*line, "--topic", "order", store=store)
    assert mistyped.code == 1 and len(mistyped.rows) == 1
    assert "no queue 0 of topic 'order'" in mistyped.err and "did you mean 'orders'" in mistyped.err
    done = cli(*command, "--queue-id", "9", "--topic", "orders", store=store)
    assert "no queue 9 of topic 'orders'" in done.err and "`rmqctl queues --store " in done.err
    assert cli(*line, "--topic", "order", "-q", store=store)[1:] == ("", "")
    assert cli(*line, "--topic", "orders", store=store).err == ""


def test_what_was_never_written_is_said_so(cli: Cli, store: Path) -> None:
    name = next((store / "index").iterdir()).name
    for line in (("unit", "orders", "0", "99"), ("index-item", name, "190")):
        done = cli("dump", *line, "--format", "ndjson", store=store)
        assert done.code == 1 and done.rows[-1]["problems"] == ["nothing was written here"]


@pytest.mark.parametrize("place", ["rebuilt", "consumequeue/rebuilt", "."])
def test_a_rebuild_into_the_store_itself_is_refused(place: str, cli: Cli, store: Path) -> None:
    before = state(store)
    done = cli("rebuild", "all", "--output", store / place, store=store)
    assert done.code == 2 and "outside" in done.err
    assert state(store) == before and not (store / "rebuilt").exists()


def test_an_interrupted_rebuild_leaves_nothing_that_looks_whole(
    cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    seen: list[str] = []

    def interrupt(*_: object) -> None:
        seen.extend(path.name for path in (tmp_path / f"out{BESIDE}").iterdir())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(onepass._Builder, "_finish", interrupt)
        assert cli("rebuild", "all", "--output", output, store=store).code == 130
    assert "consumequeue" in seen and not list(tmp_path.glob("out*"))
    assert cli("rebuild", "all", "--output", output, store=store).code == 0


def test_a_rebuild_of_no_queue_is_1(cli: Cli, store: Path, tmp_path: Path) -> None:
    done = cli("rebuild", "queues", "--topic", "absent", "--output", tmp_path / "out", store=store)
    assert done.code == 1 and "`rmqctl topics --store " in done.err


def test_several_messages(cli: Cli, store: Path) -> None:
    walked = cli("walk", "commitlog", "--limit", "3", "--format", "ndjson", store=store).rows
    first, second, third = (row for row in walked if row["type"] == "message")
    places = (third["msg_id"], str(first["physical_offset"]), str(second["physical_offset"]))
    done = cli("message", *places, "--format", "ndjson", store=store)
    assert done.code == 0 and done.rows[:-1] == [third, first, second]
    assert done.rows[-1] == {"type": "summary", "messages": 3, "absent": 0}
    some = cli("message", places[0], "7", places[1], "--format", "ndjson", store=store)
    assert (some.code, some.err) == (1, "")
    assert [row["type"] for row in some.rows] == ["message", "absent", "message", "summary"]
    assert some.rows[1]["place"] == "7" and some.rows[1]["physical_offset"] == 7
    assert some.rows[-1] == {"type": "summary", "messages": 2, "absent": 1}
    table = cli("message", *places[:2], "9" * 18, store=store).out
    assert table.count("orders") == 2 and f"absent: place={'9' * 18}" in table
    wrong = cli("message", places[0], "no place", store=store)
    assert (wrong.code, wrong.out) == (2, ""), "nothing is printed before it"
    assert cli("message", store=store).code == 2
    assert cli("message", "0", "--unique-key", "u", store=store).code == 2


def test_help_and_version(cli: Cli) -> None:
    for line in ((), ("walk",), ("walk", "queue"), ("dump", "unit"), ("help",)):
        assert cli("help", *line).out == cli(*line, "--help").out
    assert cli("help", "nothing").code == 2
    assert "Did you mean 'verify'?" in cli("help", "check").err
    assert "no commands of its own" in cli("help", "verify", "x").err
    assert cli("version").out == cli("--version").out
    assert cli("version", "-v").out == cli("--version", "-v").out


def test_a_table_of_a_start_has_the_queues_that_lose(cli: Cli, tmp_path: Path) -> None:
    root, queues = tmp_path / "s", 101
    with MessageStore(root, CONFIG, writable=True, create=True) as made:
        for queue_id in range(queues):
            assert made.put_message(MessageExtBrokerInner("T", b"x", queue_id)).is_ok
    whole = cli("simulate-start", store=root)
    assert whole.code == 0 and "101 queues lose nothing, and are not shown" in whole.out
    last = max((root / "commitlog").iterdir())
    data = last.read_bytes()
    last.write_bytes(data.replace(b"x\x01T", b"y\x01T", 1))  # A body does not match its checksum.
    table = cli("simulate-start", store=root)
    rows = cli("simulate-start", "--format", "ndjson", store=root).rows
    started = [row for row in rows if row["type"] == "queue"]
    lost = [row["queue_id"] for row in started if row["lost"]]
    assert table.code == 1 and len(started) == queues and lost
    assert f"{queues - len(lost)} queues lose nothing" in table.out
    shown = table.out.partition("# Queues after the start")[2].partition("queues lose")[0]
    assert [line.split()[1] for line in shown.splitlines()[2:-1]] == [str(one) for one in lost]
