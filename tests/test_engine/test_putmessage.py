"""The put path: every status of a put, batches, light queues, statistics, background dispatch."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from formats import constants
from rmqctl.engine import mappedfile
from rmqctl.engine.config import MessageStoreConfig
from rmqctl.engine.message import (
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    RecordForm,
    encode,
    encoded_size,
)
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.runningflags import RunningFlag, RunningFlags
from rmqctl.engine.status import AppendMessageStatus, GetMessageStatus, PutMessageStatus
from rmqctl.engine.storestats import StoreStats
from tests.test_engine.test_messagestore import SMALL, is_clean

Message = MessageExtBrokerInner
LMQ = replace(SMALL, enable_lmq=True, enable_multi_dispatch=True)


def opened(root: Path, **changes: object) -> MessageStore:
    config = replace(SMALL, **changes)  # type: ignore[arg-type]
    return MessageStore(root, config, writable=True, create=True)


def light(names: str, body: bytes = b"x") -> Message:
    return Message("T", body, properties={"INNER_MULTI_DISPATCH": names})


# --- every status ------------------------------------------------------------------------


class Slaves:
    """Slaves that answer every request alike."""

    def __init__(self, status: PutMessageStatus) -> None:
        self.status = status
        self.asked: list[tuple[int, int]] = []

    def submit(self, next_offset: int, timeout_millis: int) -> PutMessageStatus:
        self.asked.append((next_offset, timeout_millis))
        return self.status


def put_with_slaves(root: Path, status: PutMessageStatus) -> PutMessageResult:
    with opened(root, broker_role="SYNC_MASTER", slave_timeout=77) as store:
        slaves = Slaves(status)
        store.writer.replica = slaves
        result = store.put_message(Message("T", b"x"))
        assert slaves.asked == [(store.max_offset, 77)]
        return result


def put_closed(root: Path) -> PutMessageResult:
    with opened(root) as store:
        store.put_message(Message("T", b"x"))
    return store.put_message(Message("T", b"x"))


def put_busy(root: Path) -> PutMessageResult:
    with opened(root, os_page_cache_busy_time_out_mills=1) as store:
        entered, leave = threading.Event(), threading.Event()
        real = store.writer._log.store

        def slow(*arguments: object) -> int:
            entered.set()
            leave.wait(10)
            return real(*arguments)  # type: ignore[arg-type]

        store.writer._log.store = slow  # type: ignore[method-assign, assignment]
        putter = threading.Thread(target=store.put_message, args=[Message("T", b"slow")])
        putter.start()
        entered.wait(10)
        while not store.writer._putter.is_os_page_cache_busy:
            pass
        result = store.put_message(Message("T", b"x"))
        leave.set()
        putter.join()
        # The lock is free again.
        assert store.put_message(Message("T", b"y")).is_ok
        return result


def put_no_file(root: Path) -> PutMessageResult:
    with opened(root) as store:
        store.put_message(Message("T", b"x" * 2000))
        (root / "commitlog" / f"{4096:020d}").mkdir()
        result = store.put_message(Message("T", b"x" * 2500))
        (root / "commitlog" / f"{4096:020d}").rmdir()
        return result


def put_slow_disk(root: Path) -> PutMessageResult:
    with opened(root, sync_flush_timeout=1) as store, pytest.MonkeyPatch.context() as patched:
        real = os.fdatasync

        def slow(descriptor: int) -> None:
            threading.Event().wait(0.02)
            real(descriptor)

        patched.setattr(os, "fdatasync", slow)
        result = store.put_message(Message("T", b"x"))
        assert store.get_message("T", 0, 0).status is GetMessageStatus.FOUND
        return result


def put_many_light_queues(root: Path) -> PutMessageResult:
    with opened(
        root, enable_lmq=True, enable_multi_dispatch=True, max_lmq_consume_queue_num=2
    ) as store:
        for name in ("a", "b", "c"):
            # The limit is exceeded by the third: the engine compares before it is there.
            assert store.put_message(light(f"%LMQ%{name}")).is_ok
        assert store.put_message(Message("T", b"none", properties={"TAGS": "x"})).is_ok
        return store.put_message(light("%LMQ%a"))


def put_too_long_with_offsets(root: Path) -> PutMessageResult:
    with opened(root, enable_lmq=True, enable_multi_dispatch=True) as store:
        message = light("%LMQ%a", b"x" * 2000)
        spare = SMALL.max_message_size - encoded_size(message)
        return store.put_message(light("%LMQ%a", b"x" * (2000 + spare)))


def put_one(root: Path, message: Message) -> PutMessageResult:
    with opened(root) as store:
        return store.put_message(message)


STATUSES: dict[PutMessageStatus, Callable[[Path], PutMessageResult]] = {
    PutMessageStatus.PUT_OK: lambda root: put_one(root, Message("T", b"x")),
    PutMessageStatus.FLUSH_DISK_TIMEOUT: put_slow_disk,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: lambda root: put_with_slaves(
        root, PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    ),
    PutMessageStatus.SLAVE_NOT_AVAILABLE: lambda root: put_with_slaves(
        root, PutMessageStatus.SLAVE_NOT_AVAILABLE
    ),
    PutMessageStatus.SERVICE_NOT_AVAILABLE: put_closed,
    PutMessageStatus.CREATE_MAPEDFILE_FAILED: put_no_file,
    PutMessageStatus.MESSAGE_ILLEGAL: lambda root: put_one(root, Message("t" * 128, b"")),
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: lambda root: put_one(
        root, Message("T", b"", properties={"a": "é" * 16383})
    ),
    PutMessageStatus.OS_PAGECACHE_BUSY: put_busy,
    PutMessageStatus.UNKNOWN_ERROR: put_too_long_with_offsets,
    PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: put_many_light_queues,
}


APPEND_STATUSES = {
    PutMessageStatus.CREATE_MAPEDFILE_FAILED: AppendMessageStatus.END_OF_FILE,
    PutMessageStatus.UNKNOWN_ERROR: AppendMessageStatus.UNKNOWN_ERROR,
}


@pytest.mark.parametrize("status", PutMessageStatus)
def test_every_status_comes_about(tmp_path: Path, status: PutMessageStatus) -> None:
    result = STATUSES[status](tmp_path / "s")
    assert result.status is status
    assert bool(result.reason) != result.is_ok
    stored = (
        PutMessageStatus.PUT_OK,
        PutMessageStatus.FLUSH_DISK_TIMEOUT,
        PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
        PutMessageStatus.SLAVE_NOT_AVAILABLE,
    )
    assert (result.stored is not None) == (status in stored)
    # CommitLog#asyncPutMessage: only what the append callback was asked has its own status.
    appended = APPEND_STATUSES.get(status, AppendMessageStatus.PUT_OK if result.stored else None)
    assert (result.append.status if result.append is not None else None) is appended
    if appended is AppendMessageStatus.END_OF_FILE:
        assert result.append is not None
        assert result.append.wrote_offset + result.append.wrote_bytes == 4096, "the blank"
    # Whatever it was, the next put goes on.
    assert put_one(tmp_path / "s", Message("T", b"next")).is_ok
    assert is_clean(tmp_path / "s")


@pytest.mark.parametrize("flag", RunningFlag)
def test_a_store_is_not_writeable_by_any_of_its_flags(tmp_path: Path, flag: RunningFlag) -> None:
    with opened(tmp_path / "s") as store:
        flags = store.writer.running_flags
        flags.make(flag)
        result = store.put_message(Message("T", b"x"))
        bulks = list(store.append_stream([Message("T", b"x"), Message("T", b"y")]))
        if flag is RunningFlag.NOT_READABLE:
            assert result.is_ok and len(bulks[0].stored) == 2
        else:
            assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert str(flag.name) in result.reason
            assert bulks[0].refused is not None and not bulks[0].stored
            assert bulks[0].refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        flags.clear(flag)
        assert store.put_message(Message("T", b"x")).is_ok
    assert is_clean(tmp_path / "s")


def test_flags_of_queues_pass_over_a_full_disk() -> None:
    flags = RunningFlags()
    assert flags.is_readable and flags.is_writeable and flags.is_cq_writeable
    flags.make(RunningFlag.DISK_FULL)
    assert (flags.is_writeable, flags.is_cq_writeable, flags.is_readable) == (False, True, True)
    flags.make(RunningFlag.NOT_WRITEABLE)
    assert not flags.is_cq_writeable
    assert int(flags.flag_bits) == 18 and str(flags) == "NOT_WRITEABLE, DISK_FULL"


def test_a_store_that_ends_unwriteable_keeps_abort(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.writer.running_flags.make(RunningFlag.DISK_FULL)
    assert (tmp_path / "s/abort").exists()


def test_a_slaves_store_takes_no_messages(tmp_path: Path) -> None:
    with opened(tmp_path / "s", broker_role="SLAVE") as store:
        result = store.put_message(Message("T", b"x"))
        assert (
            result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
            and "brokerRole" in result.reason
        )
        assert store.max_offset == 0


# --- batches -----------------------------------------------------------------------------


def test_a_batch_answers_with_all_ids_and_one_flush(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        assert store.put_message(Message("T", b"x")).is_ok
        flushes = store.writer.stats.flush_times
        result = store.put_batch([Message("T", bytes(n)) for n in range(5)])
        assert store.writer.stats.flush_times == flushes + 1
        append = result.append
        assert append is not None
        assert (append.msg_num, append.queue_offset, append.wrote_offset) == (5, 1, 93)
        ids = append.msg_id.split(",")
        records = [store.look_message_by_offset(int(one[-16:], 16)) for one in ids]
        assert [record.queue_offset for record in records] == [1, 2, 3, 4, 5]
        assert sum(record.total_size for record in records) == append.wrote_bytes
        assert {record.store_timestamp for record in records} == {append.store_timestamp}
        assert store.put_message(Message("T", b"x")).append.queue_offset == 6  # type: ignore[union-attr]
    assert is_clean(tmp_path / "s")


def test_a_batch_goes_to_no_light_queues(tmp_path: Path) -> None:
    """The engine's batch path wraps nothing; with the offsets added the records would grow after
    their room was made, and the last one would roll."""
    message = light("%LMQ%a", b"y" * 400)
    with MessageStore(tmp_path / "s", LMQ, writable=True, create=True) as store:
        size = encoded_size(message)
        first = Message("T", b"", properties={"TAGS": "x"})
        filler = 4096 - 8 - 3 * size - encoded_size(first)
        assert store.put_message(replace(first, body=b"x" * filler)).is_ok
        result = store.put_batch([message] * 3)
        assert result.append is not None
        assert result.append.wrote_bytes == 3 * size
        assert store.max_offset == 4096 - 8 and len(store.commit_log.files.entries) == 1
        assert store.consume_queue("%LMQ%a", 0) is None
        assert store.put_message(light("%LMQ%a")).is_ok
        assert store.consume_queue("%LMQ%a", 0) is not None
    assert is_clean(tmp_path / "s", LMQ)


@pytest.mark.parametrize("other", [Message("U", b""), Message("T", b"", 1)])
def test_a_batch_is_of_one_queue(tmp_path: Path, other: Message) -> None:
    with opened(tmp_path / "s") as store:
        result = store.put_batch([Message("T", b""), other])
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL and "one queue" in result.reason
        assert store.max_offset == 0
        assert store.put_messages([], batch=True) == []


# --- statistics --------------------------------------------------------------------------


def test_statistics_count_what_was_done(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put_message(Message("T", b"x"))
        store.put_message(Message("T", b"x", properties={"DELAY": "1"}))
        store.put_batch([Message("U", b"")] * 3)
        store.put_message(Message("t" * 128, b""))
        list(store.put_stream([Message("V", b"")] * 10))
        stats = store.writer.stats
        topics = {"T": 1, "SCHEDULE_TOPIC_XXXX": 1, "U": 3, "V": 10}
        assert stats.put_message_topic_times_total == topics
        assert stats.put_message_times_total == 15
        assert stats.put_message_size_total == store.max_offset
        assert stats.put_message_failed_times == 1
        assert sum(stats.put_message_distribute_time) == 5
        assert stats.flush_times == 4 and stats.flush_time_max <= stats.flush_time_total
        assert stats.put_message_entire_time_max >= stats.flush_time_max


def test_put_times_fall_into_the_engines_classes() -> None:
    stats = StoreStats()
    for elapsed in (0.9, 1, 9.9, 10, 49, 50, 499, 500, 9999, 10_000, 10**9):
        stats.put_ended(elapsed)
    assert stats.put_message_distribute_time == [1, 2, 2, 1, 0, 1, 1, 0, 0, 0, 0, 1, 2]


# --- dispatch behind the puts ------------------------------------------------------------


@contextmanager
def full_disk() -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as full:
        full.setattr(os, "posix_fallocate", refuse)
        full.setattr(mappedfile, "create_file", refuse)
        yield


def test_a_service_dispatches_behind_the_puts(tmp_path: Path) -> None:
    config = replace(SMALL, message_index_enable=True)
    with MessageStore(tmp_path / "s", config, writable=True, create=True) as store:
        store.put_message(Message("T", b"before", properties={"KEYS": "k0"}))
        store.start()
        reput = store.writer.flusher.reput_message
        with store._put_lock:
            # The service waits for the lock, which this thread has: nothing is dispatched yet.
            assert store.put_message(Message("T", b"x")).is_ok
            assert store.dispatch_behind_bytes == 93
        for number in range(60):
            assert store.put_message(Message("T", b"y", properties={"KEYS": f"k{number}"})).is_ok
        reput.shutdown()
        assert store.dispatch_behind_bytes == 0
        assert reput.reput_from_offset == store.max_offset
        queue = store.consume_queue("T", 0)
        assert queue is not None and queue.max_offset == 62
        assert store.put_message(Message("T", b"dispatched by the put again")).is_ok
        assert store.dispatch_behind_bytes == 0
    assert is_clean(tmp_path / "s", config)


def test_a_service_without_room_makes_the_store_refuse(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.start()
        flags, reput = store.writer.running_flags, store.writer.flusher.reput_message
        with full_disk_after(store):
            wait_for(lambda: not flags.is_writeable)
            refused = store.put_message(Message("T", b"x"))
            assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert "WRITE_LOGICS_QUEUE_ERROR" in refused.reason
            assert store.dispatch_behind_bytes > 0
        reput.wakeup()
        wait_for(lambda: flags.is_writeable)
        assert store.put_message(Message("T", b"x")).is_ok
    assert is_clean(tmp_path / "s")


@contextmanager
def full_disk_after(store: MessageStore) -> Iterator[None]:
    """Messages are in the log, and their index needs its next file when the disk is full."""
    with store._put_lock:
        for number in range(60):
            assert store.put_message(Message("T", b"", properties={"KEYS": f"{number}"})).is_ok
        with full_disk():
            store._put_lock.release()
            try:
                yield
            finally:
                store._put_lock.acquire()


def wait_for(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends, "it never comes about"
        time.sleep(0.001)


def test_the_configuration_is_read_from_a_broker_conf() -> None:
    from rmqctl.engine.config import parse_broker_conf
    from rmqctl.errors import BrokerConfError

    config = parse_broker_conf(
        "flushDiskType=SYNC_FLUSH\nbrokerRole=SLAVE\nsyncFlushTimeout=9\n"
        "transientStorePoolEnable=true\nmaxLmqConsumeQueueNum=5\nwarmMapedFileEnable=true\n"
    )
    assert (config.flush_disk_type, config.broker_role) == ("SYNC_FLUSH", "SLAVE")
    assert (config.sync_flush_timeout, config.max_lmq_consume_queue_num) == (9, 5)
    assert config.warm_maped_file_enable and not config.is_transient_store_pool_enable
    assert replace(
        MessageStoreConfig(), transient_store_pool_enable=True
    ).is_transient_store_pool_enable
    for line in ("flushDiskType=NEVER", "brokerRole=BOSS"):
        with pytest.raises(BrokerConfError, match="none of"):
            parse_broker_conf(line)


def test_the_first_flags_value_is_javas() -> None:
    assert [int(flag) for flag in RunningFlag] == [1, 2, 4, 8, 16]
    assert constants.LMQ_PREFIX == "%LMQ%"


# --- where a broker's dispatch would stop --------------------------------------------------


def test_a_message_without_properties_is_refused_where_a_broker_would_stop(tmp_path: Path) -> None:
    """4.9.3 with enableMultiDispatch fails on it for good (checkMultiDispatchQueue)."""
    bare = Message("T", b"x")
    with MessageStore(tmp_path / "s", LMQ, writable=True, create=True) as store:
        for results in (
            [store.put_message(bare)],
            store.put_messages([replace(bare, properties={"TAGS": "t"}), bare], batch=True),
            [bulk.refused for bulk in store.append_stream(iter([bare]))],
        ):
            assert [one.status for one in results if one] == [PutMessageStatus.MESSAGE_ILLEGAL]
            assert "enableMultiDispatch" in results[0].reason  # type: ignore[union-attr]
        assert store.max_offset == 0
        prepared = replace(bare, sys_flag=constants.TRANSACTION_PREPARED_TYPE)
        assert store.put_message(prepared).is_ok  # not dispatched
        tagged = replace(bare, properties={"TAGS": "t"})
        sent = list(store.append_stream(iter([tagged, tagged, bare, tagged])))
        assert [(len(bulk.stored), bulk.refused is None) for bulk in sent] == [
            (2, False),
            (1, True),
        ]
        store.writer.write_in(RecordForm(property_separator=True))
        assert store.put_message(bare).is_ok  # 5.x looks first
    with MessageStore(tmp_path / "plain", SMALL, writable=True, create=True) as store:
        assert store.put_message(bare).is_ok


FORMS = [
    RecordForm(separator, crc, long_topics)
    for separator in (False, True)
    for crc in (False, True)
    for long_topics in (False, True)
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("topic", ["T", "%RETRY%" + "g" * 200])
@pytest.mark.parametrize("properties", [{}, {"a": "b"}, {"a": "b", "__CRC32#": "1234567890"}])
def test_the_size_of_a_record_is_known_before_it_is_encoded(
    form: RecordForm, topic: str, properties: dict[str, str]
) -> None:
    message = Message(topic, b"body", properties=properties)
    encoded = encode(message, 65536, form)
    if len(topic) > 127 and not form.long_topics:
        assert isinstance(encoded, PutMessageResult)
        return
    assert isinstance(encoded, EncodedMessage)
    record = encoded.record(0, 0, 0)
    assert encoded_size(message, form) == encoded.size == len(record)
    assert record.count(b"__CRC32#") == (form.property_crc or "__CRC32#" in properties)
