"""A dry run of a put says what the put says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
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
