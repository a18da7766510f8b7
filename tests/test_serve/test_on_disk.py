"""What consumers are shown is on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import WritableStore
from rmqctl.engine.state.checkpoint import read_checkpoint
from rmqctl.errors import CannotWrite
from rmqctl.serve.processors.request import Served
from tests.forcing import fail_fdatasync, patch_fdatasync
from tests.test_replicate.live import CONFIG, live
from tests.test_serve.dialogue import Dialogue
from tests.test_serve.test_ha import SEND


def test_what_the_disk_did_not_take_is_shown_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash would take it away, and another message come to its place: a consumer that had it
    would pass over that one."""

    store = WritableStore(tmp_path / "store", CONFIG, create=True)
    try:
        dialogue = Dialogue(Served.of(store))
        client = dialogue.client()
        assert client.ask(RequestCode.SEND_MESSAGE_V2, b"safe", **SEND).code == 0
        fail_fdatasync(monkeypatch, "commitlog")
        lost = client.ask(RequestCode.SEND_MESSAGE_V2, b"lost", **SEND)
        assert lost.code == ResponseCode.SYSTEM_ERROR
        # The store has both, and the consumer gets one.
        assert len(store.get_message("orders", 0, 0).records) == 2
        pulled = client.pull("orders", 0, 0)
        assert pulled is not None and b"safe" in pulled.body and b"lost" not in pulled.body
        assert pulled.ext_fields["nextBeginOffset"] == "1"
        again = client.pull("orders", 0, 1)
        assert again is not None and again.code == ResponseCode.PULL_NOT_FOUND
    finally:
        store.abandon()


#: Queues are flushed at once, all of them; without an index nothing holds the checkpoint back.
AT_ONCE = replace(
    CONFIG,
    flush_interval_consume_queue=5,
    flush_consume_queue_thorough_interval=0,
    message_index_enable=False,
)


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end, "it has not come to pass"
        time.sleep(0.005)


def test_queues_go_to_disk_while_a_store_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the checkpoint moves on: a start after a kill does not read all of the log."""
    root = tmp_path / "store"
    synced: set[Path] = set()

    def sync(path: Path, force: Callable[[], None]) -> None:
        force()
        synced.add(path)

    patch_fdatasync(monkeypatch, sync)
    with live(root, AT_ONCE) as master:
        for _ in range(3):
            synced.clear()
            master.put(5)
            newest = master.store.commit_log.store_timestamp
            queues = {path.parent for path in root.glob("consumequeue/orders/*/*")}
            assert len(queues) == 3

            def has_come(newest: int = newest, queues: set[Path] = queues) -> bool:
                # A flush amid messages of one millisecond has their time, too.
                checkpoint = read_checkpoint(root / "checkpoint")
                has_time = checkpoint is not None and checkpoint[:2] == (newest, newest)
                return has_time and {path.parent for path in list(synced)} >= queues

            wait_for(has_come)
        assert master.troubles == []


def test_a_disk_that_does_not_take_the_queues_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nor is it closed as if nothing had been.
    with pytest.raises(CannotWrite), live(tmp_path / "store", AT_ONCE) as master:
        with monkeypatch.context() as patch:
            tries = fail_fdatasync(patch, "consumequeue")
            master.put(1)
            wait_for(lambda: bool(master.troubles))
        # Once it has failed it fails for good: what the system has dropped no other flush brings.
        tries.clear()
        wait_for(lambda: master.store.writer.flusher.flush_consume_queue.failure is not None)
    assert not tries
    assert len(master.troubles) == 1 and "queues and checkpoint" in master.troubles[0]
    assert "Input/output error. What is sent" in master.troubles[0]
    assert "Errno" not in master.troubles[0]
    assert (tmp_path / "store/abort").exists()
