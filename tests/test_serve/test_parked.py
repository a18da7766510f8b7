"""Pulls that wait: who is taken out, and that a lost connection costs no more than it has."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rmqctl.serve.state.parked import Parked, ParkedPulls, Queue

SMALL = st.integers(0, 3)
STEPS = st.lists(st.tuples(st.sampled_from("pppald"), SMALL, SMALL, SMALL), max_size=40)


class NotLookedThrough(dict[Queue, Any]):
    def __iter__(self) -> Any:
        raise AssertionError("all that wait are looked at")

    keys = values = items = __iter__


def parked(channel: int, queue_id: int, offset: int, deadline: int = 0) -> Parked[str]:
    return Parked(channel, ("t", queue_id), offset, deadline, "")


def test_a_lost_connection_looks_at_its_own_pulls_only() -> None:
    pulls: ParkedPulls[str] = ParkedPulls()
    for channel in range(3):
        for queue_id in range(2):
            pulls.park(parked(channel, queue_id, 5))
    pulls._queues = NotLookedThrough(pulls._queues)
    pulls.lost(1)
    pulls.lost(1)
    pulls.lost(7)
    assert len(pulls) == 4
    assert [one.channel for one in pulls.arrived(("t", 0), 6)] == [0, 2]


@given(STEPS)
def test_whatever_happens_each_pull_is_taken_out_once(
    steps: list[tuple[str, int, int, int]],
) -> None:
    """As from a list, in the order in which they came."""
    pulls: ParkedPulls[str] = ParkedPulls()
    model: list[Parked[str]] = []
    for step, one, other, number in steps:
        if step == "p":
            pulls.park(parked(one, other, number, number))
            model.append(parked(one, other, number, number))
            continue
        if step == "a":
            taken = [w for w in model if w.queue == ("t", one) and w.offset < number]
            assert pulls.arrived(("t", one), number) == taken
        elif step == "l":
            pulls.lost(one)
            taken = [waits for waits in model if waits.channel == one]
        else:
            taken = [waits for waits in model if waits.deadline <= number]
            assert sorted(pulls.due(number)) == sorted(taken)
        model = [waits for waits in model if waits not in taken]
        assert len(pulls) == len(model)
    assert sorted(pulls.all()) == sorted(model) and len(pulls) == 0
    assert not pulls._queues and not pulls._channels
