"""Batch queues of 5.x as programs see them: at each queue offset the record that holds it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqctl
from rmqctl.engine.queue.batchqueue import BATCH_UNIT
from rmqctl.errors import MessageUnreadable
from tests import golden_data

QUEUES = [("BatchTopic", 0), ("BatchTopic", 1), ("Plain", 0), ("Plain", 1)]


@pytest.fixture(scope="module")
def root(golden_directory: Path) -> Path:
    return golden_data.unpacked("batch-queues", golden_directory, golden_data.LATER)


@pytest.fixture
def store(root: Path) -> Iterator[rmqctl.Store]:
    with rmqctl.open(root) as opened:
        yield opened


def test_they_are_queues_of_their_topics(store: rmqctl.Store) -> None:
    assert list(store.topics) == ["BatchTopic", "Plain"] and len(store.topics) == 2
    assert [(one.topic, one.queue_id) for one in store.queues] == QUEUES
    assert list(store.topics["BatchTopic"].queues) == [0, 1] and "BatchTopic" in store.topics
    with pytest.raises(KeyError):
        store.topics["BatchTopic"].queues[2]
    for name in ("../BatchTopic", "a\0b", ""):
        assert name not in store.topics


def test_every_record_is_there_once_and_at_the_offsets_of_its_messages(
    store: rmqctl.Store,
) -> None:
    of_topic = [one for one in store if one.topic == "BatchTopic"]
    assert list(store.topics["BatchTopic"]) == of_topic
    for queue in store.topics["BatchTopic"].queues.values():
        once = [one for one in of_topic if one.queue_id == queue.queue_id]
        assert list(queue) == once and list(reversed(queue)) == once[::-1]
        assert len(queue) == queue.max_offset - queue.min_offset >= len(once)
        for queue_offset in range(queue.min_offset, queue.max_offset):
            holding = [one for one in once if one.queue_offset <= queue_offset]
            assert queue[queue_offset] == holding[-1]
        assert queue[-1] == once[-1] and list(queue[-1:]) == once[-1:]
        assert list(queue[:0]) == [] and list(queue[::1]) == once
        with pytest.raises(IndexError):
            queue[queue.max_offset]
        for one in once:
            time = one.store_timestamp
            since = [other for other in once if other.store_timestamp >= time]
            assert list(queue.between(time)) == since
            until = [other for other in once if other.store_timestamp <= time]
            assert list(queue.between(until=time)) == until


def test_what_a_unit_is_lost_of_is_passed_over(root: Path, tmp_path: Path) -> None:
    broken = golden_data.copy_tree(root, tmp_path / "store")
    path = broken / "batchconsumequeue/BatchTopic/1" / ("0" * 20)
    with path.open("r+b") as file:
        file.seek(BATCH_UNIT.size)
        stored = BATCH_UNIT.unpack(file.read(BATCH_UNIT.size))
        file.seek(BATCH_UNIT.size)
        file.write(BATCH_UNIT.pack(stored[0] + 1, *stored[1:]))
    with rmqctl.open(root) as sound, rmqctl.open(broken) as store:
        before = list(sound.topics["BatchTopic"].queues[1])
        queue = store.topics["BatchTopic"].queues[1]
        with pytest.warns(rmqctl.DamageWarning, match="cannot be read"):
            assert len(list(queue)) == len(before) - 1
        with pytest.raises(MessageUnreadable):
            queue[before[1].queue_offset]


def test_a_closed_store_and_a_directory_that_is_gone(root: Path, tmp_path: Path) -> None:
    copy = golden_data.copy_tree(root, tmp_path / "store")
    with rmqctl.open(copy) as store:
        queue = store.topics["BatchTopic"].queues[1]
        shutil.rmtree(copy / "batchconsumequeue/BatchTopic/1")
        assert len(queue) == 0 and list(queue) == []
    with pytest.raises(ValueError, match="closed"):
        list(queue)


def test_files_are_closed_with_their_queue(store: rmqctl.Store) -> None:
    list(store.topics["BatchTopic"])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        assert len(list(store.topics["BatchTopic"].queues[0])) == 40
    assert len(os.listdir("/proc/self/fd")) <= before + 4
