"""Lines of all kinds, and how either engine puts them."""

from __future__ import annotations

import base64
import itertools
import json
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from formats import constants
from rmqctl import kernel
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record import fields
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.errors import BadInputLine
from rmqctl.operations.change.messagefields import checked_fields
from rmqctl.operations.change.messagemaker import MessageMaker
from rmqctl.operations.change.put import DryPut
from rmqctl.operations.change.putstream import BulkPut, check_lines, put_lines

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


def put(choice: str, blocks: list[bytes | None], config: Any = CONFIG, **defaults: Any) -> Done:
    """Puts lines into a new store; ``defaults`` are fields of those that do not say them."""
    rows: list[Any] = []
    run, error = BulkPut("lines"), ""
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernel.VARIABLE, choice)
        root = Path(directory) / "store"
        maker = MessageMaker(checked_fields(defaults), clock=lambda: NOW - 5)
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


def assert_equal(blocks: list[bytes | None], config: Any = CONFIG, **defaults: Any) -> Done:
    pure, done = (put(choice, blocks, config, **defaults) for choice in ("pure", "compiled"))
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
#: Some have no topic.
partial_lines = st.tuples(usual, st.booleans()).flatmap(
    lambda drawn: spelled({k: v for k, v in drawn[0].items() if drawn[1] or k != "topic"})
)
#: What lines without these fields have; the kernel leaves messages with some of them to Python.
defaults = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(["a", "b", "é", "%RETRY%g"]),
        "queue_id": st.integers(0, 3),
        "tags": texts,
        "keys": texts | st.lists(st.sampled_from(["k", "l"]), max_size=2),
        "properties": st.dictionaries(
            names.filter(lambda n: n not in ("", "x\x01", "\x02")), st.text("ab 1é", max_size=5)
        ),
        "flag": numbers,
        "born_timestamp": longs,
        "born_host": hosts | st.just("[::1]:5"),
        "store_host": hosts | st.just("[::1]:5"),
        "prepared_transaction_offset": longs,
        "delay_level": st.integers(0, 3),
        "transaction": st.sampled_from(["none", "prepared", "rollback"]),
    },
)
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


def dry_run(
    choice: str, before: list[bytes | None], blocks: list[bytes | None], **defaults: Any
) -> Done:
    """What a dry run says of lines, for a store that was made of other ones."""
    rows: list[Any] = []
    run, error = BulkPut("lines", is_dry=True), ""
    maker = MessageMaker(checked_fields(defaults), clock=lambda: NOW - 5)
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv(kernel.VARIABLE, choice)
        root = Path(directory) / "store"
        with (
            MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: NOW) as store,
            suppress(BadInputLine),
        ):
            for bulk in put_lines(store, Blocks(before), BulkPut("before"), flush=False):
                deque(bulk, maxlen=0)
        files = [(str(one), one.read_bytes()) for one in root.rglob("*") if one.is_file()]
        with MessageStore(root, CONFIG) as store:
            dry = DryPut(store, store.start_plan())
            try:
                rows += check_lines(dry, Blocks(blocks), run, maker)
            except BadInputLine as told:
                error = str(told)
        assert files == [(str(one), one.read_bytes()) for one in root.rglob("*") if one.is_file()]
    return Done([], rows, error, run, {})


cuts = st.lists(st.integers(1, 40), min_size=1, max_size=3)
