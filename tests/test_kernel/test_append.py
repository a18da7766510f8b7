"""The kernel stores what the pure engine stores of the same lines: every byte, row and error."""

from __future__ import annotations

import base64
import itertools
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import constants
from formats.text import encode_properties
from rmqctl import kernel
from rmqctl.cli.main import run
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record import fields
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.engine.write.bulk import BulkAppender
from rmqctl.engine.write.lines import LineAppender
from rmqctl.errors import BadInputLine
from rmqctl.operations.change.messagemaker import MessageMaker
from rmqctl.operations.change.putstream import BulkPut, LineStream, put_lines
from tests.conftest import Golden
from tests.seeds import times

pytestmark = pytest.mark.usefixtures("compiled")

#: Small files, so that a few records fill them.
CONFIG = parse_broker_conf(
    "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=100\nmaxMessageSize=1500\n"
    "maxHashSlotNum=100\nmaxIndexNum=500"
)
ROOMY = parse_broker_conf("mappedFileSizeCommitLog=8388608\nmaxHashSlotNum=100\nmaxIndexNum=50000")
NOW = 1_700_000_000_000


class Blocks:
    """Lines in pieces of whole ones, as ``put --from`` reads them."""

    def __init__(self, blocks: list[bytes | None]) -> None:
        self._blocks = blocks

    def blocks(self) -> Iterator[bytes | None]:
        return iter(self._blocks)

    def __iter__(self) -> Iterator[bytes | None]:
        for block in self._blocks:
            yield from [None] if block is None else block.removesuffix(b"\n").split(b"\n")


class Done(NamedTuple):
    """What a run has left and said."""

    files: list[tuple[str, bytes]]
    rows: list[Any]
    error: str
    run: BulkPut
    counts: dict[str, int]


def put(choice: str, blocks: list[bytes | None], config: Any = CONFIG) -> Done:
    rows: list[Any] = []
    run, error = BulkPut("lines"), ""
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernel.VARIABLE, choice)
        root = Path(directory) / "store"
        maker = MessageMaker(clock=lambda: NOW - 5)
        with MessageStore(root, config, writable=True, create=True, clock=lambda: NOW) as store:
            try:
                for bulk in put_lines(store, Blocks(blocks), run, maker=maker, flush=False):
                    rows += bulk
            except BadInputLine as told:
                error = str(told)
            counts = dict(store.writer.stats.put_message_topic_size_total)
        # The index's files have their names from the clock.
        files = [
            (str(path.relative_to(root)) if path.parent.name != "index" else "", path.read_bytes())
            for path in sorted(root.rglob("*"))
            if path.is_file()
        ]
    return Done(files, rows, error, run, counts)


def assert_equal(blocks: list[bytes | None], config: Any = CONFIG) -> Done:
    pure, done = put("pure", blocks, config), put("compiled", blocks, config)
    assert done.rows == pure.rows and done.error == pure.error
    assert done.run == pure.run and done.counts == pure.counts
    assert done.files == pure.files
    return done


names = st.sampled_from(
    ["a", "Aa", "BB", "AaAa", "BBBB", "AaBB", "region", "KEYS", "TAGS", "UNIQ_KEY", "DELAY",
     "INNER_MULTI_DISPATCH", "WAIT", "é", "\U0001f600", "", "x\x01", "\x02"]
)  # fmt: skip
texts = st.text(max_size=12) | st.sampled_from(["k1 k2", " ", '"', "\\", "\n", "\0", "é", "\ud800"])
values: st.SearchStrategy[Any] = st.one_of(
    texts, st.none(), st.integers(-1, 1 << 66), st.just(1.5), st.just([])
)
usual = st.fixed_dictionaries(
    {"topic": st.sampled_from(["a", "b", "é", "%RETRY%g"])},
    optional={
        "queue_id": st.integers(0, 3),
        "tags": texts,
        "keys": texts,
        "properties": st.dictionaries(
            names.filter(lambda n: n not in ("", "x\x01", "\x02")), texts
        ),
        "body": st.text(max_size=60) | st.just("x" * 900),
    },
)
hosts = st.sampled_from(["1.2.3.4:5", "127.0.0.1:10911", "255.255.255.255:65535"])
numbers = st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 20)
longs = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 1 << 33)
passed_over: dict[str, st.SearchStrategy[Any]] = {
    name: st.one_of(st.integers(-1, 1 << 66), st.none(), st.just(1.5), texts)
    for name in sorted(fields.PASSED_OVER - {"type"})
}


def told(row: dict[str, Any], body: bytes, encoding: str) -> dict[str, Any]:
    """The row with a body, and what rows say of it."""
    if row.get("sys_flag", 0) & constants.COMPRESSED_FLAG:
        body, encoding = zlib.compress(body), "base64"
    spelled = base64.b64encode(body).decode() if encoding == "base64" else body.decode()
    of_body: dict[str, Any] = {"body": spelled, "body_encoding": encoding}
    if encoding == "base64" and len(body) % 2:
        of_body = {"body_base64": spelled}
    of_body["body_length"] = len(body)
    return row | of_body | {"body_crc": zlib.crc32(body) & 0x7FFFFFFF}


#: Rows of messages as commands print them.
rows_of_messages = st.builds(
    told,
    st.fixed_dictionaries(
        {
            "type": st.just("message"),
            "topic": st.sampled_from(["a", "b", "é"]),
            "properties": st.dictionaries(
                names.filter(lambda n: n not in ("", "x\x01", "\x02", "DELAY")), texts
            ),
        },
        optional={
            "queue_id": st.integers(0, 3),
            "flag": numbers,
            "born_timestamp": longs,
            "born_host": hosts,
            "store_host": hosts,
            "reconsume_times": numbers,
            "prepared_transaction_offset": longs,
            "status": st.sampled_from(["ok", "unchecked"]),
            "sys_flag": st.sampled_from([0, 0, 1, 2, 3, 0x301]),
            **passed_over,
        },
    ),
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "ignore")) | st.just(b"x" * 900),
    st.sampled_from(["utf8", "base64"]),
)
#: Any values for fields of rows.
odd_fields = st.fixed_dictionaries(
    {},
    optional={
        "flag": values,
        "sys_flag": values | st.sampled_from([0, 1, 4, 16, 32, 48]),
        "born_timestamp": values,
        "born_host": values | st.sampled_from(["1.2.3.4", "1.2.3.4:+5", "01.2.3.4:5", "[::1]:5"]),
        "store_host": values | st.sampled_from(["1.2.3.4:99999", "1.2.3.4:", ":5", "1.2.3.4:007"]),
        "reconsume_times": values,
        "prepared_transaction_offset": values,
        "body": values | st.sampled_from(["YQ", "YQ=", "YR==", "YQ==", "Y Q=", "YQ==\n"]),
        "body_base64": st.sampled_from(["YQ==", "YR=="]),
        "body_encoding": values | st.sampled_from(["utf8", "base64", "hex"]),
        "body_crc": values,
        "body_length": values,
        "body_status": values | st.sampled_from(["stored", "decompressed", "damaged"]),
        "status": values | st.sampled_from(["ok", "unchecked", "body-crc-mismatch"]),
        "type": values | st.sampled_from(["message", "blank"]),
        "properties": st.sampled_from([{"__CRC32#": "1", "DELAY": "3"}, {"__CRC32#": "1"}]),
        "delay_level": st.integers(0, 2),
        "damage": st.just([{}]),
        "topic": st.just("SCHEDULE_TOPIC_XXXX"),
    },
)
odd_rows = st.builds(lambda row, odd: row | odd, rows_of_messages, odd_fields)
odd = st.fixed_dictionaries(
    {"topic": st.sampled_from(["a", "a/b", "", "t" * 128, "..", "SCHEDULE_TOPIC_XXXX"]) | values},
    optional={
        "queue_id": values,
        "tags": values,
        "keys": values | st.just(["k", "l"]),
        "properties": st.dictionaries(names, values, max_size=4) | values,
        "body": values | st.just("x" * 2000),
        "flag": values,
        "type": st.sampled_from(["message", "summary", "damage", "other"]),
        "delay_level": values,
        "transaction": st.sampled_from(["prepared", "commit", "rollback", "none"]),
        "unknown": values,
    },
)


def spelled(row: dict[str, Any]) -> st.SearchStrategy[bytes]:
    return st.sampled_from(
        [
            json.dumps(row).encode(),
            json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            json.dumps(row, separators=(" ,\t", " : ")).encode() + b" \r",
        ]
    )


HOSTILE = [b"", b" \r", b"\x0b", b"[", b"[]", b'["a",0]', b"{}", b"null", b"{", b'{"topic":"a"',
           b'{"topic":"a","topic":"b"}', b'{"topic":"a","queue_id":-0}', b'{"topic":"\xff"}',
           b'{"topic":"a","queue_id":1e0}', b'{"topic":"a","queue_id":4294967297}',
           b'{"topic":"a","body":"\\ud800"}', b'{"topic":"a","body":"\\ud83d\\ude00"}',
           b'{"topic":"a"}x', b'\xef\xbb\xbf{"topic":"a"}', b'{"topic":"a","body":"\x01"}',
           b'{"topic":"a","properties":{"k":"1","l":"2","k":"3"}}', b'{"topic":"a",}',
           b'{"topic":"a","msg_id":"\xff"}', b'{"topic":"a","msg_id":"\\ud800"}',
           b'{"topic":"a","day":1e999}', b'{"topic":"a","day":{"a":[1]}}',
           b'{"topic":"a","day":NaN}',
           b'{"topic":"a","flag":1,"flag":2}', b'{"topic":"a","body":null,"body_length":1}',
           b'{"topic":"a","body_crc":5}', b'{"topic":"a","body_crc":5,"body_length":0}',
           b'{"topic":"a","type":"messag\\u0065"}', b'{"topic":"a","day":true}']  # fmt: skip
usual_lines = usual.flatmap(spelled)
row_lines = rows_of_messages.flatmap(spelled)
any_lines = st.one_of(
    usual_lines,
    usual_lines,
    row_lines,
    odd.flatmap(spelled),
    odd_rows.flatmap(spelled),
    st.sampled_from(HOSTILE),
    st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")),
)


def in_blocks(lines: list[bytes], cuts: list[int]) -> list[bytes | None]:
    """The lines in blocks of so many, a pause between some; the last one without an end."""
    blocks: list[bytes | None] = []
    at = 0
    for number, cut in enumerate(itertools.cycle(cuts)):
        piece = lines[at : at + cut]
        if not piece:
            break
        blocks.append(b"".join(line + b"\n" for line in piece))
        blocks += [None] * (number % 3 == 2)
        at += cut
    if lines and lines[-1] and blocks:
        last = max(number for number, block in enumerate(blocks) if block is not None)
        block = blocks[last]
        assert block is not None
        blocks[last] = block.removesuffix(b"\n")
    return blocks


cuts = st.lists(st.integers(1, 40), min_size=1, max_size=3)


@settings(max_examples=times(40), deadline=None)
@given(st.lists(usual_lines, max_size=40), cuts)
def test_usual_lines(lines: list[bytes], cuts: list[int]) -> None:
    assert_equal(in_blocks(lines, cuts))


@settings(max_examples=times(40), deadline=None)
@given(st.lists(row_lines, max_size=40), cuts)
def test_rows_of_messages(lines: list[bytes], cuts: list[int]) -> None:
    assert_equal(in_blocks(lines, cuts))


@settings(max_examples=times(60), deadline=None)
@given(st.lists(row_lines | odd_rows.flatmap(spelled), max_size=20), cuts)
def test_any_rows(lines: list[bytes], cuts: list[int]) -> None:
    assert_equal(in_blocks(lines, cuts))


@settings(max_examples=times(60), deadline=None)
@given(st.lists(usual_lines, max_size=12), st.lists(any_lines, max_size=6), cuts)
def test_any_lines(first: list[bytes], lines: list[bytes], cuts: list[int]) -> None:
    assert_equal(in_blocks([*first, *lines, *first], cuts))


@pytest.mark.parametrize("line", HOSTILE)
def test_a_hostile_line_between_usual_ones(line: bytes) -> None:
    usual = b'{"topic":"a","body":"x"}'
    done = assert_equal([b"\n".join([usual, usual, usual, line, usual, usual])])
    assert done.run.stored >= 3


@pytest.fixture
def put_alone(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The messages that the kernel does not take."""
    single: list[Any] = []
    put_special, fill_plain = (BulkAppender._put_special, BulkAppender._fill_plain)

    def special(appender: Any, message: Any, stored: Any) -> Any:
        single.append(message)
        return put_special(appender, message, stored)

    def filled(appender: Any, stored: Any, *more: Any) -> Any:
        before = len(stored)
        message = fill_plain(appender, stored, *more)
        if isinstance(appender, LineAppender):
            single.extend(stored[before:])
        return message

    monkeypatch.setattr(LineAppender, "_put_special", special)
    monkeypatch.setattr(BulkAppender, "_fill_plain", filled)
    return single


def test_more_than_a_bulk_to_many_queues(put_alone: list[Any]) -> None:
    """The kernel takes nearly all of them, and the log has several files."""
    lines = [
        json.dumps(
            {"topic": f"t{n % 7}", "queue_id": n % 5, "keys": f"k{n}", "tags": f"g{n % 3}"}
            | {"properties": {"UNIQ_KEY": f"{n:032X}", "b": "2"}, "body": "x" * (n % 900)}
        ).encode()
        for n in range(20_000)
    ]
    done = assert_equal(in_blocks(lines, [1000, 300]), ROOMY)
    assert done.run.stored == len(done.rows) == 20_000
    assert len(put_alone) < 200


def test_rows_of_another_store(put_alone: list[Any]) -> None:
    """Also of two brokers in turns, and with compressed bodies, the kernel takes nearly all."""
    rows = [
        told(
            {
                "type": "message",
                "topic": f"t{n % 3}",
                "msg_id": "7F",
                "queue_id": n % 2,
                "status": "ok",
            }
            | {"born_host": f"10.0.0.{n % 9}:{n}", "store_host": f"10.0.1.{n // 700 % 2}:10911"}
            | {"sys_flag": n % 3 % 2, "properties": {"UNIQ_KEY": f"{n:032X}", "KEYS": f"k{n} k"}},
            b"body" * (n % 90),
            ("utf8", "base64")[n % 2],
        )
        for n in range(5_000)
    ]
    done = assert_equal(in_blocks([json.dumps(row).encode() for row in rows], [1000]), ROOMY)
    assert done.run.stored == 5_000
    assert len(put_alone) < 100


@pytest.mark.parametrize("name", ["broker", "delay", "transaction", "ipv6", "lmq", "timer"])
def test_rows_of_golden_stores(
    name: str, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["walk", "commitlog", "--body-as", "base64", "--format", "ndjson", "--store"]
    assert run([*line, str(golden(name))]) == 0
    rows = capsys.readouterr().out
    assert_equal([rows.encode()], ROOMY)


def test_properties_are_in_javas_order() -> None:
    """Also where a map grows, and where names have the same hash; of too many Python makes it."""
    for count in (1, 8, 9, 12, 13, 25, 49, 64, 65):
        crowded = ["".join(pair) for pair in itertools.product(("Aa", "BB"), repeat=6)]
        for some in (crowded, [f"name{n}" for n in range(65)]):
            properties = dict.fromkeys(some[:count], "v")
            line = json.dumps({"topic": "a", "properties": properties}).encode()
            done = assert_equal([b"\n".join([line] * 3)], ROOMY)
            log = dict(done.files)["commitlog/" + "0" * 20]
            assert log.count(encode_properties(properties)) == 3


def test_bulks_are_looked_at_from_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of a run is the same by its number as in its turn."""
    monkeypatch.setenv(kernel.VARIABLE, "compiled")
    lines = [b'{"topic":"a","body":"%d"}' % n for n in range(50)]
    lines += [b'{"topic":"b"}', *lines[:9]]
    with (
        TemporaryDirectory() as directory,
        MessageStore(Path(directory) / "store", ROOMY, writable=True, create=True) as store,
    ):
        stream = LineStream(iter([b"\n".join(lines)]), BulkPut("lines"), MessageMaker())
        (bulk,) = store.append_stream(stream)
    rows = list(bulk.stored)
    assert len(rows) == len(bulk.stored) == 60
    assert [bulk.stored[n] for n in range(60)] == rows == [*reversed([*reversed(bulk.stored)])]
    assert bulk.stored[-1] == rows[-1] and bulk.stored[10:12] == rows[10:12]
    assert [row.queue_offset for row in rows if row.topic == "a"] == list(range(59))
