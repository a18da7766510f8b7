"""Units of a queue that are read together are those that are read one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.library.queue import _units
from tests.conftest import Golden
from tests.golden_data import broker_conf, copy_tree

NAME = "basic"


@pytest.mark.parametrize("is_broken", [False, True], ids=["whole", "a file is gone"])
def test_units_of_any_offsets(is_broken: bool, golden: Golden, tmp_path: Path) -> None:
    root = golden(NAME)
    if is_broken:
        root = copy_tree(root, tmp_path / "store")
    with MessageStore(root, broker_conf(NAME)) as store:
        for where in list(store.queues.directories()):
            files = sorted(where.path.iterdir())
            if is_broken and len(files) > 2:
                files[1].unlink()
            queue = store.consume_queue(where.topic, where.queue_id)
            assert queue is not None
            end = queue.max_offset + 3
            for offsets in (
                *(range(end), range(-4, end), range(end)[::-1], range(2, end, 3)),
                *(range(5, 5), range(end, end + 40), range(-9, -1)),
            ):
                assert list(_units(queue, offsets)) == [(at, queue.unit(at)) for at in offsets]
