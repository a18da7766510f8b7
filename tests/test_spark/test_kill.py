"""Ctrl-C and kill -9 in the middle: what was there stays, and a rerun completes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import golden_data
from tests.test_spark.conftest import ROOT, why_not

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rmqctl", *arguments],
        cwd=ROOT,
        env=os.environ | {"RMQCTL_DEBUG": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A run in the background ignores Ctrl-C, and hands that down.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_rebuild_in_place(copy_store: Callable[[str], Path], tmp_path: Path, number: int) -> None:
    root = copy_store("basic")
    conf = tmp_path / "broker.conf"
    conf.write_text(golden_data.broker_conf_text("basic"))
    before = golden_data.tree_content(root)
    arguments = ["rebuild", "all", "--store", str(root), "--broker-conf", str(conf)]
    arguments += ["--in-place", "--yes", "--master", "local[2]"]
    process = started(*arguments)
    wait_for(root / "rmqctl-new", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number), (out, err)
    after = golden_data.tree_content(root)
    if number == signal.SIGINT:
        assert err == ""
        assert not (root / "rmqctl-new").exists()
    assert {k: v for k, v in after.items() if not k.startswith("rmqctl-new")} == before
    if number == signal.SIGKILL:
        again = started(*arguments)
        out, err = again.communicate(timeout=100)
        assert again.returncode == 0, (out, err)
        assert not (root / "rmqctl-new").exists()
        queues = golden_data.tree_content(root / "consumequeue")
        assert queues == {
            name.removeprefix("consumequeue/"): value
            for name, value in before.items()
            if name.startswith("consumequeue/")
        }


def test_export(golden: Callable[[str], Path], tmp_path: Path) -> None:
    to = tmp_path / "to"
    process = started("export", "--store", str(golden("basic")), "--to", str(to))
    wait_for(tmp_path / "to.rmqctl-new", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, ""), out
    assert list(tmp_path.iterdir()) == []
