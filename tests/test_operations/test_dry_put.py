"""A dry run of a put says what the put says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.form import RecordForm
from rmqctl.engine.record.record import Record
from rmqctl.engine.state.laterversions import record_form
from rmqctl.errors import DamagedStore
from rmqctl.operations.change.put import DryPut, put_one
from rmqctl.operations.mend.recovery import checked_plan
from tests.test_engine.test_queue_holes import CONFIG, READ_FROM, UNITS, change_unit, make
from tests.test_safety.support import message, tree


def answer(put: object, *arguments: object) -> str:
    """The status of a put, or why it was refused."""
    assert callable(put)
    try:
        status = put(*arguments)["status"]
    except DamagedStore as error:
        return f"{type(error).__name__}: {error}"
    assert isinstance(status, str)
    return status


@pytest.mark.parametrize("number", [READ_FROM - 1, 45, UNITS - 2, UNITS - 1])
@pytest.mark.parametrize(
    "what",
    ["zeros", "sign of the offset", "another place", "behind the log", "the begin of the log"],
)
def test_units_that_a_start_would_cut(tmp_path: Path, what: str, number: int) -> None:
    root = tmp_path / "store"
    where = make(root)
    change_unit(root, where, number, what)
    before = tree(root)
    again = message(UNITS)
    again.topic, again.queue_id = where
    with MessageStore(root, CONFIG) as store:
        dry = DryPut(store, checked_plan(store))
        told = [answer(dry.check, again) for _ in range(2)]
    assert tree(root) == before
    with MessageStore(root, CONFIG, writable=True) as store:
        assert [answer(put_one, store, again)] * 2 == told


def test_what_is_cut_before_the_put_is_no_refusal(tmp_path: Path) -> None:
    """Opening a store that was not closed brings the queue in order, which a row tells."""
    root = tmp_path / "store"
    where = make(root)
    change_unit(root, where, UNITS - 1, "behind the log")
    (root / "abort").touch()
    again = message(UNITS)
    again.topic, again.queue_id = where
    with MessageStore(root, CONFIG) as store:
        told = answer(DryPut(store, checked_plan(store)).check, again)
    with MessageStore(root, CONFIG, writable=True) as store:
        assert answer(put_one, store, again) == told == "PUT_OK"


def test_what_is_cut_leaves_a_hole(tmp_path: Path) -> None:
    """A file made ahead goes before the put; the hole that stands before it does not."""
    root = tmp_path / "store"
    where = make(root)
    change_unit(root, where, 45, "zeros")
    files = sorted((root / "consumequeue" / where[0] / str(where[1])).iterdir())
    size = files[0].stat().st_size
    (files[0].parent / f"{len(files) * size:020d}").write_bytes(bytes(size))
    again = message(UNITS)
    again.topic, again.queue_id = where
    with MessageStore(root, CONFIG) as store:
        plan = checked_plan(store)
        assert [(cut.topic, cut.queue_id) for cut in plan.queue_cuts] == [where]
        told = answer(DryPut(store, plan).check, again)
    with MessageStore(root, CONFIG, writable=True) as store:
        assert answer(put_one, store, again) == told
    assert told.startswith("QueueHasHole")


def test_a_hole_in_a_light_queue(tmp_path: Path) -> None:
    """A put asks each queue that a message goes to for its next offset."""
    root = tmp_path / "store"
    config = replace(CONFIG, enable_lmq=True, enable_multi_dispatch=True)
    light = message(0)
    light.properties["INNER_MULTI_DISPATCH"] = "%LMQ%light"
    with MessageStore(root, config, writable=True, create=True) as store:
        for _ in range(UNITS):
            assert store.put_message(light, flush=False).is_ok
    change_unit(root, ("%LMQ%light", 0), 45, "zeros")
    with MessageStore(root, config) as store:
        told = answer(DryPut(store, checked_plan(store)).check, light)
    with MessageStore(root, config, writable=True) as store:
        assert answer(put_one, store, light) == told
    assert told.startswith("QueueHasHole")


def test_the_form_of_the_store_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run of many messages asked all queues for the newest record, for each of them."""
    root = tmp_path / "store"
    make(root)
    asked: list[Path] = []

    def form(where: Path, newest: Record | None) -> RecordForm:
        asked.append(where)
        return record_form(where, newest)

    monkeypatch.setattr("rmqctl.engine.store.record_form", form)
    with MessageStore(root, CONFIG) as store:
        dry = DryPut(store, checked_plan(store))
        for number in range(5):
            assert dry.check(message(number))["status"] == "PUT_OK"
    assert asked == [root]
