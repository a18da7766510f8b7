"""What rmqctl writes the engine reads and goes on with, and the other way round: all messages and
all answers are the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from rmqctl.operations.verify import Finding, verify
from tests.golden_data import index_contents, tree_content
from tests.interop.conftest import StartEngine
from tests.interop.engine import LATEST, Engine, EngineStore, Row
from tests.interop.stores import (
    CUT_SHORT,
    KILLED,
    TOPICS,
    Messages,
    assert_agree,
    assert_clean,
    assert_same,
    config_of,
    put_by_rmqctl,
    rows_of,
    settings,
)


def assert_rebuild_is_the_same(
    root: Path, values: Row, output: Path, *, index: bool = True
) -> None:
    """Asserts that queues, and the ``index``, built from the log alone are the engine's, byte for
    byte."""
    rebuild_to(plan_rebuild(root, config_of(values), "all"), output)
    assert tree_content(output / "consumequeue") == tree_content(root / "consumequeue")
    if index:
        assert index_contents(output / "index") == index_contents(root / "index")


def begin_file(chance: random.Random, root: Path) -> None:
    """Makes the next file of the log or of a queue, and gives it no length yet."""
    directory = chance.choice([root / "commitlog", *(root / "consumequeue").glob("*/*")])
    last = max(directory.iterdir())
    (directory / f"{int(last.name) + last.stat().st_size:020d}").touch()


def put_by_engine(store: EngineStore, messages: Messages, count: int) -> int:
    """Has the engine put messages one by one and in batches; gives their number."""
    results = store.put(messages.take(count))
    for _ in range(count // 12):
        batch = messages.batch()
        count += len(batch)
        results += store.put(batch, batch=True)
    assert {row["status"] for row in results} == {"PUT_OK"}
    return count


@pytest.mark.proves("write", "kinds")
@pytest.mark.parametrize("how", ["as written", "rebuilt", "rebuilt and killed"])
def test_rmqctl_writes_and_the_engine_reads(
    engine: Engine, chance: random.Random, tmp_path: Path, how: str
) -> None:
    values, root = settings(chance), tmp_path / "store"
    config = config_of(values)
    records = put_by_rmqctl(root, config, Messages(chance, values, engine.version), 240)
    if how != "as written":
        rebuild_in_place(plan_rebuild(root, config, "all"))
    if how == "rebuilt and killed":
        (root / "abort").touch()
    parts = {part: tree_content(root / part) for part in ("commitlog", "consumequeue")}
    index = index_contents(root / "index")

    store = engine.open(root, values)
    assert store.is_open
    said = assert_agree(store, values)
    assert len(said["message"]) == len(records)
    for record in chance.sample(records, 20):
        row = store.look(record.physical_offset)
        assert row is not None
        assert row["msgId"] == record.msg_id
    store.shutdown()

    # The engine changed nothing that rmqctl wrote, and made nothing again.
    assert {part: tree_content(root / part) for part in parts} == parts
    if how != "rebuilt and killed":  # then the last index file is made again
        assert index_contents(root / "index") == index
    # After a kill the engine indexes the last record of a full index file once more. 5.5 throws the
    # newest index file away, and indexes again only what lies in the newest log file
    # (``ConsumeQueueStore#isMappedFileMatchedRecover``).
    lost = ("index-starts-late", "key-not-indexed") if engine.version == LATEST else ()
    assert_clean(root, config, allowed=("index-item-repeated", *lost))


@pytest.mark.proves("read", "verify", "rebuild", "killed", "pool", "kinds")
@pytest.mark.parametrize(
    "ends", ["clean", "clean with the pool", "killed", "killed at a new file", "killed in the pool"]
)
def test_the_engine_writes_and_rmqctl_reads(
    start_engine: StartEngine, chance: random.Random, tmp_path: Path, ends: str
) -> None:
    engine = start_engine()
    values, root = settings(chance), tmp_path / "store"
    if ends.endswith("the pool"):
        values |= {"transientStorePoolEnable": True, "flushDiskType": "ASYNC_FLUSH"}
    config = config_of(values)
    store = engine.open(root, values)
    count = put_by_engine(store, Messages(chance, values, engine.version), 240)
    if ends.startswith("clean"):
        if ends.endswith("the pool"):  # nor does the engine read what is only in its buffers
            store.shutdown()
            store = engine.open(root, values)
        said = assert_agree(store, values)
        assert len(said["message"]) == count
        store.shutdown()
        assert_same(rows_of(root, config, said), said)
        assert_clean(root, config)
        assert_rebuild_is_the_same(root, values, tmp_path / "rebuilt")
        return
    if engine.version == LATEST:
        # Its start reads at most ten log files (commitLogRecoverMaxNum): of what was not dispatched
        # before those the queues never hear.
        store.settle()
    engine.kill()
    if ends == "killed at a new file":
        begin_file(chance, root)
    summary = assert_clean(root, config, allowed=KILLED + CUT_SHORT)
    assert summary.records == count or ends == "killed in the pool"
    findings = [found for found in verify(root, config) if isinstance(found, Finding)]
    cut = [found.path or "" for found in findings if found.code == CUT_SHORT[0]]
    assert cut or ends != "killed at a new file"
    before = {"message": rows_of(root, config, {})["message"]}

    # After the kill rmqctl sees the same as the engine's own recovery.
    store = start_engine().open(root, values)
    if not store.is_open:  # 4.9.3 does not start with such a file; 5.3.3 deletes it
        assert cut
        return
    said = assert_agree(store, values)
    assert len(said["message"]) == summary.records
    store.shutdown()
    assert_same({**rows_of(root, config, said), **before}, said)


@pytest.mark.proves("pool")
def test_messages_that_come_faster_than_the_pool_commits(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    """More log files are written than the pool has buffers, and a commit gets only one file done in
    50 ms."""
    values, root = settings(chance), tmp_path / "store"
    values |= {"transientStorePoolEnable": True, "flushDiskType": "ASYNC_FLUSH"}
    values |= {"wakeCommitWhenPutMessage": False, "commitIntervalCommitLog": 50}
    values |= {"mappedFileSizeCommitLog": 8192}
    store = engine.open(root, values)
    count = put_by_engine(store, Messages(chance, values, engine.version), 240)
    store.shutdown()
    assert len(list((root / "commitlog").iterdir())) > 5
    assert assert_clean(root, config_of(values)).records == count


@pytest.mark.proves("turns")
@pytest.mark.parametrize("first", ["rmqctl", "the engine"])
def test_turns(engine: Engine, chance: random.Random, tmp_path: Path, first: str) -> None:
    """rmqctl and the engine take turns in writing, several times.

    Without light queues for 4.9.3, which counts them from 0 again after each start.
    """
    light_queues = False if engine.version == "4.9.3" else None
    values, root = settings(chance, light_queues), tmp_path / "store"
    config, messages = config_of(values), Messages(chance, values, engine.version)
    count = 0
    for turn in range(6):
        if (turn % 2 == 0) == (first == "rmqctl"):
            count = len(put_by_rmqctl(root, config, messages, chance.randint(3, 60)))
        else:
            store = engine.open(root, values)
            assert store.is_open
            count += put_by_engine(store, messages, chance.randint(3, 60))
            said = assert_agree(store, values)
            assert len(said["message"]) == count
            store.shutdown()
        assert assert_clean(root, config).records == count
        # What was put before a broker of 5.4 or later ran has no index items of tags.
        is_whole = engine.version != LATEST or first == "the engine"
        assert_rebuild_is_the_same(root, values, tmp_path / f"rebuilt-{turn}", index=is_whole)


@pytest.mark.proves("light", level="partly")
def test_light_queues_after_a_restart_of_the_engine(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    """4.9.3 keeps the counters of light queues in memory only (``CommitLog#lmqTopicQueueTable``).
    After a start it counts from 0 again, and of the messages that it then stores only the first
    gets a unit in the light queue. verify names the others, and rmqctl's own puts go on at the
    queue's end."""
    values, root = settings(chance, light_queues=True), tmp_path / "store"
    config, messages = config_of(values), Messages(chance, values, engine.version)

    def to_light_queue(count: int) -> list[MessageExtBrokerInner]:
        made = [messages.plain() for _ in range(count)]
        for message in made:
            message.topic = TOPICS[0]
            message.properties["INNER_MULTI_DISPATCH"] = "%LMQ%one"
        return made

    with MessageStore(root, config, writable=True, create=True) as writer:
        assert all(writer.put_message(m, flush=False).is_ok for m in to_light_queue(5))
    for _ in range(2):
        store = engine.open(root, values)
        store.put(to_light_queue(4))
        units = [row for row in store.dump()["unit"] if row["topic"] == "%LMQ%one"]
        store.shutdown()
    codes = {found.code for found in verify(root, config) if isinstance(found, Finding)}
    if engine.version == "4.9.3":
        assert len(units) == 5 + 1 + 1
        assert "queue-offset-repeated" in codes
    else:
        assert len(units) == 5 + 4 + 4
        assert not codes
    with MessageStore(root, config, writable=True) as writer:
        assert all(writer.put_message(m, flush=False).is_ok for m in to_light_queue(2))
        queue = writer.consume_queue("%LMQ%one", 0)
        assert queue is not None
        assert queue.max_offset == len(units) + 2
