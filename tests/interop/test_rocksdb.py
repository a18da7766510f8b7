"""rebuild --to-file-queues: a real broker goes on with the file queues made of a store in
RocksDB."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.operations.mend.tofiles import convert, plan_conversion
from tests.interop import rocksstore
from tests.interop.engine import Engine
from tests.interop.popstore import send
from tests.interop.stores import (
    Messages,
    as_4_9_3_answers,
    assert_clean,
    assert_same,
    config_of,
    rows_of,
    settings,
)

pytestmark = pytest.mark.parametrize(
    "version",
    [pytest.param("5.3.3", marks=pytest.mark.xdist_group("interop-5.3.3"))],
    indirect=True,
)


@pytest.mark.proves("rocksdb", level="partly")
def test_a_broker_with_file_queues_goes_on(engine: Engine, tmp_path: Path) -> None:
    """Every message that the log still has is served once, at its queue offset; a group goes on at
    its offset, also in a queue that has no message left."""
    root = tmp_path / "store"
    rocksstore.write(engine, root)
    rocksstore.expire(root)
    conversion = plan_conversion(root, config_of(rocksstore.ROCKSDB))
    summary = convert(conversion, consent=True)
    assert not summary.damage and not summary.not_in_order
    assert_clean(root, config_of(rocksstore.VALUES), ("not-understood", "log-starts-late"))
    left = conversion.plan.log_min_offset
    assert left == 16384

    engine.ask("broker", root=str(root), config=rocksstore.VALUES)
    rows = engine.ask(
        "consume",
        topic="orders",
        group="fresh",
        expression="*",
        count=summary.units,
        failing=False,
    )
    places = Counter((row["queueId"], row["queueOffset"]) for row in rows)
    assert len(places) == summary.units == len(rows)
    assert {row["physicalOffset"] >= left for row in rows} == {True}
    last = {
        queue_id: max(offset for number, offset in places if number == queue_id)
        for queue_id in (0, 1)
    }
    assert last == {0: rocksstore.SENT["orders", 0] - 1, 1: rocksstore.SENT["orders", 1] - 1}
    # The group has read all of bills, and gets the next message, which is number five.
    send(engine, "bills", 0, 1)
    (row,) = engine.ask(
        "consume", topic="bills", group="readers", expression="*", count=1, failing=False
    )
    assert (row["queueOffset"], row["queueId"]) == (5, 0)
    # Of the empty queue the broker knows something when a pull of it has been answered.
    assert engine.ask("offsets")["bills@readers"]["0"] == 6
    engine.ask("stop")
    assert_clean(root, config_of(rocksstore.VALUES), ("not-understood", "log-starts-late"))


@pytest.mark.proves("rocksdb", level="partly")
def test_queues_are_read_as_the_engine_reads_them(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    """rmqctl reads the store after the engine's stop, and has the same ends, units and answers to
    pulls as the engine had before, in its memory."""
    values = {**settings(chance, light_queues=False), "storeType": "defaultRocksDB"}
    root = tmp_path / "store"
    store = engine.open(root, values)
    messages = Messages(chance, values, engine.version)
    store.put([messages.plain() for _ in range(200)])
    store.settle()
    said = as_4_9_3_answers(store.dump())
    store.shutdown()
    assert said["unit"] and said["get"]
    read = rows_of(root, config_of(values), said)
    for row in (*said["queue"], *read["queue"]):
        # Either the begin or the end of the last record
        # (``RocksDBConsumeQueue#getMaxPhysicOffset``).
        row["maxPhysicOffset"] = min(row["maxPhysicOffset"], 0)
    assert_same(read, said)
    assert_clean(root, config_of(values), ("not-understood",))
