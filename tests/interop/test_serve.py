"""Real clients on a store that rmqctl serves, after its broker was killed."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from tests import golden_data
from tests.interop.conftest import StartEngine
from tests.interop.engine import Engine, Row, message_row
from tests.interop.stores import assert_clean, conf_text, config_of, settings
from tests.interop.test_broker import GROUP, QUEUES, RESUME, TOPIC, message, write_config

SENT = 60
LEDGER = "ledger"
#: How many messages a consumer of tag1 gets, and sends back.
FAILING = 6


class Serving:
    """``rmqctl serve`` in a process of its own; ``rows`` is what it has printed when it ended."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.address = address
        self._process = process
        self.rows: list[Row] = []

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        out, _ = self._process.communicate(timeout=200)
        self.rows = [json.loads(line) for line in out.splitlines()]
        return self._process.returncode


@contextmanager
def serving(root: Path, conf: Path, *options: str) -> Iterator[Serving]:
    command = [sys.executable, "-m", "rmqctl", "serve", "--listen", "127.0.0.1:0"]
    here = ["--store", str(root), "--broker-conf", str(conf), "--format", "ndjson"]
    process = subprocess.Popen([*command, *options, *here], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Serving(process, json.loads(process.stdout.readline())["address"])
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def killed(start_engine: StartEngine, chance: random.Random, tmp_path: Path) -> tuple[Path, Path]:
    """The store of an engine that was killed with messages in it, and its configuration."""
    values = {
        **settings(chance, light_queues=False),
        "mappedFileSizeCommitLog": 1 << 18,
        "mappedFileSizeTimerLog": 1 << 20,
        "maxMessageSize": 1 << 17,
    }
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(conf_text(values) + "brokerName=lost\n", "utf-8")
    root.mkdir()
    write_config(root)
    engine = start_engine()
    store = engine.open(root, values)
    sent = store.put([message(n, n % QUEUES) for n in range(SENT)])
    assert {row["status"] for row in sent} == {"PUT_OK"}
    store.settle()
    engine.kill()
    assert (root / "abort").exists()
    return root, conf


def consume(engine: Engine, server: Serving, group: str, count: int, **more: Any) -> list[Row]:
    asked = {"topic": TOPIC, "expression": "*", **more}
    rows: list[Row] = engine.ask(
        "clientConsume", address=server.address, group=group, count=count, **asked
    )
    return rows


def row_of(one: MessageExtBrokerInner, **more: str) -> Row:
    """A message as a row for the driver, the same for two brokers."""
    return message_row(one) | more


def places(rows: list[Row]) -> dict[tuple[int, int], bytes]:
    return {(row["queueId"], row["queueOffset"]): b64decode(row["body"]) for row in rows}


@pytest.mark.proves("serve")
def test_clients_read_the_store_of_a_killed_broker_to_its_end(
    killed: tuple[Path, Path], start_engine: StartEngine
) -> None:
    root, conf = killed
    before = golden_data.state(root)
    engine = start_engine()
    everything = {(n % QUEUES, n // QUEUES): message(n, 0).body for n in range(SENT)}
    with serving(root, conf, "--read-only") as server:
        fresh = consume(engine, server, "fresh", SENT)
        # The group goes on at its offset.
        rest = consume(engine, server, GROUP, SENT - sum(RESUME.values()))
        tagged = consume(engine, server, "tagged", SENT // 2, expression="tag1 || none")
        by_sql = consume(engine, server, "by-sql", SENT // 2, sql="TAGS = 'tag0'")
        ordered = consume(engine, server, "in-order", SENT, orderly=True)
        looked = engine.ask(
            "clientLook", address=server.address, topic=TOPIC, offset=5, time=0, key="order-7"
        )
        # A producer finds no queue to which it may send.
        lonely = row_of(message(0, 0))
        del lonely["queueId"]
        (refused,) = engine.ask("clientSend", address=server.address, messages=[lonely])
        assert server.stop() == 0

    assert len(fresh) == len(ordered) == SENT
    assert places(fresh) == places(ordered) == everything
    assert places(rest) == {p: b for p, b in everything.items() if p[1] >= RESUME[p[0]]}
    assert sorted(map(str, places(tagged).values())) == sorted(
        str(message(n, 0).body) for n in range(1, SENT, 2)
    )
    assert len(by_sql) == SENT // 2
    for queue_id in range(QUEUES):
        offsets = [row["queueOffset"] for row in ordered if row["queueId"] == queue_id]
        assert offsets == list(range(SENT // QUEUES))
        (queue,) = [one for one in looked["queues"] if one["queueId"] == queue_id]
        assert (queue["min"], queue["max"], queue["at"]) == (0, SENT // QUEUES, 0)
        # An answer to one pull ends with a queue file.
        assert queue["status"] == "FOUND"
        assert [row["queueOffset"] for row in queue["messages"]] == list(range(5, queue["next"]))
    assert [b64decode(row["body"]) for row in looked["found"]] == [message(7, 0).body]
    assert "status" not in refused and refused["refused"]

    # The offsets that clients committed are printed, and the store has not changed.
    *committed, summary = server.rows
    told = {(r["group"], r["topic"], r["queue_id"]): r["committed_offset"] for r in committed}
    for group in ("fresh", GROUP, "tagged", "by-sql", "in-order"):
        for queue_id in range(QUEUES):
            assert told[group, TOPIC, queue_id] == SENT // QUEUES
    assert summary["connections"] >= 7
    assert golden_data.state(root) == before


# --- messages that are sent ----------------------------------------------------------------------


def with_id(number: int, queue_id: int, **properties: str) -> MessageExtBrokerInner:
    """A message that has its unique key already, so that the producer does not make one."""
    return message(
        number, queue_id, UNIQ_KEY=f"7F00000100002A139F2B4E3D0C0A{number:04X}", **properties
    )


#: What a producer says at the end of a transaction → records that the broker stores for it.
ENDS = {"COMMIT_MESSAGE": 2, "ROLLBACK_MESSAGE": 1, "UNKNOW": 0}


def send_of_every_kind(engine: Engine, address: str, root: Path, values: Row) -> list[list[Row]]:
    """Sends messages, a batch, delayed ones, transactions of every outcome, and one that a consumer
    sends back; gives what the producer was told."""
    answers = []
    asked: list[Row] = [
        {"messages": [row_of(with_id(n, n % QUEUES)) for n in range(6)]},
        {"messages": [row_of(with_id(n, 1)) for n in range(10, 14)], "batch": True},
        {"messages": [row_of(with_id(20, 0, DELAY="16")), row_of(with_id(21, 0, WAIT="false"))]},
    ]
    for state in ENDS:
        # A producer would choose among queues at random, so this topic has one.
        half = row_of(with_id(30, 0), state=state, topic=LEDGER)
        del half["queueId"]
        asked.append({"messages": [half]})
    stored = 0
    for one in asked:
        answers.append(engine.ask("clientSend", address=address, **one))
        # The producer does not learn when the end of a transaction is stored.
        stored += sum(1 + ENDS.get(row.get("state", ""), 0) for row in one["messages"])
        await_records(root, values, stored)
    return answers


def await_records(root: Path, values: Row, count: int) -> None:
    """Waits until a server, or a broker, has stored so many records."""
    end = time.monotonic() + 60
    while (found := len(records(root, values))) != count:
        assert time.monotonic() < end, f"{found} records, and not {count}"
        time.sleep(0.02)


def records(root: Path, values: Row) -> list[Record]:
    with MessageStore(root, config_of(values)) as store:
        return [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]


def shape(root: Path, record: Record, values: Row) -> Row:
    """A record without what differs between two brokers: times and ports."""
    with MessageStore(root, config_of(values)) as store:
        body = store.body(record)
    kept = (
        "physical_offset", "total_size", "body_crc", "queue_id", "flag", "queue_offset", "sys_flag",
        "reconsume_times", "prepared_transaction_offset", "topic_bytes", "properties_bytes",
    )  # fmt: skip
    return {name: getattr(record, name) for name in kept} | {"body": body}


#: Fields that differ in a record of 5.x: the places of records, its length, and its properties.
_OF_FORM = ("physical_offset", "prepared_transaction_offset", "total_size", "properties_bytes")


def messages_of(rows: list[Row], topics: set[bytes]) -> list[Row]:
    """The part of messages that is the same in both forms of a record, and only for these topics:
    5.x notes the ends of transactions at times of its own, and its services have further topics."""
    return [
        {name: value for name, value in row.items() if name not in _OF_FORM}
        | {"properties_bytes": b"RETRY_TOPIC" if b"RETRY_TOPIC" in row["properties_bytes"] else b""}
        for row in rows
        if row["topic_bytes"] in topics - {b"RMQ_SYS_TRANS_OP_HALF_TOPIC"}
    ]


def without_origin(properties: bytes) -> bytes:
    """Properties without the id of the message that came back, which has the broker's port."""
    return re.sub(rb"(ORIGIN_MESSAGE_ID\x01)[0-9A-F]{32}", rb"\1", properties)


@pytest.mark.proves("serve-writes", level={"5.3.3": "partly"})
def test_what_is_sent_is_stored_as_a_broker_stores_it(
    start_engine: StartEngine, chance: random.Random, tmp_path: Path
) -> None:
    """rmqctl stores the same bytes as 4.9.3. 5.3.3 has another form of record; it stores the same
    messages at the same places of the same queues, and goes on with rmqctl's store."""
    engine = start_engine()
    values = settings(chance, light_queues=False) | {
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeTimerLog": 1 << 20,
    }
    ours, theirs = tmp_path / "ours", tmp_path / "store"
    conf = tmp_path / "broker.conf"
    conf.write_text(conf_text(values) + "brokerName=interop\n", "utf-8")
    for root in (ours, theirs):
        make_store(root, values)
    failing = {"topic": TOPIC, "expression": "tag1", "group": "stumbling", "failing": True}

    def dialogue(address: str, root: Path) -> list[tuple[str, int]]:
        """Status and queue offset of all messages that are sent."""
        answers = send_of_every_kind(engine, address, root, values)
        engine.ask("clientConsume", address=address, count=FAILING, **failing)
        return [(row["status"], row["queueOffset"]) for rows in answers for row in rows]

    with serving(ours, conf) as server:
        told = dialogue(server.address, ours)
        assert server.stop() == 0
    assert {status for status, _ in told} == {"SEND_OK"}
    assert not (ours / "abort").exists()
    assert_clean(ours, config_of(values))
    engine.ask("broker", root=str(theirs), config=values)
    assert told == dialogue(engine.ask("address"), theirs)
    engine.ask("stop")
    stored = [[shape(r, one, values) for one in records(r, values)] for r in (ours, theirs)]
    if engine.version != "4.9.3":
        topics = {row["topic_bytes"] for row in stored[0]}
        stored = [messages_of(rows, topics) for rows in stored]
    compare(*stored)
    # A broker starts on the store: nothing is lost, and groups go on at their offsets.
    engine.ask("broker", root=str(ours), config=values)
    (new,) = engine.ask(
        "clientSend", address=engine.ask("address"), messages=[row_of(with_id(41, 0))]
    )
    assert new["status"] == "SEND_OK"
    got = engine.ask("clientConsume", address=engine.ask("address"), count=1, **failing)
    engine.ask("stop")
    assert [b64decode(row["body"]) for row in got] == [message(41, 0).body]


def make_store(root: Path, values: Row) -> None:
    """Makes a store with a topic of two queues, and a topic of one queue."""
    MessageStore(root, config_of(values), writable=True, create=True).close()
    write_config(root)
    path = root / "config" / "topics.json"
    table = json.loads(path.read_text())["topicConfigTable"]
    one = {"topicName": LEDGER, "readQueueNums": 1, "writeQueueNums": 1}
    path.write_text(json.dumps({"topicConfigTable": table | {LEDGER: table[TOPIC] | one}}))


def compare(ours: list[Row], theirs: list[Row]) -> None:
    """Compares rows; messages that consumers send back come in any order, as their threads do."""
    sent = [one for one in ours if b"RETRY_TOPIC" not in one["properties_bytes"]]
    assert sent == theirs[: len(sent)]
    backs, others = (
        sorted((without_origin(one["properties_bytes"]), one["body"]) for one in rows[len(sent) :])
        for rows in (ours, theirs)
    )
    assert backs == others
    assert len(backs) == FAILING


ACCOUNTS = """
accounts:
- {accessKey: shopkeeper, secretKey: of-the-shop, topicPerms: [orders=PUB|SUB], \
groupPerms: [buyers=SUB]}
"""


@pytest.mark.proves("serve-secured")
def test_clients_sign_and_speak_tls(
    start_engine: StartEngine,
    chance: random.Random,
    certificate: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    engine = start_engine()
    values = settings(chance, light_queues=False) | {"mappedFileSizeCommitLog": 1 << 20}
    root, conf, acl = tmp_path / "store", tmp_path / "broker.conf", tmp_path / "plain_acl.yml"
    conf.write_text(conf_text(values) + "brokerName=interop\n", "utf-8")
    acl.write_text(ACCOUNTS)
    make_store(root, values)
    (root / "config" / "consumerOffset.json").unlink()
    tls = ["--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])]
    keys = {"accessKey": "shopkeeper", "secretKey": "of-the-shop", "tls": True}
    with serving(root, conf, "--acl-file", str(acl), *tls) as server:
        rows = [row_of(with_id(n, n % QUEUES)) for n in range(4)]
        sent = engine.ask("clientSend", address=server.address, messages=rows, **keys)
        (stranger,) = engine.ask(
            "clientSend", address=server.address, messages=rows[:1], **keys | {"secretKey": "guess"}
        )
        other = row_of(with_id(9, 0), topic=LEDGER)
        (elsewhere,) = engine.ask("clientSend", address=server.address, messages=[other], **keys)
        got = consume(engine, server, "buyers", 4, **keys)
        assert server.stop() == 0
    assert {row["status"] for row in sent} == {"SEND_OK"}
    assert "Check signature failed" in stranger["refused"]
    assert "No permission PUB for topic ledger" in elsewhere["refused"]
    assert len(got) == 4
