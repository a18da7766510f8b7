"""Backups while another process writes as fast as it can: each is of one moment, and has all that
was acknowledged before it began."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.operations.backup.create import Wanted, create
from rmqctl.operations.backup.restore import plan_restore, restore
from tests.processes import Process
from tests.test_safety.support import (
    assert_clean,
    assert_rebuild_is_identical,
    broker_conf,
    small_config,
)
from tests.test_safety.test_kill import Acknowledged, assert_in_log

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("services", [False, True])
def test_a_writer_in_another_process(
    fast_path: Path, chance: random.Random, services: bool
) -> None:
    """As test_kill's writer: its answers come before all is dispatched, with its services."""
    config, root = small_config(queue=1000, items=20_000), fast_path / "store"
    plan = {
        "store": str(root),
        "conf": broker_conf(config),
        "seed": f"{chance.random()}",
        "bulk": 40,
        "body": 200,
        "services": services,
    }
    writer = Process("tests.test_safety.child", json.dumps(plan))
    told: list[Acknowledged] = []

    def read() -> None:
        for line in writer.stdout:
            if line.startswith(b"["):
                told.extend(Acknowledged(*row) for row in json.loads(line))

    assert writer.stdout.readline() == b"open\n"
    reading = threading.Thread(target=read)
    reading.start()
    backups: list[str] = []
    before: list[list[Acknowledged]] = []
    try:
        for number in range(3):
            while len(told) < 200 * (number + 1):
                assert reading.is_alive(), "the writer has ended"
                time.sleep(0.005)
            before.append(list(told))
            place = str(fast_path / ("full.tar.zst", "more", "most.tar.zst")[number])
            made = create(Wanted(root, config, place, backups[-1] if backups else None))
            assert made.manifest.head.is_live
            backups.append(place)
    finally:
        writer.kill()
        reading.join()
        writer.wait()
    for number, acknowledged in enumerate(before):
        new = fast_path / f"new-{number}"
        restore(plan_restore(backups[: number + 1], new))
        assert_clean(new, config, "not-dispatched")
        assert_in_log(new, config, acknowledged)
        with MessageStore(new, config) as store:
            end = store.max_offset
        WritableStore(new, config).close()
        with MessageStore(new, config) as store:
            assert store.max_offset == end
        assert_clean(new, config)
        assert_rebuild_is_identical(new, config, fast_path / f"rebuilt-{number}")
