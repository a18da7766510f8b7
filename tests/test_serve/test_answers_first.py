"""ASYNC_FLUSH: what is sent is answered, and shown to consumers, before it is on disk."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from formats.remotingcodes import RequestCode, ResponseCode
from rmqctl.engine.messagestore import WritableStore
from rmqctl.engine.record.message import MessageExtBrokerInner as Message
from rmqctl.engine.state.checkpoint import read_checkpoint
from rmqctl.errors import CannotWrite
from rmqctl.serve.ha.frames import FRAME, REPORT
from rmqctl.serve.hasockets import has_unsent, sendable
from rmqctl.serve.processors.delivery import Delivery
from rmqctl.serve.processors.request import Served
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import FrameReader, encode_frame
from tests.forcing import fail_fdatasync, patch_fdatasync
from tests.test_replicate.live import CONFIG, live
from tests.test_serve.dialogue import Dialogue
from tests.test_serve.test_ha import SEND
from tests.test_serve.test_on_disk import wait_for

#: Nothing is flushed by itself, in as long as a test takes.
NEVER = replace(CONFIG, flush_interval_commit_log=3_600_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WritableStore]:
    store = WritableStore(tmp_path / "store", CONFIG, create=True)
    yield store
    store.abandon()


def dialogue_of(store: WritableStore) -> Dialogue:
    return Dialogue(Served.of(store, answers_first=True))


def is_sent(dialogue: Dialogue, body: bytes = b"x") -> bool:
    return dialogue.client().ask(RequestCode.SEND_MESSAGE_V2, body, **SEND).code == 0


@pytest.mark.parametrize("answers_first", [True, False])
def test_a_send_is_answered_and_shown_before_it_is_on_disk(
    store: WritableStore, answers_first: bool
) -> None:
    dialogue = Dialogue(Served.of(store, answers_first=answers_first))
    assert is_sent(dialogue, b"new")
    log = store.commit_log
    assert (log.flushed_where == log.read_offset) is not answers_first
    assert store.writer.flusher.behind == (log.read_offset if answers_first else 0)
    pulled = dialogue.client().pull("orders", 0, 0)
    assert pulled is not None and b"new" in pulled.body
    # By SQL it is looked for record by record.
    fields = {"expressionType": "SQL92", "subVersion": 1}
    pulled = dialogue.client().pull("orders", 0, 0, subscription="TAGS = 'a'", **fields)
    assert pulled is not None and b"new" in pulled.body


def test_a_file_that_speaks_of_messages_comes_behind_them(store: WritableStore) -> None:
    """A loss of power would leave a group's offset behind the end of its queue."""
    dialogue = dialogue_of(store)
    assert is_sent(dialogue)
    place = {"consumerGroup": "g", "topic": "orders", "queueId": 0}
    dialogue.client().ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=1, **place)
    assert store.writer.flusher.behind > 0
    dialogue.wait(6000)
    assert "consumerOffset.json" in dialogue.files and store.writer.flusher.behind == 0


def test_what_is_sent_to_a_disk_that_has_failed_is_not_stored(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is told so sends again, and all of it would be there after the next start."""
    dialogue = Dialogue(Served.of(store))
    assert is_sent(dialogue)
    fail_fdatasync(monkeypatch, "commitlog")
    assert not is_sent(dialogue)
    end = store.commit_log.write_offset
    assert not is_sent(dialogue) and store.commit_log.write_offset == end


def test_what_has_not_reached_a_disk_that_fails_is_the_last(
    store: WritableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialogue = dialogue_of(store)
    assert is_sent(dialogue, b"last")
    fail_fdatasync(monkeypatch, "commitlog")
    with pytest.raises(OSError):
        store.writer.flusher.flush_real_time.work()
    monkeypatch.undo()
    end = store.max_offset
    assert not is_sent(dialogue) and store.max_offset == end
    # A disk that works again has lost what it did not take.
    assert not is_sent(dialogue) and "Input/output error" in dialogue.troubles[0]
    pulled = dialogue.client().pull("orders", 0, 0)
    assert pulled is not None and b"last" in pulled.body


@pytest.mark.parametrize("answers_first", [True, False])
def test_nothing_is_delivered_to_a_disk_that_has_failed(
    answers_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start that follows would deliver it once more: what was is not written down."""
    now = 1_700_000_000_000
    store = WritableStore(tmp_path / "store", CONFIG, create=True, clock=lambda: now)
    try:
        served = Served.of(store, answers_first=answers_first)
        dialogue = Dialogue(served, delivery=Delivery(store))
        delayed = Message("orders", b"later", properties={"DELAY": "1"})
        assert store.put_message(delayed).is_ok and store.put_message(delayed).is_ok
        fail_fdatasync(monkeypatch, "commitlog")
        assert store.put_message(Message("orders", b"x"), flush=False).is_ok
        with pytest.raises(CannotWrite):
            store.flush_log()
        now, end = now + 60_000, store.commit_log.write_offset
        dialogue.wait(3000)
        assert store.commit_log.write_offset == end
        (told,) = dialogue.troubles
        assert told.startswith("delayed messages: ") and "Input/output error" in told
    finally:
        store.abandon()


def test_how_far_the_disk_is_behind_is_told(store: WritableStore) -> None:
    dialogue = dialogue_of(store)
    said = dialogue.client().ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert b'"remainHowManyDataToFlush":"0 B"' in said.body
    assert is_sent(dialogue)
    said = dialogue.client().ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert f'"remainHowManyDataToFlush":"{store.max_offset} B"'.encode() in said.body


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 60)


def request(body: bytes) -> bytes:
    fields = {name: str(value) for name, value in SEND.items()}
    return encode_frame(
        RemotingCommand(RequestCode.SEND_MESSAGE_V2, 1, ext_fields=fields, body=body)
    )


def send_to(port: int) -> int:
    """One message for a server on loopback; the code of the answer."""
    with connected(port) as client:
        client.sendall(request(b"x"))
        reader = FrameReader()
        while True:
            data = client.recv(1 << 16)
            assert data
            for answer in reader.feed(data):
                return answer.code


def test_the_log_goes_to_disk_while_it_is_served(tmp_path: Path) -> None:
    """And the checkpoint has the time of the log when that is there, and not before."""
    config = replace(
        CONFIG,
        flush_interval_commit_log=5,
        flush_commit_log_thorough_interval=0,
        message_index_enable=False,
    )
    with live(tmp_path / "store", config, answers_first=True) as master:
        for _ in range(3):
            assert send_to(master.port) == 0
            flusher, end = master.store.writer.flusher, master.store.max_offset
            wait_for(lambda end=end: master.store.commit_log.flushed_where >= end)  # type: ignore[misc]
            newest = master.store.commit_log.store_timestamp
            wait_for(lambda: flusher.checkpoint.physic_msg_timestamp == newest)  # noqa: B023
        assert master.troubles == []


def test_a_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    root = tmp_path / "store"
    synced: list[Path] = []

    def sync(path: Path, force: Callable[[], None]) -> None:
        force()
        synced.append(path)

    with live(root, NEVER, answers_first=True) as master:
        assert send_to(master.port) == 0
        assert master.store.writer.flusher.behind > 0
        with pytest.MonkeyPatch.context() as patch:
            patch_fdatasync(patch, sync)
            master.stop()
    assert [path.parent.name for path in synced].count("commitlog") == 1
    assert not (root / "abort").exists()
    checkpoint = read_checkpoint(root / "checkpoint")
    with WritableStore(root, CONFIG) as again:
        assert checkpoint is not None and again.plan.is_clean
        assert checkpoint.physic_msg_timestamp == again.commit_log.store_timestamp


def test_a_log_that_does_not_reach_the_disk_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the store is not closed as if nothing had been."""
    config = replace(CONFIG, flush_interval_commit_log=5, flush_commit_log_thorough_interval=0)
    with (
        pytest.raises(CannotWrite),
        live(tmp_path / "store", config, answers_first=True) as master,
    ):
        assert send_to(master.port) == 0
        wait_for(lambda: master.store.writer.flusher.behind == 0)
        fail_fdatasync(monkeypatch, "commitlog")
        # The one that finds out.
        assert send_to(master.port) == 0
        wait_for(lambda: bool(master.troubles))
        assert send_to(master.port) == ResponseCode.SYSTEM_ERROR
        wait_for(lambda: master.store.writer.flusher.flush_real_time.failure is not None)
        monkeypatch.undo()
    told = [one for one in master.troubles if one.startswith("the log is not on disk")]
    assert len(told) == 1 and "Input/output error. What was sent last" in told[0]
    assert (tmp_path / "store/abort").exists()


def test_a_slave_gets_what_was_sent_and_that_is_on_disk(tmp_path: Path) -> None:
    """Nobody else would bring it there before who waits for a slave has lost patience."""
    config = replace(
        NEVER, broker_role="SYNC_MASTER", slave_timeout=600_000, ha_housekeeping_interval=600_000
    )
    with (
        live(tmp_path / "store", config, answers_first=True) as master,
        connected(master.ha_port) as slave,
        connected(master.port) as sender,
    ):
        slave.sendall(REPORT.pack(0))
        wait_for(lambda: len(master.slaves.master) == 1)
        sender.sendall(request(b"both"))
        got = b""
        while b"both" not in got:
            data = slave.recv(1 << 16)
            assert data
            got += data
        assert FRAME.unpack_from(got)[0] == 0
        assert sendable(master.store).end == master.store.max_offset
        assert not has_unsent(master.store)
        slave.sendall(REPORT.pack(master.store.max_offset))
        assert sender.recv(1 << 16)
