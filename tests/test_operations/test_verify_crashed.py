"""What verify says of a unit beside ``abort``. Information is only what a kill can tear at the end
of a queue, and what a start dispatches again; whatever else is wrong stays wrong: an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE
from rmqctl.engine.state.checkpoint import Checkpoint, write_checkpoint
from rmqctl.operations.verify import ERROR, INFO, Finding, verify
from tests.test_safety.support import Clock, message, small_config

CONFIG = small_config()
TOPIC, COUNT = "orders", 220
#: An index file has nine items.
ROLLING = small_config(items=10)
LAGS, DIFFERS = {("index-uncounted-items", INFO)}, {("index-header-mismatch", ERROR)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A killed store, with five files of one queue; the checkpoint is of its last moment, so that a
    start dispatches again what is in the last log file."""
    store = tmp_path / "store"
    with MessageStore(store, CONFIG, writable=True, create=True, clock=Clock()) as writer:
        for number in range(COUNT):
            assert writer.put_message(message(number, TOPIC, 0, body=b"x" * 900), flush=False).is_ok
    (store / "abort").touch()
    return store


def change_unit(root: Path, queue_offset: int, change: Callable[[bytes], bytes]) -> None:
    at = queue_offset * UNIT_SIZE
    size = CONFIG.mapped_file_size_consume_queue
    path = root / "consumequeue" / TOPIC / "0" / f"{at - at % size:020d}"
    data = bytearray(path.read_bytes())
    unit = slice(at % size, at % size + UNIT_SIZE)
    data[unit] = change(bytes(data[unit]))
    path.write_bytes(data)


def zeroed(unit: bytes) -> bytes:
    return bytes(UNIT_SIZE)


def half_zeroed(unit: bytes) -> bytes:
    return unit[:10] + bytes(10)


def elsewhere(unit: bytes) -> bytes:
    """Points to no record's start."""
    physical_offset, size, tags_code = UNIT.unpack(unit)
    return UNIT.pack(physical_offset + 1, size, tags_code)


def errors(root: Path) -> list[tuple[str | None, int | None, int | None]]:
    found = [row for row in verify(root, CONFIG) if isinstance(row, Finding)]
    return [(one.topic, one.queue_id, one.queue_offset) for one in found if one.severity == ERROR]


@pytest.mark.parametrize("change", [zeroed, half_zeroed, elsewhere])
@pytest.mark.parametrize("queue_offset", [0, 20, 49, 50, 110])
def test_a_wrong_unit_amid_a_queue_is_an_error(
    root: Path, queue_offset: int, change: Callable[[bytes], bytes]
) -> None:
    change_unit(root, queue_offset, change)
    assert (TOPIC, 0, queue_offset) in errors(root)


@pytest.mark.parametrize("change", [zeroed, half_zeroed])
def test_a_unit_that_is_torn_at_the_end_is_none(
    root: Path, change: Callable[[bytes], bytes]
) -> None:
    change_unit(root, COUNT - 1, change)
    assert not errors(root)


def test_units_that_a_start_dispatches_again_are_none(root: Path) -> None:
    """Those of the last log file, from which its recovery begins."""
    size = CONFIG.mapped_file_size_commit_log
    with MessageStore(root, CONFIG) as store:
        queue = store.consume_queue(TOPIC, 0)
        assert queue is not None
        last_file = store.max_offset // size * size
        again = [at for at, unit in queue.units(0, COUNT) if unit.physical_offset >= last_file]
    assert 1 < len(again) < 70
    for queue_offset in again:
        change_unit(root, queue_offset, zeroed)
    assert not errors(root)


def test_units_that_a_start_passes_over_are_an_error(root: Path) -> None:
    """It reads a queue's last three files, and dispatches what is behind the units there: a loss of
    power may have taken those of an older file, too."""
    write_checkpoint(root, root / "checkpoint", Checkpoint())
    for queue_offset in range(60, 80):
        change_unit(root, queue_offset, zeroed)
    assert errors(root) == [(TOPIC, 0, 60)]
    change_unit(root, 100, zeroed)
    change_unit(root, 160, zeroed)
    assert errors(root) == [(TOPIC, 0, 60)]
    MessageStore(root, CONFIG, writable=True).close()
    assert not errors(root)


def test_units_past_the_end_that_a_killed_start_began_to_clear_are_no_hole(root: Path) -> None:
    """It clears their size first, so that every other start takes the place for the queue's end."""
    last = max((root / "commitlog").iterdir())
    last.write_bytes(bytes(CONFIG.mapped_file_size_commit_log))
    for _ in range(2):
        found = [row for row in verify(root, CONFIG) if isinstance(row, Finding)]
        (past,) = (row for row in found if row.structure == "queue")
        assert past.code == "unit-points-past-log-end" and past.queue_offset is not None
        change_unit(root, past.queue_offset, lambda unit: unit[:8] + bytes(4) + unit[12:])
    MessageStore(root, CONFIG, writable=True).close()
    assert not errors(root)


def lose_file(root: Path, number: int) -> None:
    size = CONFIG.mapped_file_size_consume_queue
    (root / "consumequeue" / TOPIC / "0" / f"{number * size:020d}").unlink()


@pytest.mark.parametrize("number", range(4))
def test_a_lost_file_in_front_of_units_is_an_error(root: Path, number: int) -> None:
    """A start goes on behind the newest unit, also where it reads the whole log."""
    write_checkpoint(root, root / "checkpoint", Checkpoint())
    lose_file(root, number)
    assert errors(root) == [(TOPIC, 0, 50 * number)]
    MessageStore(root, CONFIG, writable=True).close()
    assert errors(root) == [(TOPIC, 0, 50 * number)]


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize("number", [3, 4])
def test_lost_files_at_the_end_are_made_again(root: Path, number: int, is_empty: bool) -> None:
    """Also where a file without a unit is behind them."""
    write_checkpoint(root, root / "checkpoint", Checkpoint())
    for lost in range(number, 5):
        lose_file(root, lost)
    if is_empty:
        last = root / "consumequeue" / TOPIC / "0" / f"{4 * 1000:020d}"
        last.write_bytes(bytes(CONFIG.mapped_file_size_consume_queue))
    assert not errors(root)
    MessageStore(root, CONFIG, writable=True).close()
    assert not errors(root)


def index_findings(root: Path) -> set[tuple[str, str]]:
    found = (row for row in verify(root, ROLLING) if isinstance(row, Finding))
    return {(one.code, one.severity) for one in found if one.structure == "index"}


@pytest.mark.parametrize("items", [1, 2, 5])
@pytest.mark.parametrize("offset", [True, False])
def test_a_header_that_ends_before_the_newest_item_is_no_damage(
    tmp_path: Path, items: int, offset: bool
) -> None:
    """A kill between counting an item and storing where the items end."""
    root, ends = tmp_path / "store", []
    full = ROLLING.max_index_num - 1
    with MessageStore(root, ROLLING, writable=True, create=True, clock=Clock()) as writer:
        for number in range(full + items):
            done = writer.put_message(message(number), flush=False).append
            assert done is not None
            ends.append((done.wrote_offset, done.store_timestamp))
    (root / "abort").touch()
    first, newest = sorted((root / "index").iterdir())
    assert index_findings(root) == set()

    def end_at(path: Path, end: tuple[int, int]) -> None:
        header = bytearray(path.read_bytes())
        header[8:16] = end[1].to_bytes(8, "big")
        header[24:32] = end[0].to_bytes(8, "big")
        path.write_bytes(header)

    last, before = ends[-1], ends[-2]
    lagging = (before[0] if offset else last[0], before[1])
    end_at(newest, lagging)
    assert index_findings(root) == LAGS
    (root / "abort").unlink()
    assert index_findings(root) == DIFFERS
    (root / "abort").touch()
    if items > 2:  # two items back, or a time that no item has
        for end in (ends[-3], (before[0], ends[-3][1]), (before[0], last[1] + 1)):
            end_at(newest, end)
            assert index_findings(root) == DIFFERS
        end_at(newest, lagging)
    MessageStore(root, ROLLING, writable=True).close()
    assert index_findings(root) == set()
    (root / "abort").touch()
    end_at(first, ends[full - 2])  # that file was complete before the next one was begun
    assert index_findings(root) >= DIFFERS
