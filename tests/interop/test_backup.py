"""Backups of a store that the engine writes to: when one is restored the engine starts on it, and
has every message up to the place that the backup names, at the same offsets."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.services.timer import Timer
from rmqctl.operations.backup.create import Wanted, create
from rmqctl.operations.backup.restore import plan_restore, restore
from rmqctl.operations.verify import Finding, verify
from rmqctl.operations.verify.timer import check_timer
from tests.golden_data import tree_content
from tests.interop import batchstore
from tests.interop.commands import only
from tests.interop.engine import Engine, Row
from tests.interop.goldentimer import (
    HOUR,
    SIZES,
    TOPIC,
    WHEEL_TOPIC,
    records,
    timed,
    timer_checkpoint,
    wait_for,
    wait_until_enqueued,
    write_topics,
)
from tests.interop.stores import PREPARED, Messages, assert_clean, config_of, settings

NAMES = ("topic", "queueId", "queueOffset", "physicalOffset")


@pytest.mark.proves("backup")
def test_a_store_that_the_engine_writes_meanwhile(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    values = {**settings(chance, light_queues=False), "mappedFileSizeCommitLog": 16384}
    config, root = config_of(values), tmp_path / "store"
    store = engine.open(root, values)
    messages = Messages(chance, values, engine.version)
    store.put(messages.take(150))
    pieces = 0

    def happens(done: int, total: int) -> None:
        nonlocal pieces
        pieces += 1
        if pieces % 7 == 0:
            store.put(messages.take(5))

    places = [tmp_path / "full.tar.zst", tmp_path / "more"]
    base: str | None = None
    for place in places:
        made = create(Wanted(root, config, str(place), base), happens)
        assert made.manifest.head.is_live
        base = str(place)
        store.put(messages.take(30))
    store.settle()
    said = store.dump()
    store.shutdown()
    end = made.manifest.head.physical_offset
    assert end is not None and end < said["store"][0]["maxPhyOffset"]

    new = tmp_path / "new" / "store"
    new.parent.mkdir()
    restore(plan_restore([str(place) for place in places], new))
    worse = {row.severity for row in verify(new, config) if isinstance(row, Finding)} - {"info"}
    assert worse <= {"warning"}  # Some messages were not dispatched yet.
    copied = engine.open(new, values)
    assert copied.is_open, copied.why
    copied.settle()
    theirs = copied.dump()
    copied.shutdown()
    assert theirs["store"][0]["maxPhyOffset"] == end
    before = [row for row in said["message"] if row["physicalOffset"] < end]
    assert theirs["message"] == before and before
    for rows in (said, theirs):
        rows["unit"] = [row for row in rows["unit"] if row["physicalOffset"] < end]
    places_of = [{tuple(row[name] for name in NAMES) for row in r["unit"]} for r in (said, theirs)]
    assert places_of[0] == places_of[1]


@pytest.mark.proves("backup")
@pytest.mark.parametrize("last", ["any", "prepared"])
def test_a_store_that_the_engine_has_closed(
    engine: Engine, chance: random.Random, tmp_path: Path, last: str
) -> None:
    """The copy is the store byte for byte, and the engine goes on with either alike."""
    values = settings(chance, light_queues=False)
    config, root, new = config_of(values), tmp_path / "store", tmp_path / "new"
    store = engine.open(root, values)
    messages = Messages(chance, values, engine.version).take(60)
    if last == "prepared":
        for message in messages[-2:]:
            message.sys_flag = PREPARED
            message.properties["UNIQ_KEY"] = f"{chance.getrandbits(128):032X}"
    store.put(messages)
    store.settle()
    said = store.dump()
    store.shutdown()
    made = create(Wanted(root, config, str(tmp_path / "full.tar.zst")))
    assert not made.manifest.head.is_live
    restore(plan_restore([str(tmp_path / "full.tar.zst")], new))
    before = {name: data for name, data in tree_content(root).items() if name != "lock"}
    assert tree_content(new) == before

    theirs, again = (said_after_a_start(engine, place, values) for place in (new, root))
    assert theirs == again
    # Prepared messages have no units. A start dispatches those behind the newest unit once more,
    # and the index then takes its last message a second time (`IndexService#buildIndex`).
    has_repeated = theirs["query"] != said["query"]
    assert has_repeated or last == "any"
    for row in theirs["query"]:
        row["physicalOffsets"] = list(dict.fromkeys(row["physicalOffsets"]))
    assert theirs == said
    assert_clean(new, config, ("index-item-repeated",) if has_repeated else ())


def said_after_a_start(engine: Engine, root: Path, values: Row) -> dict[str, list[Row]]:
    store = engine.open(root, values)
    assert store.is_open, store.why
    store.settle()
    said = store.dump()
    store.shutdown()
    return said


@only("5.3.3")
@pytest.mark.proves("backup")
def test_batch_queues_that_the_engine_writes_meanwhile(engine: Engine, tmp_path: Path) -> None:
    """The engine finds in each queue of the copy the messages that it had there, up to the end of
    the copied log, and goes on behind them."""
    values = batchstore.VALUES
    config, root, new = config_of(values), tmp_path / "store", tmp_path / "new"
    store = engine.open(root, values)
    messages = batchstore.messages()
    store.put(messages)
    store.settle()

    def happens(done: int, total: int) -> None:
        if len(messages) <= 600:
            messages.extend(batchstore.messages()[:11])
            store.put(messages[-11:])

    made = create(Wanted(root, config, str(tmp_path / "full.tar.zst")), happens)
    store.settle()
    said = store.dump()
    end = made.manifest.head.physical_offset
    assert made.manifest.head.is_live and end is not None
    assert made.manifest.head.dispatched_offset == end < said["store"][0]["maxPhyOffset"]
    restore(plan_restore([str(tmp_path / "full.tar.zst")], new))
    # The engine has not flushed its checkpoint for the first time.
    assert_clean(new, config, ("checkpoint-zero",))

    copied = engine.open(new, values)
    assert copied.is_open, copied.why
    copied.settle()
    theirs = copied.dump()
    assert theirs["store"][0]["maxPhyOffset"] == end
    each: Row = {"topic": batchstore.TOPIC, "maxMsgNums": 32, "type": None}
    places = [(queue_id, offset) for queue_id in range(2) for offset in range(0, 2000, 7)]
    pulls = [{**each, "queueId": queue_id, "offset": offset} for queue_id, offset in places]
    answers = [engine.ask("pull", store=name, pulls=pulls) for name in (store.name, copied.name)]
    for ours, other in zip(*answers, strict=True):
        before = [offset for offset in ours["physicalOffsets"] if offset < end]
        assert other["physicalOffsets"] == before
    assert any(other["physicalOffsets"] for other in answers[1])
    assert {row["status"] for row in copied.put(batchstore.messages())} == {"PUT_OK"}
    copied.settle()
    copied.shutdown()
    store.shutdown()
    assert_clean(new, config)


@pytest.mark.nightly
@only("5.3.3")
@pytest.mark.proves("backup")
def test_a_broker_goes_on_with_a_timer_that_was_copied_meanwhile(
    engine: Engine, tmp_path: Path
) -> None:
    """Each message that waits in the copied log is in the wheel once, and each that was due is
    delivered."""
    config, root, new = config_of(SIZES), tmp_path / "store", tmp_path / "new"
    write_topics(root)
    engine.ask("broker", root=str(root), config=SIZES)
    later, pieces = system_clock() + HOUR, 0

    def happens(done: int, total: int) -> None:
        """Its messages are in the wheel, and counted, before the next piece is copied."""
        nonlocal pieces
        if pieces < 12:
            each = [timed(f"waits-{pieces}-{n}", n, TIMER_DELIVER_MS=later) for n in range(2)]
            engine.ask("send", messages=[*each, timed(f"due-{pieces}", TIMER_DELAY_SEC=2)])
            wait_until_enqueued(root, SIZES)
        pieces += 1

    happens(0, 0)
    made = create(Wanted(root, config, str(tmp_path / "full.tar.zst")), happens)
    engine.ask("stop")
    end = made.manifest.head.physical_offset
    assert made.manifest.head.is_live and end is not None
    restore(plan_restore([str(tmp_path / "full.tar.zst")], new))
    assert {one.severity for one in check_timer(new, config)} <= {"info"}
    waiting = [one.properties["KEYS"] for one in records(new, SIZES, WHEEL_TOPIC)]
    assert len(waiting) == len(set(waiting)) < len(records(root, SIZES, WHEEL_TOPIC))

    engine.ask("broker", root=str(new), config=SIZES)
    wait_until_enqueued(new, SIZES)
    now = system_clock()
    wait_for(lambda: timer_checkpoint(new)[0] > now, "gone on")
    engine.ask("stop")
    delivered = {one.properties["KEYS"] for one in records(new, SIZES, TOPIC)}
    assert delivered == {name for name in waiting if name.startswith("due")}
    assert {one.severity for one in check_timer(new, config)} <= {"info"}
    with MessageStore(new, config) as store:
        timer = Timer(store)
        units = Counter(one.physical_offset for one in timer.log.units())
        timer.close()
    of_later = [
        one for one in records(new, SIZES, WHEEL_TOPIC) if "waits" in one.properties["KEYS"]
    ]
    assert of_later and {units[one.physical_offset] for one in of_later} == {1}
