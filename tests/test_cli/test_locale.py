"""Names of topics are UTF-8 on disk, whatever encoding the locale has for names of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Python takes names of files for ASCII.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def rmqctl(*line: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "rmqctl", *line], env=os.environ | ASCII, capture_output=True
    )


def test_a_topic_that_the_locale_cannot_write(tmp_path: Path) -> None:
    root = tmp_path / "store"
    done = rmqctl("put", "--create", "--topic", "主题", "--body", "é", "--store", root)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (root / "consumequeue").iterdir()] == ["主题"]
    for line in (("verify",), ("queues",), ("queues", "--topic", "主题", "--format", "ndjson")):
        done = rmqctl(*line, "--store", root)
        assert done.returncode == 0, done.stderr
    assert "主题".encode() in done.stdout
