"""Many threads put at once: nothing is lost, nothing is there twice, whatever flushes it."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import PutMessageResult
from rmqctl.engine.record.record import Record
from tests.test_safety.support import (
    assert_clean,
    assert_rebuild_is_identical,
    message,
    small_config,
)

THREADS = 8
SECONDS = 0.7

pytestmark = pytest.mark.slow

MODES: dict[str, dict[str, Any] | None] = {
    "no services": None,
    "group commit": {"flush_disk_type": "SYNC_FLUSH"},
    "real time": {"flush_interval_commit_log": 5},
    "pool": {"transient_store_pool_enable": True, "commit_interval_commit_log": 5},
}


@pytest.mark.parametrize("mode", MODES)
def test_eight_threads_lose_and_double_nothing(
    fast_path: Path, chance: random.Random, mode: str
) -> None:
    changes = MODES[mode]
    config = replace(small_config(log=1 << 18, queue=4000, items=20_000), **(changes or {}))
    # On a busy machine a put may hold the lock for more than a second.
    config = replace(config, os_page_cache_busy_time_out_mills=60_000)
    root = fast_path / "store"
    acknowledged: list[list[tuple[bytes, PutMessageResult]]] = [[] for _ in range(THREADS)]
    with MessageStore(root, config, writable=True, create=True) as store:
        if changes is not None:
            store.start()
        ends = time.monotonic() + SECONDS

        own = [random.Random(chance.random()) for _ in range(THREADS)]

        def put(thread: int) -> None:
            chance = own[thread]
            number = 0
            # Who gets no turn in time on a busy machine has one all the same.
            while not number or time.monotonic() < ends:
                count = chance.choice((1, 1, 1, 4))
                some = []
                for _ in range(count):
                    number += 1
                    body = b"%d-%d " % (thread, number) + b"x" * chance.randint(0, 900)
                    some.append(message(number, "orders", thread % 3, body))
                is_batch, flush = count > 1 and chance.random() < 0.5, chance.random() < 0.3
                results = store.put_messages(some, batch=is_batch, flush=flush)
                assert len(results) == count
                pairs = zip([one.body for one in some], results, strict=True)
                acknowledged[thread] += pairs
                if chance.random() < 0.05:
                    last = results[-1].append
                    assert last is not None
                    store.get_message("orders", thread % 3, last.queue_offset)

        threads = [threading.Thread(target=put, args=[number]) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = store.writer.stats
    everything = [pair for pairs in acknowledged for pair in pairs]
    assert all(pairs for pairs in acknowledged), "every thread came to put something"
    assert all(result.is_ok for _, result in everything)
    assert stats.put_message_times_total == len(everything)
    stored = {result.append.wrote_offset: body for body, result in everything if result.append}
    assert len(stored) == len(everything)
    with MessageStore(root, config) as reader:
        found = {
            entry.physical_offset: reader.body(entry)
            for entry in reader.commit_log.walk()
            if isinstance(entry, Record)
        }
    assert found == stored
    for queue_id in range(3):
        offsets = sorted(
            result.append.queue_offset
            for _, result in everything
            if result.append and result.queue_id == queue_id
        )
        assert offsets == list(range(len(offsets)))
    assert_clean(root, config)
    assert_rebuild_is_identical(root, config, fast_path / "rebuilt")


def test_a_store_closes_under_its_putters(fast_path: Path) -> None:
    """Who comes too late is refused; what was acknowledged is there."""
    config = replace(small_config(), flush_disk_type="SYNC_FLUSH")
    root = fast_path / "store"
    store = MessageStore(root, config, writable=True, create=True)
    store.start()
    results: list[PutMessageResult] = []

    def put() -> None:
        number = 0
        while not results or results[-1].is_ok:
            number += 1
            results.append(store.put_message(message(number)))

    threads = [threading.Thread(target=put) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + 60
    while len(results) < 3 * THREADS:
        assert time.monotonic() < ends, "nobody gets on"
        time.sleep(0.001)
    store.close()
    for thread in threads:
        thread.join()
    stored = [result for result in results if result.append is not None]
    assert len(stored) > THREADS and len(stored) < len(results)
    with MessageStore(root, config) as reader:
        for result in stored:
            assert result.append is not None
            assert reader.look_message_by_offset(result.append.wrote_offset).topic == result.topic
        records = [e for e in reader.commit_log.walk() if isinstance(e, Record)]
        assert len(records) == len(stored)
    assert_clean(root, config)
