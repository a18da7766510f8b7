"""Limits of the process are told as what they are, and with what raises them."""

from __future__ import annotations

import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.test_cli.conftest import Cli


@pytest.mark.parametrize(
    ("limit", "most", "line", "step"),
    [
        ("RLIMIT_NOFILE", 12, ("rebuild", "all", "--in-place", "--yes"), "`ulimit -n`"),
        ("RLIMIT_FSIZE", 1 << 20, ("rebuild", "all", "--in-place", "--yes"), "`ulimit -f`"),
        ("RLIMIT_AS", 900 << 20, ("info",), "`ulimit -v`"),
    ],
)
def test_the_limit_is_named(
    limit: str, most: int, line: tuple[str, ...], step: str, cli: Cli, tmp_path: Path
) -> None:
    """A store of default sizes: its log has 1 GiB, and its index 420 MB, most of it a hole."""
    root, lines = tmp_path / "store", tmp_path / "lines"
    lines.write_text(
        "".join(f'{{"topic": "T{at}", "body": "x", "keys": "k"}}\n' for at in range(9))
    )
    assert cli("put", "--create", "--from", lines, "--store", root).code == 0
    done = subprocess.run(
        [sys.executable, "-m", "rmqctl", *line, "--store", str(root)],
        preexec_fn=partial(resource.setrlimit, getattr(resource, limit), (most, most)),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (5, 1), done.stderr
    assert step in done.stderr and "owner" not in done.stderr
    assert cli("verify", "--store", root).code == 0
