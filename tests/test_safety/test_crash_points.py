"""A store is abandoned after (and in the middle of) every single store into a map.

What a kill can leave is not only a prefix of the stores that a run makes: a kill during a page
fault cuts one store short, and the C library's copies do not all go from front to back. So each
store is left whole, missing, cut, and with its beginning missing.
"""

from __future__ import annotations

import contextlib
import mmap
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats import constants
from rmqctl.engine.index.indexfilewriter import IndexFileWriter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from tests.test_safety.support import (
    TIME,
    Clock,
    assert_clean,
    assert_rebuild_is_identical,
    message,
    small_config,
)

Work = Callable[[MessageStore, list[Any]], None]


class Killed(BaseException):
    """Stands for SIGKILL: no handler of the engine may see it as an error of its own."""


class Fuse:
    """Burns at the ``at``-th store into a map; ``how`` says what is left of that one."""

    def __init__(self, at: int, how: str) -> None:
        self.at = at
        self.how = how
        self.stores = 0

    def left(self, data: bytes) -> list[tuple[int, int]] | None:
        """The parts of ``data`` that are stored before the kill; None: it is not the one."""
        self.stores += 1
        if self.stores != self.at:
            return None
        size = len(data)
        return {
            "none": [],
            "half": [(0, size // 2)],
            "all but one": [(0, size - 1)],
            "head last": [(32, size)] if size > 64 else [],
            "middle": [(32, size * 3 // 4)] if size > 64 else [(0, 1)],
            "whole": [(0, size)],
        }[self.how]


def light(monkeypatch: pytest.MonkeyPatch, fuse: Fuse) -> None:
    """Puts the fuse under every map and under the scattered stores into index slots."""

    class Map(mmap.mmap):
        def __setitem__(self, key: Any, value: Any) -> None:
            left = fuse.left(value)
            if left is None:
                super().__setitem__(key, value)
                return
            for low, high in left:
                super().__setitem__(slice(key.start + low, key.start + high), value[low:high])
            raise Killed

    class Slots(np.ndarray):
        def __setitem__(self, key: Any, value: Any) -> None:
            # The engine's own arrays inherit this class: only the map is meant.
            is_map = self.dtype == np.dtype(">i4") and isinstance(value, np.ndarray)
            left = fuse.left(bytes(len(value))) if is_map else None
            if left is None:
                super().__setitem__(key, value)
                return
            rows = random.Random(fuse.at).sample(range(len(key)), sum(b - a for a, b in left))
            super().__setitem__(key[rows], value[rows])
            raise Killed

    whole = IndexFileWriter.slot_view

    def slot_view(self: IndexFileWriter) -> Any:
        return whole(self).view(Slots)

    monkeypatch.setattr(mmap, "mmap", Map)
    monkeypatch.setattr(IndexFileWriter, "slot_view", slot_view)


def put_scalars(store: MessageStore, acknowledged: list[Any]) -> None:
    """Six puts: a log file and a queue file roll, an index file rolls amid a message's keys."""
    for number in range(6):
        put = message(number, "orders", 0, body=b"x" * 700, keys=2)
        acknowledged.append(store.put_message(put, flush=False))


def put_bulk(store: MessageStore, acknowledged: list[Any]) -> None:
    """A stream of two bulks, the second one beyond the scalar way of dispatch."""
    half = 160
    for start in (0, half):
        messages = (message(number, body=b"y" * 40) for number in range(start, start + half))
        for results in store.put_stream(messages, flush=False):
            acknowledged.extend(results)


def put_bulk_big_units(store: MessageStore, acknowledged: list[Any]) -> None:
    """One queue, so that one store has hundreds of units."""
    messages = (message(number, "orders", 0, body=b"") for number in range(300))
    for results in store.put_stream(messages, flush=False):
        acknowledged.extend(results)


def put_strings(store: MessageStore, acknowledged: list[Any]) -> None:
    """Records whose properties are most of them: a cut there leaves a body that is whole."""
    for number in range(2):
        put = message(number, "t" * 100, 0, body=b"z", keys=40)
        acknowledged.append(store.put_message(put, flush=False))


def put_transactions(store: MessageStore, acknowledged: list[Any]) -> None:
    for number, kind in enumerate((4, 8, 12, 0)):
        put = message(number, "pay", 0)
        put.sys_flag = kind
        acknowledged.append(store.put_message(put, flush=False))
    batch = [message(number, "pay", 0, body=b"b") for number in range(10, 13)]
    acknowledged.extend(store.put_messages(batch, batch=True, flush=False))


RUNS: dict[str, tuple[Work, MessageStoreConfig]] = {
    "scalar": (put_scalars, small_config(log=2048, queue=60, slots=3, items=6)),
    "transactions": (put_transactions, small_config(log=4096, queue=40, slots=3, items=100)),
    "strings": (put_strings, small_config(log=1 << 14, queue=1000, slots=20, items=100)),
    "bulk": (put_bulk, small_config(log=1 << 14, queue=400, slots=13, items=50)),
    "units": (put_bulk_big_units, small_config(log=1 << 18, queue=12000, slots=50, items=1000)),
}
HOWS = ("none", "half", "all but one", "head last", "middle", "whole")


def run(
    monkeypatch: pytest.MonkeyPatch, root: Path, name: str, fuse: Fuse, *, close: bool = True
) -> list[Any]:
    """One run up to the fuse; the acknowledged results."""
    work, config = RUNS[name]
    acknowledged: list[Any] = []
    with monkeypatch.context() as patched:
        light(patched, fuse)
        store = None
        try:
            store = MessageStore(root, config, writable=True, create=True, clock=Clock())
            work(store, acknowledged)
            if close:
                store.close()
        except Killed:
            pass
        if store is not None:
            store.abandon()
    return acknowledged


def count_stores(monkeypatch: pytest.MonkeyPatch, root: Path, name: str) -> int:
    fuse = Fuse(-1, "none")
    run(monkeypatch, root, name, fuse)
    return fuse.stores


def check(root: Path, name: str, acknowledged: list[Any], aside: Path) -> None:
    """What must hold of the dead store, of the reopened one, and of that one closed."""
    config = RUNS[name][1]
    stored = [result for result in acknowledged if result.append is not None]
    if stored:
        assert_clean(root, config, "torn-tail")
    with MessageStore(root, config, writable=True, create=True, clock=Clock(TIME + 10**7)) as store:
        assert store.max_offset >= max((r.append.wrote_offset for r in stored), default=0)
        for result in stored:
            assert_readable(store, result)
        more = store.put_message(message(9000, "orders", 0), flush=False)
        assert more.is_ok
        assert_readable(store, more)
    if stored or (root / "consumequeue").exists():
        assert_clean(root, config)
        assert_rebuild_is_identical(root, config, aside)


def assert_readable(store: MessageStore, result: Any) -> None:
    """By physical offset, by queue offset and by key."""
    append = result.append
    record = store.look_message_by_offset(append.wrote_offset)
    assert record.total_size == append.wrote_bytes
    kind = record.transaction_type
    if kind not in (constants.TRANSACTION_PREPARED_TYPE, constants.TRANSACTION_ROLLBACK_TYPE):
        got = store.get_message(result.topic, result.queue_id, append.queue_offset, 1)
        assert [r.physical_offset for r in got.records] == [append.wrote_offset]
        queue = store.consume_queue(result.topic, result.queue_id)
        assert queue is not None
        unit = queue.unit(append.queue_offset)
        assert unit is not None and unit.tags_code == record.tags_code
    if kind != constants.TRANSACTION_ROLLBACK_TYPE:
        for key in record.properties.get("KEYS", "").split():
            hits = store.query_message(result.topic, key)
            assert append.wrote_offset in [h.hit.item.physical_offset for h in hits if h.matches]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", RUNS)
def test_a_kill_at_any_store_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, fast_path: Path, chance: random.Random, name: str, how: str
) -> None:
    total = count_stores(monkeypatch, fast_path / "count", name)
    places = list(range(1, total + 1))
    if total > 60:
        places = sorted(chance.sample(places, 15))
    wrong = []
    for at in places:
        root = fast_path / f"{at}"
        acknowledged = run(monkeypatch, root, name, Fuse(at, how))
        try:
            check(root, name, acknowledged, fast_path / f"{at}-rebuilt")
        except Exception as error:  # every place is tried, and named
            wrong.append(f"store {at} of {total}: {type(error).__name__}: {str(error)[:600]}")
    assert not wrong, f"{len(wrong)} of {len(places)}\n" + "\n".join(wrong[:12])


@pytest.mark.parametrize("name", ["scalar", "bulk", "units"])
def test_a_kill_of_the_recovery_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, fast_path: Path, chance: random.Random, name: str
) -> None:
    """Killed in a put, then again and again in the recovery, at random stores."""
    total = count_stores(monkeypatch, fast_path / "count", name)
    for number in range(12):
        root = fast_path / f"{number}"
        acknowledged = run(
            monkeypatch, root, name, Fuse(chance.randint(4, total), chance.choice(HOWS))
        )
        for _ in range(4):
            with monkeypatch.context() as patched:
                light(patched, Fuse(chance.randint(1, 12), chance.choice(HOWS)))
                with contextlib.suppress(Killed):
                    MessageStore(root, RUNS[name][1], writable=True, create=True).abandon()
        check(root, name, acknowledged, fast_path / f"{number}-rebuilt")


def test_queues_are_made_again_behind_expired_files(
    monkeypatch: pytest.MonkeyPatch, fast_path: Path
) -> None:
    """All queues are gone and the log starts late: the first unit has its place in the middle of a
    file, behind pre-blank ones. A kill amid these changes nothing."""
    config = small_config(log=4096, queue=1000, slots=10, items=400)
    origin = fast_path / "origin"
    with MessageStore(origin, config, writable=True, create=True, clock=Clock()) as store:
        for number in range(60):
            store.put_message(message(number, "orders", 0, body=b"x" * 200), flush=False)
    (origin / "commitlog" / f"{0:020d}").unlink()
    shutil.rmtree(origin / "consumequeue")
    shutil.rmtree(origin / "index")
    (origin / "abort").touch()
    for at in range(1, 12):
        for how in HOWS:
            root = fast_path / f"{at}{how}"
            shutil.copytree(origin, root)
            with monkeypatch.context() as patched:
                light(patched, Fuse(at, how))
                with contextlib.suppress(Killed):
                    MessageStore(root, config, writable=True).abandon()
            MessageStore(root, config, writable=True).close()
            assert_clean(root, config)
            assert_rebuild_is_identical(root, config, fast_path / f"{at}{how}-rebuilt")


def test_a_recovery_of_much_log_is_killed_between_two_queues(
    monkeypatch: pytest.MonkeyPatch, fast_path: Path
) -> None:
    """One queue has its units for 16 MiB of log, the other none: the first message is not lost."""
    config = small_config(log=32 << 20, queue=20_000)
    root = fast_path / "store"
    with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
        body = bytes(60_000)
        messages = (message(n, "orders", int(n == 0), body=body) for n in range(400))
        for _ in store.put_stream(messages, flush=False):
            pass
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()
    with monkeypatch.context() as patched:
        light(patched, Fuse(1, "whole"))
        with pytest.raises(Killed):
            MessageStore(root, config, writable=True)
    assert not (root / "consumequeue" / "orders" / "1").exists(), "queue 1 comes second"
    MessageStore(root, config, writable=True).close()
    assert_clean(root, config)
    assert_rebuild_is_identical(root, config, fast_path / "rebuilt")
