"""What a command prints of messages can be put in again, and gives the same messages."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import constants
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import Host, MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.operations.change.messagemaker import MessageMaker
from rmqctl.operations.change.putbatches import put_batches
from rmqctl.operations.change.putstream import BulkPut, put_lines
from rmqctl.operations.look.index import query
from rmqctl.operations.look.message import look_message
from rmqctl.operations.look.pull import pull
from rmqctl.operations.look.walk import Selection, walk_commit_log
from rmqctl.operations.verify import verify
from rmqctl.rows import Row
from tests import golden_data, random_messages
from tests.conftest import Golden
from tests.seeds import times

CONFIG = parse_broker_conf(
    "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\n"
    "maxHashSlotNum=50\nmaxIndexNum=200\n"
)
#: What is another one's in another store, or at another place.
OWN = {"physical_offset", "store_timestamp", "msg_id"}
STORES = golden_data.STORES
SPELLINGS = ("utf8", "base64", "hex")


def words(longest: int) -> st.SearchStrategy[str]:
    """Texts that a property can be, control characters and all."""
    characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0\1\2")
    return st.text(characters, min_size=1, max_size=longest)


def hosts() -> st.SearchStrategy[Host]:
    address = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
    return st.tuples(address, st.integers(0, 0xFFFF))


@st.composite
def messages(draw: st.DrawFn) -> MessageExtBrokerInner:
    """Messages of all kinds that a store can hold, records of the store's own topics included."""
    names = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "REAL_TOPIC", "REAL_QID", "WAIT"])
    properties = draw(st.dictionaries(names | words(5), words(12), max_size=5))
    if draw(st.booleans()):
        properties[constants.PROPERTY_DELAY_TIME_LEVEL] = draw(st.sampled_from(["0", "3", "99"]))
    body = draw(st.binary(max_size=60) | st.text(max_size=30).map(lambda text: text.encode()))
    sys_flag = draw(st.sampled_from([0, 0, 0, 2, 4, 8, 12]))
    if draw(st.booleans()):
        body, sys_flag = zlib.compress(body), sys_flag | constants.COMPRESSED_FLAG
    return MessageExtBrokerInner(
        draw(st.sampled_from(["a", "b", constants.RMQ_SYS_SCHEDULE_TOPIC, "%RETRY%g"])),
        body,
        draw(st.integers(0, 2)),
        draw(st.integers(-(1 << 31), (1 << 31) - 1)),
        sys_flag,
        properties,
        None,
        draw(st.integers(-(1 << 63), (1 << 63) - 1)),
        draw(hosts()),
        draw(hosts()),
        draw(st.integers(-(1 << 31), (1 << 31) - 1)),
        draw(st.integers(-(1 << 63), (1 << 63) - 1)),
        draw(st.booleans()),
    )


def new_store(path: Path, config: MessageStoreConfig = CONFIG) -> WritableStore:
    clock = count(1_700_000_000_000)
    return MessageStore(path, config, writable=True, create=True, clock=lambda: next(clock))


def walked(store: MessageStore, spelling: str = "base64", limit: int | None = None) -> list[Row]:
    return list(walk_commit_log(store, Selection(), spelling, decompress_limit=limit))


def kept(rows: Iterable[Row], *less: str) -> list[Row]:
    """The messages among rows, without what is another one's in another store."""
    return [
        {name: value for name, value in row.items() if name not in OWN.union(less)}
        for row in rows
        if row["type"] == "message"
    ]


def lines(rows: Iterable[Row]) -> Iterator[bytes]:
    return (json.dumps(row).encode() for row in rows)


def put_rows(store: WritableStore, rows: Iterable[Row], batch: int = 0) -> BulkPut:
    run = BulkPut("rows")
    made = MessageMaker(clock=lambda: 0)
    if batch:
        bulks = put_batches(store, lines(rows), run, size=batch, maker=made)
    else:
        bulks = put_lines(store, lines(rows), run, maker=made)
    for bulk in bulks:
        list(bulk)
    assert run.refused is None
    return run


@settings(max_examples=times(60))
@given(st.lists(messages(), max_size=12), st.sampled_from(SPELLINGS), st.sampled_from([0, 3]))
def test_walk_put_walk_gives_the_same_messages(
    sent: list[MessageExtBrokerInner], spelling: str, batch: int
) -> None:
    with TemporaryDirectory() as place:
        with new_store(Path(place, "old")) as old:
            assert all(result.is_ok for result in old.put_messages(sent))
            rows = walked(old, spelling)
        with new_store(Path(place, "new")) as new:
            run = put_rows(new, rows, batch)
            assert kept(walked(new, spelling)) == kept(rows)
        assert run.stored == len(sent)
        *findings, _ = verify(Path(place, "new"), CONFIG)
        assert [one for one in findings if getattr(one, "severity", "") == "error"] == []


@settings(max_examples=times(30))
@given(st.lists(messages(), max_size=12), st.sampled_from(SPELLINGS))
def test_pull_put_gives_the_same_messages(sent: list[MessageExtBrokerInner], spelling: str) -> None:
    with TemporaryDirectory() as place:
        with new_store(Path(place, "old")) as old:
            old.put_messages(sent)
            queues = [(one.topic, one.queue_id) for one in old.queues.directories()]
            pulled = {at: list(pull(old, *at, max_messages=99, body=spelling)) for at in queues}
        with new_store(Path(place, "new")) as new:
            for rows in pulled.values():
                put_rows(new, rows)
            for at, rows in pulled.items():
                again = list(pull(new, *at, max_messages=99, body=spelling))
                assert kept(again) == kept(rows)


def test_thousands_of_messages_go_round(chance: random.Random, tmp_path: Path) -> None:
    """walk → put → walk, and pull → put → pull, of one store."""
    old, new, pulled = (new_store(tmp_path / name) for name in ("old", "new", "pulled"))
    with old, new, pulled:
        sent = list(random_messages.messages(chance, 4000))
        assert all(result.is_ok for bulk in old.put_stream(sent) for result in bulk)
        rows = walked(old)
        assert put_rows(new, rows).stored == len(sent)
        assert kept(walked(new)) == kept(rows)
        for where in old.queues.directories():
            at = where.topic, where.queue_id
            of_queue = pulled_whole(old, *at)
            put_rows(pulled, of_queue)
            assert kept(pulled_whole(pulled, *at)) == kept(of_queue)


def pulled_whole(store: MessageStore, topic: str, queue_id: int) -> list[Row]:
    """All messages of a queue, pull by pull."""
    rows: list[Row] = []
    while True:
        found = list(pull(store, topic, queue_id, offset=len(rows), max_messages=999, body="utf8"))
        messages = [row for row in found if row["type"] == "message"]
        if not messages:
            return rows
        rows += messages


@settings(max_examples=times(30))
@given(st.lists(messages(), max_size=6))
def test_decompressed_bodies_go_in_as_they_are(sent: list[MessageExtBrokerInner]) -> None:
    """A consumer gets the same; the record says no more that its body is compressed."""
    of_the_stored = ("total_size", "sys_flag", "body_crc", "body_length")
    of_the_way = ("body_compression", "body_status")
    with TemporaryDirectory() as place:
        with new_store(Path(place, "old")) as old:
            old.put_messages(sent)
            rows = walked(old, "utf8", 1 << 20)
        with new_store(Path(place, "new")) as new:
            put_rows(new, rows)
            again = walked(new, "utf8", 1 << 20)
    assert kept(again, *of_the_stored, *of_the_way) == kept(rows, *of_the_stored, *of_the_way)
    assert not any(row["sys_flag"] & constants.COMPRESSED_FLAG for row in kept(again))


@pytest.mark.parametrize("name", STORES)
def test_the_messages_of_every_golden_store(name: str, golden: Golden, tmp_path: Path) -> None:
    """Queue offsets are others where the old log does not begin with the first message, and so are
    sizes where properties have entries without a value, which no reader sees."""
    others = ("queue_offset", "total_size")
    config = golden_data.broker_conf(name)
    with MessageStore(golden(name), config) as old:
        rows = walked(old)
    with new_store(tmp_path / "new", config) as new:
        put_rows(new, rows)
        assert kept(walked(new), *others) == kept(rows, *others)
    *findings, _ = verify(tmp_path / "new", config)
    assert [one for one in findings if getattr(one, "severity", "") == "error"] == []


def test_rows_of_every_command_go_in(tmp_path: Path) -> None:
    properties = {"KEYS": "k", "TAGS": "t"}
    with new_store(tmp_path / "old") as old:
        for number in range(3):
            old.put_message(MessageExtBrokerInner("a", b"body %d" % number, properties=properties))
        found = list(query(old, "a", "k", body="utf8"))
        one = look_message(old, "0", "hex")
    with new_store(tmp_path / "new") as new:
        assert put_rows(new, found).stored == 3
        assert put_rows(new, [one]).stored == 1
        bodies = [bytes.fromhex(row["body"]) for row in kept(walked(new, "hex"))]
    assert bodies == [b"body 0", b"body 1", b"body 2", b"body 0"]
