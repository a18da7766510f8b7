"""Real clients on a store that rmqctl serves, after its broker was killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import golden_data
from tests.interop.conftest import StartEngine
from tests.interop.engine import Engine, Row
from tests.interop.stores import conf_text, settings
from tests.interop.test_broker import GROUP, QUEUES, RESUME, TOPIC, message, write_config

SENT = 60


class Serving:
    """``rmqctl serve`` in a process of its own; ``rows`` are what it prints at its end."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.address = address
        self._process = process
        self.rows: list[Row] = []

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        out, _ = self._process.communicate(timeout=60)
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
        # The group goes on where it was.
        rest = consume(engine, server, GROUP, SENT - sum(RESUME.values()))
        tagged = consume(engine, server, "tagged", SENT // 2, expression="tag1 || none")
        by_sql = consume(engine, server, "by-sql", SENT // 2, sql="TAGS = 'tag0'")
        ordered = consume(engine, server, "in-order", SENT, orderly=True)
        looked = engine.ask(
            "clientLook", address=server.address, topic=TOPIC, offset=5, time=0, key="order-7"
        )
        refused = engine.ask("clientSend", address=server.address, topic=TOPIC)
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
        # One answer goes no further than the end of a queue's file.
        assert queue["status"] == "FOUND"
        assert [row["queueOffset"] for row in queue["messages"]] == list(range(5, queue["next"]))
    assert [b64decode(row["body"]) for row in looked["found"]] == [message(7, 0).body]
    assert "status" not in refused

    # What the clients have told is printed, and nothing of the store has changed.
    *committed, summary = server.rows
    told = {(r["group"], r["topic"], r["queue_id"]): r["committed_offset"] for r in committed}
    for group in ("fresh", GROUP, "tagged", "by-sql", "in-order"):
        for queue_id in range(QUEUES):
            assert told[group, TOPIC, queue_id] == SENT // QUEUES
    assert summary["connections"] >= 7
    assert golden_data.state(root) == before
