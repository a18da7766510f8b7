"""Names in a new directory: on disk at the end, whenever they came."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from rmqctl.engine.files import durable
from rmqctl.engine.files.newnames import NewNames


@pytest.fixture
def forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Directories below ``tmp_path`` that were forced to disk, and the names that they had."""
    found: list[tuple[str, list[str]]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        directory = Path(os.readlink(f"/proc/self/fd/{descriptor}")).relative_to(tmp_path)
        found.append((str(directory), sorted(os.listdir(descriptor))))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return found


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_directory_is_forced_again_when_it_has_another_name(
    is_ahead: bool, tmp_path: Path, forced: list[tuple[str, list[str]]]
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    (tmp_path / "a" / "b" / "file").touch()
    names = NewNames(tmp_path, is_ahead=is_ahead)
    names.begin()
    if is_ahead:
        assert names._behind is not None
        names._behind.wait()
    before = [(".", ["a", "c"]), ("a", ["b"]), ("a/b", ["file"]), ("c", [])]
    assert sorted(forced) == (before if is_ahead else [])
    (tmp_path / "a" / "b" / "other").touch()
    (tmp_path / "c" / "d").mkdir()
    names.begin()
    forced.clear()
    names.finish()
    names.close()
    after = [("a/b", ["file", "other"]), ("c", ["d"]), ("c/d", [])]
    assert sorted(forced) == (after if is_ahead else sorted([*before[:2], *after]))
    names.finish()
    assert len(forced) == (3 if is_ahead else 5)


def test_what_fails_while_more_names_come_is_told_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, is_called = NewNames(tmp_path, is_ahead=True), threading.Event()

    def fail(*_: object) -> None:
        is_called.set()
        raise OSError(errno.EIO, "the disk failed")

    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync_directories", fail)
        names.begin()
        assert is_called.wait(60)
    with pytest.raises(OSError, match="the disk failed"):
        names.finish()
    names.close()
