"""A queue's last file that was made for a unit, and got none before a kill: 5.3.3 does not start on
it (``tests/test_engine/test_rehearsal.py`` says when)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from formats.constants import TRANSACTION_PREPARED_TYPE
from rmqctl.engine.messagestore import WritableStore
from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.rehearsal.rehearse import rehearse
from rmqctl.operations.doctor.simulatestart import simulate_start
from rmqctl.operations.doctor.startrows import next_words
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from rmqctl.operations.repair import model
from rmqctl.operations.repair.plan import make_plan
from rmqctl.operations.verify import Finding, verify
from tests.test_safety.support import message, small_config

UNITS = 5
CONFIG = small_config(queue=UNITS * UNIT_SIZE)
TOPIC = "orders"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The log's last record has no unit, so no start cuts the queues at its end."""
    root = tmp_path / "store"
    with WritableStore(root, CONFIG, create=True) as writer:
        for number in range(UNITS):
            one = message(number, queue_id=7)
            one.topic = TOPIC
            assert writer.put_message(one).is_ok
        half = replace(one, topic="half", sys_flag=TRANSACTION_PREPARED_TYPE)
        assert writer.put_message(half).is_ok
    return root


def made_for_a_unit(root: Path) -> Path:
    path = root / "consumequeue" / TOPIC / "7" / f"{UNITS * UNIT_SIZE:020d}"
    path.write_bytes(bytes(UNITS * UNIT_SIZE))
    return path


def found(root: Path, jobs: int = 1) -> list[Finding]:
    return [one for one in verify(root, CONFIG, jobs=jobs) if isinstance(one, Finding)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_it_is_found_where_5_x_has_run(store: Path, jobs: int) -> None:
    path = made_for_a_unit(store)
    assert found(store, jobs) == []
    (store / "compaction").mkdir()
    (one,) = found(store, jobs)
    assert (one.code, one.queue, one.queue_offset) == ("queue-file-without-unit", (TOPIC, 7), UNITS)
    assert store / str(one.path) == path
    (step,) = make_plan(store, CONFIG).steps
    assert step.action == model.REBUILD_QUEUE
    path.unlink()
    assert found(store, jobs) == []


def test_the_command_that_simulate_start_gives_makes_it_start(store: Path) -> None:
    made_for_a_unit(store)
    assert simulate_start(store, CONFIG).is_harmless
    done = simulate_start(store, CONFIG, version="5.3.3")
    assert not done.starts
    words = ("rebuild", "queues", "--in-place", "--topic", TOPIC, "--queue-id", "7")
    assert next_words(done) == words
    rebuild_in_place(plan_rebuild(store, CONFIG, "queues", TOPIC, 7))
    assert rehearse(store, CONFIG, as_5=True).starts
