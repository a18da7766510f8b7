"""Batches and light queues as ``put --batch`` writes them, with the queues' extension; and queue
offsets by time."""

from __future__ import annotations

import json
import os
import random
from base64 import b64encode
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read.bytime import Boundary, bisect, store_times
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from tests.interop.commands import Rmqctl, only
from tests.interop.engine import Engine, Row
from tests.interop.stores import (
    COMMIT,
    PREPARED,
    ROLLBACK,
    TOPICS,
    V4,
    Messages,
    assert_agree,
    assert_clean,
    config_of,
    settings,
)

LIGHT = ("%LMQ%one", "%LMQ%two")


def batches(chance: random.Random, messages: Messages) -> list[list[MessageExtBrokerInner]]:
    """Batches, some of which go to light queues as well. A batch of one message gets offsets in
    these; one of several does not, for the engine adds no offsets to a batch."""
    made = []
    for _ in range(40):
        batch = messages.batch() if chance.random() < 0.7 else [messages.plain()]
        for message in batch:
            message.born_host, message.store_host = V4[0], V4[1]
            message.topic = batch[0].topic.removeprefix("%RETRY%")
            if chance.random() < 0.5:
                names = ",".join(chance.sample(LIGHT, chance.randint(1, 2)))
                message.properties["INNER_MULTI_DISPATCH"] = names
        if len(batch) == 1 and chance.random() < 0.4:
            # The message gets offsets in the light queues, but no units there.
            batch[0].sys_flag = chance.choice((PREPARED, COMMIT, ROLLBACK))
        made.append(batch)
    last, undone, commas = messages.plain(), messages.plain(), messages.plain()
    for message in (last, undone, commas):
        message.topic, message.born_host, message.store_host = TOPICS[0], V4[0], V4[1]
    last.properties["INNER_MULTI_DISPATCH"] = ",".join(LIGHT)
    undone.sys_flag = ROLLBACK  # it has no unit anywhere
    # These name no queue, but the engine rewrites the properties.
    commas.properties |= {"INNER_MULTI_DISPATCH": ",,", "WAIT": "true"}
    return [*made, [undone], [commas], [last]]


def put_line(message: MessageExtBrokerInner) -> str:
    """A message as a line for ``put --from``."""
    hosts = {
        name: ":".join((".".join(map(str, host[0])), str(host[1])))
        for name, host in (("born_host", message.born_host), ("store_host", message.store_host))
    }
    return json.dumps(
        {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "body_base64": b64encode(message.body).decode(),
            "flag": message.flag,
            "sys_flag": message.sys_flag,
            "properties": message.properties,
            "born_timestamp": message.born_timestamp,
            "reconsume_times": message.reconsume_times,
            # Without a prepared_transaction_offset: `put` would take the line out of its batch.
            **hosts,
        }
    )


def without_moment(rows: list[Row]) -> list[Row]:
    return [{k: v for k, v in row.items() if k != "storeTimestamp"} for row in rows]


@only("4.9.3")
def test_batches_light_queues_and_extension(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    """``put --batch`` and the engine make the same records, units and extension units of the same
    batches, and the engine goes on with rmqctl's store."""
    values: Row = {
        **settings(chance, light_queues=True),
        "mappedFileSizeCommitLog": 1 << 15,
        "enableConsumeQueueExt": True,
        "mappedFileSizeConsumeQueueExt": 20 * chance.choice((10, 30, 100)),
    }
    root, other = tmp_path / "store", tmp_path / "by-engine"
    made = batches(chance, Messages(chance, values, engine.version))
    run = Rmqctl(root, values)
    lines = tmp_path / "lines.ndjson"
    for number, batch in enumerate(made):  # lines of the same queue in a row would be one batch
        lines.write_text("".join(put_line(message) + "\n" for message in batch), "utf-8")
        if number < 3:
            *rows, _ = run("put", "--from", str(lines), "--batch", "100", "--create")
            assert [row["messages"] for row in rows] == [len(batch)]
        else:
            put_like_the_command(root, values, batch)
    by_engine = engine.open(other, values)
    for batch in made:
        by_engine.put(batch, batch=len(batch) > 1)
    wanted = by_engine.dump()
    wanted_ext = engine.ask("ext", store=by_engine.name)
    by_engine.shutdown()

    store = engine.open(root, values)
    assert store.is_open
    said = assert_agree(store, values)
    ext = engine.ask("ext", store=store.name)
    store.shutdown()
    assert_clean(root, config_of(values))
    for kind in ("message", "blank", "unit", "get", "query"):
        assert without_moment(said[kind]) == without_moment(wanted[kind]), kind
    assert without_moment(ext) == without_moment(wanted_ext)
    placed = [row for row in said["message"] if row["sysFlag"] & ROLLBACK in (0, COMMIT)]
    assert len(ext) == len(placed) < len(said["message"])
    times = {
        (row["topic"], row["queueId"], row["queueOffset"]): row["storeTimestamp"] for row in placed
    }
    assert {
        (row["topic"], row["queueId"], row["queueOffset"]): row["storeTimestamp"] for row in ext
    } == times
    assert any(row["topic"] in LIGHT for row in said["unit"])


def put_like_the_command(root: Path, values: Row, batch: list[MessageExtBrokerInner]) -> None:
    """Puts a batch as the command does, but in this process, which is faster."""
    with MessageStore(root, config_of(values), writable=True) as writer:
        result = writer.put_batch(batch) if len(batch) > 1 else writer.put_message(batch[0])
        assert result.is_ok


def timed_store(chance: random.Random, root: Path, values: Row, gaps: range) -> list[int]:
    """Makes a queue whose messages were stored with these gaps (ms) between them; gives their
    times. Each queue file has the time of its last message as its modification time, as if a broker
    had written it."""
    now = 1_700_000_000_000
    times: list[int] = []

    def clock() -> int:
        return now

    with MessageStore(root, config_of(values), writable=True, create=True, clock=clock) as writer:
        for number in range(120):
            now += chance.choice(gaps)
            times.append(now)
            body = b"%d" % number
            message = MessageExtBrokerInner(TOPICS[0], body, properties={"KEYS": f"k{number}"})
            assert writer.put_message(message, flush=False).is_ok
        records = [r for r in writer.commit_log.walk() if isinstance(r, Record)]
    assert [record.store_timestamp for record in records] == times
    units = values["mappedFileSizeConsumeQueue"] // 20
    for path in (root / "consumequeue" / TOPICS[0] / "0").iterdir():
        last = min(int(path.name) // 20 + units, len(times)) - 1
        os.utime(path, ns=(times[last] * 1_000_000,) * 2)
    return times


def answers(root: Path, values: Row, times: list[int], boundary: Boundary) -> list[int | None]:
    with MessageStore(root, config_of(values)) as store:
        queue = store.consume_queue(TOPICS[0], 0)
        assert queue is not None
        at = store_times(store.commit_log, queue)
        return [bisect(at, queue.min_offset, queue.max_offset, time, boundary) for time in times]


def ask_times(
    engine: Engine, root: Path, values: Row, times: list[int], boundary: str | None
) -> list[int]:
    store = engine.open(root, values)
    assert store.is_open
    found: list[int] = engine.ask(
        "time", store=store.name, topic=TOPICS[0], queueId=0, times=times, boundary=boundary
    )
    store.shutdown()
    return found


@only("4.9.3")
@pytest.mark.parametrize("gaps", [range(1, 5), range(3), range(2)], ids=str)
@pytest.mark.parametrize("files", ["one file", "several files"])
def test_offset_of_a_time(
    engine: Engine, chance: random.Random, tmp_path: Path, files: str, gaps: range
) -> None:
    """``nearest`` gives the engine's own answer, also where several messages have one time: for
    every time when the queue has one file; when it has several, for the times of messages, because
    for a time between two files the engine looks only into the later one."""
    root = tmp_path / "store"
    units = 200 if files == "one file" else chance.choice((7, 16, 50))
    values = {**settings(chance, light_queues=False), "mappedFileSizeConsumeQueue": 20 * units}
    stored = timed_store(chance, root, values, gaps)
    asked = list(range(stored[0] - 3, stored[-1] + 4)) if files == "one file" else stored
    ours = answers(root, values, asked, Boundary.NEAREST)
    assert ours == ask_times(engine, root, values, asked, None)
    assert len(set(ours)) >= len(set(stored))


@only("4.9.3")
def test_offset_of_a_time_after_a_rebuild(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    """A rebuild sets modification times, by which the engine chooses the file: if all files were of
    this moment, it would look into the first one for every time."""
    root = tmp_path / "store"
    values = {**settings(chance, light_queues=False), "mappedFileSizeConsumeQueue": 20 * 16}
    stored = timed_store(chance, root, values, range(1000, 5000))
    rebuild_in_place(plan_rebuild(root, config_of(values), "queues"))
    ours = answers(root, values, stored, Boundary.NEAREST)
    assert ours == ask_times(engine, root, values, stored, None) == list(range(120))


@only("5.3.3")
def test_boundaries_of_later_versions(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    """``ceil`` and ``floor`` give the answers of 5.x for LOWER and UPPER, for times within the
    queue's; 5.x does not define others."""
    root = tmp_path / "store"
    values = {**settings(chance, light_queues=False), "mappedFileSizeConsumeQueue": 20 * 16}
    stored = timed_store(chance, root, values, range(4))
    asked = list(range(stored[0], stored[-1] + 1))
    for ours, theirs in ((Boundary.CEIL, "lower"), (Boundary.FLOOR, "upper")):
        assert answers(root, values, asked, ours) == ask_times(engine, root, values, asked, theirs)
