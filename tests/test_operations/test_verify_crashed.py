"""What verify says of a unit beside ``abort``. Information is only what a kill can tear at the end
of a queue, and what a start dispatches again; whatever else is wrong stays wrong: an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT, UNIT_SIZE
from rmqctl.engine.state.checkpoint import Checkpoint, write_checkpoint
from rmqctl.operations.verify import ERROR, Finding, verify
from tests.test_safety.support import Clock, message, small_config

CONFIG = small_config()
TOPIC, COUNT = "orders", 220


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
