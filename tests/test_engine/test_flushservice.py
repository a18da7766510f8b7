"""Flushing: group commit, its deadlines, asynchronous services, the transient store pool."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files import pagelock
from rmqctl.engine.files.bufferpool import TransientStorePool
from rmqctl.engine.files.durable import sync_each
from rmqctl.engine.files.pagelock import mlock, munlock
from rmqctl.engine.flush.services import GroupCommitRequest, GroupCommitService
from rmqctl.engine.flush.thread import ServiceThread
from rmqctl.engine.log.logwriter import CommitLogWriter, is_able
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import (
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    encode,
)
from rmqctl.engine.record.record import End, Record
from rmqctl.engine.record.status import NOT_AGAIN, PutMessageStatus
from rmqctl.engine.start.logend import find_end
from rmqctl.engine.state.checkpoint import read_checkpoint
from rmqctl.engine.write.background import ReputMessageService
from rmqctl.engine.write.bulk import PlainMessage
from rmqctl.errors import CannotWrite
from tests.golden_data import tree_content
from tests.test_engine.test_messagestore import SMALL, is_clean, small_store
from tests.test_engine.test_putmessage import wait_for
from tests.test_safety.support import Clock

Message = MessageExtBrokerInner
PAGE = mmap.PAGESIZE


class Disk:
    """Stands before ``fdatasync``: holds it while :attr:`gate` is shut, or lets it fail."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.error: OSError | None = None
        self.waiting = 0
        self._real = os.fdatasync

    def __call__(self, descriptor: int) -> None:
        self.waiting += 1
        assert self.gate.wait(60)
        self.waiting -= 1
        if self.error is not None:
            raise self.error
        self._real(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    slow = Disk()
    monkeypatch.setattr(os, "fdatasync", slow)
    yield slow
    slow.gate.set()


def opened(root: Path, **changes: Any) -> WritableStore:
    return MessageStore(root, replace(SMALL, **changes), writable=True, create=True)


def begun(root: Path, **changes: Any) -> WritableStore:
    """A store with a checkpoint, which the first message of all writes, and that message."""
    store = opened(root, **changes)
    assert store.put_message(Message("first", b"")).is_ok
    return store


def in_threads(count: int, work: Callable[[int], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


# --- group commit ------------------------------------------------------------------------


@pytest.mark.parametrize("service", [False, True])
@pytest.mark.parametrize("putters", [1, 4, 16])
def test_putters_that_wait_share_a_flush(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, service: bool, putters: int
) -> None:
    """While one flush runs the others come, and the next one serves all of them."""
    asked: list[GroupCommitRequest] = []
    real = GroupCommitService.put_request

    def put_request(group: GroupCommitService, request: GroupCommitRequest) -> None:
        real(group, request)
        asked.append(request)

    monkeypatch.setattr(GroupCommitService, "put_request", put_request)
    with begun(tmp_path / "s", flush_disk_type="SYNC_FLUSH", sync_flush_timeout=60_000) as store:
        if service:
            store.start(dispatch=False)
        stats = store.writer.stats
        before = stats.flush_times
        asked.clear()
        results: list[PutMessageStatus] = []

        def put(number: int) -> None:
            results.append(store.put_message(Message("T", b"%d" % number)).status)

        disk.gate.clear()
        first = in_threads(1, put)
        wait_for(lambda: disk.waiting == 1)
        others = in_threads(putters - 1, put)
        # The service may have begun this flush for nobody, before the first putter asked for it.
        wait_for(lambda: len(asked) == putters)
        assert not results, "nobody is told before the disk has it"
        disk.gate.set()
        for thread in first + others:
            thread.join()
        assert results == [PutMessageStatus.PUT_OK] * putters
        assert stats.flush_times - before == min(putters, 2)
        assert stats.put_message_topic_times_total["T"] == putters
    assert is_clean(tmp_path / "s")


@pytest.mark.parametrize("service", [False, True])
def test_a_record_behind_a_files_end_takes_two_flushes(tmp_path: Path, service: bool) -> None:
    with opened(tmp_path / "s", flush_disk_type="SYNC_FLUSH") as store:
        if service:
            store.start(dispatch=False)
        store.put_message(Message("T", b"x" * 1500), flush=False)
        log, stats = store.writer._log, store.writer.stats
        if service:  # It does so sooner or later, for nobody.
            wait_for(lambda: log.flushed_where == log.write_offset and stats.flush_times == 1)
        before = stats.flush_times
        assert store.put_message(Message("T", b"x" * 2700)).is_ok
        assert log.flushed_where == log.write_offset == 4096 + 2792
        assert stats.flush_times - before == 2
    assert is_clean(tmp_path / "s")


def test_past_its_deadline_a_putter_goes_on(tmp_path: Path, disk: Disk) -> None:
    with begun(tmp_path / "s", flush_disk_type="SYNC_FLUSH", sync_flush_timeout=30) as store:
        store.start(dispatch=False)
        disk.gate.clear()
        late = store.put_message(Message("T", b"late"))
        assert late.status is PutMessageStatus.FLUSH_DISK_TIMEOUT and late.append is not None
        assert "30 ms" in late.reason
        (bulk,) = store.put_stream([Message("T", b"bulk")])
        assert [result.status for result in bulk] == [PutMessageStatus.FLUSH_DISK_TIMEOUT]
        disk.gate.set()
        store.writer.config = replace(store.config, sync_flush_timeout=60_000)
        assert store.put_message(Message("T", b"in time")).is_ok
        assert store.look_message_by_offset(late.append.wrote_offset).topic == "T"
        found = store.get_message("T", 0, 0).records
        assert found[0].physical_offset == late.append.wrote_offset
    assert is_clean(tmp_path / "s")


def test_who_waits_for_anothers_flush_goes_on_at_its_own_deadline(
    tmp_path: Path, disk: Disk
) -> None:
    """Without the service: the flush that is under way has begun before, and does not count."""
    store = begun(tmp_path / "s", flush_disk_type="SYNC_FLUSH", sync_flush_timeout=60_000)
    disk.gate.clear()
    (leader,) = in_threads(1, lambda _: store.put_message(Message("T", b"first")))
    wait_for(lambda: disk.waiting == 1)
    store.writer.config = replace(store.config, sync_flush_timeout=20)
    result = store.put_message(Message("T", b"second"))
    assert result.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert disk.waiting == 1, "the first flush goes on"
    disk.gate.set()
    leader.join()
    store.writer.config = store.config
    assert store.put_message(Message("T", b"third")).is_ok
    store.close()
    assert is_clean(tmp_path / "s")
    assert len(stored_bodies(tmp_path / "s")) == 4


def test_a_request_ends_once() -> None:
    request = GroupCommitRequest(1, 0)
    assert request.wait() is PutMessageStatus.FLUSH_DISK_TIMEOUT
    request.wakeup_customer(PutMessageStatus.PUT_OK)
    assert request.is_done and request.wait() is PutMessageStatus.FLUSH_DISK_TIMEOUT
    request = GroupCommitRequest(1, 60_000)
    request.wakeup_customer(PutMessageStatus.PUT_OK)
    request.wakeup_customer(PutMessageStatus.UNKNOWN_ERROR, OSError())
    assert request.wait() is PutMessageStatus.PUT_OK


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_fail_one_flush_only(tmp_path: Path, disk: Disk, number: int) -> None:
    """The disk was not asked, so it has lost nothing: the next flush makes up for it."""
    with begun(tmp_path / "s", flush_disk_type="SYNC_FLUSH") as store:
        disk.error = OSError(number, os.strerror(number))
        failed = store.put_message(Message("T", b"1"))
        assert failed.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        assert failed.reason.startswith(os.strerror(number))
        disk.error = None
        assert store.put_message(Message("T", b"2")).is_ok
        assert store.commit_log.flushed_where == store.max_offset
    assert not (tmp_path / "s/abort").exists() and is_clean(tmp_path / "s")


@pytest.mark.parametrize("service", [False, True])
def test_a_disk_that_fails_fails_all_who_wait(tmp_path: Path, disk: Disk, service: bool) -> None:
    store = begun(tmp_path / "s", flush_disk_type="SYNC_FLUSH", sync_flush_timeout=60_000)
    flushed = store.max_offset
    if service:
        store.start(dispatch=False)
    failed: list[PutMessageResult] = []

    def put(number: int) -> None:
        failed.append(store.put_message(Message("T", b"%d" % number)))

    disk.gate.clear()
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    threads = in_threads(3, put)
    wait_for(lambda: disk.waiting == 1)
    disk.gate.set()
    for thread in threads:
        thread.join()
    assert {one.status for one in failed} == {PutMessageStatus.FLUSH_DISK_TIMEOUT}
    assert len(failed) == 3 and all(one.reason.startswith("Input/output error") for one in failed)
    assert all(one.stored is not None and one.reason.endswith(NOT_AGAIN) for one in failed)
    assert store.writer._log.flushed_where == flushed
    disk.error = None
    # The system tells of lost pages once, and says yes to the next sync: nothing is safe any more.
    assert store.put_message(Message("T", b"later")).status is PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert store.writer._log.flushed_where == flushed
    with pytest.raises(CannotWrite, match="Input/output"):
        store.close()
    assert (tmp_path / "s/abort").exists()
    written = read_checkpoint(tmp_path / "s/checkpoint")
    assert written is not None
    assert written.physic_msg_timestamp <= store.writer._log.flushed_timestamp
    with opened(tmp_path / "s") as again:
        assert again.put_message(Message("T", b"next")).is_ok
    assert is_clean(tmp_path / "s")


def test_who_does_not_wait_is_flushed_by_the_service(tmp_path: Path, disk: Disk) -> None:
    with begun(tmp_path / "s", flush_disk_type="SYNC_FLUSH") as store:
        flushed = store.max_offset
        store.start(dispatch=False)
        disk.gate.clear()
        assert store.put_message(Message("T", b"x", properties={"WAIT": "false"})).is_ok
        assert store.writer._log.flushed_where == flushed
        disk.gate.set()
        wait_for(lambda: store.writer._log.flushed_where == store.max_offset)
    assert is_clean(tmp_path / "s")


# --- asynchronous ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("done", "reached", "size", "least_pages", "expected"),
    [
        (0, 0, 9 * PAGE, 0, False),
        (0, 1, 9 * PAGE, 0, True),
        (0, 4 * PAGE - 1, 9 * PAGE, 4, False),
        (0, 4 * PAGE, 9 * PAGE, 4, True),
        (PAGE - 1, 4 * PAGE, 9 * PAGE, 4, True),  # By pages that were begun, not by bytes.
        (PAGE, 4 * PAGE, 9 * PAGE, 4, False),
        (9 * PAGE - 1, 9 * PAGE, 9 * PAGE, 4, True),  # A full file always.
    ],
)
def test_least_pages(done: int, reached: int, size: int, least_pages: int, expected: bool) -> None:
    assert is_able(done, reached, size, least_pages) is expected


def test_the_real_time_service_waits_for_pages_and_from_time_to_time_not(tmp_path: Path) -> None:
    changes = {"mapped_file_size_commit_log": 16 * PAGE, "max_message_size": 4 * PAGE}
    with opened(tmp_path / "s", **changes, flush_commit_log_thorough_interval=10**9) as store:
        log, service = store.writer._log, store.writer.flusher.flush_real_time
        service._last_flush_timestamp = time.monotonic() * 1000
        store.put_message(Message("T", b"x" * PAGE), flush=False)
        service.work()
        assert log.flushed_where == 0
        for _ in range(3):
            store.put_message(Message("T", b"x" * PAGE), flush=False)
        service.work()
        assert log.flushed_where == log.write_offset
        store.put_message(Message("T", b"x"), flush=False)
        service.work()
        assert log.flushed_where < log.write_offset
        service._last_flush_timestamp -= 10**9
        service.work()
        assert log.flushed_where == log.write_offset
        assert store.checkpoint.physic_msg_timestamp == log.store_timestamp
    assert is_clean(tmp_path / "s", replace(SMALL, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"flush_disk_type": "SYNC_FLUSH"},
        {},
        {"flush_commit_log_timed": False},
        {"transient_store_pool_enable": True},
    ],
)
def test_services_end_with_everything_on_disk(tmp_path: Path, changes: dict[str, Any]) -> None:
    before = set(threading.enumerate())  # Some of these may end meanwhile.
    store = opened(tmp_path / "s", **changes)
    store.start()
    assert set(threading.enumerate()) - before
    for number in range(100):
        assert store.put_message(Message("T", b"%d" % number), flush=False).is_ok
    log = store.writer._log
    store.close()
    assert not set(threading.enumerate()) - before
    assert log.flushed_where == log.write_offset > 0
    checkpoint = read_checkpoint(tmp_path / "s/checkpoint")
    assert checkpoint is not None
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == log.store_timestamp
    assert is_clean(tmp_path / "s")
    with MessageStore(tmp_path / "s", SMALL) as found:
        queue = found.consume_queue("T", 0)
        assert queue is not None and queue.max_offset == 100


def test_a_failed_background_flush_is_told_when_the_store_closes(
    tmp_path: Path, disk: Disk
) -> None:
    """The system tells of lost pages once: the next flush may well succeed."""
    store = begun(tmp_path / "s", flush_interval_commit_log=1, flush_commit_log_least_pages=0)
    store.start(dispatch=False)
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    store.put_message(Message("T", b"x"), flush=False)
    service = store.writer.flusher.flush_real_time
    wait_for(lambda: service.failure is not None)
    disk.error = None
    flushed = store.writer._log.flushed_where
    assert flushed < store.max_offset
    for _ in range(2):  # Whoever asks first must not be the only one to know.
        with pytest.raises(CannotWrite, match="Input/output"):
            store.flush()
    with pytest.raises(CannotWrite, match="Input/output"):
        store.close()
    assert store.writer._log.flushed_where == flushed
    assert (tmp_path / "s/abort").exists()


@pytest.mark.parametrize("structure", ["queues", "index"])
def test_a_failed_flush_of_queues_or_index_is_never_made_good(
    tmp_path: Path, disk: Disk, structure: str
) -> None:
    store = begun(tmp_path / "s")
    store.put_message(Message("T", b"x", properties={"KEYS": "k"}))
    before = store.checkpoint
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(CannotWrite, match="Input/output"):
        store.flush_structures([structure])
    disk.error = None
    with pytest.raises(CannotWrite, match="Input/output"):
        store.close()
    assert (tmp_path / "s/abort").exists()
    assert store.checkpoint.logics_msg_timestamp == before.logics_msg_timestamp


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_queues_that_could_not_be_opened_for_a_flush_are_forced_by_the_next(
    tmp_path: Path, disk: Disk, number: int
) -> None:
    """The disk was not asked. Until they are there the checkpoint stays."""
    clock = Clock()  # Messages of one millisecond would leave the checkpoint as it is.
    with MessageStore(tmp_path / "s", SMALL, writable=True, create=True, clock=clock) as store:
        assert store.put_message(Message("first", b"")).is_ok
        store.flush()
        store.put_message(Message("T", b"x"))
        before, service = store.checkpoint, store.writer.flusher.flush_consume_queue
        disk.error = OSError(number, os.strerror(number))
        service._try(service.work)
        with pytest.raises(CannotWrite, match="Too many open files"):
            store.flush_structures(["queues"])
        disk.error = None
        assert store.checkpoint.logics_msg_timestamp == before.logics_msg_timestamp
        synced: list[str] = []
        real = os.fdatasync

        def fdatasync(descriptor: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fdatasync", fdatasync)
            service._last_flush_timestamp = -(10**9)
            service._try(service.work)
        assert [path for path in synced if "/consumequeue/T/0/" in path]
        assert service.take_failure() is None
        assert store.checkpoint.logics_msg_timestamp > before.logics_msg_timestamp
    assert not (tmp_path / "s/abort").exists() and is_clean(tmp_path / "s")


def test_of_many_files_a_disk_that_failed_is_told_before_a_limit(
    tmp_path: Path,
) -> None:
    """After a limit one tries again, and a disk tells of lost pages once."""
    paths = [tmp_path / str(number) for number in range(40)]

    def sync(path: Path) -> None:
        if path == paths[0]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if path == paths[-1]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output"):
        sync_each(paths, sync)


class Unexpected(Exception):
    pass


def test_an_error_of_any_kind_ends_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits is told at once, and the service goes on."""
    store = begun(tmp_path / "s", flush_disk_type="SYNC_FLUSH", sync_flush_timeout=60_000)
    store.start(dispatch=False)

    def failing(log: CommitLogWriter, offset: int | None = None) -> bool:
        raise Unexpected

    with monkeypatch.context() as patched:
        patched.setattr(CommitLogWriter, "force", failing)
        with pytest.raises(Unexpected):
            store.put_message(Message("T", b"x"))
        store.writer.flusher.group_commit.wakeup()
        wait_for(lambda: store.writer.flusher.group_commit.failure is not None)
    assert store.put_message(Message("T", b"y")).is_ok
    with pytest.raises(Unexpected):
        store.close()
    assert (tmp_path / "s/abort").exists()


def test_two_flushes_at_a_time_lose_no_request(tmp_path: Path) -> None:
    """The service that ends, and a putter that flushes for itself."""
    with begun(tmp_path / "s") as store:
        group = store.writer.flusher.group_commit
        own = group._lock

        class Second:
            def __enter__(self) -> None:
                own.acquire()

            def __exit__(self, *_: object) -> None:
                own.release()
                group._lock = own
                group.work()

        request = GroupCommitRequest(store.max_offset, 60_000)
        group.put_request(request)
        group._lock = Second()  # type: ignore[assignment]
        group.work()
        assert request.is_done and request.wait() is PutMessageStatus.PUT_OK


def test_queues_are_flushed_by_pages_and_thoroughly_with_the_checkpoint(tmp_path: Path) -> None:
    changes = {"mapped_file_size_consume_queue": 20 * 1024, "flush_consume_queue_least_pages": 2}
    with opened(tmp_path / "s", **changes) as store:
        flusher = store.writer.flusher
        service = flusher.flush_consume_queue
        store.put_message(Message("T", b"x"))
        service._last_flush_timestamp = time.monotonic() * 1000
        service.work()
        queue = store.consume_queue("T", 0)
        assert queue is not None and queue.files.file(0)._dirty.end
        service._last_flush_timestamp = -(10**9)
        service.work()
        assert not queue.files.file(0)._dirty.end
        written = read_checkpoint(tmp_path / "s/checkpoint")
        assert written is not None
        assert written.logics_msg_timestamp == store.writer._log.store_timestamp
        list(store.put_stream(Message("T", b"") for _ in range(500)))
        service.work()
        assert not queue.files.file(0)._dirty.end, "two pages have come together"


def test_a_flush_waits_for_queues_that_are_on_their_way_to_the_disk(
    tmp_path: Path, disk: Disk
) -> None:
    """They count as clean from when the service has taken them: who flushes meanwhile must not say
    that they are on disk, for perhaps they will not be."""
    store = begun(tmp_path / "s")
    store.flush()
    store.put_message(Message("T", b"x"))
    service = store.writer.flusher.flush_consume_queue
    before = read_checkpoint(tmp_path / "s/checkpoint")
    disk.gate.clear()
    [taking] = in_threads(1, lambda _: service._try(service.work))
    wait_for(lambda: disk.waiting == 1)
    failures: list[CannotWrite] = []

    def flush(_: int) -> None:
        try:
            store.flush_structures(["queues"])
        except CannotWrite as error:
            failures.append(error)

    [flushing] = in_threads(1, flush)
    # It would end soon if it did not wait.
    flushing.join(0.1)
    assert flushing.is_alive() and read_checkpoint(tmp_path / "s/checkpoint") == before
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    disk.gate.set()
    for thread in (taking, flushing):
        thread.join()
    assert len(failures) == 1 and read_checkpoint(tmp_path / "s/checkpoint") == before
    disk.error = None
    store.abandon()


def test_the_checkpoint_is_what_the_engines_is(tmp_path: Path) -> None:
    """physic with the flush of the log, logics with that of the queues, index with a full file."""
    start = 1_700_000_000_000
    with small_store(tmp_path / "s", start=start) as store:
        store.put_message(Message("T", b"", properties={"KEYS": "k"}))
        assert store.checkpoint[:3] == (start, start, 0)  # The one of the first record.
        for number in range(60):
            store.put_message(
                Message("T", b"", properties={"KEYS": f"{number}"}), flush=number == 58
            )
        assert store.checkpoint[:3] == (start + 59, start, 0)
        store.flush_structures(["queues"])
        assert store.checkpoint[:3] == (start + 59, start + 60, 0)
        store.flush_structures(["index"])
        assert store.checkpoint[:3] == (start + 59, start + 60, start + 48)


def test_flush_says_what_was_not_on_disk(tmp_path: Path) -> None:
    with small_store(tmp_path / "s") as store:
        store.put_message(Message("T", b"x"))
        store.put_message(Message("T", b"y"), flush=False)
        ranges = [tuple(one) for one in store.flush_structures(["commitlog", "queues"])]
        assert ranges == [("commitlog", 93, 186), ("queues", 0, 186)]
        assert [tuple(r) for r in store.flush_structures(["queues"])] == [("queues", 186, 186)]
        for _ in range(60):
            store.put_message(Message("T", b"z" * 1000))
        store.abandon()
    with opened(tmp_path / "s") as store:
        # The crash leaves only what the checkpoint proves: all before the last file that is older.
        (log,) = store.flush_structures(["commitlog"])
        assert (log.from_offset, log.to_offset) == (0, store.max_offset)
    with opened(tmp_path / "s") as store:
        (log,) = store.flush_structures(["commitlog"])
        assert log.from_offset >= store.max_offset - 4096, "abort is still there"


def test_behind_a_missing_log_file_flushing_goes_on(tmp_path: Path) -> None:
    """Found after a stop that was not clean, with nothing that proves what is on disk."""
    root = tmp_path / "s"
    with opened(root) as store:
        for _ in range(6):
            assert store.put_message(Message("T", b"x" * 1500)).is_ok
    (root / "commitlog" / f"{4096:020d}").unlink()
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    with opened(root) as store:
        assert store.writer._log.flushed_where == 0
        assert store.put_message(Message("T", b"y")).is_ok
        assert store.writer._log.flushed_where == store.max_offset


# --- transient store pool ----------------------------------------------------------------


def record(log: CommitLogWriter, body: bytes) -> int:
    """Appends one record to a bare log; its offset."""
    encoded = encode(Message("T", body), 1 << 20)
    assert isinstance(encoded, EncodedMessage)
    mapped, position = log.file_for(encoded.size)
    offset = mapped.file_from_offset + position
    return log.store(mapped, position, encoded.record(0, offset, 7), 7)


def pooled_log(root: Path, pool: TransientStorePool) -> CommitLogWriter:
    log = CommitLogWriter(root / "commitlog", pool.file_size, root, pool=pool)
    log.start_writing(find_end(log, []))
    return log


def test_a_record_is_stored_then_committed_then_flushed(tmp_path: Path) -> None:
    log = pooled_log(tmp_path, TransientStorePool(2, 16 * PAGE))
    first = record(log, b"x" * 100)
    end = log.write_offset
    assert (log.committed_where, log.flushed_where) == (0, 0) and not log.flush()
    assert list(log.walk()) == [End(0)], "the file has nothing of it"
    assert not log.commit(1), "not a page yet"
    assert log.commit() and not log.commit()
    assert (log.committed_where, log.flushed_where) == (end, 0)
    found = log.record_at(first)
    assert found.store_timestamp == 7 and log.body(found) == b"x" * 100
    assert log.flush() and log.flushed_where == end and log.flushed_timestamp == 7
    for _ in range(4):
        record(log, b"y" * PAGE)
    assert log.commit(4)
    assert log.committed_where == log.write_offset
    assert len([entry for entry in log.walk() if isinstance(entry, Record)]) == 5
    log.close()


def test_an_interrupt_just_behind_a_new_file_leaves_it_its_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its records would be in the file while those before them wait in a buffer."""
    log = pooled_log(tmp_path, TransientStorePool(2, PAGE))
    record(log, b"\x01" * 3500)
    append_file = log.files.append_file

    def interrupted(offset: int) -> None:
        append_file(offset)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(log.files, "append_file", interrupted)
        with pytest.raises(KeyboardInterrupt):
            record(log, b"\x02" * 3500)
    record(log, b"\x03" * 3500)
    assert log.committed_where == 0 and stored_bodies(tmp_path) == []
    log.commit_all()
    log.close()
    assert [body[:1] for body in stored_bodies(tmp_path)] == [b"\x01", b"\x03"]


def test_a_full_file_gives_its_buffer_back_and_none_left_means_a_commit(tmp_path: Path) -> None:
    """No file is ever stored to directly while earlier records wait in buffers: a kill would leave
    them as a hole before it."""
    pool = TransientStorePool(2, PAGE)
    log = pooled_log(tmp_path, pool)
    for number in range(2):
        # One record a file.
        record(log, bytes([number + 1]) * 3500)
    assert available(pool) == 0
    assert pool.borrow_buffer() is None
    assert log.committed_where == 0
    record(log, b"\x03" * 3500)
    assert log.committed_where == 2 * PAGE, "what the two buffers held"
    assert available(pool) == 1
    log.commit_all()
    assert log.committed_where == log.write_offset
    record(log, b"\x04" * 3500)
    assert log.force() and log.flushed_where == log.write_offset
    log.close()
    assert available(pool) == 2
    bodies = [log_body[:1] for log_body in stored_bodies(tmp_path)]
    assert bodies == [b"\x01", b"\x02", b"\x03", b"\x04"]


def test_what_a_closed_log_gave_up_is_not_flushed(tmp_path: Path) -> None:
    pool = TransientStorePool(2, 16 * PAGE)
    log = pooled_log(tmp_path, pool)
    record(log, b"x")
    log.force()
    flushed = log.flushed_where
    record(log, b"y")
    end = log.write_offset
    log.close()
    assert not log.force(end) and log.flushed_where == flushed
    assert stored_bodies(tmp_path, 16 * PAGE) == [b"x"]


def test_a_buffer_that_cannot_be_had_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = TransientStorePool(2, PAGE)
    with monkeypatch.context() as patched, pytest.raises(OSError, match="memory"):
        patched.setattr(mmap, "mmap", refusing)
        pool.borrow_buffer()
    assert available(pool) == 2
    assert [pool.borrow_buffer() is None for _ in range(3)] == [False, False, True]


def available(pool: TransientStorePool) -> int:
    """How many buffers it lends; they are given back."""
    lent = list(iter(pool.borrow_buffer, None))
    for buffer in reversed(lent):
        pool.return_buffer(buffer)
    return len(lent)


def refusing(*_: object) -> mmap.mmap:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


@pytest.mark.parametrize(
    ("flush", "changes"),
    [
        (True, {"flush_disk_type": "SYNC_FLUSH"}),
        (True, {}),
        (False, {"transient_store_pool_enable": True}),
        (True, {"transient_store_pool_enable": True}),
    ],
)
def test_dispatch_in_the_background_begins_with_the_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: bool, changes: dict[str, Any]
) -> None:
    """It is woken, and not found out at its interval."""
    monkeypatch.setattr(ReputMessageService, "interval_millis", 10**6)
    with begun(tmp_path / "s", **changes) as store:
        store.start()
        for number in range(3):
            assert store.put_message(Message("T", b"x"), flush=flush).is_ok
            wait_for(lambda: store.writer.flusher.reput_message._tail.done == written(store))
            queue = store.consume_queue("T", 0)
            assert queue is not None and queue.max_offset == number + 1


def written(store: WritableStore) -> int:
    return store.writer._log.write_offset


def stored_bodies(root: Path, file_size: int = PAGE) -> list[bytes]:
    log = CommitLogWriter(root / "commitlog", file_size, root)
    return [log.body(entry) for entry in log.walk() if isinstance(entry, Record)]


@pytest.mark.parametrize("how", ["singly", "stream", "services"])
def test_the_pool_changes_no_byte(tmp_path: Path, how: str) -> None:
    contents = []
    for name, changes in (("plain", {}), ("pool", {"transient_store_pool_enable": True})):
        config = replace(SMALL, **changes, transient_store_pool_size=2)  # type: ignore[arg-type]
        with small_store(tmp_path / name, config) as store:
            messages = [
                Message("T", b"%d" % n * (n % 90), properties={"KEYS": f"k{n}"}) for n in range(200)
            ]
            if how == "services":
                store.start()
            if how == "stream":
                plain = [
                    PlainMessage(
                        "T", 1, b"x" * (n % 70), b"", 0, 0, m.born_host, m.store_host, 0, 0
                    )
                    for n, m in enumerate(messages)
                ]
                assert all(bulk.refused is None for bulk in store.append_stream(plain))
            for message in messages:
                assert store.put_message(message, flush=False).is_ok
        content = tree_content(tmp_path / name)
        contents.append({k: v for k, v in content.items() if not k.startswith("index")})
        assert is_clean(tmp_path / name)
    assert contents[0] == contents[1]


@pytest.mark.parametrize("cut", range(14))
def test_a_commit_that_is_killed_leaves_whole_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Killed before any of its writes into the file: the log goes on behind the last whole one."""

    left = cut

    class Killed(BaseException):
        pass

    class Heads(mmap.mmap):
        def __setitem__(self, key: Any, value: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            super().__setitem__(key, value)

    real = os.pwrite

    def torn(descriptor: int, data: Any, offset: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return real(descriptor, data[: max(len(data) // 3, 1)], offset)

    changes = {"transient_store_pool_enable": True}
    store = opened(tmp_path / "s", **changes)
    for number in range(4):
        store.put_message(Message("T", b"%d" % number * 60))
    acknowledged = store.max_offset
    flusher = store.writer.flusher
    flusher.reput_message._thread = threading.current_thread()  # Nothing commits by itself.
    for number in range(4):
        store.put_message(Message("T", b"%d" % number * 60), flush=False)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", torn)
        patched.setattr(mmap, "mmap", Heads)
        with pytest.raises(Killed):
            store.writer._log.commit()
            raise Killed
    flusher.reput_message._thread = None
    store.abandon()
    with MessageStore(tmp_path / "s", SMALL, writable=True) as store:
        assert store.max_offset >= acknowledged
        assert store.put_message(Message("T", b"next")).is_ok
    assert is_clean(tmp_path / "s")


def test_warm_files_have_their_blocks_before_the_first_record(tmp_path: Path) -> None:
    for kind in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        root = tmp_path / kind
        changes = {"warm_maped_file_enable": True, "flush_disk_type": kind}
        with opened(root, **changes, flush_least_pages_when_warm_maped_file=1) as store:
            for _ in range(3):
                assert store.put_message(Message("T", b"x" * 2000)).is_ok
        files = sorted((root / "commitlog").iterdir())
        assert len(files) == 3
        assert all(file.stat().st_blocks * 512 >= 4096 for file in files)
        assert is_clean(root)


def kilobytes_of_map(path: Path, name: str) -> int:
    """What the system says of the maps of a file in this process (``/proc/self/smaps``)."""
    total, own, inode = 0, False, str(path.stat().st_ino)
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            own = words[4] == inode
        elif own and words[0] == name + ":":
            total += int(words[1])
    return total


def test_a_warm_file_is_locked_in_memory_until_it_is_full(tmp_path: Path) -> None:
    size = 32 * PAGE
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if os.geteuid() != 0 and limit != resource.RLIM_INFINITY and limit < 2 * size:
        pytest.skip(f"RLIMIT_MEMLOCK is {limit} bytes: no room to lock two files of {size}")
    changes = {"mapped_file_size_commit_log": size, "max_message_size": size}
    first, second = (tmp_path / "s/commitlog" / f"{at:020d}" for at in (0, size))
    for warm in (True, False):
        with opened(tmp_path / "s", **changes, warm_maped_file_enable=warm) as store:
            assert store.put_message(Message("T", b"x")).is_ok
            whole = size // 1024 if warm else 0
            assert kilobytes_of_map(first, "Locked") == whole
            # Each page was touched; else only those that hold a record, and what is read with it.
            assert (kilobytes_of_map(first, "Rss") == size // 1024) == warm
            assert store.put_message(Message("T", b"x" * (size - 150))).is_ok
            assert kilobytes_of_map(first, "Locked") == 0, "it is full"
            assert kilobytes_of_map(second, "Locked") == whole
        assert kilobytes_of_map(second, "Locked") == 0
        shutil.rmtree(tmp_path / "s")


def test_a_warm_file_is_in_memory_where_locking_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pagelock, "mlock", lambda memory: False)
    size = 32 * PAGE
    for warm in (True, False):
        root = tmp_path / str(warm)
        with opened(root, mapped_file_size_commit_log=size, warm_maped_file_enable=warm) as store:
            assert store.put_message(Message("T", b"x")).is_ok
            (file,) = (root / "commitlog").iterdir()
            assert (kilobytes_of_map(file, "Rss") == size // 1024) == warm


def test_memory_is_locked_and_let_go_again() -> None:
    memory = mmap.mmap(-1, 8 * PAGE)

    def locked() -> int:
        text = Path("/proc/self/status").read_text()
        return int(text.split("VmLck:")[1].split()[0]) * 1024

    before = locked()
    if not mlock(memory):
        pytest.skip("the system locks nothing here (RLIMIT_MEMLOCK)")
    assert locked() == before + 8 * PAGE
    assert munlock(memory) and locked() == before
    memory.close()  # Nothing exports it any more.


def test_the_checkpoint_has_an_index_file_when_that_is_on_disk(tmp_path: Path) -> None:
    """A start after a loss of power believes it, and indexes nothing before that time again. A full
    file is forced to disk when there is another one."""
    config = replace(SMALL, max_hash_slot_num=7, max_index_num=4)
    now = 1_700_000_000_000

    def clock() -> int:
        nonlocal now
        now += 10_000
        return now

    store = WritableStore(tmp_path / "store", config, create=True, clock=clock)
    times = []
    try:
        for number in range(4):
            result = store.put_message(Message("orders", b"x", properties={"KEYS": f"k{number}"}))
            assert result.is_ok
            times.append(store.commit_log.store_timestamp)
            store.writer.flusher.flush_consume_queue.finish()
            checkpoint = read_checkpoint(tmp_path / "store/checkpoint")
            assert checkpoint is not None
            assert checkpoint.index_msg_timestamp == (times[2] if number == 3 else 0)
        assert len(store.index.paths) == 2
    finally:
        store.abandon()


@pytest.mark.parametrize("millis", [0, -5])
def test_a_service_without_an_interval_waits_all_the_same(millis: int) -> None:
    """``flushIntervalConsumeQueue=0`` would keep a processor busy."""
    asked: list[float | None] = []

    class Noted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            asked.append(timeout)
            return super().wait(timeout)

    class Idle(ServiceThread):
        is_woken = False
        interval_millis = millis

        def __init__(self) -> None:
            super().__init__()
            self._stop = Noted()
            self.worked = threading.Event()

        def work(self) -> None:
            self.worked.set()

    service = Idle()
    service.start()
    assert service.worked.wait(60)
    service.shutdown()
    assert set(asked) == {0.01}
