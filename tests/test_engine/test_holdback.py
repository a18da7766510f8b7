"""A checkpoint that is held back while queues are written anew, and damage in the log before it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.rehearsal.rehearse import rehearse
from rmqctl.engine.state.checkpoint import read_checkpoint
from tests.test_safety.support import fill_files, small_config

CONFIG = small_config(log=1 << 12, queue=2000, items=1000)
FILES = 12


def damage(root: Path, number: int) -> None:
    """One byte of a file of the log, inside a body."""
    path = sorted((root / "commitlog").iterdir())[number]
    data = bytearray(path.read_bytes())
    data[data.index(b"x" * 50)] ^= 1
    path.write_bytes(data)


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
    root = tmp_path / "store"
    fill_files(root, CONFIG, FILES)
    for number in damaged:
        damage(root, number)
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


def test_without_damage_all_is_read_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill_files(root, CONFIG, FILES)
    shutil.rmtree(root / "consumequeue")
    MessageStore(root, CONFIG, writable=True, catches_up=False).abandon()
    checkpoint = read_checkpoint(root / "checkpoint")
    assert checkpoint is not None and checkpoint.logics_msg_timestamp == 0
