"""Places one goes to: backwards in the log, to a time, to what a unit leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Damage, End, Record, find_next
from rmqctl.operations.look import places
from rmqctl.operations.look.places import (
    entries_before,
    entry_around,
    log_offset_at_time,
    message_of_unit,
)
from tests import golden_data
from tests.conftest import Golden
from tests.golden_data import broker_conf

CASES = ["first-files-expired", "hole", "bad-magic-late", "flip-body-early", "torn-tail"]


@pytest.fixture(params=CASES)
def damaged(request: pytest.FixtureRequest, golden: Golden, tmp_path: Path) -> MessageStore:
    case = golden_data.damage_case(request.param)
    root = golden_data.copy_tree(golden(case["base"]), tmp_path / "store")
    golden_data.apply_damage(root, case["ops"])
    return MessageStore(root, broker_conf(case["base"]))


@pytest.mark.parametrize("count", [1, 7, 10_000])
@pytest.mark.parametrize("window", [64, 1 << 16])
def test_backwards_a_log_has_the_entries_that_it_has_forwards(
    damaged: MessageStore, count: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_WINDOW", window)
    entries = [one for one in damaged.commit_log.walk() if not isinstance(one, End)]
    for number in range(0, len(entries), max(len(entries) // 10, 1)):
        found = entries_before(damaged, entries[number].physical_offset, count)
        assert found == entries[max(number - count, 0) : number]


def test_any_place_of_the_log_lies_in_an_entry(damaged: MessageStore) -> None:
    starts = [one.physical_offset for one in damaged.commit_log.walk()]
    for before, after in zip(starts[::9], starts[1::9], strict=False):
        assert entry_around(damaged, before) == before
        assert entry_around(damaged, (before + after) // 2) == before
        assert entry_around(damaged, after - 1) == before
    assert entry_around(damaged, 1 << 60) == damaged.max_offset
    assert entry_around(damaged, 0) == damaged.min_offset


def test_a_time_leads_to_the_first_record_from_then_on(golden: Golden) -> None:
    store = MessageStore(golden("basic"), broker_conf("basic"))
    records = [one for one in store.commit_log.walk() if isinstance(one, Record)]
    for record in records[::25]:
        time = record.store_timestamp
        first = next(one for one in records if one.store_timestamp >= time)
        assert log_offset_at_time(store, time) == first.physical_offset
    assert log_offset_at_time(store, 0) == store.min_offset
    assert log_offset_at_time(store, 1 << 60) == store.max_offset


def test_the_bytes_before_an_empty_end_are_not_walked(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A last file of a gigabyte that holds little is not walked from its start."""
    store = MessageStore(golden("broker"), broker_conf("broker"))
    end = store.commit_log.files.end_offset
    assert end > store.max_offset + 20_000
    monkeypatch.setattr(places, "_WINDOW", 4096)
    asked = []

    def counting(mapped: MappedFile, position: int) -> int:
        asked.append(position)
        return find_next(mapped, position)

    monkeypatch.setattr(places, "find_next", counting)
    (last,) = entries_before(store, end, 1)
    assert isinstance(last, Record)
    assert last.physical_offset + last.total_size == store.max_offset
    assert len(asked) < 40


@pytest.mark.parametrize(
    ("case", "reason"),
    [("bad-magic-late", "bad-magic"), ("first-files-expired", None), ("cq-wrong-unit", None)],
)
def test_a_unit_leads_to_a_message_or_says_why_not(
    case: str, reason: str | None, golden: Golden, tmp_path: Path
) -> None:
    told = golden_data.damage_case(case)
    root = golden_data.copy_tree(golden(told["base"]), tmp_path / "store")
    golden_data.apply_damage(root, told["ops"])
    store = MessageStore(root, broker_conf(told["base"]))
    reasons = set()
    for where in store.queues.directories():
        queue = store.consume_queue(where.topic, where.queue_id)
        assert queue is not None
        for queue_offset in range(-1, queue.max_offset + 1):
            found = message_of_unit(store, queue, queue_offset)
            if isinstance(found, Damage):
                reasons.add(found.reason)
    assert reasons >= {"consumequeue-file-missing", *([reason] if reason else [])}
