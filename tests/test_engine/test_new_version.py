"""One line in a table is a new version of the record to everything that reads or writes one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]


def test_a_new_version_of_the_record_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.test_engine.new_version", str(tmp_path)],
        cwd=TOP,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "written, read, scanned and explained\n"
