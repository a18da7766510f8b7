"""The machine goes off: of each file what was last forced to disk is left, and zeros elsewhere; of
each directory the names that it had when it was.

Kills leave what the system holds in memory; here that is gone as well. What a put, a flush or a
closed store has promised must be there all the same.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.index.indexservice import IndexService
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.rehearsal.rehearse import rehearse
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.start.plan import scan_start
from rmqctl.engine.state.checkpoint import read_checkpoint
from rmqctl.engine.state.controller import EPOCH_FILE, IDENTITY_FILE, Epoch, epochs_text
from rmqctl.operations.mend.plainstore import write_plain_store
from rmqctl.operations.mend.salvage import Salvage, plan_salvage, write_salvage
from tests.test_safety.support import TIME, Clock, assert_clean, message, small_config, tree

CONFIG = small_config(log=4096, queue=200, slots=20, items=60)


class Power:
    """Notes what each file and directory held when it was last forced to disk."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self._forced: dict[int, bytes] = {}
        self._names: dict[int, list[str]] = {}
        for name in ("fdatasync", "fsync"):
            patched.setattr(os, name, self._noted(getattr(os, name)))

    def _noted(self, real: Any) -> Any:
        def call(descriptor: int) -> None:
            real(descriptor)
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                self._forced[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()
            else:
                self._names[status.st_ino] = os.listdir(descriptor)

        return call

    def goes_off(self, root: Path, image: Path) -> Path:
        """What is left of a store, in another place."""
        image.mkdir(parents=True)
        known = self._names.get(root.stat().st_ino, [])
        for path in sorted(path for path in root.iterdir() if path.name in known):
            place, status = image / path.name, path.stat()
            if path.is_dir():
                self.goes_off(path, place)
            else:
                forced = self._forced.get(status.st_ino, b"")
                place.write_bytes(forced.ljust(status.st_size, b"\0"))
        return image


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    yield Power(monkeypatch)


def content(root: Path) -> dict[str, bytes]:
    """All but ``lock``, whose bytes mean nothing."""
    return {name: data for name, data in tree(root).items() if name != "lock"}


def assert_kept(image: Path, config: MessageStoreConfig, acknowledged: list[Any]) -> None:
    """A writer opens what is left, and has all that was promised: in log and queue."""
    with MessageStore(image, config, writable=True) as store:
        for result in acknowledged:
            record = store.look_message_by_offset(result.append.wrote_offset)
            assert (record.topic, record.queue_id) == (result.topic, result.queue_id)
            assert record.queue_offset == result.append.queue_offset
            found = store.get_message(result.topic, result.queue_id, record.queue_offset, 1)
            assert [r.physical_offset for r in found.records] == [record.physical_offset]
        assert store.put_message(message(9999)).is_ok
    assert_clean(image, config)


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "synchronous": {"flush_disk_type": "SYNC_FLUSH"},
    "pool": {"transient_store_pool_enable": True},
    "extension": {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 512},
}


@pytest.mark.parametrize("services", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_put_has_acknowledged_is_there(
    fast_path: Path, power: Power, kind: str, services: bool
) -> None:
    config = replace(CONFIG, **KINDS[kind])
    root = fast_path / "store"
    acknowledged: list[Any] = []
    store = MessageStore(root, config, writable=True, create=True, clock=Clock())
    if services:
        store.start()
    for step in range(8):
        numbers = iter(range(100 * step, 100 * step + 100))
        acknowledged.append(store.put_message(message(next(numbers))))
        batch = [message(next(numbers), "topic0", 0) for _ in range(5)]
        acknowledged += store.put_messages(batch, batch=True)
        for results in store.put_stream([message(next(numbers)) for _ in range(15)]):
            acknowledged += results
        # Promised to nobody. A full file of the index is forced when it is full: then these are.
        for _ in range(3):
            assert store.put_message(message(next(numbers)), flush=False).is_ok
        # One that waits for nobody is on disk when another of the same call waits, or where no
        # service would bring it there.
        free = message(next(numbers))
        free.properties["WAIT"] = "false"
        waits = message(next(numbers))
        acknowledged += store.put_messages([free, waits] if services else [free])
        assert all(result.is_ok for result in acknowledged)
        assert_kept(power.goes_off(root, fast_path / f"off{step}"), config, acknowledged)
    assert len(list((root / "commitlog").iterdir())) > 5
    store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_flush_and_a_closed_store_leave_nothing_to_lose(
    fast_path: Path, power: Power, kind: str
) -> None:
    config = replace(CONFIG, **KINDS[kind])
    root = fast_path / "store"
    with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
        for number in range(150):
            assert store.put_message(message(number), flush=False).is_ok
        store.flush()
        image = power.goes_off(root, fast_path / "flushed")
        assert content(image) == content(root)
        for number in range(150, 300):
            assert store.put_message(message(number), flush=False).is_ok
    assert content(power.goes_off(root, fast_path / "closed")) == content(root)


def test_the_names_that_a_killed_writer_left_are_forced_by_the_next(
    fast_path: Path, power: Power
) -> None:
    """Those of queues that are not on disk yet, and of their directories."""
    root = fast_path / "store"
    store = MessageStore(root, CONFIG, writable=True, create=True, clock=Clock())
    assert store.put_message(message(0, "topic0", 0)).is_ok
    store.flush()
    for number in range(1, 30):
        assert store.put_message(message(number), flush=False).is_ok
    store.abandon()
    before = tree(root / "consumequeue")
    image = power.goes_off(root, fast_path / "killed")
    assert len(tree(image / "consumequeue")) < len(before)
    with MessageStore(root, CONFIG, writable=True, clock=Clock()) as store:
        store.flush()
        image = power.goes_off(root, fast_path / "again")
        assert tree(image / "consumequeue") == tree(root / "consumequeue") == before


@pytest.mark.parametrize("structure", ["commitlog", "queues", "index"])
def test_a_flush_of_one_structure_forces_it(fast_path: Path, power: Power, structure: str) -> None:
    root = fast_path / "store"
    directory = {"queues": "consumequeue"}.get(structure, structure)
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        for number in range(100):
            assert store.put_message(message(number), flush=False).is_ok
        store.flush_structures([structure])
        image = power.goes_off(root, fast_path / "off")
        assert tree(image / directory) == tree(root / directory)
        assert tree(image)["checkpoint"] == tree(root)["checkpoint"]


def test_the_checkpoint_says_nothing_of_queues_that_are_not_forced(
    fast_path: Path, power: Power
) -> None:
    """``FlushConsumeQueueService``: the queues first, and then their store time."""
    root = fast_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        for number in range(100):
            assert store.put_message(message(number), flush=False).is_ok
        service = store.writer.flusher.flush_consume_queue
        service._last_flush_timestamp = -(10.0**12)
        service.work()
        image = power.goes_off(root, fast_path / "off")
        assert tree(image / "consumequeue") == tree(root / "consumequeue")
        checkpoint = read_checkpoint(image / "checkpoint")
        assert checkpoint is not None
        times = [e.store_timestamp for e in store.commit_log.walk() if isinstance(e, Record)]
        assert len(times) == 100
        # Of the log nothing was forced, and so nothing is said; of the queues no more than what a
        # start needs to index anew what stands in the newest index file, which it throws away.
        index = IndexService(root / "index", CONFIG.index_geometry)
        newest = [file.header for file in index.files()][-1]
        assert newest.end_timestamp > checkpoint.index_msg_timestamp
        assert checkpoint[:2] == (times[0], newest.begin_timestamp)


@pytest.mark.parametrize("how", ["flush", "services", "close"])
def test_the_checkpoint_goes_back_with_the_clock(fast_path: Path, how: str) -> None:
    """One that said more than the newest records would have a start begin in the newest file."""
    root, now = fast_path / "store", [TIME + 3_600_000]
    store = MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: now[0])
    for number in range(100):
        now[0] = TIME if number == 60 else now[0] + 100
        assert store.put_message(message(number)).is_ok
        if number == 50:
            store.flush()
    if how == "flush":
        store.flush()
    elif how == "services":
        store.flush_log()
        service = store.writer.flusher.flush_consume_queue
        service._last_flush_timestamp = -(10.0**12)
        service.work()
    else:
        store.close()
    checkpoint = read_checkpoint(root / "checkpoint")
    assert checkpoint is not None
    assert checkpoint.physic_msg_timestamp == now[0] >= checkpoint.logics_msg_timestamp
    store.close()
    assert_clean(root, CONFIG)


@pytest.mark.parametrize("how", ["one by one", "stream", "services"])
def test_after_the_clock_was_set_back_a_start_begins_before_that(fast_path: Path, how: str) -> None:
    """Though the files of the log that begin then are older than what the checkpoint said: nothing
    of the queues is on disk since it was written."""
    root, now = fast_path / "store", [TIME + 3_600_000]

    def clock() -> int:
        now[0] += 100
        return now[0]

    store = MessageStore(root, CONFIG, writable=True, create=True, clock=clock)
    for number in range(50):
        assert store.put_message(message(number)).is_ok
    store.flush()
    if how == "services":
        store.start()
    end, now[0] = store.max_offset, TIME
    if how == "stream":
        for results in store.put_stream(message(number) for number in range(50, 200)):
            assert all(one.is_ok for one in results)
    else:
        for number in range(50, 200):
            assert store.put_message(message(number)).is_ok
    checkpoint = read_checkpoint(root / "checkpoint")
    assert checkpoint is not None and len(list((root / "commitlog").iterdir())) > 5
    assert scan_start(store.commit_log, checkpoint, CONFIG).physical_offset <= end
    store.flush()
    later = read_checkpoint(root / "checkpoint")
    assert later is not None and later.physic_msg_timestamp == now[0]
    store.close()
    assert_clean(root, CONFIG)


@pytest.mark.parametrize("by_another", [False, True])
def test_units_that_a_start_has_taken_away_do_not_come_back(
    fast_path: Path, power: Power, by_another: bool
) -> None:
    """They named records that were lost, and others lie there by then. The start that took them
    away may have been killed before they were gone from the disk."""
    root = fast_path / "store"
    log = root / "commitlog" / f"{0:020d}"
    queue = root / "consumequeue/topic0/0" / f"{0:020d}"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        first: Any = store.put_message(message(0, "topic0", 0))
        lost: list[Any] = [store.put_message(message(n, "topic0", 0)) for n in (1000, 2000, 3000)]
    end, last = lost[0].append.wrote_offset, lost[-1].append.wrote_offset
    (root / "abort").touch()
    with log.open("r+b") as file:
        file.seek(end)
        file.write(bytes(log.stat().st_size - end))
        os.fsync(file.fileno())
    if by_another:
        with queue.open("r+b") as file:
            file.seek(20)
            file.write(bytes(60))
    store = MessageStore(root, CONFIG, writable=True, clock=Clock())
    acknowledged: list[Any] = [first]
    while acknowledged[-1].append.wrote_offset <= last:
        acknowledged.append(store.put_message(message(len(acknowledged), "topic0", 0)))
    image = power.goes_off(root, fast_path / "off")
    store.abandon()
    assert_kept(image, CONFIG, acknowledged)


def _salvaged(root: Path, output: Path) -> None:
    (root / EPOCH_FILE).write_text(epochs_text((Epoch(1, 0),)))
    (root / IDENTITY_FILE).write_text("cluster#broker-a#2")
    plan = plan_salvage(Salvage(root, CONFIG, output))
    write_salvage(plan)
    plan.close()


def _made_plain(root: Path, output: Path) -> None:
    write_plain_store(root, CONFIG, output)


@pytest.mark.parametrize("make", [_salvaged, _made_plain])
def test_a_store_made_of_another_is_forced_with_all_its_files(
    fast_path: Path, power: Power, make: Callable[[Path, Path], None]
) -> None:
    """The offsets of consumers, too: who has the new store may throw the old one away."""
    root, output = fast_path / "store", fast_path / "new"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=Clock()) as store:
        for number in range(60):
            assert store.put_message(message(number)).is_ok
    (root / "config").mkdir()
    for name in ("consumerOffset.json", "consumerOffset.json.bak", "topics.json"):
        (root / "config" / name).write_text('{"offsetTable":{"topic0@group":{0:7}}}')
    make(root, output)
    found = content(power.goes_off(output, fast_path / "off"))
    assert found == content(output)
    assert found["config/consumerOffset.json"].startswith(b'{"offsetTable"')


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("behind", [0, 2, 3, 5])
def test_a_broker_goes_on_where_the_log_ends(fast_path: Path, behind: int, is_clean: bool) -> None:
    """And not at one of the files behind it of which only the names were on disk: after a clean
    stop its start looks at the last three files alone (``CommitLog#recoverNormally``)."""
    root, config = fast_path / "store", replace(CONFIG, flush_disk_type="ASYNC_FLUSH")
    results: list[Any] = []
    with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
        for number in range(170):
            results.append(store.put_message(message(number), flush=False))
        names = [entry.path.name for entry in store.commit_log.files.entries]
        assert len(names) > 8
    kept = [one for one in results if one.append.wrote_offset < int(names[3])]
    end = kept[-1].append.wrote_offset
    for number, name in enumerate(names):
        path = root / "commitlog" / name
        if number > 2 + behind:
            path.unlink()
        elif number >= 2:
            data = path.read_bytes()
            path.write_bytes(data[: max(end - int(name), 0)].ljust(len(data), b"\0"))
    for path in root.glob("consumequeue/*/*"):
        shutil.rmtree(path)
    shutil.rmtree(root / "index")
    if not is_clean:
        (root / "abort").touch()
    with MessageStore(root, config, writable=True, clock=Clock(TIME + 10**6)) as store:
        assert store.max_offset == end
    played = rehearse(root, config)
    assert (played.is_clean, played.starts, played.max_offset) == (True, True, end)
    left = len(list((root / "commitlog").iterdir()))
    assert left == 3 + min(behind, 2)
    with MessageStore(root, config, writable=True, clock=Clock(TIME + 10**7)) as store:
        results = kept[:-1] + [store.put_message(message(n), flush=False) for n in range(200)]
    assert_kept(root, config, results)
