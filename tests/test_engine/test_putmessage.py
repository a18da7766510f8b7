"""The put path: every status of a put, batches, light queues, statistics, background dispatch."""

from __future__ import annotations

import errno
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats import constants
from formats.text import encode_properties
from rmqctl.engine.files import filequeuewriter, writing
from rmqctl.engine.index.indexfilewriter import IndexFileWriter
from rmqctl.engine.index.indexwriter import IndexServiceWriter
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.form import RecordForm
from rmqctl.engine.record.message import (
    EncodedMessage,
    MessageExtBrokerInner,
    PutMessageResult,
    check_lengths,
    encode,
    encoded_size,
)
from rmqctl.engine.record.record import Record
from rmqctl.engine.record.status import AppendMessageStatus, GetMessageStatus, PutMessageStatus
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.checkpoint import read_checkpoint
from rmqctl.engine.write import storewriter
from rmqctl.engine.write.bulk import PlainMessage
from rmqctl.engine.write.flags import RunningFlag, RunningFlags
from rmqctl.engine.write.put import MessagePutter
from rmqctl.engine.write.stats import StoreStats
from rmqctl.errors import TopicNotAllowed
from rmqctl.operations.verify.run import verify
from tests.test_engine.test_messagestore import SMALL, is_clean

Message = MessageExtBrokerInner
LMQ = replace(SMALL, enable_lmq=True, enable_multi_dispatch=True)


def opened(root: Path, **changes: object) -> WritableStore:
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
            leave.wait(60)
            return real(*arguments)  # type: ignore[arg-type]

        store.writer._log.store = slow  # type: ignore[method-assign, assignment]
        putter = threading.Thread(target=store.put_message, args=[Message("T", b"slow")])
        putter.start()
        entered.wait(60)
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


def test_flags_are_told_by_name_and_bit() -> None:
    flags = RunningFlags()
    assert str(flags) == ""
    flags.make(RunningFlag.DISK_FULL)
    flags.make(RunningFlag.NOT_WRITEABLE)
    assert not flags.is_writeable
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


@pytest.mark.parametrize("waits", [True, False])
def test_slaves_are_waited_for_by_those_who_wait(tmp_path: Path, waits: bool) -> None:
    """``CommitLog#submitReplicaRequest`` asks nobody for a message with WAIT=false."""
    message = Message("T", b"x", properties={"WAIT": str(waits).lower()})
    with opened(tmp_path / "s", broker_role="SYNC_MASTER") as store:
        slaves = Slaves(PutMessageStatus.SLAVE_NOT_AVAILABLE)
        store.writer.replica = slaves
        assert store.put_message(message).is_ok != waits
        assert len(slaves.asked) == waits


# --- what is checked first ---------------------------------------------------------------

ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
EXCEEDED = PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
MOST = constants.MAX_PROPERTIES_LENGTH


@pytest.mark.parametrize(
    ("message", "status"),
    [
        # DefaultMessageStore#checkMessage sees the topic as it came, not the schedule topic.
        (Message("t" * 128, b"", properties={"DELAY": "1"}), ILLEGAL),
        (Message("t" * 127, b"", properties={"DELAY": "1"}), PutMessageStatus.PUT_OK),
        # It counts characters, before REAL_TOPIC and REAL_QID are added; the encoder bytes, after.
        (Message("T", b"", properties={"DELAY": "1", "a": "x" * (MOST - 11)}), EXCEEDED),
        (Message("T", b"", properties={"DELAY": "1", "a": "x" * (MOST - 2)}), ILLEGAL),
        (Message("T", b"", properties={"a": "x" * (MOST - 2)}), PutMessageStatus.PUT_OK),
        (Message("T", b"", properties={"a": "x" * (MOST - 1)}), ILLEGAL),
        (Message("T", b"", properties={"a": "é" * (MOST - 2)}), EXCEEDED),
        (Message("T", b"", properties={"a": "é" * (MOST - 1)}), ILLEGAL),
        # Java's characters are UTF-16 units: two for one beyond the first plane.
        (Message("T", b"", properties={"a": "😀" * (MOST // 2 - 1)}), EXCEEDED),
        (Message("T", b"", properties={"a": "😀" * (MOST // 2)}), ILLEGAL),
        (Message("T", b"", properties_bytes=b"a\x01" + b"x" * (MOST - 1)), ILLEGAL),
    ],
    ids=lambda value: value.name if isinstance(value, PutMessageStatus) else "",
)
def test_lengths_are_checked_as_they_came(
    tmp_path: Path, message: Message, status: PutMessageStatus
) -> None:
    config = {"mapped_file_size_commit_log": 1 << 18, "max_message_size": 1 << 17}
    with opened(tmp_path / "s", **config) as store:
        assert store.put_message(message).status is status
        (results,) = store.put_stream([message])
        assert results[0].status is status


@pytest.mark.parametrize("topic", ["a\udcff", "a\ud800", "\ud83d\ude00"])
def test_a_topic_that_its_record_cannot_name_is_refused(tmp_path: Path, topic: str) -> None:
    """Its queue would have another name than that by which a rebuild makes it."""
    with opened(tmp_path / "s", enable_multi_dispatch=True, enable_lmq=True) as store:
        for one in (Message(topic, b"x", properties={"TAGS": "a"}), light(f"%LMQ%{topic}")):
            with pytest.raises(TopicNotAllowed, match="UTF-8 cannot encode it"):
                store.put_message(one)
            with pytest.raises(TopicNotAllowed, match="UTF-8 cannot encode it"):
                list(store.append_stream([one]))
        assert store.max_offset == 0
    assert not (tmp_path / "s" / "consumequeue").exists()


def test_a_delay_that_no_broker_reads_is_refused(tmp_path: Path) -> None:
    """``Message#getDelayTimeLevel`` throws in the engine's put. A record of another store that has
    one in another topic stays what it is: nobody reads it again."""
    bad = Message("SCHEDULE_TOPIC_XXXX", b"x", properties={"DELAY": "two"})
    with opened(tmp_path / "s") as store:
        result = store.put_message(bad)
        assert result.status is ILLEGAL and "DELAY" in result.reason
        other = replace(bad, topic="T")
        bulks = store.put_stream([replace(other, was_stored=True), other, bad])
        statuses = [result.status for bulk in bulks for result in bulk]
        assert statuses == [PutMessageStatus.PUT_OK, ILLEGAL, ILLEGAL]
        assert store.put_message(replace(bad, properties={"DELAY": "2"})).is_ok
    assert is_clean(tmp_path / "s")


@pytest.mark.parametrize(
    ("level", "queue_id"),
    [
        *(("3", 2), ("+3", 2), ("0000000003", 2), ("٣", 2), ("18", 17), ("19", 17)),
        *(("1000000000", 17), ("2147483647", 17), ("0", None), ("-1", None), ("-2147483648", None)),
    ],
)
def test_a_delay_level_is_what_java_reads(tmp_path: Path, level: str, queue_id: int | None) -> None:
    """Confirmed with the engine of 4.9.3."""
    with opened(tmp_path / "s") as store:
        assert store.put_message(Message("T", b"x", properties={"DELAY": level})).is_ok
        (record,) = (one for one in store.commit_log.walk() if isinstance(one, Record))
    place = (record.topic, record.queue_id)
    assert place == (("T", 0) if queue_id is None else ("SCHEDULE_TOPIC_XXXX", queue_id))


@pytest.mark.parametrize("level", ["abc", " 3", "3 ", "9999999999", ""])
def test_a_delay_level_that_java_cannot_read(tmp_path: Path, level: str) -> None:
    message = Message("T", b"x", properties={"DELAY": level})
    with opened(tmp_path / "s") as store:
        assert store.put_message(message).status is ILLEGAL
        kind = constants.TRANSACTION_ROLLBACK_TYPE
        assert store.put_message(replace(message, sys_flag=kind)).is_ok
        result = store.put_batch([message, Message("T", b"x", properties={"DELAY": "3"})])
        assert result.is_ok, "nobody looks at it there"
        topics = {one.topic for one in store.commit_log.walk() if isinstance(one, Record)}
    assert topics == {"T"}


@pytest.mark.parametrize("name", ["born_host", "store_host"])
@pytest.mark.parametrize("port", [-1, 65536, 70000])
@pytest.mark.parametrize("address", [bytes(4), bytes(16)])
def test_a_port_that_no_client_decodes_is_refused(
    tmp_path: Path, name: str, port: int, address: bytes
) -> None:
    """Alone, and in a stream of messages of which the loop stores most itself."""
    bad, highest = Message("T", b"bad"), Message("T", b"x")
    setattr(bad, name, (address, port))
    setattr(highest, name, (address, 65535))
    plain = PlainMessage("T", 0, b"bad", b"", 0, 0, bad.born_host, bad.store_host, 0, 0)
    with opened(tmp_path / "s") as store:
        assert store.put_message(bad).status is ILLEGAL
        for one in (bad, plain) if len(address) == 4 else (bad,):
            bulk, _ = store.append_stream(iter([highest, highest, one, highest]))
            assert len(bulk.stored) == 2
            assert bulk.refused is not None and bulk.refused.status is ILLEGAL
            assert f"port {port} is not within 0 to 65535" in bulk.refused.reason
    assert is_clean(tmp_path / "s")


def test_the_light_queues_are_counted_before_the_message_is_encoded(tmp_path: Path) -> None:
    lmq = PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    cases = {"": lmq, "x" * 5000: lmq, "é" * 20_000: lmq, "x" * 40_000: ILLEGAL}
    with MessageStore(
        tmp_path / "s", replace(LMQ, max_lmq_consume_queue_num=0), writable=True, create=True
    ) as store:
        assert store.put_message(light("%LMQ%a")).is_ok
        for text, status in cases.items():
            message = light("%LMQ%a")
            message.properties["a"] = text
            assert store.put_message(message).status is status


def test_a_delay_level_is_stored_as_it_was_given(tmp_path: Path) -> None:
    """``setDelayTimeLevel`` is only called for one that is too high."""
    with opened(tmp_path / "s") as store:
        for text, stored in (("03", "03"), ("18", "18"), ("19", "18")):
            result = store.put_message(Message("T", b"", properties={"DELAY": text}))
            assert result.append is not None
            record = store.look_message_by_offset(result.append.wrote_offset)
            assert record.properties["DELAY"] == stored
            assert record.queue_id == int(stored) - 1


# --- further queues ----------------------------------------------------------------------


@pytest.mark.parametrize("is_of_5", [False, True], ids=["4.9.3", "5.x"])
def test_topics_whose_messages_5_x_puts_into_no_light_queues(tmp_path: Path, is_of_5: bool) -> None:
    """``MixAll#topicAllowsLMQ``, which 4.9.3 does not have; a delayed message gets its places when
    it is delivered."""
    root = tmp_path / "s"
    delayed = light("%LMQ%a")
    delayed.properties["DELAY"] = "3"
    sent = [
        light("%LMQ%a"),
        replace(light("%LMQ%a"), topic="%RETRY%group"),
        replace(light("%LMQ%a"), topic="rmq_sys_x"),
        delayed,
        # No prefix, and in capitals.
        replace(light("%LMQ%a"), topic="SCHEDULE_TOPIC_XXXX2"),
        replace(light("%LMQ%a"), topic="RMQ_SYS_TRANS_HALF_TOPIC"),
    ]
    with MessageStore(root, LMQ, writable=True, create=True) as store:
        store.writer.write_in(RecordForm(property_separator=is_of_5, long_topics=is_of_5))
        results = [store.put_message(one) for one in sent[:3]]
        results += next(store.put_stream(sent[3:]))
        offsets = [
            store.look_message_by_offset(one.stored.wrote_offset).properties.get(
                "INNER_MULTI_QUEUE_OFFSET"
            )
            for one in results
            if one.stored is not None
        ]
        queue = store.consume_queue("%LMQ%a", 0)
        assert queue is not None
        count = queue.max_offset
    assert (offsets, count) == (
        (["0", None, None, None, "1", "2"], 3) if is_of_5 else (["0", "1", "2", "3", "4", "5"], 6)
    )
    assert is_clean(root, LMQ)


def test_commas_alone_name_no_queue_but_rewrite_the_properties(tmp_path: Path) -> None:
    """``MultiDispatch#wrapMultiDispatch`` leaves only what ``isBlank`` takes as it is."""
    sent = {",": {"INNER_MULTI_QUEUE_OFFSET": ""}, ",,": {"INNER_MULTI_QUEUE_OFFSET": ""}}
    sent |= {" \t": {"WAIT": "true"}, "": {"WAIT": "true"}}
    for is_on in (True, False):
        changes = {"enable_lmq": is_on, "enable_multi_dispatch": is_on}
        with opened(tmp_path / f"{is_on}", **changes) as store:
            for names, added in sent.items():
                one = light(names)
                one.properties["WAIT"] = "true"
                stored = {"INNER_MULTI_DISPATCH": names} | (added if is_on else {"WAIT": "true"})
                results = [store.put_message(replace(one)) for _ in range(20)]  # And the kernel.
                results += next(iter(store.put_stream([replace(one)])))
                for result in results:
                    assert result.append is not None
                    record = store.look_message_by_offset(result.append.wrote_offset)
                    assert record.properties_bytes == encode_properties(stored)
        assert is_clean(tmp_path / f"{is_on}", store.config)


@pytest.mark.parametrize(
    ("topic", "offsets", "is_bad"),
    [
        ("T", "x,1", True),
        ("T", ",1", True),
        ("%RETRY%group", "1,9223372036854775808", True),
        ("T", "1,2", False),
        ("T", "x", False),  # Not as many as names: nobody reads it.
    ],
)
def test_offsets_at_which_a_broker_stops_dispatching(
    tmp_path: Path, topic: str, offsets: str, is_bad: bool
) -> None:
    """``notifyMessageArrive4MultiQueue`` reads them whatever the switches say. An append that goes
    to further queues gives other ones, a batch does not."""
    named = light("%LMQ%a,b")
    named.properties["INNER_MULTI_QUEUE_OFFSET"] = offsets
    named.topic = topic
    refused = PutMessageStatus.MESSAGE_ILLEGAL if is_bad else PutMessageStatus.PUT_OK
    for is_on in (False, True):
        with opened(tmp_path / f"{is_on}", enable_lmq=is_on, enable_multi_dispatch=is_on) as store:
            alone = PutMessageStatus.PUT_OK if is_on else refused
            for _ in range(20):  # The later ones meet the kernel.
                assert store.put_message(replace(named)).status is alone
            ((streamed,),) = store.put_stream([replace(named)])
            assert streamed.status is alone
            for _ in range(20):
                batched = store.put_batch([light("", b"other"), light("", b"x")])
                assert batched.status is PutMessageStatus.PUT_OK
            batched = store.put_batch([replace(named), replace(named)])
            assert batched.status is refused
            assert not is_bad or "INNER_MULTI_QUEUE_OFFSET" in batched.reason
        findings = list(verify(tmp_path / f"{is_on}", store.config))
        assert not [one for one in findings if getattr(one, "code", "") == "dispatch-stops"]
    with opened(tmp_path / "5.x") as store:
        store.writer.write_in(RecordForm(property_separator=True, long_topics=True))
        is_retry = topic.startswith("%RETRY%")
        status = PutMessageStatus.PUT_OK if is_retry else refused
        assert store.put_message(replace(named)).status is status


# --- the queues' files -------------------------------------------------------------------


def put_all_ways(store: MessageStore) -> int:
    """One by one, as a stream and in batches, over several files of two queues; how many."""
    for number in range(40):
        assert store.put_message(Message("T", b"x", number % 2)).is_ok
    for results in store.put_stream([Message("T", b"x", n % 2) for n in range(80)]):
        assert all(result.is_ok for result in results)
    for queue_id in (0, 1, 2):
        assert store.put_batch([Message("T", b"x", queue_id) for _ in range(20)]).is_ok
    return 180


@pytest.mark.parametrize("is_behind", [False, True], ids=["at once", "by a service"])
def test_a_queue_file_gets_its_name_with_its_first_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_behind: bool
) -> None:
    """A broker that starts on an empty one sees a unit there
    (``ConsumeQueue#truncateDirtyLogicFiles``): a kill must not leave it."""
    heads: list[bytes] = []
    real = writing._name

    def name(descriptor: int, *arguments: Any) -> None:
        if "consumequeue" in str(os.readlink(f"/proc/self/fd/{descriptor}")):
            heads.append(os.pread(descriptor, 20, 0))
        real(descriptor, *arguments)

    monkeypatch.setattr(writing, "_name", name)
    with opened(tmp_path / "s", mapped_file_size_consume_queue=200) as store:
        if is_behind:
            store.start()
        count = put_all_ways(store)
    assert len(heads) == count // 10 and all(map(any, heads))
    assert is_clean(tmp_path / "s", replace(SMALL, mapped_file_size_consume_queue=200))


def test_a_put_that_is_refused_or_killed_leaves_no_queue_file(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    root = tmp_path / "s"
    with MessageStore(root, LMQ, writable=True, create=True) as store:
        refusals = iter([False, True])
        real = filequeuewriter.MappedFileQueueWriter.reserve_ahead

        def reserve(*arguments: Any) -> None:
            if next(refusals):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(*arguments)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(filequeuewriter.MappedFileQueueWriter, "reserve_ahead", reserve)
            refused = store.put_message(light("%LMQ%a,%LMQ%b"))
        assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(store.writer._log, "store", kill)
            with pytest.raises(Killed):
                store.put_message(light("%LMQ%a"))
        store.abandon()
    assert [path for path in root.rglob("consumequeue/*/*/*") if path.is_file()] == []
    with MessageStore(root, LMQ, writable=True) as store:
        assert store.put_message(light("%LMQ%a")).is_ok
    assert is_clean(root, LMQ)


def test_a_file_system_without_unnamed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There files are made under their names, also those that room is made in beforehand."""
    monkeypatch.setattr(writing, "_open_unnamed", lambda directory: -1)
    with opened(tmp_path / "s", mapped_file_size_consume_queue=200) as store:
        count = put_all_ways(store)
        ends = [store.consume_queue("T", queue_id) for queue_id in (0, 1, 2)]
        assert sum(queue.max_offset for queue in ends if queue is not None) == count
    assert is_clean(tmp_path / "s", replace(SMALL, mapped_file_size_consume_queue=200))


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


def test_a_batch_refers_to_no_prepared_message(tmp_path: Path) -> None:
    """``MessageExtEncoder#encode`` writes 0 for a batch."""
    message = Message("T", b"x", prepared_transaction_offset=1234)
    plain = PlainMessage("T", 0, b"x", b"", 0, 0, message.born_host, message.store_host, 0, 1234)
    with opened(tmp_path / "s") as store:
        assert store.put_message(message).is_ok
        for _ in range(20):  # The later ones meet the kernel.
            assert store.put_batch([message, message]).is_ok
            assert store.writer.put_batch([plain, plain], flush=True).is_ok
        assert all(one.is_ok for one in store.put_messages([message] * 2, batch=True))
        found = [one for one in store.commit_log.walk() if isinstance(one, Record)]
    assert [one.prepared_transaction_offset for one in found] == [1234, *[0] * 82]


@pytest.mark.parametrize("other", [Message("U", b""), Message("T", b"", 1)])
def test_a_batch_is_of_one_queue(tmp_path: Path, other: Message) -> None:
    with opened(tmp_path / "s") as store:
        result = store.put_batch([Message("T", b""), other])
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL and "one queue" in result.reason
        assert store.max_offset == 0


def test_a_batch_of_nothing_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        assert store.put_batch([]).status is PutMessageStatus.MESSAGE_ILLEGAL
        assert store.put_messages([]) == []
    with MessageStore(tmp_path / "s", SMALL) as store:
        assert store.put_batch([]).status is PutMessageStatus.SERVICE_NOT_AVAILABLE


def test_a_value_that_no_record_can_hold_stops_the_whole_batch(tmp_path: Path) -> None:
    """Nothing of it may stay: its queue offsets are given to the messages after it."""
    with opened(tmp_path / "s") as store:
        assert store.put_message(Message("T", b"first")).is_ok
        with pytest.raises(struct.error):
            store.put_batch([Message("T", b"good"), Message("T", b"bad", flag=1 << 40)])
        assert store.put_message(Message("T", b"next")).append.queue_offset == 1  # type: ignore[union-attr]
        found = store.get_message("T", 0, 0).records
        assert [store.body(record) for record in found] == [b"first", b"next"]
    assert is_clean(tmp_path / "s")


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
        full.setattr(writing, "create_file", refuse)
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
        assert reput._tail.done == store.max_offset
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
def full_disk_after(store: WritableStore) -> Iterator[None]:
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
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends, "it never comes about"
        time.sleep(0.001)


def test_the_configuration_is_read_from_a_broker_conf() -> None:
    from rmqctl.engine.settings.storeconfig import parse_broker_conf
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
    refused = check_lengths(message, form)
    assert (refused is not None) == (len(topic) > 127 and not form.long_topics)
    if refused is not None:
        return
    encoded = encode(message, 65536, form)
    assert isinstance(encoded, EncodedMessage)
    record = encoded.record(0, 0, 0)
    assert encoded_size(message, form) == encoded.size == len(record)
    assert record.count(b"__CRC32#") == (form.property_crc or "__CRC32#" in properties)


# --- nothing of what is refused is done ----------------------------------------------------


def test_a_light_queue_that_is_no_directory_refuses_all_before_anything_is_stored(
    tmp_path: Path,
) -> None:
    good, bad = light("%LMQ%a"), light("%LMQ%a,../../x")
    with MessageStore(tmp_path / "s", LMQ, writable=True, create=True) as store:
        for batch in (False, True):
            with pytest.raises(TopicNotAllowed):
                store.put_messages([good, bad], batch=batch)
        assert store.max_offset == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


def test_a_batch_larger_than_a_log_file_or_a_message_is_refused(tmp_path: Path) -> None:
    """``MessageExtBatchEncoder``: the batch as a whole counts as a message."""
    for most, expected in ((1 << 20, 4096 - 8), (2000, 2000)):
        with opened(tmp_path / str(most), max_message_size=most) as store:
            size = encoded_size(Message("T", b""))
            fits = [Message("T", b"x" * (expected // 4 - size)) for _ in range(4)]
            refused = store.put_batch([*fits[:3], replace(fits[3], body=fits[3].body + b"xxxx")])
            assert refused.status is PutMessageStatus.MESSAGE_ILLEGAL
            assert f"{expected + 4} bytes" in refused.reason and store.max_offset == 0
            assert store.put_batch(fits).is_ok and store.max_offset == expected
        assert is_clean(tmp_path / str(most))


def test_a_store_that_begins_with_a_batch_has_a_checkpoint_first(tmp_path: Path) -> None:
    """A kill behind the first record leaves a store that a recovery begins at."""
    with opened(tmp_path / "s") as store:
        assert store.put_batch([Message("T", b"a"), Message("T", b"b")], flush=False).is_ok
        checkpoint = read_checkpoint(tmp_path / "s/checkpoint")
        assert checkpoint is not None
        first = store.look_message_by_offset(0).store_timestamp
        assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == first
        store.abandon()


def test_each_message_gets_an_answer_when_none_can_be_put(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        some = [Message("T", b"x"), Message("T", b"y")]
        assert all(result.is_ok for result in store.put_messages(some))
        store.writer.running_flags.make(RunningFlag.DISK_FULL)
        for results, count in (
            (store.put_messages(some), 2),
            (store.put_messages(some, batch=True), 1),
        ):
            assert [r.status for r in results] == [PutMessageStatus.SERVICE_NOT_AVAILABLE] * count
        assert store.writer.stats.put_message_failed_times == 3
        store.writer.running_flags.clear(RunningFlag.DISK_FULL)


def test_a_flush_dispatches_what_waits(tmp_path: Path) -> None:
    """Behind a service that has not come to it: what is forced to disk is complete."""
    with opened(tmp_path / "s") as store:
        store.start()
        with store._put_lock:
            assert store.put_message(Message("T", b"x"), flush=False).is_ok
            assert store.dispatch_behind_bytes == 93
            store.flush()
            queue = store.consume_queue("T", 0)
            assert store.dispatch_behind_bytes == 0
            assert queue is not None and queue.max_offset == 1
    assert is_clean(tmp_path / "s")


def test_behind_a_pool_a_message_is_in_its_queue_with_its_put(tmp_path: Path) -> None:
    """Dispatch reads files: what is in a buffer alone is committed before."""
    with opened(tmp_path / "s", transient_store_pool_enable=True) as store:
        for number in range(3):
            assert store.put_message(Message("T", b"%d" % number), flush=False).is_ok
            answer = store.get_message("T", 0, number)
            assert answer.status is GetMessageStatus.FOUND and answer.max_offset == number + 1
    assert is_clean(tmp_path / "s")


def test_only_a_synchronous_master_waits_for_slaves(tmp_path: Path) -> None:
    with opened(tmp_path / "s", broker_role="ASYNC_MASTER") as store:
        slaves = Slaves(PutMessageStatus.SLAVE_NOT_AVAILABLE)
        store.writer.replica = slaves
        assert store.put_message(Message("T", b"x")).is_ok
        assert slaves.asked == []


# --- interrupts --------------------------------------------------------------------------


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("pool", [False, True], ids=["map", "pool"])
def test_a_put_behind_an_interrupted_one_has_a_place_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: bool
) -> None:
    """The log has a message, and nobody has counted it: so the queue is asked again."""
    with opened(tmp_path / "store", transient_store_pool_enable=pool) as store:
        assert store.put_message(Message("T", b"0")).is_ok
        for body in (b"1", b"3"):
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(EncodedMessage, "msg_id", interrupted)
                store.put_message(Message("T", body))
            last = store.put_message(Message("T", b"x" + body)).append
            assert last is not None and last.queue_offset == int(body) + 1
        found = store.get_message("T", 0, 0)
        assert [one.queue_offset for one in found.records] == [0, 1, 2, 3, 4]
        assert last is not None and found.records[-1].physical_offset == last.wrote_offset


def test_nothing_of_an_interrupted_batch_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records stand behind the log's end, and the next one ends where its second begins."""
    with opened(tmp_path / "store") as store:
        for _ in range(storewriter._FEW_SINGLES + 1):
            assert store.put_batch([Message("T", b"a")]).is_ok
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(CommitLogWriter, "advance", interrupted)
            store.put_batch([Message("T", b"b")] * 3)
        assert store.put_message(Message("T", b"c")).is_ok
        end = store.max_offset
    with opened(tmp_path / "store") as store:
        assert store.max_offset == end
        queue = store.consume_queue("T", 0)
        assert queue is not None and queue.max_offset == storewriter._FEW_SINGLES + 2


def test_nothing_of_an_interrupted_longer_message_stands_behind_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body may look like records, with which the log would go on."""
    with opened(tmp_path / "store") as store:
        assert store.put_message(Message("T", b"a")).is_ok
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(CommitLogWriter, "advance", interrupted)
            store.put_message(Message("T", b"x" * 500))
        assert store.put_message(Message("T", b"c")).is_ok
        end = store.max_offset
    data = (tmp_path / "store" / "commitlog" / f"{0:020d}").read_bytes()
    assert not data[end:].strip(b"\0")
    assert is_clean(tmp_path / "store")


def test_items_of_an_interrupted_dispatch_hide_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They and their slots are stored, and not counted: a slot would seem to be empty."""
    keys = {"KEYS": "a b c d e"}
    with opened(tmp_path / "store") as store:
        assert store.put_message(Message("T", b"0", properties=keys)).is_ok
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(IndexFileWriter, "store_header", interrupted)
            store.put_message(Message("T", b"1", properties=keys))
        assert store.put_message(Message("T", b"2")).is_ok
        for key in "abcde":
            assert [hit.matches for hit in store.query_message("T", key)] == [True, True]
    assert is_clean(tmp_path / "store")


@pytest.mark.parametrize("by_kernel", [False, True])
def test_an_interrupt_at_the_very_end_of_a_put_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_kernel: bool
) -> None:
    """Python may raise it before the first line of ``__exit__``."""
    with opened(tmp_path / "store") as store:
        for _ in range((storewriter._FEW_SINGLES + 2) * by_kernel):
            assert store.put_message(Message("T", b"a")).is_ok
        before = store.max_offset
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(MessagePutter, "__exit__", interrupted)
            store.put_batch([Message("T", b"b")])
        assert store.max_offset > before
        assert store.put_batch([Message("T", b"c")]).is_ok
        assert store.put_message(Message("T", b"d")).is_ok
        other = threading.Thread(target=store.put_message, args=(Message("T", b"e"),), daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive()
        queue = store.consume_queue("T", 0)
        assert queue is not None
        last = range(queue.max_offset - 4, queue.max_offset)
        found = [store.get_message("T", 0, offset).records[0] for offset in last]
        assert [store.body(one) for one in found] == [b"b", b"c", b"d", b"e"]
    assert is_clean(tmp_path / "store")


def test_an_interrupt_on_the_way_to_a_file_closes_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be told as an error of the disk, and could close what another thread has opened."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").touch()
    close, closed = os.close, list[int]()

    def interrupted(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)
        if len(closed) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writing.open_for_writing(tmp_path, tmp_path / "a/b/file")
    assert len(closed) == len(set(closed)) == 2


@pytest.mark.parametrize("flush", [True, False])
def test_a_message_whose_index_items_have_no_room_is_told_to_be_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: bool
) -> None:
    """The first of its keys needs a new index file, which the disk has no room for."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with opened(tmp_path / "s", max_index_num=41) as store:
        for number in range(40):
            message = Message("T", b"x", properties={"KEYS": f"k{number}"})
            assert store.put_message(message, flush=flush).is_ok
        with monkeypatch.context() as patch:
            patch.setattr(IndexServiceWriter, "_new_file", full)
            last = Message("T", b"x", properties={"KEYS": "last"})
            result = store.put_message(last, flush=flush)
        assert not result.is_ok and result.reason.endswith("do not put it again")
        assert store.put_message(Message("T", b"x", properties={"KEYS": "next"})).is_ok
        assert len(list(store.query_message("T", "last"))) == 1
    assert is_clean(tmp_path / "s", replace(SMALL, max_index_num=41))
