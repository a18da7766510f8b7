"""From where a start after a crash dispatches again, by what is left of queues and index."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqctl.engine.index.header import ITEM
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE
from rmqctl.engine.state.checkpoint import Checkpoint, write_checkpoint
from tests.golden_data import broker_conf, expected
from tests.test_safety.support import assert_clean, tree

CONFIG = broker_conf("basic")
NEWEST = max(row["storeTimestamp"] for row in expected("basic")["message"])
#: The last file of the log: a start reads from there if the checkpoint says that it may.
LAST_FILE = 6 * 65536
Copy = Callable[[str], Path]


@pytest.fixture
def killed(copy_store: Copy) -> Path:
    """A store whose broker was killed, and whose checkpoint claims all that there is."""
    root = copy_store("basic")
    write_checkpoint(root, root / "checkpoint", Checkpoint(*(NEWEST + 5000,) * 3))
    (root / "abort").touch()
    return root


def queue_files(root: Path) -> Iterator[Path]:
    """The queue files that have units of records on both sides of the place to read from."""
    for path in sorted((root / "consumequeue").glob("*/*/*")):
        offsets = [offset for offset, size, _ in UNIT.iter_unpack(path.read_bytes()) if size]
        if offsets and offsets[0] < LAST_FILE <= offsets[-1]:
            yield path


def cut_units(path: Path, least: int) -> int:
    """Makes zeros of a queue's units of records from ``least`` on; how many."""
    data, cut = bytearray(path.read_bytes()), 0
    for at in range(0, len(data), UNIT_SIZE):
        offset, size, _ = UNIT.unpack_from(data, at)
        if size and offset >= least:
            data[at : at + UNIT_SIZE] = bytes(UNIT_SIZE)
            cut += 1
    path.write_bytes(data)
    return cut


def dispatch_from(root: Path) -> int:
    with MessageStore(root, CONFIG) as store:
        plan = store.start_plan()
    assert plan.scan is not None and plan.scan.physical_offset == LAST_FILE
    return plan.dispatch_from


def start(root: Path) -> None:
    with MessageStore(root, CONFIG, writable=True):
        pass
    assert_clean(root, CONFIG)


def test_units_behind_the_place_alone_are_dispatched_from_there(killed: Path) -> None:
    before = tree(killed / "consumequeue")
    for path in queue_files(killed):
        cut_units(path, LAST_FILE)
    assert tree(killed / "consumequeue") != before
    assert dispatch_from(killed) == LAST_FILE
    start(killed)
    assert tree(killed / "consumequeue") == before


@pytest.mark.parametrize("least", [0, 100_000, 300_000])
def test_a_queue_that_lacks_units_before_the_place_gets_these_too(killed: Path, least: int) -> None:
    """A broker would go on behind the gap, or, with no unit left, put units of other offsets at the
    queue's begin."""
    before = tree(killed / "consumequeue")
    path = next(queue_files(killed))
    assert cut_units(path, least) > cut_units(path, LAST_FILE)
    assert dispatch_from(killed) < LAST_FILE
    start(killed)
    assert tree(killed / "consumequeue") == before


def test_without_any_queue_all_are_made_again(killed: Path) -> None:
    before = tree(killed / "consumequeue")
    shutil.rmtree(killed / "consumequeue")
    assert dispatch_from(killed) == 0
    start(killed)
    assert tree(killed / "consumequeue") == before


def test_the_index_gets_items_that_it_lacks_before_the_place(killed: Path) -> None:
    """The page of an item did not reach the disk."""
    path = max((killed / "index").iterdir())
    before = path.read_bytes()
    start_of_items = CONFIG.index_geometry.item_position(1)
    items = list(ITEM.iter_unpack(before[start_of_items:]))
    lost = sum(0 < item[1] < LAST_FILE for item in items) // 2
    assert 0 < items[0][1] < items[lost - 1][1] <= items[lost][1] < LAST_FILE
    path.write_bytes(before[: start_of_items + lost * ITEM.size].ljust(len(before), b"\0"))
    assert dispatch_from(killed) == items[lost - 1][1]
    start(killed)
    assert path.read_bytes() == before
