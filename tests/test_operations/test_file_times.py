"""Modification times of rebuilt queue files: a broker finds an offset by time with them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to

#: Five units in a queue file.
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=100,
    max_hash_slot_num=7,
    max_index_num=50,
)
FIRST, STEP = 1_700_000_000_500, 60_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with 12 messages of one queue, a minute apart."""
    clock = itertools.count(FIRST, STEP)
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: next(clock)) as store:
        for _ in range(12):
            assert store.put_message(MessageExtBrokerInner("T", b"x")).is_ok
    return root


def times(queue: Path) -> list[float]:
    return [path.stat().st_mtime for path in sorted(queue.iterdir())]


def test_a_file_has_the_time_of_its_last_message(root: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    rebuild_to(plan_rebuild(root, CONFIG, "queues"), output)
    rebuild_in_place(plan_rebuild(root, CONFIG, "all"))
    for built in (output, root):
        *full, last = times(built / "consumequeue" / "T" / "0")
        assert full == [(FIRST + number * STEP + 500) / 1000 for number in (4, 9)]
        assert last > full[-1] + STEP


def test_a_last_message_that_cannot_be_read_leaves_the_one_before_it(root: Path) -> None:
    with MessageStore(root, CONFIG) as store:
        queue = store.consume_queue("T", 0)
        assert queue is not None
        unit = queue.unit(4)
    assert unit is not None
    plan = plan_rebuild(root, CONFIG, "queues")
    log = sorted((root / "commitlog").iterdir())[unit.physical_offset // 4096]
    with log.open("r+b") as file:
        file.seek(unit.physical_offset % 4096)
        file.write(bytes(8))
    rebuild_in_place(plan)
    first, *_ = times(root / "consumequeue" / "T" / "0")
    assert first == (FIRST + 3 * STEP + 500) / 1000


@pytest.mark.parametrize("stored", [-(1 << 63), (1 << 63) - 1])
def test_a_time_that_no_clock_shows_is_none_of_a_file(tmp_path: Path, stored: int) -> None:
    root = tmp_path / "store"
    with MessageStore(root, CONFIG, writable=True, create=True, clock=lambda: FIRST) as store:
        for _ in range(6):
            assert store.put_message(MessageExtBrokerInner("T", b"x")).is_ok
        offset = next(iter(store.commit_log.files.entries)).file_from_offset
        size = store.max_offset // 6
    log = root / "commitlog" / f"{offset:020d}"
    with log.open("r+b") as file:
        for number in range(6):
            file.seek(number * size + 56)
            file.write(stored.to_bytes(8, "big", signed=True))
    rebuild_in_place(plan_rebuild(root, CONFIG, "queues"))
    first, last = times(root / "consumequeue" / "T" / "0")
    assert abs(last - first) < STEP
