"""Following as an operation: where it begins and ends, and what its summary says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.errors import NoRecordAt
from rmqctl.operations.look.follow import follow_log, follow_queue
from rmqctl.operations.look.walk import Selection
from rmqctl.rows import Row
from tests.test_safety.support import Clock, message, small_config

CONFIG = small_config(log=4096, queue=200)


class Looks:
    """Patience for so many looks."""

    def __init__(self, count: int) -> None:
        self.left = count

    def ended(self) -> bool:
        return self.left <= 0

    def wait(self) -> None:
        self.left -= 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore(tmp_path / "s", CONFIG, writable=True, create=True, clock=Clock()) as writer:
        for number in range(40):
            assert writer.put_message(message(number, "t", 0), flush=False).is_ok
    with MessageStore(tmp_path / "s", CONFIG) as reader:
        yield reader


def places(store: MessageStore) -> list[int]:
    return [e.physical_offset for e in store.commit_log.walk() if isinstance(e, Record)]


def follow(store: MessageStore, looks: int = 3, **what: Any) -> tuple[list[int], Row]:
    """Physical offsets of the messages, and the summary."""
    *rows, summary = follow_log(store, Selection(**what), Looks(looks))
    assert summary["type"] == "summary"
    return [row["physical_offset"] for row in rows if row["type"] == "message"], summary


def test_from_a_record_to_an_end(store: MessageStore) -> None:
    every = places(store)
    found, summary = follow(store)
    assert found == every and summary["next_offset"] == store.max_offset
    assert (summary["messages"], summary["blanks"]) == (40, len(store.commit_log.files.entries) - 1)
    found, summary = follow(store, start=every[3], end=every[7])
    # What stands just at the end is the next one's, who goes on there.
    assert found == every[3:7] and summary["next_offset"] == every[7]
    found, summary = follow(store, start=every[7], limit=2)
    assert found == every[7:9] and summary["next_offset"] == every[9]


@pytest.mark.parametrize("wrong", [1, 10**9])
def test_it_begins_at_a_record_only(store: MessageStore, wrong: int) -> None:
    """In the middle of one everything would be damage up to the next."""
    with pytest.raises(NoRecordAt):
        follow(store, start=places(store)[2] + wrong)


def test_without_patience_it_ends_between_two_rows(store: MessageStore) -> None:
    patience = Looks(1)
    rows: Iterator[Row] = follow_log(store, Selection(), patience)
    assert next(rows)["physical_offset"] == 0
    patience.left = 0
    (summary,) = rows
    assert (summary["messages"], summary["next_offset"]) == (1, places(store)[1])


def test_a_queue_from_an_offset_to_a_number(store: MessageStore) -> None:
    def rows(offset: int | None, **more: Any) -> tuple[list[int], Row]:
        told: list[Row] = list(follow_queue(store, "t", 0, offset, Looks(3), **more))
        *found, summary = told
        return [row["queue_offset"] for row in found], summary

    found, summary = rows(None)
    assert found == list(range(40))
    assert (summary["status"], summary["next_begin_offset"]) == ("FOUND", 40)
    found, summary = rows(5, max_messages=3)
    assert found == [5, 6, 7] and summary["next_begin_offset"] == 8
    found, summary = rows(None, from_end=True)
    assert found == []
    assert (summary["status"], summary["next_begin_offset"]) == ("NO_MATCHED_MESSAGE", 40)
    assert (summary["min_offset"], summary["max_offset"], summary["messages"]) == (0, 40, 0)
