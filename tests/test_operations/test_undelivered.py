"""Rows ``undelivered``: neighbours of one reason are one row, and nothing else is."""

from __future__ import annotations

from rmqctl.engine.services.schedule import Undeliverable
from rmqctl.operations.change.undelivered import SKIPPED, UndeliveredRows

GONE = Undeliverable("record-gone", True, "it is gone")
STOPS = Undeliverable("unit-mismatch", False, "another record")


def test_neighbours_of_one_reason_are_one_row() -> None:
    rows = UndeliveredRows(3)
    for offset, why in ((0, GONE), (1, GONE), (2, SKIPPED), (3, SKIPPED), (5, SKIPPED), (6, GONE)):
        rows.add(offset, offset * 100, why)
    found = list(rows.finished())
    assert [(row["queue_offset"], row["messages"], row["reason"]) for row in found] == [
        (0, 2, "record-gone"), (2, 2, "skipped"), (5, 1, "skipped")
    ]  # fmt: skip
    # The last one waits for a neighbour until the end.
    rows.add(7, 700, GONE)
    (last,) = rows.finished(last=True)
    assert (last["queue_offset"], last["messages"], last["physical_offset"]) == (6, 2, 600)
    assert list(rows.finished(last=True)) == []


def test_what_stops_a_level_stands_by_itself() -> None:
    rows = UndeliveredRows(1)
    rows.add(4, 400, STOPS)
    rows.add(5, 500, STOPS)
    found = list(rows.finished(last=True))
    assert [(row["queue_offset"], row["stops_the_level"]) for row in found] == [
        (4, True), (5, True)
    ]  # fmt: skip
    assert all(row["level"] == 1 and row["next_step"] for row in found)
