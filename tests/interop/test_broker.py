"""A whole broker (name server, broker, producer, push consumers, on loopback) on rmqctl's store."""

from __future__ import annotations

import json
import random
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.state.laterversions import not_understood
from tests import processes
from tests.interop.engine import Engine, Row, message_row
from tests.interop.stores import V4, assert_clean, conf_text, config_of, settings

TOPIC, GROUP, QUEUES = "orders", "workers", 2
#: How many messages of each queue a group has already consumed.
RESUME = {0: 7, 1: 3}


def message(number: int, queue_id: int, **properties: str) -> MessageExtBrokerInner:
    return MessageExtBrokerInner(
        TOPIC,
        f"body {number} ".encode() * (number % 5 * 300 + 1),
        queue_id,
        properties={"TAGS": f"tag{number % 2}", "KEYS": f"order-{number}", **properties},
        born_timestamp=1_700_000_000_000 + number,
        born_host=V4[0],
        store_host=V4[1],
    )


def write_config(root: Path) -> None:
    """Writes the files for the topic, and for a group that has consumed a part of it."""
    topic = {
        "topicName": TOPIC,
        "readQueueNums": QUEUES,
        "writeQueueNums": QUEUES,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: topic}}))
    offsets = ",".join(f"{queue_id}:{offset}" for queue_id, offset in RESUME.items())
    text = f'{{"offsetTable":{{"{TOPIC}@{GROUP}":{{{offsets}}}}}}}'
    (root / "config" / "consumerOffset.json").write_text(text)


def rows_of(*arguments: str, kind: str) -> list[Row]:
    """The rows of a command that are of one type."""
    done = processes.run("rmqctl", *arguments, "--json")
    assert done.returncode in (0, 1), done.stderr
    return [row for row in json.loads(done.stdout) if row["type"] == kind]


def consume(engine: Engine, group: str, expression: str, count: int, **more: bool) -> list[Row]:
    request = {"topic": TOPIC, "failing": False, **more}
    rows: list[Row] = engine.ask(
        "consume", group=group, expression=expression, count=count, **request
    )
    return rows


class Watch:
    """Runs reading commands on a store again and again, until the block ends, and keeps their
    answers."""

    def __init__(self, here: list[str]) -> None:
        commands = [
            ["verify"],
            ["walk", "commitlog", "--limit", "20"],
            ["pull", "--topic", TOPIC, "--queue-id", "0", "--offset", "0"],
            ["schedule", "ls"],
            ["transaction", "ls", "--all"],
        ]
        self.answers: list[tuple[str, int, str]] = []
        self._commands = [[*command, *here] for command in commands]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._done.is_set() or len(self.answers) < len(self._commands):
            command = self._commands[len(self.answers) % len(self._commands)]
            done = processes.run("rmqctl", *command)
            nothing = command[0] == "transaction" and done.returncode == 1
            code = 0 if nothing else done.returncode  # there are no transactions at first
            self.answers.append((command[0], code, done.stdout[-500:] + done.stderr))
            # Leaves some of the processor to the broker.
            self._done.wait(0.1)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


FAILING_GROUP = "stumbling"
FAILING = [message_row(message(300 + n, n % QUEUES, TAGS="again")) for n in range(2)]
#: What a transaction's producer says → its half message.
HALVES = {
    state: message_row(message(400 + n, 0, TAGS="paid"))
    for n, state in enumerate(("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"))
}


def fail_once(engine: Engine) -> list[Row]:
    """Consumes messages, and fails once with each; gives every delivery."""
    engine.ask("send", messages=FAILING)
    return consume(engine, FAILING_GROUP, "again", 2 * len(FAILING), failing=True)


def end_transactions(engine: Engine, here: list[str]) -> list[Row]:
    """Sends a transaction of every outcome; gives what a consumer gets of them."""
    halves = [{**row, "state": state} for state, row in HALVES.items()]
    assert engine.ask("transact", messages=halves) == ["SEND_OK"] * len(halves)
    got = consume(engine, "cashier", "paid", 1)
    # A producer does not wait until the broker has stored the end of a transaction.
    end = time.monotonic() + 120
    while len(rows_of("transaction", "ls", *here, kind="half_message")) != 1:
        assert time.monotonic() < end, "the broker does not note the ends of transactions"
        time.sleep(0.1)
    return got


@pytest.fixture
def store(chance: random.Random, tmp_path: Path) -> Iterator[tuple[Path, Row]]:
    values = {
        **settings(chance, light_queues=False),
        "mappedFileSizeCommitLog": 1 << 18,
        "mappedFileSizeTimerLog": 1 << 20,
        "maxMessageSize": 1 << 17,
    }
    root = tmp_path / "store"
    with MessageStore(root, config_of(values), writable=True, create=True) as writer:
        for number in range(40):
            assert writer.put_message(message(number, number % QUEUES), flush=False).is_ok
        delayed = message(100, 0, DELAY="1")
        assert writer.put_message(delayed, flush=False).is_ok
    write_config(root)
    yield root, values


@pytest.mark.proves("broker")
def test_a_broker_runs_on_a_store_that_rmqctl_made(
    engine: Engine, store: tuple[Path, Row], tmp_path: Path
) -> None:
    root, values = store
    conf = tmp_path / "broker.conf"
    conf.write_text(conf_text(values), "utf-8")
    here = ["--store", str(root), "--broker-conf", str(conf)]
    in_store = 40 // QUEUES
    engine.ask("broker", root=str(root), config=values)
    with Watch(here) as watch:
        # The group goes on where it was; the delayed message is delivered into queue 0.
        wanted = sum(in_store - offset for offset in RESUME.values()) + 1
        got = consume(engine, GROUP, "*", wanted)
        sent = [message(200 + n, n % QUEUES) for n in range(30)]
        results = engine.ask("send", messages=[message_row(m) for m in sent])
        everything = 40 + 1 + len(sent)
        fresh = consume(engine, "late", "*", everything)
        more = consume(engine, GROUP, "tag1", len(sent) // 2)
        retried = fail_once(engine)
        paid = end_transactions(engine, here)
    offsets = engine.ask("offsets")
    engine.ask("stop")

    places = {(row["queueId"], row["queueOffset"]): b64decode(row["body"]) for row in got}
    expected = {
        (number % QUEUES, number // QUEUES): message(number, 0).body
        for number in range(40)
        if number // QUEUES >= RESUME[number % QUEUES]
    }
    assert {place: body for place, body in places.items() if place in expected} == expected
    assert len(got) == wanted
    assert sorted(set(places) - set(expected)) == [(0, in_store)]  # the delayed one
    assert places[0, in_store] == message(100, 0).body
    assert {row["status"] for row in results} == {"SEND_OK"}
    assert len({row["physicalOffset"] for row in fresh}) == len(fresh) == everything
    assert sorted(b64decode(r["body"]) for r in more) == sorted(m.body for m in sent[1::2])

    # Each message came, failed, and came again through a delay level and the retry topic.
    assert sorted((row["body"], row["reconsumeTimes"]) for row in retried) == sorted(
        (row["body"], times) for row in FAILING for times in (0, 1)
    )
    assert [row["body"] for row in paid] == [HALVES["COMMIT_MESSAGE"]["body"]]

    # The broker committed what was consumed, and the commands that ran meanwhile found no fault.
    ends = {"0": in_store + 1 + 15, "1": in_store + 15}
    assert offsets[f"{TOPIC}@late"] == ends
    wrong = [answer for answer in watch.answers if answer[1]]
    assert not wrong, "\n".join(map(str, wrong[0]))
    assert len(watch.answers) >= 3
    assert_clean(root, config_of(values), allowed=("not-understood",))
    # One of the transactions is still pending.
    (pending,) = rows_of("transaction", "ls", *here, kind="half_message")
    assert (pending["real_topic"], pending["state"]) == (TOPIC, "pending")
    # 4.9.3 keeps the offset of the message that it delivered last, not the next one.
    (level,) = rows_of("schedule", "ls", *here, kind="delay_level")
    assert level["max_offset"] == 1 + len(FAILING)
    assert level["pending"] <= (engine.version == "4.9.3")
    walked = {row["topic"] for row in rows_of("walk", "commitlog", *here, kind="message")}
    assert {TOPIC, f"%RETRY%{FAILING_GROUP}", "RMQ_SYS_TRANS_OP_HALF_TOPIC"} <= walked
    assert list(not_understood(root)) == []
    with MessageStore(root, config_of(values)) as reader:
        records = [entry for entry in reader.commit_log.walk() if isinstance(entry, Record)]
    stored = {record.msg_id for record in records}
    assert {row["msgId"] for row in results} <= stored
