"""``CommitLogWriter``: room before bytes, what a flush proves, one committer and one flusher."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.bufferpool import TransientStorePool
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import EncodedMessage, MessageExtBrokerInner, encode
from rmqctl.engine.record.record import Record
from rmqctl.engine.start.logend import find_end
from rmqctl.errors import DamagedStore
from tests.test_engine.test_flushservice import available
from tests.test_engine.test_messagestore import SMALL
from tests.test_engine.test_putmessage import wait_for

PAGE = mmap.PAGESIZE


def opened(root: Path, file_size: int, pool: TransientStorePool | None = None) -> CommitLogWriter:
    log = CommitLogWriter(root / "commitlog", file_size, root, pool=pool)
    log.start_writing(find_end(log, []))
    return log


def append(log: CommitLogWriter, size: int, timestamp: int) -> int:
    """Appends a record with a body of so many bytes; its offset."""
    encoded = encode(MessageExtBrokerInner("T", b"x" * size), 1 << 20)
    assert isinstance(encoded, EncodedMessage)
    mapped, position = log.file_for(encoded.size)[:2]
    offset = mapped.file_from_offset + position
    return log.store(mapped, position, encoded.record(0, offset, timestamp), timestamp)


def test_a_place_has_its_blocks_before_a_record_is_stored(tmp_path: Path) -> None:
    """A hole of a file on a full disk would end the process when it is written to."""
    log = opened(tmp_path, 16 * PAGE)
    log.file_for(5 * PAGE)
    first = tmp_path / "commitlog" / f"{0:020d}"
    assert first.stat().st_blocks * 512 >= 5 * PAGE
    append(log, 9 * PAGE, 1)
    mapped, position = log.file_for(12 * PAGE)[:2]
    assert (mapped.file_from_offset, position) == (16 * PAGE, 0), "it has rolled"
    assert mapped.path.stat().st_blocks * 512 >= 12 * PAGE
    log.close()


@pytest.mark.parametrize("pooled", [False, True])
def test_a_flush_of_a_file_proves_nothing_of_the_next(tmp_path: Path, pooled: bool) -> None:
    """The store time of a flush goes to the checkpoint: one of a record behind what is on disk
    would let a recovery begin too late."""
    log = opened(tmp_path, PAGE, TransientStorePool(2, PAGE) if pooled else None)
    for timestamp in (10, 20, 30):
        append(log, PAGE // 2 - 200, timestamp)
    if pooled:
        assert log.commit()
    assert log.flush()
    assert log.flushed_where == PAGE
    assert log.flushed_timestamp <= 20
    assert log.force() and log.flushed_timestamp == 30
    log.close()


def test_a_flush_that_met_a_put_half_way_knows_its_time_later(tmp_path: Path) -> None:
    """An offset is there before its time. Where nothing else is put, as on a quiet server, the
    checkpoint would never tell of it."""
    log = opened(tmp_path, PAGE)
    append(log, 100, 10)
    log.store_timestamp = 0
    assert log.flush() and log.flushed_timestamp == 0
    log.store_timestamp = 10
    assert not log.flush() and log.flushed_timestamp == 10
    log.close()


@pytest.mark.parametrize(
    ("checkpoint", "file"), [(9, 0), (10, 0), (11, 0), (20, 0), (21, 1), (30, 1), (31, 2), (99, 2)]
)
def test_what_a_checkpoint_proves_of_a_log(tmp_path: Path, checkpoint: int, file: int) -> None:
    """Records of the same millisecond as the checkpoint's may have come behind the flush."""
    log = opened(tmp_path, PAGE)
    for timestamp in (10, 20, 30):
        append(log, PAGE - 200, timestamp)
    assert log.force() and log.flushed_where > 2 * PAGE
    log.doubt_flushed(checkpoint)
    assert log.flushed_where == file * PAGE
    log.close()


class Gate:
    """Stands before a call: counts who is in it, and holds them while it is shut."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self.opened = threading.Event()
        self.inside = self.most = 0
        self._lock = threading.Lock()
        self._real = real

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self.opened.wait(60)
        try:
            return self._real(*arguments, **named)
        finally:
            with self._lock:
                self.inside -= 1


def run_twice(gate: Gate, work: Callable[[], object]) -> list[BaseException]:
    """Two threads do the same; the gate opens when one is in it and both have begun."""
    failed: list[BaseException] = []
    begun = threading.Barrier(3)

    def run() -> None:
        begun.wait(60)
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    wait_for(lambda: gate.inside >= 1)
    threads[0].join(0.05)  # Time for the other one to come in, if it can.
    gate.opened.set()
    for thread in threads:
        thread.join()
    return failed


def test_one_commits_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two would write the same bytes, and give the same buffer back twice."""
    pool = TransientStorePool(2, PAGE)
    log = opened(tmp_path, PAGE, pool)
    append(log, PAGE - 200, 1)
    append(log, 100, 2)
    gate = Gate(log._write)
    monkeypatch.setattr(log, "_write", gate)
    assert run_twice(gate, log.commit_all) == []
    assert gate.most == 1
    assert log.committed_where == log.write_offset and available(pool) == 1
    times = [entry.store_timestamp for entry in log.walk() if isinstance(entry, Record)]
    assert times == [1, 2]
    log.close()


def test_one_flushes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path, PAGE)
    append(log, 100, 1)
    gate = Gate(os.fdatasync)
    monkeypatch.setattr(os, "fdatasync", gate)
    assert run_twice(gate, log.force) == []
    assert gate.most == 1 and log.flushed_where == log.write_offset
    log.close()


def test_no_file_is_made_while_the_buffers_before_it_cannot_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records would be stored into that file itself, behind others that only a buffer has: a kill
    would leave them behind a hole."""
    log = opened(tmp_path, PAGE, TransientStorePool(1, PAGE))
    append(log, PAGE // 2, 1)

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(CommitLogWriter, "_write", refuse)
        for _ in range(2):
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                append(log, PAGE // 2, 2)
        assert [entry.file_from_offset for entry in log.files.entries] == [0]
        assert log.read_offset == 0
    offset = append(log, PAGE // 2, 3)
    assert offset == PAGE == log.read_offset, "what the first buffer had is committed"
    log.commit_all()
    stored = [entry.physical_offset for entry in log.walk() if isinstance(entry, Record)]
    assert stored == [0, PAGE]
    log.close()


def test_a_buffer_goes_back_when_its_file_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = TransientStorePool(1, PAGE)
    log = opened(tmp_path, PAGE, pool)

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(log.files, "append_file", refuse)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        append(log, 100, 1)
    assert available(pool) == 1
    log.close()


@pytest.mark.parametrize("left", [1, 7])
def test_a_record_that_leaves_no_room_for_a_blank_is_followed_by_none(
    tmp_path: Path, left: int
) -> None:
    """No writer leaves such a file; a broker cannot go on behind it either."""
    with MessageStore(tmp_path / "made", SMALL, writable=True, create=True) as store:
        stored = store.put_message(MessageExtBrokerInner("t", b"x" * 20)).stored
    assert stored is not None
    record = (tmp_path / "made" / "commitlog" / f"{0:020d}").read_bytes()[: stored.wrote_bytes]
    size = len(record) + left
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(record.ljust(size, b"\0"))
    config = replace(SMALL, mapped_file_size_commit_log=size)
    with MessageStore(tmp_path / "store", config, writable=True) as store:
        with pytest.raises(DamagedStore, match=f"leaves {left} bytes of its file") as caught:
            store.put_message(MessageExtBrokerInner("t", b""))
        assert caught.value.physical_offset == len(record)
        assert [one.body_length for one in store.get_message("t", 0, 0).records] == [20]
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == record.ljust(size, b"\0")
