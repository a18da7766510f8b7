"""A checkpoint that is held back while queues are written anew, and damage in the log before it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from formats.constants import LONG_MAX
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.rehearsal.rehearse import rehearse
from rmqctl.engine.state.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from tests.forcing import patch_fdatasync
from tests.test_safety.support import TIME, Clock, fill_files, message, small_config

CONFIG = small_config(log=1 << 12, queue=2000, items=1000)
FILES = 12
#: Of a store whose clock was set back.
SET_BACK = small_config(log=1 << 12, queue=2000, items=42)


def damage(root: Path, number: int) -> None:
    """One byte of a file of the log, inside a body."""
    path = sorted((root / "commitlog").iterdir())[number]
    data = bytearray(path.read_bytes())
    data[data.index(b"x" * 50)] ^= 1
    path.write_bytes(data)


def damaged_store(tmp_path: Path, damaged: Iterable[int]) -> Path:
    """A store with damage in these files of its log."""
    root = tmp_path / "store"
    fill_files(root, CONFIG, FILES)
    for number in damaged:
        damage(root, number)
    return root


def engines_end(root: Path) -> int:
    """Where the log of the store ends after a broker's start."""
    outcome = rehearse(root, CONFIG, as_5=False)
    assert outcome.starts
    return outcome.max_offset


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "abort"])
@pytest.mark.parametrize("damaged", [(0,), (5,), (2, 5), (5, 8), (2, 7, 8)], ids=str)
def test_a_kill_brings_no_start_to_damage_that_it_had_passed(
    tmp_path: Path, damaged: tuple[int, ...], abort: bool
) -> None:
    """A broker would delete all of the log behind it."""
    root = damaged_store(tmp_path, damaged)
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()
    before = engines_end(root)
    assert before > (FILES - 1) << 12
    if not abort:
        (root / "abort").unlink()
    store = MessageStore(root, CONFIG, writable=True, catches_up=abort)
    store.abandon()
    assert (root / "abort").exists()
    assert engines_end(root) == before


@pytest.mark.parametrize("damaged", [(0,), (5,), (2, 7, 8)], ids=str)
def test_nor_does_an_index_that_the_checkpoint_said_too_much_of(
    tmp_path: Path, damaged: tuple[int, ...]
) -> None:
    """One of the future vouches for a file that is written to, whose items go back to the begin."""
    root = damaged_store(tmp_path, damaged)
    write_checkpoint(root, root / "checkpoint", Checkpoint(LONG_MAX, LONG_MAX, LONG_MAX))
    (root / "abort").touch()
    before = engines_end(root)
    assert before > (FILES - 1) << 12
    MessageStore(root, CONFIG, writable=True).abandon()
    checkpoint = read_checkpoint(root / "checkpoint")
    assert checkpoint is not None and checkpoint.index_msg_timestamp == 0
    assert engines_end(root) == before


@pytest.mark.parametrize("damaged", [(0,), (5,), (2, 7)], ids=str)
def test_the_checkpoint_goes_back_up_to_the_damage(
    tmp_path: Path, damaged: tuple[int, ...]
) -> None:
    """What stands behind it gets its units again after a kill."""
    root = damaged_store(tmp_path, damaged)
    shutil.rmtree(root / "consumequeue")
    MessageStore(root, CONFIG, writable=True, catches_up=False).abandon()
    with MessageStore(root, CONFIG) as store:
        scan = store.start_plan().scan
    assert scan is not None and scan.physical_offset == (damaged[-1] + 1) << 12


def test_without_damage_all_is_read_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill_files(root, CONFIG, FILES)
    shutil.rmtree(root / "consumequeue")
    MessageStore(root, CONFIG, writable=True, catches_up=False).abandon()
    checkpoint = read_checkpoint(root / "checkpoint")
    assert checkpoint is not None and checkpoint.logics_msg_timestamp == 0


def fill_with_a_clock_set_back(root: Path, end: int = 150, files: int = 4) -> None:
    """A store whose clock went back by an hour when 100 of ``end`` messages were put, with so many
    index files."""
    for first, time in ((0, TIME), (100, TIME - 3_600_000)):
        with MessageStore(root, SET_BACK, writable=True, create=True, clock=Clock(time)) as store:
            for number in range(first, end if first else 100):
                assert store.put_message(message(number, body=b"x" * 200), flush=False).is_ok
            assert len(store.index.paths) == (3 if first == 0 else files)


def deleted_index_files(root: Path) -> set[str]:
    deleted = rehearse(root, SET_BACK, as_5=False).deleted
    return {one.path.name for one in deleted if one.why == "index-in-doubt"}


@pytest.mark.parametrize("abort", [False, True], ids=["clean", "abort"])
@pytest.mark.parametrize(("end", "files"), [(150, 4), (200, 5)])
def test_index_files_from_before_a_clock_was_set_back_stay_trusted(
    tmp_path: Path, abort: bool, end: int, files: int
) -> None:
    """A broker would throw away what is newer than the checkpoint says, and come by few of their
    records."""
    root = tmp_path / "store"
    fill_with_a_clock_set_back(root, end, files)
    last = sorted((root / "commitlog").iterdir())[-1]
    data = last.read_bytes()
    last.write_bytes(data.rstrip(b"\0")[:-50].ljust(len(data), b"\0"))
    (root / "abort").touch()
    before = deleted_index_files(root)
    if not abort:
        (root / "abort").unlink()
    MessageStore(root, SET_BACK, writable=True).abandon()
    assert (root / "abort").exists()
    assert deleted_index_files(root) <= before | {max((root / "index").iterdir()).name}


@pytest.mark.parametrize("when", ["flushed", "set back"])
def test_full_index_files_of_a_killed_store_come_to_be_trusted(tmp_path: Path, when: str) -> None:
    """Else those from before the clock was set back are thrown away by the next start after a kill,
    and of their records it comes by few."""
    root = tmp_path / "store"
    for first, end, time in ((0, 100, TIME), (100, 200, TIME - 3_600_000)):
        store = MessageStore(root, SET_BACK, writable=True, create=True, clock=Clock(time))
        for number in range(first, end):
            assert store.put_message(message(number, body=b"x" * 200), flush=False).is_ok
        if when == "flushed" and first:
            store.flush()
        store.abandon()
    assert len(list((root / "index").iterdir())) >= 3
    assert deleted_index_files(root) <= {max((root / "index").iterdir()).name}


def test_a_clock_that_is_set_back_while_the_queues_are_on_their_way_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that is put then has its unit in memory alone: the checkpoint stays before it."""
    root, clock = tmp_path / "store", Clock(TIME)
    config = replace(SET_BACK, message_index_enable=False)
    back = TIME - 3_600_000

    def said() -> int:
        checkpoint = read_checkpoint(root / "checkpoint")
        assert checkpoint is not None
        return min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp)

    with MessageStore(root, config, writable=True, create=True, clock=clock) as store:
        for number in range(5):
            assert store.put_message(message(number), flush=False).is_ok
        store.flush()
        assert said() > back

        def meanwhile(path: Path, force: Callable[[], None]) -> None:
            force()
            if "consumequeue" not in path.parts:
                return
            monkeypatch.undo()
            clock.now = back
            assert store.put_message(message(5), flush=False).is_ok

        patch_fdatasync(monkeypatch, meanwhile)
        store.writer.flusher.flush_consume_queue.finish()
        assert said() <= clock.now
        store.flush()
        assert said() == clock.now


def test_a_start_after_a_kill_begins_where_the_dispatch_did_although_a_clock_was_set_back(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    fill_with_a_clock_set_back(root)
    with MessageStore(root, SET_BACK) as store:
        queue = store.consume_queue("topic1", 0)
        assert queue is not None
        lost, path = queue.unit(5), queue.files.entries[0].path
    assert lost is not None and lost.physical_offset < 1 << 14
    units = path.read_bytes()
    path.write_bytes(units[: 5 * UNIT_SIZE] + bytes(UNIT_SIZE) + units[6 * UNIT_SIZE :])
    (root / "abort").touch()
    MessageStore(root, SET_BACK, writable=True).abandon()
    scanned = rehearse(root, SET_BACK, as_5=False).first_scanned
    assert scanned is not None and int(scanned.name) <= lost.physical_offset
