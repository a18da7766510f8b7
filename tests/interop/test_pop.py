"""pop ls: the messages that it shows as waiting are those that the broker gives back when it is
started again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.look.pop import Chosen, pops
from tests.golden_data import copy_tree
from tests.interop import popstore
from tests.interop.conftest import StartEngine
from tests.interop.engine import Engine
from tests.interop.stores import assert_clean, config_of

pytestmark = pytest.mark.parametrize(
    "version",
    [pytest.param("5.3.3", marks=pytest.mark.xdist_group("interop-5.3.3"))],
    indirect=True,
)


def predicted(root: Path) -> set[tuple[str, str]]:
    """Retry topic and ``UNIQ_KEY`` of each message that waits for an acknowledgement."""
    found = set()
    with MessageStore(root, config_of(popstore.VALUES)) as store:
        for row in pops(store, time.time_ns() // 1_000_000, Chosen()):
            if row["type"] == "pop_check_point":
                queue = store.consume_queue(row["topic"], row["queue_id"])
                assert queue is not None
                for offset in row["queue_offsets"]:
                    unit = queue.unit(offset)
                    assert unit is not None
                    record = store.look_message_by_offset(unit.physical_offset)
                    found.add((row["retry_topic"], record.properties["UNIQ_KEY"]))
    return found


@pytest.mark.proves("pop")
def test_what_is_not_acknowledged_comes_back(engine: Engine, tmp_path: Path) -> None:
    """Of three messages one is acknowledged: ``pop ls`` shows the other two as waiting, without
    those that have come back before the stop already (on a slow machine). All three come back when
    the acknowledgement came too late."""
    root, seconds = tmp_path / "store", 4
    popstore.start(engine, root, popstore.VALUES, ["orders"])
    popstore.send(engine, "orders", 0, 4)
    begin = time.monotonic()
    taken = popstore.pop(engine, "orders", 0, 3, seconds)
    popstore.ack(engine, taken[1:2])
    counts = {2} if time.monotonic() - begin < seconds else {2, 3}
    engine.ask("stop")
    before, said = set(popstore.given_back(root)), predicted(root)
    assert len(before | said) in counts
    # A message that comes back just before the stop comes back again, when the broker has not
    # stored that yet.
    assert set(popstore.bring_back(engine, root)) == said
    assert predicted(root) == set()
    assert set(popstore.given_back(root)) == before | said


@pytest.mark.nightly
@pytest.mark.parametrize("ends", [lambda engine: engine.ask("stop"), Engine.kill])
def test_what_waits_comes_back(
    start_engine: StartEngine, tmp_path: Path, ends: Callable[[Engine], None]
) -> None:
    """A minute: the messages stay invisible for most of it."""
    root = tmp_path / "store"
    popstore.write(start_engine(), root)
    ends(start_engine())
    said = predicted(copy_tree(root, tmp_path / "copy"))
    assert said
    back = popstore.bring_back(start_engine(), root)
    assert set(back) == said
    assert predicted(root) == set()
    # After a kill the broker puts into its timer log again what is not due yet. What was due lies
    # behind the last unit there, so each further start delivers it once more.
    assert_clean(root, config_of(popstore.VALUES), ("not-understood", "timer-behind"))
