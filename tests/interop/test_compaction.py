"""Compacted topics of 5.3.3: verify finds nothing wrong in what the engine has compacted, and pulls
give what the engine answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.read.getcompacted import get_compacted_message
from tests.interop import compactionstore
from tests.interop.engine import Engine, Row
from tests.interop.stores import assert_clean, config_of

pytestmark = pytest.mark.parametrize(
    "version",
    [pytest.param("5.3.3", marks=pytest.mark.xdist_group("interop-5.3.3"))],
    indirect=True,
)


@pytest.mark.proves("compaction", level="partly")
def test_what_the_engine_compacts_is_sound(engine: Engine, tmp_path: Path) -> None:
    root, config = tmp_path / "store", config_of(compactionstore.VALUES)
    # The second time the compacted messages are compacted again, together with further ones.
    for _ in range(2):
        first, second = compactionstore.write(engine, root)
        assert 0 < first < second
        assert_clean(root, config)


@pytest.mark.proves("compaction", level="partly")
def test_pulls_are_answered_as_by_the_engine(engine: Engine, tmp_path: Path) -> None:
    """Pulls of few messages and many, from every queue offset, also those that were removed."""
    root, config = tmp_path / "store", config_of(compactionstore.VALUES)
    compactionstore.write(engine, root)
    asked: list[Row] = [
        {
            "topic": compactionstore.TOPIC,
            "queueId": queue_id,
            "offset": offset,
            "maxMsgNums": most,
            "type": None,
            "expression": "",
        }
        for queue_id in range(2)
        for offset in range(-1, 90)
        for most in (1, 3, 32)
    ]
    store = engine.open(root, compactionstore.VALUES)
    said = engine.ask("pull", store=store.name, pulls=asked)
    store.shutdown()
    with MessageStore(root, config) as reader:
        for pull, theirs in zip(asked, said, strict=True):
            queue = reader.compacted_queue(pull["topic"], pull["queueId"])
            assert queue is not None
            ours = get_compacted_message(config, queue, pull["offset"], pull["maxMsgNums"])
            assert {
                "status": ours.status.value,
                "nextBeginOffset": ours.next_begin_offset,
                "suggestPullingFromSlave": ours.suggest_pulling_from_slave,
                "physicalOffsets": [record.physical_offset for record in ours.records],
            } == theirs, pull
            queue.close()
    assert {"FOUND", "OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY"} == {
        one["status"] for one in said
    }
