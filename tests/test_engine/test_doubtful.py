"""What a start after a crash forces to disk: files that the crash may have left in memory only."""

from __future__ import annotations

from typing import Any

from rmqctl.engine.messagestore import MessageStore
from tests import golden_data


def test_extension_files_are_doubted_as_their_queue_is(copy_store: Any) -> None:
    """A power loss after the next checkpoint would cost units that lead into them."""
    root, config = copy_store("cqext"), golden_data.broker_conf("cqext")
    (root / "abort").touch()
    with MessageStore(root, config) as store:
        plan = store.start_plan()
        doubtful = set(plan.doubtful)
        asked = 0
        for topic, queue_id in {(one.topic, one.queue_id) for one in store.queues.directories()}:
            queue = store.consume_queue(topic, queue_id)
            assert queue is not None and queue.ext is not None
            for offset in range(queue.min_offset, queue.max_offset):
                unit = queue.unit(offset)
                assert unit is not None
                if unit.physical_offset < plan.dispatch_from or unit.tags_code >= 0:
                    continue
                at = queue.ext.files.index_of(unit.tags_code + 2**63)
                if at >= 0:
                    asked += 1
                    assert queue.ext.files.entries[at].path in doubtful
        assert asked or plan.dispatch_from == plan.end.offset
        extension = {path for path in doubtful if "consumequeue_ext" in path.parts}
        # What stands behind the last unit before the dispatch is of the same, newest file.
        newest = {
            max((root / "consumequeue_ext" / one.topic / str(one.queue_id)).iterdir())
            for one in store.queues.directories()
            if (root / "consumequeue_ext" / one.topic / str(one.queue_id)).is_dir()
        }
        assert newest and newest <= extension
