"""The states of half messages, however many there are."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.look.halves import CHECKED, PENDING, halves
from tests.test_cli.test_transaction import half

_HALVES = 4000


def test_no_more_than_one_half_is_held(tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=16 << 20)
    with MessageStore(tmp_path / "s", config, writable=True, create=True) as store:
        for number in range(_HALVES):
            assert store.put_message(half(number), flush=False).is_ok
        again = half(7, TRANSACTION_CHECK_TIMES="1")
        assert store.put_message(again, flush=False).is_ok
    with MessageStore(tmp_path / "s", config) as store:
        tracemalloc.start()
        try:
            states = {}
            for one in halves(store, everything=True):
                states[one.record.queue_offset] = one.state
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert states.pop(7) == CHECKED
    assert set(states.values()) == {PENDING} and len(states) == _HALVES
    assert peak < 300 * _HALVES
