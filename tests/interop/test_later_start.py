"""What keeps a broker of 5.x from starting according to verify does keep a real one from it, until
the finding's cure was done."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.operations.verify.laterstart import check_later_start
from tests.interop.commands import Rmqctl
from tests.interop.conftest import StartEngine
from tests.interop.engine import EngineError, Row
from tests.interop.stores import settings
from tests.test_operations.test_later_start import BLOCKERS, ZEROS, write_topics


def prepare(root: Path) -> None:
    """Adds a batch queue and a compacted topic, which the broker has not made itself."""
    (root / "batchconsumequeue" / "batches" / "0").mkdir(parents=True, exist_ok=True)
    write_topics(root, "BatchCQ")
    for name, size in (("compactionLog", 104_857_460), ("compactionCq", 10_485_746)):
        directory = root / "compaction" / name / "kept" / "0"
        directory.mkdir(parents=True)
        with (directory / ZEROS).open("wb") as file:
            file.truncate(size)


def cure(root: Path, values: Row, code: str) -> None:
    """Does what the finding tells the operator of a store without a replica to do."""
    if code == "timer-wheel-length":
        Rmqctl(root, values)("timer", "rebuild", "--yes")
    elif code == "timer-metrics-unreadable":
        for name in ("timermetrics", "timermetrics.bak"):
            (root / "config" / name).unlink(missing_ok=True)
    elif code == "queue-type-contradicted":
        write_topics(root, "BatchCQ")
        shutil.rmtree(root / "consumequeue" / "batches", ignore_errors=True)
    else:
        for name in ("compactionLog", "compactionCq"):
            shutil.rmtree(root / "compaction" / name / "kept" / "0")


@pytest.mark.nightly
@pytest.mark.parametrize("damage", [None, *BLOCKERS], ids=lambda one: getattr(one, "__name__", "-"))
def test_the_broker_does_not_start(
    start_engine: StartEngine, tmp_path: Path, damage: Callable[[Path], None] | None
) -> None:
    engine = start_engine()
    if engine.version == "4.9.3":
        assert list(check_later_start(tmp_path)) == []
        return
    values = settings(random.Random("later start"), light_queues=False)
    root = tmp_path / "store"
    engine.ask("broker", root=str(root), config=values)
    engine.ask("stop")
    prepare(root)
    if damage is None:
        assert list(check_later_start(root)) == []
        engine.ask("broker", root=str(root), config=values)
        engine.ask("stop")
        return
    damage(root)
    assert BLOCKERS[damage][0] in {one.code for one in check_later_start(root)}
    with pytest.raises(EngineError):
        engine.ask("broker", root=str(root), config=values)
    engine.kill()
    cure(root, values, BLOCKERS[damage][0])
    assert list(check_later_start(root)) == []
    start_engine().ask("broker", root=str(root), config=values)
    start_engine().ask("stop")
