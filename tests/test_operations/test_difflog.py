"""What a comparison of two logs finds, and how much it reads for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.operations.look import difflog
from tests.golden_data import copy_tree
from tests.test_cli.conftest import CONFIG as SMALL
from tests.test_cli.conftest import message

CONFIG = replace(SMALL, mapped_file_size_commit_log=1 << 16)
_MESSAGES = 400
_BODY_BYTE = 100  # Within the body of each record.


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    with MessageStore(tmp_path / "a", CONFIG, writable=True, create=True) as store:
        for number in range(_MESSAGES):
            assert store.put_message(message(number, body=b"x" * 60)).is_ok
    return tmp_path / "a", copy_tree(tmp_path / "a", tmp_path / "b")


def _changed(root: Path, numbers: Iterable[int]) -> set[int]:
    """Changes the bodies of some messages of a store; the physical offsets of their records."""
    with MessageStore(root, CONFIG) as store:
        entries = store.commit_log.walk()
        offsets = [one.physical_offset for one in entries if isinstance(one, Record)]
        size = store.commit_log.file_size
    assert len(offsets) == _MESSAGES
    changed = {offsets[number] for number in numbers}
    for offset in changed:
        with (root / "commitlog" / f"{offset // size * size:020d}").open("r+b") as file:
            file.seek(offset % size + _BODY_BYTE)
            file.write(b"y")
    return changed


def _found(a: Path, b: Path) -> set[int]:
    """The physical offsets of all records that differ."""
    with MessageStore(a, CONFIG) as one, MessageStore(b, CONFIG) as other:
        end = one.max_offset
        logs = one.commit_log, other.commit_log
        return {each.start for each in difflog._differing(*logs, 0, end, None)}


def test_every_difference_is_found_whatever_is_read_at_once(
    copies: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = _changed(copies[1], Random(3).sample(range(_MESSAGES), 40))
    for first, most in ((1, 1), (7, 100), (64, 64), (1 << 14, 4 << 20)):
        monkeypatch.setattr(difflog, "_FIRST_PIECE", first)
        monkeypatch.setattr(difflog, "_PIECE", most)
        assert _found(*copies) == changed


def test_many_differences_do_not_read_the_log_again_and_again(
    copies: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = _changed(copies[1], range(0, _MESSAGES, 2))
    read = 0
    original = difflog._bytes

    def counted(log: CommitLog, physical_offset: int, size: int) -> bytes:
        nonlocal read
        read += size
        return original(log, physical_offset, size)

    monkeypatch.setattr(difflog, "_bytes", counted)
    monkeypatch.setattr(difflog, "_FIRST_PIECE", 32)
    assert _found(*copies) == changed
    with MessageStore(copies[0], CONFIG) as store:
        assert read < 16 * store.max_offset
