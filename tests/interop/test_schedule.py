"""Delayed and transactional messages that rmqctl has delivered to their topics: the engine has them
there, and its own services have nothing left to do for them."""

from __future__ import annotations

import random
import time
from pathlib import Path

from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from tests.golden_data import copy_tree
from tests.interop.commands import Rmqctl, only
from tests.interop.engine import Engine, EngineStore, Row, message_row
from tests.interop.stores import (
    TOPICS,
    Messages,
    assert_agree,
    assert_clean,
    config_of,
    settings,
)

pytestmark = only("4.9.3")
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
#: The first two levels are due at once; the engine first looks for due messages a second after its
#: start.
LEVELS = "0s 0s 1h"


def delayed(messages: Messages, count: int, level: int) -> list[MessageExtBrokerInner]:
    made = [messages.plain() for _ in range(count)]
    for number, message in enumerate(made):
        message.properties |= {"DELAY": str(level), "KEYS": f"level{level}-{number}"}
    return made


def put(root: Path, values: Row, made: list[MessageExtBrokerInner]) -> None:
    with MessageStore(root, config_of(values), writable=True, create=True) as writer:
        assert all(writer.put_message(message, flush=False).is_ok for message in made)


def delivered(rows: list[Row]) -> list[Row]:
    """The delivered messages in log order, without what depends on the time."""
    return [
        {name: value for name, value in row.items() if name not in ("storeTimestamp",)}
        for row in rows
        if row["topic"] != SCHEDULE
    ]


def wait_for(store: EngineStore, count: int) -> list[Row]:
    """Waits until the engine's own service has delivered ``count`` messages; gives them."""
    end = time.monotonic() + 120
    while True:
        found = delivered(store.dump()["message"])
        if len(found) >= count or time.monotonic() > end:
            return found
        time.sleep(0.1)


def log_records(root: Path, values: Row) -> list[tuple[Record, bytes]]:
    with MessageStore(root, config_of(values)) as store:
        return [(r, store.body(r)) for r in store.commit_log.walk() if isinstance(r, Record)]


def test_schedule_deliver(engine: Engine, chance: random.Random, tmp_path: Path) -> None:
    """rmqctl and the engine deliver the same messages of a store, to the same offsets; and a broker
    that starts after rmqctl delivers only later messages."""
    values = {**settings(chance, light_queues=False), "messageDelayLevel": LEVELS}
    root = tmp_path / "store"
    messages = Messages(chance, values, engine.version)
    put(root, values, [*delayed(messages, 30, 2), *delayed(messages, 7, 3)])
    by_engine = copy_tree(root, tmp_path / "by-engine")
    time.sleep(0.01)

    run = Rmqctl(root, values)
    *_, summary = run("schedule", "deliver")
    assert (summary["due"], summary["delivered"]) == (30, 30)
    other = engine.open(by_engine, values, delivers=True)
    by_its_service = wait_for(other, 30)
    other.shutdown()

    # A message of the level that was delivered, and one of a level that is new.
    put(root, values, [*delayed(messages, 1, 2), *delayed(messages, 1, 1)])
    store = engine.open(root, values, delivers=True)
    assert store.is_open
    found = wait_for(store, 32)
    said = assert_agree(store, values)
    assert delivered(said["message"]) == found
    store.shutdown()
    assert len(found) == 32
    assert found[:30] == by_its_service
    assert {row["properties"]["KEYS"] for row in found[30:]} == {"level1-0", "level2-0"}
    for row in found[:30]:
        assert row["topic"] == row["properties"]["REAL_TOPIC"]
    pulled = {at for row in said["get"] for at in row["physicalOffsets"]}
    assert pulled & {row["physicalOffset"] for row in found}
    assert_clean(root, config_of(values))

    # Only what is not due is left, and the broker has stored its progress.
    waiting = {row["level"]: row for row in run("schedule", "ls") if row["type"] == "delay_level"}
    assert waiting[3]["pending"] == 7
    assert {level: waiting[level]["pending"] for level in (1, 2)} == {1: 0, 2: 0}


def test_transaction_commit_and_rollback(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    """Of half messages that the broker has stored, its check asks producers only about those that
    rmqctl has not ended."""
    values, root = settings(chance, light_queues=False), tmp_path / "store"
    messages = Messages(chance, values, engine.version)
    halves = [messages.plain() for _ in range(24)]
    for number, message in enumerate(halves):
        message.topic = TOPICS[number % 2]
        message.properties |= {"TRAN_MSG": "true", "PGROUP": "pg", "KEYS": f"half-{number}"}
        message.born_timestamp = system_clock() - 60_000
    store = engine.open(root, values)
    rows = [message_row(message) for message in halves]
    stored = engine.ask("prepare", store=store.name, messages=rows)
    assert {row["status"] for row in stored} == {"PUT_OK"}
    store.shutdown()

    numbers = chance.sample(range(24), 16)
    committed, rolled_back = sorted(numbers[:10]), sorted(numbers[10:])
    run = Rmqctl(root, values)
    for action, chosen in (("commit", committed), ("rollback", rolled_back)):
        offsets = [str(stored[number]["physicalOffset"]) for number in chosen]
        *done, _ = run("transaction", action, *offsets)
        assert [row["status"] for row in done] == ["PUT_OK"] * len(chosen)
    pending = {f"half-{number}" for number in range(24)} - {f"half-{number}" for number in numbers}

    store = engine.open(root, values)
    assert store.is_open
    said = assert_agree(store, values)
    final = {row["physicalOffset"]: row for row in said["message"] if row["topic"] in TOPICS[:2]}
    assert sorted(row["properties"]["KEYS"] for row in final.values()) == sorted(
        f"half-{number}" for number in committed
    )
    in_queues = {row["physicalOffset"] for row in said["unit"] if row["topic"] in TOPICS[:2]}
    assert in_queues == set(final)
    assert in_queues >= {
        at for row in said["get"] if row["topic"] in TOPICS[:2] for at in row["physicalOffsets"]
    }
    bodies = {
        record.properties["KEYS"]: body
        for record, body in log_records(root, values)
        if record.physical_offset in final
    }
    assert bodies == {f"half-{number}": halves[number].body for number in committed}

    answer = engine.ask("check", store=store.name)
    assert (set(answer["asked"]), answer["discarded"]) == (pending, [])
    assert len(answer["asked"]) == len(pending)
    store.shutdown()
    assert_clean(root, config_of(values))

    # The check has stored these again as new half messages: for both sides they are still pending.
    listed = [row for row in run("transaction", "ls") if row["type"] == "half_message"]
    assert len(listed) == len(pending)
