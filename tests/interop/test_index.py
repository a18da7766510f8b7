"""An index that lacks items: verify has an info where the engine's start adds them, and an error
where only a rebuild brings them back."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.operations.doctor.checkpoint import compute, store_checkpoint
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_to
from rmqctl.operations.verify import Finding, verify
from tests.golden_data import index_contents
from tests.interop.commands import only
from tests.interop.engine import Engine, Row
from tests.interop.stores import TOPICS, V4, config_of, settings

BORN = 1_700_000_000_000


@pytest.fixture
def values(chance: random.Random) -> Row:
    return {**settings(chance, light_queues=False), "mappedFileSizeCommitLog": 4096}


@pytest.fixture
def root(values: Row, tmp_path: Path) -> Path:
    """A store with a message for each second, in several log files, stopped cleanly; its index is
    deleted."""
    root = tmp_path / "store"
    clock = iter(range(BORN, BORN + 10**9, 1000))
    config = config_of(values)
    with MessageStore(root, config, writable=True, create=True, clock=lambda: next(clock)) as store:
        put(store, range(120))
    shutil.rmtree(root / "index")
    return root


def put(store: MessageStore, numbers: range) -> None:
    """Puts a message with a key for each number."""
    for number in numbers:
        message = MessageExtBrokerInner(
            TOPICS[0],
            b"x",
            properties={"KEYS": f"k{number}"},
            born_host=V4[0],
            store_host=V4[1],
        )
        assert store.put_message(message, flush=False).is_ok


def without_header(root: Path, store: MessageStore, numbers: range) -> None:
    """Puts messages into a store as if it was killed before the index file's header was stored,
    which comes last."""
    newest = max((root / "index").iterdir())
    header = newest.read_bytes()[:40]
    put(store, numbers)
    store.abandon()
    with newest.open("r+b") as file:
        file.write(header)


def lost_keys(engine: Engine, root: Path, values: Row, numbers: range) -> list[str]:
    """The keys by which a broker does not find their message after its start."""
    broker = engine.open(root, values)
    assert broker.is_open
    broker.settle()
    keys = [f"k{number}" for number in numbers]
    found = [key for key in keys if broker.query(TOPICS[0], key)["physicalOffsets"]]
    broker.shutdown()
    return sorted({*keys} - {*found})


def of_index(root: Path, values: Row) -> list[tuple[str, str]]:
    found = [row for row in verify(root, config_of(values)) if isinstance(row, Finding)]
    return [(row.code, row.severity) for row in found if row.structure == "index"]


def start(engine: Engine, root: Path, values: Row) -> None:
    store = engine.open(root, values)
    assert store.is_open
    store.settle()
    store.shutdown()


def test_after_a_clean_stop_no_start_indexes_anything(
    engine: Engine, root: Path, values: Row
) -> None:
    assert of_index(root, values) == [("index-missing", "error")]
    start(engine, root, values)
    assert of_index(root, values) == [("index-missing", "error")]


def test_after_a_crash_a_start_indexes_from_the_checkpoint_on(
    engine: Engine, root: Path, values: Row
) -> None:
    (root / "abort").touch()
    assert of_index(root, values) == [("index-missing", "error")]
    start(engine, root, values)
    assert of_index(root, values) == [("index-starts-late", "error")]


def test_after_a_crash_without_a_checkpoint_a_start_indexes_all(
    engine: Engine, root: Path, values: Row
) -> None:
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    assert of_index(root, values) == [("index-behind", "info")]
    start(engine, root, values)
    assert of_index(root, values) == []


@only("4.9.3")
@pytest.mark.parametrize("keys", [0, 3], ids=["the first file", "the next file"])
def test_a_file_without_items_is_the_engines(
    engine: Engine, values: Row, tmp_path: Path, keys: int
) -> None:
    """A file that was made for a message without keys is as the engine's: the header gets its count
    only with the first item."""
    values = {**values, "maxIndexNum": 4}
    names = " ".join(f"k{number}" for number in range(keys))
    made = [
        MessageExtBrokerInner(
            TOPICS[0], b"x", properties=properties, born_host=V4[0], store_host=V4[1]
        )
        for properties in ([{"KEYS": names}] if keys else []) + [{"TAGS": "tag"}]
    ]
    store = engine.open(tmp_path / "by-engine", values)
    stored = []
    for message in made:
        stored += store.put([message])
        store.settle()
        # The engine names a file by the millisecond, so two must not be made in the same one.
        time.sleep(0.002)
    store.shutdown()
    times = iter([row["storeTimestamp"] for row in stored])
    root, config = tmp_path / "store", config_of(values)
    now = 0
    with MessageStore(root, config, writable=True, create=True, clock=lambda: now) as writer:
        for message in made:
            now = next(times)
            assert writer.put_message(message, flush=False).is_ok
    wanted = index_contents(tmp_path / "by-engine" / "index")
    assert index_contents(root / "index") == wanted
    assert len(wanted) == 1 + bool(keys)
    rebuild_to(plan_rebuild(root, config, "index"), tmp_path / "rebuilt")
    assert index_contents(tmp_path / "rebuilt" / "index") == wanted


@only("4.9.3")
@pytest.mark.parametrize("reopened", [False, True])
def test_a_kill_in_a_file_that_begins_amid_a_millisecond(
    engine: Engine, values: Row, tmp_path: Path, reopened: bool
) -> None:
    """By its header the file ends in the millisecond in which the full file before it ended, and up
    to this one the checkpoint says that the index is on disk. So the engine's start keeps the file
    (``IndexService#load``), though its slots lead to items that its header does not count yet, and
    a query finds nothing behind such an item."""
    values |= {"maxIndexNum": 300, "maxHashSlotNum": 20}
    root, config, now = tmp_path / "store", config_of(values), [BORN]

    def opened() -> WritableStore:
        return MessageStore(root, config, writable=True, create=True, clock=lambda: now[0])

    store = opened()
    put(store, range(50))
    now[0] += 10_000
    put(store, range(50, 330))
    store.flush()
    if reopened:
        store.close()
        store = opened()
    one, other = (path.read_bytes()[:40] for path in sorted((root / "index").iterdir()))
    assert one[8:16] == other[8:16]
    now[0] += 10_000
    without_header(root, store, range(330, 360))
    assert lost_keys(engine, root, values, range(360)) == []


@only("4.9.3")
@pytest.mark.parametrize("count", [100, 330])
def test_a_computed_checkpoint_does_not_vouch_for_items_that_are_not_counted(
    engine: Engine, values: Row, tmp_path: Path, count: int
) -> None:
    """With the computed checkpoint a start throws away the file that holds such items, and indexes
    its messages again."""
    values |= {"maxIndexNum": 300, "maxHashSlotNum": 20}
    root, config, clock = tmp_path / "store", config_of(values), iter(range(BORN, 2 * BORN, 1000))
    store = MessageStore(root, config, writable=True, create=True, clock=lambda: next(clock))
    put(store, range(count))
    store.flush()
    without_header(root, store, range(count, count + 30))
    judged = compute(root, config)
    assert judged.new is not None and not judged.says_too_much
    store_checkpoint(root, config, judged.new)
    assert lost_keys(engine, root, values, range(count + 30)) == []
