"""Processes killed by SIGKILL at random moments: nothing acknowledged is lost.

``RMQCTL_KILL_ROUNDS`` asks for more rounds.
"""

from __future__ import annotations

import json
import os
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from formats.text import index_key_hash
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from tests.processes import Process
from tests.test_safety.support import (
    assert_clean,
    assert_rebuild_is_identical,
    broker_conf,
    message,
    small_config,
)

ROUNDS = int(os.environ.get("RMQCTL_KILL_ROUNDS", "42"))
GENERATIONS = 3
CHILD = "tests.test_safety.child"

pytestmark = pytest.mark.slow


class Acknowledged(NamedTuple):
    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int


class Plan(NamedTuple):
    """Sizes of a store and of the bulks put into it."""

    config: MessageStoreConfig
    bulk: int
    body: int


def plan_of(chance: random.Random) -> Plan:
    """Small files that roll all the time, or larger ones in which a store spans many pages."""
    return Plan(
        small_config(
            log=chance.choice((1 << 16, 1 << 18, 1 << 20)),
            queue=chance.choice((1000, 1000, 100_000)),
            slots=100,
            items=chance.choice((1000, 20_000)),
        ),
        bulk=chance.choice((1, 40, 500, 3000)),
        body=chance.choice((30, 200, 3000)),
    )


def killed_run(delay: float, module: str, *arguments: str) -> list[str]:
    """Runs a module until ``delay`` seconds after the first line; the whole lines that were
    printed."""
    process = Process(module, *arguments)
    first = process.stdout.readline()
    killer = threading.Timer(delay, process.kill)
    killer.start()
    output = process.stdout.read()  # Else it would stand still, with its pipe full.
    killer.join()
    error = process.stderr.read().decode()
    process.wait()
    # What the run before has left is brought in order, and that is said.
    assert not [line for line in error.splitlines() if not line.startswith("note: ")], error
    return [line for line in (first + output).decode().splitlines(True) if line.endswith("\n")]


def acknowledged_by(lines: list[str]) -> list[Acknowledged]:
    return [Acknowledged(*row) for line in lines[1:] for row in json.loads(line)]


def assert_in_log(root: Path, config: MessageStoreConfig, wanted: list[Acknowledged]) -> None:
    """Already before anything recovers."""
    if not wanted:
        return
    with MessageStore(root, config) as store:
        for one in wanted:
            record = store.look_message_by_offset(one.physical_offset)
            place = record.topic, record.queue_id, record.queue_offset
            assert place == (one.topic, one.queue_id, one.queue_offset)


def assert_readable(store: MessageStore, wanted: list[Acknowledged]) -> None:
    """By physical offset, by queue offset and by key."""
    keys: dict[int, list[str]] = {}
    # Queue by queue: their files are small, and few of them stay open.
    for one in sorted(wanted, key=lambda one: one[1:]):
        record = store.look_message_by_offset(one.physical_offset)
        queue = store.consume_queue(one.topic, one.queue_id)
        assert queue is not None
        unit = queue.unit(one.queue_offset)
        assert unit is not None and one.queue_offset < queue.max_offset
        assert unit[:2] == (one.physical_offset, record.total_size)
        assert queue.tags_code(unit) == record.tags_code
        keys[one.physical_offset] = record.properties.get("KEYS", "").split()
    indexed = {
        place
        for file in store.index.files()
        for items in (file.items(1, file.item_count),)
        for place in zip(items["key_hash"].tolist(), items["physical_offset"].tolist(), strict=True)
    }
    for at, one in enumerate(wanted):
        for key in keys[one.physical_offset]:
            assert (index_key_hash(one.topic, key), one.physical_offset) in indexed
            if at % 397 == 0:
                hits = store.query_message(one.topic, key)
                assert one.physical_offset in [
                    hit.record.physical_offset for hit in hits if hit.matches and hit.record
                ]


def generations(chance: random.Random, root: Path, commands: Any, plan: Plan) -> None:
    """One store, killed and opened again some times."""
    wanted: list[Acknowledged] = []
    for _ in range(chance.randint(1, GENERATIONS)):
        delay = chance.choice((0, chance.random() * 0.02, chance.random() * 0.15))
        found = acknowledged_by(commands(delay))
        if (root / "commitlog").exists():
            assert_clean(root, plan.config, "torn-tail")
        # The others are looked for at the end.
        assert_in_log(root, plan.config, found)
        wanted += found
    with MessageStore(root, plan.config, writable=True, create=True) as store:
        assert_readable(store, wanted)
        for number in range(3):
            assert store.put_message(message(number)).is_ok
    assert_clean(root, plan.config)
    assert_rebuild_is_identical(root, plan.config, root.parent / f"{root.name}-rebuilt")


@pytest.mark.parametrize("number", range(max(ROUNDS // 5, 5)))
def test_services_and_a_pool_lose_at_most_what_was_not_committed(
    fast_path: Path, chance: random.Random, number: int
) -> None:
    """Answers come before the commit here, as a broker's do; what a kill takes is the end of the
    log and nothing else."""
    root, plan = fast_path / "store", plan_of(chance)
    plan = plan._replace(
        config=replace(
            plan.config,
            transient_store_pool_enable=True,
            enable_consume_queue_ext=chance.choice((True, False)),
            mapped_file_size_consume_queue_ext=400,
        )
    )
    wanted: list[Acknowledged] = []
    for _ in range(chance.randint(1, GENERATIONS)):
        child = {
            "store": str(root),
            "conf": broker_conf(plan.config),
            "seed": f"{chance.random()}",
            "bulk": plan.bulk,
            "body": plan.body,
            "services": True,
        }
        # Long enough for some commits, which come every 200 milliseconds.
        lines = killed_run(chance.random() * 0.6, CHILD, json.dumps(child))
        wanted += acknowledged_by(lines)
        if not (root / "commitlog").exists():
            continue
        assert_clean(root, plan.config, "torn-tail")
        with MessageStore(root, plan.config) as store:
            wanted = [one for one in wanted if one.physical_offset < store.max_offset]
        assert_in_log(root, plan.config, wanted)
    with MessageStore(root, plan.config, writable=True, create=True) as store:
        assert_readable(store, wanted)
        for at in range(3):
            assert store.put_message(message(at)).is_ok
    assert_clean(root, plan.config)
    assert_rebuild_is_identical(root, plan.config, root.parent / f"{root.name}-rebuilt")


@pytest.mark.parametrize("number", range(ROUNDS))
def test_nothing_acknowledged_is_lost(fast_path: Path, chance: random.Random, number: int) -> None:
    root, plan = fast_path / "store", plan_of(chance)

    def run(delay: float) -> list[str]:
        child = {
            "store": str(root),
            "conf": broker_conf(plan.config),
            "seed": f"{chance.random()}",
            "bulk": plan.bulk,
            "body": plan.body,
        }
        return killed_run(delay, CHILD, json.dumps(child))

    generations(chance, root, run, plan)


@pytest.mark.parametrize("number", range(max(ROUNDS // 8, 5)))
@pytest.mark.parametrize("how", ["sync", "async", "none"])
def test_nothing_acknowledged_by_the_command_is_lost(
    fast_path: Path, chance: random.Random, number: int, how: str
) -> None:
    """The same by ``rmqctl put --from``: what it printed is there. A pool changes nothing about
    that: what is answered was committed."""
    root, plan = fast_path / "store", plan_of(chance)
    conf = fast_path / "broker.conf"
    conf.write_text(broker_conf(plan.config))
    source = fast_path / "messages.ndjson"
    # As text: json would take longer to write them than rmqctl to store them.
    source.write_text(
        "".join(
            f'{{"topic": "topic{at % 3}", "queue_id": {at // 3 % 2}, "keys": "k{at}", '
            f'"tags": "t{at % 5}", "body": "{"x" * chance.randint(0, plan.body)}"}}\n'
            for at in range(20_000 if plan.body < 1000 else 4000)
        )
    )
    command = ["put", "--store", str(root), "--create", "--broker-conf", str(conf)]
    command += ["--format", "ndjson", "--from", str(source)]
    if how != "sync":
        command += ["--flush", how, "--transient-store-pool"]

    def run(delay: float) -> list[str]:
        lines = killed_run(delay, "rmqctl", *command)
        rows = [json.loads(line) for line in lines]
        assert {row["status"] for row in rows if row["type"] == "append_result"} <= {"PUT_OK"}
        return ["open\n"] + [
            json.dumps([[row["wrote_offset"], row["topic"], row["queue_id"], row["queue_offset"]]])
            for row in rows
            if row["type"] == "append_result"
        ]

    generations(chance, root, run, plan)
