"""Directories of one process: there while it lives, and not left by a kill for long."""

from __future__ import annotations

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


def test_what_a_kill_left_is_removed_and_what_is_held_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
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
