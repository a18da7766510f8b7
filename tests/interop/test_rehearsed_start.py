"""A rehearsed start (``verify`` plays what a broker does) beside a real one: in all cases the same
files are deleted, and the same offsets stay."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqctl.engine.rehearsal.rehearse import rehearse
from tests.golden_data import apply_damage, copy_tree
from tests.interop.conftest import Sound, StartEngine
from tests.interop.damage import random_fault
from tests.interop.engine import EngineError, Row
from tests.interop.golden import files_of
from tests.interop.stores import config_of

CASES, MESSAGES = 15, 300


class Left(NamedTuple):
    """What a start has left; empty when it failed."""

    starts: bool
    ends: tuple[int, int] = (0, 0)
    queues: dict[str, tuple[int, int]] | None = None
    deleted: frozenset[str] = frozenset()


def played(root: Path, values: Row, version: str) -> Left:
    outcome = rehearse(root, config_of(values), as_5=version != "4.9.3")
    if not outcome.starts:
        return Left(False)
    queues = {
        f"{one.topic}/{one.queue_id}": (one.min_offset, one.max_offset)
        for one in outcome.queues
        if one.max_physical_offset >= 0
    }
    deleted = frozenset(str(one.path.relative_to(root)) for one in outcome.deleted)
    return Left(True, (outcome.min_offset, outcome.max_offset), queues, deleted)


def done(start_engine: StartEngine, root: Path, values: Row) -> Left | None:
    """What a real start leaves; None when it ended for lack of memory, as the heap is small
    here."""
    before = set(files_of(root))
    engine = start_engine()
    try:
        store = engine.open(root, values)
    except EngineError as error:
        # The engine makes an array of the size that a record states, however large.
        if "OutOfMemoryError" not in str(error):
            raise
        engine.kill()
        return None
    if not store.is_open:
        if store.is_loaded:
            engine.kill()
        return Left(False)
    said = store.ends()
    store.shutdown()
    (ends,) = said["store"]
    queues = {
        f"{row['topic']}/{row['queueId']}": (row["minOffset"], row["maxOffset"])
        for row in said["queue"]
        if row["maxPhysicOffset"] >= 0
    }
    deleted = frozenset(before - set(files_of(root)))
    return Left(True, (ends["minPhyOffset"], ends["maxPhyOffset"]), queues, deleted)


@pytest.mark.proves("start")
@pytest.mark.parametrize("number", range(CASES))
def test_a_played_start_is_the_engines(
    start_engine: StartEngine,
    sound: Sound,
    chance: random.Random,
    tmp_path: Path,
    number: int,
) -> None:
    base, values = sound(MESSAGES)
    root = copy_tree(base, tmp_path / "store")
    what, ops = random_fault(chance, root)
    print(what, ops)
    apply_damage(root, ops)
    expected = played(root, values, start_engine().version)
    left = done(start_engine, root, values)
    assert left is None or expected == left, what
