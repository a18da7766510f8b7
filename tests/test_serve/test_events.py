"""Answers that go out together."""

from __future__ import annotations

from rmqctl.serve import events
from rmqctl.serve.events import Close, Event, Reading, Send, joined


def test_answers_for_one_connection_that_follow_each_other_are_one() -> None:
    found: list[Event] = [
        *(Send(1, b"a"), Send(1, b"b"), Send(2, b"c"), Send(1, b"d"), Send(1, b"e")),
        *(Reading(1, False), Send(1, b"f"), Close(1, "why"), Send(2, b"g"), Send(2, b"")),
    ]
    assert joined(found) == [
        *(Send(1, b"ab"), Send(2, b"c"), Send(1, b"de"), Reading(1, False), Send(1, b"f")),
        *(Close(1, "why"), Send(2, b"g")),
    ]
    assert joined([]) == []


def test_long_answers_are_not_copied() -> None:
    most = events._MOST_JOINED
    long, longer = bytes(most), bytes(most + 1)
    found = joined([Send(1, longer), Send(1, b"a"), Send(1, long[1:]), Send(1, b"b")])
    assert found == [Send(1, longer), Send(1, b"a" + long[1:]), Send(1, b"b")]
    first = found[0]
    assert isinstance(first, Send)
    assert first.data is longer
