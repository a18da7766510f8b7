"""The page on compatibility says what the tests prove, no more and no less."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_page_is_up_to_date() -> None:
    command = [sys.executable, "-m", "tests.interop.compatibility", "--check"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    next_step = "Next: python -m tests.interop.compatibility"
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr}\n{next_step}"
