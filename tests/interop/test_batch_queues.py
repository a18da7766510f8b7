"""Batch queues: pulls give what the engine answers, a rebuild gives the engine's bytes, and the
engine goes on with the rebuilt files."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.filters.tags import TagFilter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read.bytime import Boundary, bisect
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from tests.golden_data import tree_content
from tests.interop import batchstore
from tests.interop.engine import Engine, Row
from tests.interop.stores import assert_clean, config_of

pytestmark = pytest.mark.parametrize(
    "version",
    [pytest.param("5.3.3", marks=pytest.mark.xdist_group("interop-5.3.3"))],
    indirect=True,
)


@pytest.mark.proves("batch-queues", level="partly")
def test_the_engine_goes_on_with_what_was_rebuilt(engine: Engine, tmp_path: Path) -> None:
    root, config = tmp_path / "store", config_of(batchstore.VALUES)
    # The second messages go into the same files first, and then into new ones.
    for _ in range(2):
        batchstore.write(engine, root)
        by_engine = tree_content(root / "batchconsumequeue")
        shutil.rmtree(root / "batchconsumequeue")
        # The empty directories stay, for they tell which topics have batch queues.
        (root / "batchconsumequeue" / batchstore.TOPIC).mkdir(parents=True)
        rebuild_in_place(plan_rebuild(root, config, "queues"))
        assert tree_content(root / "batchconsumequeue") == by_engine
        assert_clean(
            root,
            config,
        )


@pytest.mark.proves("batch-queues", level="partly")
def test_pulls_are_answered_as_by_the_engine(engine: Engine, tmp_path: Path) -> None:
    """Pulls from every queue offset: of few messages and many, and by tags."""
    root, config = tmp_path / "store", config_of(batchstore.VALUES)
    batchstore.write(engine, root)
    tags = (None, "t1", "t2 || t3")
    asked: list[Row] = [
        {
            "topic": batchstore.TOPIC,
            "queueId": queue_id,
            "offset": offset,
            "maxMsgNums": most,
            "type": None if tag is None else "TAG",
            "expression": tag or "",
        }
        for queue_id in range(2)
        for offset in range(-1, 63)
        for most, tag in ((1, None), (5, None), *((32, tag) for tag in tags))
    ]
    store = engine.open(root, batchstore.VALUES)
    said = engine.ask("pull", store=store.name, pulls=asked)
    store.shutdown()
    with MessageStore(root, config) as reader:
        for pull, theirs in zip(asked, said, strict=True):
            where = (pull["topic"], pull["queueId"], pull["offset"], pull["maxMsgNums"])
            tag = pull["expression"]
            ours = reader.get_message(*where, TagFilter(tag) if tag else None)
            assert {
                "status": ours.status.value,
                "nextBeginOffset": ours.next_begin_offset,
                "suggestPullingFromSlave": ours.suggest_pulling_from_slave,
                "physicalOffsets": [record.physical_offset for record in ours.records],
            } == theirs, pull
    assert {"FOUND", "OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_ONE"} <= {one["status"] for one in said}


@pytest.mark.proves("batch-queues", level="partly")
def test_offsets_of_times_are_the_engines_where_it_has_some(engine: Engine, tmp_path: Path) -> None:
    """``ceil`` is LOWER and ``floor`` is UPPER for the times of the messages.

    Between two times UPPER is the next message or -1, for which a broker answers the queue's first
    offset (``BatchConsumeQueue#binarySearchRight``). LOWER is the last message of a file from its
    time on until that of the next file.
    """
    root, config = tmp_path / "store", config_of(batchstore.VALUES)
    store = engine.open(root, batchstore.VALUES)
    for message in batchstore.messages():
        store.put([message])
        time.sleep(0.003)  # Else messages have one time, or times without one between them.
    store.settle()
    with MessageStore(root, config) as reader:
        queue = reader.batch_queue(batchstore.TOPIC, 0)
        assert queue is not None
        units = [unit for _, unit in queue.units(queue.first, queue.end)]
        stored = [unit.store_timestamp for unit in units]
        assert stored == sorted(set(stored))

        def both(boundary: Boundary, name: str, times: list[int]) -> tuple[list[Any], list[int]]:
            found = [bisect(queue.stored_at, queue.first, queue.end, at, boundary) for at in times]
            ours = [None if at is None else units[at].base_offset for at in found]
            asked = {"topic": batchstore.TOPIC, "queueId": 0, "times": times, "boundary": name}
            return ours, engine.ask("time", store=store.name, **asked)

        for boundary, name in ((Boundary.CEIL, "lower"), (Boundary.FLOOR, "upper")):
            ours, theirs = both(boundary, name, stored)
            assert ours == theirs == [unit.base_offset for unit in units]
        between = [one + 1 for one in stored[:-1] if one + 1 not in stored]
        ours, theirs = both(Boundary.CEIL, "lower", between)
        per_file = batchstore.VALUES["mapperFileSizeBatchConsumeQueue"] // queue.unit_size
        last_of_files = {unit.base_offset for unit in units[per_file - 1 : -1 : per_file]}
        assert {
            one for one, other in zip(theirs, ours, strict=True) if one != other
        } == last_of_files
        ours, theirs = both(Boundary.FLOOR, "upper", between)
        following, _ = both(Boundary.CEIL, "lower", between)
        for ours_one, theirs_one, next_one in zip(ours, theirs, following, strict=True):
            assert theirs_one in (queue.min_offset, ours_one, next_one)
        assert ours != theirs
        queue.close()
    store.shutdown()
