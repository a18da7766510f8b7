"""Commands while a broker's retention deletes the oldest files: at each moment in turn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.backup import create as creating
from rmqctl.operations.backup.create import Wanted, create
from rmqctl.operations.backup.restore import plan_restore, restore
from tests.retention import each_moment
from tests.test_safety.support import Clock, assert_clean, message, small_config

pytestmark = pytest.mark.slow

CONFIG = small_config(log=4096, queue=200, slots=20, items=60)
EXTENDED = replace(CONFIG, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=400)
#: Log files that go, of 17.
GOING = 8


def put(root: Path, config: MessageStoreConfig) -> Path:
    with MessageStore(root, config, writable=True, create=True, clock=Clock()) as store:
        store.put_messages([message(number) for number in range(300)], flush=False)
    return root


def some_moments(chance: random.Random, is_deep: bool, step: int) -> Iterator[int]:
    return count(1) if is_deep else count(chance.randrange(1, step + 1), step)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("config", [CONFIG, EXTENDED], ids=["plain", "extended"])
def test_a_backup_is_a_store_that_a_broker_could_have(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chance: random.Random,
    is_deep: bool,
    config: MessageStoreConfig,
    at_once: bool,
) -> None:
    """Each of its messages has its units and keys. The next backup on this one, too."""
    store = put(tmp_path / "store", config)
    monkeypatch.setattr(creating, "is_locked", lambda root: True)
    moments = some_moments(chance, is_deep, 15)
    begins = set()
    for root, beside in each_moment(
        store, config, GOING, tmp_path / "copy", moments, at_once=at_once
    ):
        first, second, new = (tmp_path / f"{name}-{beside.moment}" for name in ("a", "b", "new"))
        with beside:
            made = create(Wanted(root, config, str(first)))
        head = made.manifest.head
        begins.add(head.min_physical_offset)
        beside.go_on(None)
        create(Wanted(root, config, str(second), str(first)))
        for number, backups in enumerate(((first,), (first, second))):
            output = new / str(number)
            restore(plan_restore([str(one) for one in backups], output))
            assert_clean(output, config)
            WritableStore(output, config).close()
            with MessageStore(output, config) as opened:
                assert opened.max_offset == head.physical_offset
                assert number or opened.min_offset == head.min_physical_offset
            assert_clean(output, config)
    assert len(begins) > 1
