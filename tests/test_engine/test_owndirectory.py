"""Directories of one process: there while it lives, and not left by a kill for long."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rmqctl.engine.files.owndirectory import OwnDirectory

PREFIX = "rmqctl-own-"
_KILLED = f"""
import os, signal
from rmqctl.engine.files.owndirectory import OwnDirectory
print(OwnDirectory({PREFIX!r}).path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_what_a_kill_left_is_removed_and_what_is_held_is_not(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True)
    left = Path(ended.stdout.strip())
    assert left.parent == tmp_path and left.is_dir()
    kept = tmp_path / "kept"
    kept.write_text("linked")
    (left / "link").symlink_to(kept)
    (tmp_path / f"{PREFIX}file").write_text("no directory")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path)
    first = OwnDirectory(PREFIX)
    assert not left.exists() and kept.exists()
    second = OwnDirectory(PREFIX)
    assert first.path.is_dir() and second.path.is_dir()
    first.remove()
    second.remove()
    names = ["kept", f"{PREFIX}file", f"{PREFIX}link"]
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(names)


def test_a_file_system_without_locks_of_directories_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS, which locks nothing that is open for reading only. Nobody removes anything there."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", refuse)
    first = OwnDirectory(PREFIX)
    second = OwnDirectory(PREFIX)
    assert first.path.is_dir() and second.path.is_dir()
    first.remove()
    second.remove()
    assert not any(tmp_path.iterdir())


def test_a_directory_that_nobody_may_list_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        own = OwnDirectory(PREFIX)
    assert own.path.parent == tmp_path
    own.remove()


def test_without_descriptors_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not make one directory after the other."""
    made: list[Path] = []

    def refuse(path: Path, flags: int) -> int:
        made.append(path)
        assert len(made) == 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            OwnDirectory(PREFIX)
    assert made and not any(tmp_path.iterdir())
