"""A whole broker (name server, broker, producer, push consumers, on loopback) on rmqctl's store."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqctl.engine.message import MessageExtBrokerInner
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record import Record
from rmqctl.engine.versions import not_understood
from tests.interop.engine import Engine, Row, message_row
from tests.interop.stores import V4, assert_clean, conf_text, config_of, settings

TOPIC, GROUP, QUEUES = "orders", "workers", 2
#: What a group has already consumed of each queue.
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
    """The topic, and a group that has consumed a part of it."""
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


class Watch:
    """Reading commands run over and over on a store, until the block ends; what each answered."""

    def __init__(self, here: list[str]) -> None:
        commands = [
            ["verify"],
            ["walk", "commitlog", "--limit", "20"],
            ["pull", "--topic", TOPIC, "--queue-id", "0", "--offset", "0"],
        ]
        self.answers: list[tuple[str, int, str]] = []
        self._commands = [[sys.executable, "-m", "rmqctl", *c, *here] for c in commands]
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._done.is_set() or len(self.answers) < len(self._commands):
            command = self._commands[len(self.answers) % len(self._commands)]
            done = subprocess.run(command, capture_output=True, text=True)
            self.answers.append((command[3], done.returncode, done.stdout[-500:] + done.stderr))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


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
@pytest.mark.proves("timer", level="named")
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
        got = engine.ask("consume", group=GROUP, topic=TOPIC, expression="*", count=wanted)
        sent = [message(200 + n, n % QUEUES) for n in range(30)]
        results = engine.ask("send", messages=[message_row(m) for m in sent])
        everything = 40 + 1 + len(sent)
        fresh = engine.ask("consume", group="late", topic=TOPIC, expression="*", count=everything)
        more = engine.ask(
            "consume", group=GROUP, topic=TOPIC, expression="tag1", count=len(sent) // 2
        )
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

    # The broker committed what was consumed, and what watched it saw nothing wrong.
    ends = {"0": in_store + 1 + 15, "1": in_store + 15}
    assert offsets[f"{TOPIC}@late"] == ends
    assert {code for _, code, _ in watch.answers} == {0}, watch.answers
    assert len(watch.answers) >= 3
    assert_clean(root, config_of(values), allowed=("not-understood",))
    unread = [what for _, what in not_understood(root)]
    assert unread == ([] if engine.version == "4.9.3" else ["timer wheel (5.x)"])
    with MessageStore(root, config_of(values)) as reader:
        records = [entry for entry in reader.commit_log.walk() if isinstance(entry, Record)]
    stored = {record.msg_id for record in records}
    assert {row["msgId"] for row in results} <= stored
