"""rebuild to a new directory: there when it is whole, and not before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqctl.engine.newdirectory import BESIDE
from rmqctl.engine.reput import Reput
from rmqctl.errors import CannotWrite, OutputExists, OutputInUse
from rmqctl.operations.rebuild import plan_rebuild, rebuild_to
from tests.golden_data import tree_content
from tests.test_operations.small_store import CONFIG, make_small_store

ROOT = Path(__file__).parents[2]
#: A rebuild that is ended when all is written and nothing on disk.
ENDED = """
import os, sys
from pathlib import Path
from rmqctl.engine.reput import Reput
from rmqctl.operations.rebuild import plan_rebuild, rebuild_to
from tests.test_operations.small_store import CONFIG
Reput.flush = lambda self: os.kill(os.getpid(), int(sys.argv[3]))
rebuild_to(plan_rebuild(Path(sys.argv[1]), CONFIG, "all"), Path(sys.argv[2]))
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_small_store(tmp_path / "store")


def rebuild(store: Path, output: Path) -> None:
    rebuild_to(plan_rebuild(store, CONFIG, "all"), output)


def queues_of(root: Path) -> dict[str, tuple[int, dict[int, bytes]]]:
    return {name: data for name, data in tree_content(root).items() if name.startswith("cons")}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("exists", [False, True])
def test_what_was_ended_has_no_name(store: Path, number: int, exists: bool) -> None:
    """Half a queue would look like a whole one. The next run removes what is left."""
    output = store.parent / "new"
    if exists:
        output.mkdir()
    command = [sys.executable, "-c", ENDED, str(store), str(output), str(int(number))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    assert done.returncode == -number, done.stderr
    left = output.with_name(output.name + BESIDE)
    assert output.exists() == exists and (left / "consumequeue").is_dir()
    assert not exists or not any(output.iterdir())
    (left / "consumequeue" / "of an older run").mkdir()
    rebuild(store, output)
    assert queues_of(output) == queues_of(store) and not left.exists()
    assert sorted(path.name for path in output.iterdir()) == ["consumequeue", "index"]


def test_what_fails_leaves_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(store.parent.iterdir())

    def fail(_: Reput) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Reput, "flush", fail)
    with pytest.raises(KeyboardInterrupt):
        rebuild(store, store.parent / "new")
    assert sorted(store.parent.iterdir()) == before


def test_two_do_not_build_the_same(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = store.parent / "new"
    flush = Reput.flush

    def and_another(reput: Reput) -> None:
        with pytest.raises(OutputInUse, match="another rmqctl"):
            rebuild(store, output)
        flush(reput)

    monkeypatch.setattr(Reput, "flush", and_another)
    rebuild(store, output)
    assert queues_of(output) == queues_of(store)
    with pytest.raises(OutputExists):
        rebuild(store, output)


def test_a_mount_point_is_refused_before_anything_is_built(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = store.parent / "new"
    output.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == output)
    with pytest.raises(CannotWrite, match="name a directory below it"):
        rebuild(store, output)
    rebuild(store, output / "below")
    assert os.listdir(output) == ["below"]
