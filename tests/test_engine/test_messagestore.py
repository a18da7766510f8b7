"""MessageStore: statuses, limits, rolls, delays, batches, light queues, the end, opening."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from formats import constants
from rmqctl.engine.dispatch.multi import add_queue_offsets
from rmqctl.engine.files import mappedfile, writing
from rmqctl.engine.log.logwriter import CommitLogWriter
from rmqctl.engine.messagestore import MessageStore, WritableStore
from rmqctl.engine.record.message import EncodedMessage, MessageExtBrokerInner, encode, parse_host
from rmqctl.engine.record.record import BLANK, Blank, Damage, End, Record, offset_msg_id
from rmqctl.engine.record.status import GetMessageStatus, PutMessageStatus
from rmqctl.engine.settings.storeconfig import (
    MessageStoreConfig,
    load_broker_conf,
    parse_broker_conf,
)
from rmqctl.engine.start.logend import end_behind, find_end
from rmqctl.errors import (
    BrokerConfError,
    CannotWrite,
    DamagedStore,
    FileLengthContradiction,
    NotAStore,
    StoreNotFound,
    TopicNotAllowed,
)
from rmqctl.operations.verify import Summary, verify
from tests.golden_data import tree_content

SMALL = replace(
    MessageStoreConfig(),
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=10,
    max_index_num=50,
    max_message_size=3000,
    explicit=frozenset(("max_hash_slot_num", "max_index_num")),
)
Message = MessageExtBrokerInner


def small_store(
    root: Path, config: MessageStoreConfig = SMALL, *, start: int = 1_700_000_000_000
) -> WritableStore:
    times = iter(range(start, start + 10**6))
    return MessageStore(root, config, writable=True, create=True, clock=lambda: next(times))


def is_clean(root: Path, config: MessageStoreConfig = SMALL) -> bool:
    summary = list(verify(root, config))[-1]
    assert isinstance(summary, Summary)
    return summary.is_clean


# --- statuses and limits -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (Message("T", b"x"), PutMessageStatus.PUT_OK),
        (Message("t" * 127, b""), PutMessageStatus.PUT_OK),
        (Message("t" * 128, b""), PutMessageStatus.MESSAGE_ILLEGAL),
        (Message("中" * 42, b""), PutMessageStatus.PUT_OK),
        (Message("中" * 43, b""), PutMessageStatus.MESSAGE_ILLEGAL),  # 43 characters, 129 bytes
        (Message("T", b"", queue_id=-1), PutMessageStatus.MESSAGE_ILLEGAL),
        (Message("T", b"x" * (3000 - 92)), PutMessageStatus.PUT_OK),
        (Message("T", b"x" * (3000 - 91)), PutMessageStatus.MESSAGE_ILLEGAL),
        (Message("T", b"", properties={"a": "x" * 32766}), PutMessageStatus.MESSAGE_ILLEGAL),
        (
            Message("T", b"", properties={"a": "é" * 16383}),
            PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
        ),
    ],
)
def test_limits(tmp_path: Path, message: Message, status: PutMessageStatus) -> None:
    with small_store(tmp_path / "s") as store:
        before = store.max_offset
        result = store.put_message(message)
        assert result.status is status
        assert (result.append is not None) == result.is_ok
        assert bool(result.reason) != result.is_ok
        assert (store.max_offset > before) == result.is_ok
        # What was refused leaves no trace, and the next put goes on.
        assert store.put_message(Message("T", b"next")).is_ok
    assert is_clean(tmp_path / "s")


def test_the_longest_properties_are_stored(tmp_path: Path) -> None:
    config = replace(SMALL, mapped_file_size_commit_log=1 << 16, max_message_size=1 << 16)
    with small_store(tmp_path / "s", config) as store:
        result = store.put_message(Message("T", b"", properties={"a": "x" * 32765}))
        assert result.is_ok
        assert result.append is not None
        record = store.look_message_by_offset(result.append.wrote_offset)
        assert len(record.properties_bytes) == 32767
    assert is_clean(tmp_path / "s", config)


def test_a_message_larger_than_a_file_is_refused(tmp_path: Path) -> None:
    config = replace(SMALL, max_message_size=1 << 20)
    with small_store(tmp_path / "s", config) as store:
        assert store.put_message(Message("T", b"x" * (4096 - 8 - 92))).is_ok
        larger = store.put_message(Message("T", b"x" * (4096 - 7 - 92)))
        assert larger.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert "4088" in larger.reason
    assert len(list((tmp_path / "s/commitlog").iterdir())) == 1
    assert is_clean(tmp_path / "s", config)


def test_a_store_for_reading_and_a_closed_one_refuse(tmp_path: Path) -> None:
    with small_store(tmp_path / "s") as store:
        store.put_message(Message("T", b"x"))
    for closed in (MessageStore(tmp_path / "s", SMALL), store):
        result = closed.put_message(Message("T", b"x"))
        assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert result.reason
    assert is_clean(tmp_path / "s")


@pytest.mark.parametrize("topic", ["../x", "a/b", "..", ".", "a\0b", "a\\b"])
def test_a_topic_never_becomes_a_path(tmp_path: Path, topic: str) -> None:
    with small_store(tmp_path / "s") as store:
        store.put_message(Message("T", b"x"))
        before = tree_content(tmp_path)
        with pytest.raises(TopicNotAllowed):
            store.put_message(Message(topic, b"x"))
        multi = replace(SMALL, enable_multi_dispatch=True)
        assert tree_content(tmp_path) == before
    with small_store(tmp_path / "s", multi) as store, pytest.raises(TopicNotAllowed):
        store.put_message(Message("T", b"x", properties={"INNER_MULTI_DISPATCH": f"ok,{topic}"}))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]


def test_a_full_disk_is_a_status_and_the_store_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_store(tmp_path / "s") as store:
        assert store.put_message(Message("T", b"x", properties={"KEYS": "k"})).is_ok
        end = store.max_offset
        with monkeypatch.context() as full:
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            def refuse(*_: object) -> None:
                raise error

            full.setattr(os, "posix_fallocate", refuse)
            full.setattr(writing, "create_file", refuse)
            # A queue that has no file yet: nothing of the message may be stored.
            result = store.put_message(Message("New", b"y"))
            assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert "space" in result.reason
            assert store.max_offset == end
        assert store.put_message(Message("New", b"y")).is_ok
    assert is_clean(tmp_path / "s")


def test_the_next_file_cannot_be_made(tmp_path: Path) -> None:
    with small_store(tmp_path / "s") as store:
        assert store.put_message(Message("T", b"x" * 2000)).is_ok
        in_the_way = tmp_path / "s/commitlog" / f"{4096:020d}"
        in_the_way.mkdir()
        result = store.put_message(Message("T", b"x" * 2500))
        assert result.status is PutMessageStatus.CREATE_MAPEDFILE_FAILED
        in_the_way.rmdir()
        result = store.put_message(Message("T", b"x" * 2500))
        assert result.is_ok
        assert result.append is not None
        assert result.append.wrote_offset == 4096
    assert is_clean(tmp_path / "s")


# --- append ------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1, 7, 8, 9, 100])
def test_a_record_rolls_when_no_blank_would_fit_behind_it(tmp_path: Path, left: int) -> None:
    with small_store(tmp_path / "s") as store:
        first = store.put_message(Message("T", b"x" * 2900))
        assert first.append is not None
        size = 4096 - first.append.wrote_bytes - left
        second = store.put_message(Message("T", b"y" * (size - 92)))
        assert second.append is not None
        assert second.append.wrote_bytes == size
        rolled = left < 8
        assert second.append.wrote_offset == (4096 if rolled else first.append.wrote_bytes)
        entries = list(store.commit_log.walk())
    blanks = [entry for entry in entries if isinstance(entry, Blank)]
    wanted = Blank(first.append.wrote_bytes, 4096 - first.append.wrote_bytes)
    assert blanks == ([wanted] if rolled else [])
    assert is_clean(tmp_path / "s")


def test_a_batch_rolls_as_a_whole(tmp_path: Path) -> None:
    batch = [Message("T", bytes([n]) * 400) for n in range(5)]
    with small_store(tmp_path / "s") as store:
        store.put_message(Message("T", b"x" * 2000))
        results = store.put_messages(batch, batch=True)
        offsets = [r.append.wrote_offset for r in results if r.append is not None]
    # Two of them would have fitted into the first file.
    assert offsets == [4096 + n * 492 for n in range(5)]
    with small_store(tmp_path / "single") as store:
        store.put_message(Message("T", b"x" * 2000))
        singly = [r.append.wrote_offset for r in store.put_messages(batch) if r.append]
    assert singly[:2] == [2092, 2584]
    assert is_clean(tmp_path / "s")
    assert is_clean(tmp_path / "single")


@pytest.mark.parametrize(
    "batch",
    [
        [Message("T", b"x" * 1000)] * 3,
        [Message("T", b"x" * 2000)] * 3,
        [Message("T", b"x"), Message("T", b"y", sys_flag=constants.TRANSACTION_PREPARED_TYPE)],
        [Message("T", b"x"), Message("T" * 128, b"y")],
    ],
)
def test_a_batch_that_cannot_be_stores_nothing(tmp_path: Path, batch: list[Message]) -> None:
    with small_store(tmp_path / "s") as store:
        store.put_message(Message("T", b"x"))
        before = store.max_offset
        (result,) = store.put_messages(batch, batch=True)
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert result.reason
        assert store.max_offset == before
        assert len(store.commit_log.files.entries) == 1
        assert store.put_message(Message("T", b"next")).is_ok
    assert is_clean(tmp_path / "s")


@pytest.mark.parametrize(
    ("level", "queue_id", "delay"),
    [("1", 0, 1_000), ("3", 2, 10_000), ("18", 17, 7_200_000), ("99", 17, 7_200_000)],
)
def test_a_delayed_message_goes_to_the_schedule(
    tmp_path: Path, level: str, queue_id: int, delay: int
) -> None:
    with small_store(tmp_path / "s") as store:
        result = store.put_message(Message("T", b"x", 5, properties={"DELAY": level, "TAGS": "a"}))
        assert (result.topic, result.queue_id) == ("SCHEDULE_TOPIC_XXXX", queue_id)
        assert result.append is not None
        record = store.look_message_by_offset(result.append.wrote_offset)
        assert record.properties["REAL_TOPIC"] == "T"
        assert record.properties["REAL_QID"] == "5"
        assert record.properties["DELAY"] == str(queue_id + 1)
        queue = store.consume_queue("SCHEDULE_TOPIC_XXXX", queue_id)
        assert queue is not None
        unit = queue.unit(0)
        assert unit is not None
        assert unit.tags_code == record.store_timestamp + delay
    assert is_clean(tmp_path / "s")


@pytest.mark.parametrize("level", ["0", "-1"])
def test_what_is_no_delay_level_delays_nothing(tmp_path: Path, level: str) -> None:
    with small_store(tmp_path / "s") as store:
        assert store.put_message(Message("T", b"x", properties={"DELAY": level})).topic == "T"


def test_prepared_and_rollback_have_no_unit_and_no_delay(tmp_path: Path) -> None:
    kinds = (
        constants.TRANSACTION_PREPARED_TYPE,
        constants.TRANSACTION_COMMIT_TYPE,
        constants.TRANSACTION_ROLLBACK_TYPE,
    )
    with small_store(tmp_path / "s") as store:
        for kind in (0, *kinds, *kinds):
            delay = {} if kind in (0, kinds[1]) else {"DELAY": "2"}
            message = Message(
                "T", b"x", sys_flag=kind, properties={"UNIQ_KEY": f"u{kind}", **delay}
            )
            result = store.put_message(message)
            assert result.topic == "T"
            assert result.append is not None
            record = store.look_message_by_offset(result.append.wrote_offset)
            if kind in (kinds[0], kinds[2]):
                assert record.queue_offset == 0
        queue = store.consume_queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 3
        found = {k: len(list(store.query_message("T", f"u{k}"))) for k in (0, *kinds)}
        assert found == {0: 1, kinds[0]: 2, kinds[1]: 2, kinds[2]: 0}
    assert is_clean(tmp_path / "s")


def test_light_queues_count_for_themselves(tmp_path: Path) -> None:
    config = replace(SMALL, enable_lmq=True, enable_multi_dispatch=True)
    with small_store(tmp_path / "s", config) as store:
        for names in ("%LMQ%a,%LMQ%b", "%LMQ%b", "%LMQ%b,extra"):
            properties = {"INNER_MULTI_DISPATCH": names, "WAIT": "true", "TAGS": "t"}
            result = store.put_message(Message("T", b"x", 3, properties=properties))
            assert result.append is not None
            record = store.look_message_by_offset(result.append.wrote_offset)
            assert "WAIT" not in record.properties
        assert record.properties["INNER_MULTI_QUEUE_OFFSET"] == "2,0"
        ends: dict[tuple[str, int], int] = {}
        for topic, queue_id in [(q.topic, q.queue_id) for q in store.queues.directories()]:
            queue = store.consume_queue(topic, queue_id)
            assert queue is not None
            ends[topic, queue_id] = queue.max_offset
    assert ends == {("%LMQ%a", 0): 1, ("%LMQ%b", 0): 3, ("T", 3): 3, ("extra", 3): 1}
    assert is_clean(tmp_path / "s", config)


def test_message_ids_of_ipv6_hosts_have_56_characters(tmp_path: Path) -> None:
    with small_store(tmp_path / "s") as store:
        ids = []
        for born, stored in (("1.2.3.4:5", "[::1]:10911"), ("[fe80::9]:1", "9.8.7.6:10911")):
            message = Message("T", b"x", born_host=parse_host(born), store_host=parse_host(stored))
            result = store.put_message(message)
            assert result.append is not None
            record = store.look_message_by_offset(result.append.wrote_offset)
            assert (record.born_host, record.store_host) == (born, stored)
            assert record.msg_id == result.append.msg_id
            ids.append(record.msg_id)
    assert ids[0] == "00" * 15 + "01" + "00002A9F" + "00" * 8
    assert ids[1] == "09080706" + "00002A9F" + f"{record.physical_offset:016X}"
    assert [len(i) for i in ids] == [56, 32]
    assert offset_msg_id(bytes(16), 0, 0) == "0" * 56
    assert is_clean(tmp_path / "s")


@pytest.mark.parametrize(
    "text", ["1.2.3.4", "::1:5", "[1.2.3.4]:5", "1.2.3.4:-1", "x:1", "1.2.3.4:٣"]
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ValueError):
        parse_host(text)


def test_what_was_put_is_pulled(tmp_path: Path) -> None:
    """Over rolls of queue and log."""
    with small_store(tmp_path / "s") as store:
        bodies = [b"%d" % n * (n % 90) for n in range(60)]
        for body in bodies:
            store.put_message(Message("T", body), flush=False)
        offset, found = 0, []
        while (answer := store.get_message("T", 0, offset)).status is GetMessageStatus.FOUND:
            found += [store.body(record) for record in answer.records]
            offset = answer.next_begin_offset
        assert answer.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    assert found == bodies
    assert is_clean(tmp_path / "s")


# --- opening, closing, recovery ------------------------------------------------------------


def test_abort_is_there_while_writing_and_gone_after(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with small_store(root) as store:
        store.put_message(Message("T", b"x"))
        assert (root / "abort").exists()
    assert not (root / "abort").exists()
    store = small_store(root)
    store.put_message(Message("T", b"y"))
    store.abandon()
    assert (root / "abort").exists()
    # What the crash left is brought in order by opening, so that closing is a clean stop.
    small_store(root).close()
    assert not (root / "abort").exists()


@pytest.mark.parametrize("lost", ["nothing", "units", "a queue file", "all queues", "index"])
def test_what_a_killed_writer_left_undispatched_is_dispatched(tmp_path: Path, lost: str) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for root in (whole, killed):
        with small_store(root) as store:
            for n in range(12):
                message = Message("TU"[n % 2], b"x" * n * 40, properties={"KEYS": f"k{n}"})
                store.put_message(message)
    (killed / "abort").touch()
    if lost == "units":
        path = killed / "consumequeue/T/0" / f"{0:020d}"
        path.write_bytes(path.read_bytes()[:80].ljust(200, b"\0"))
    elif lost == "a queue file":
        (killed / "consumequeue/T/0" / f"{0:020d}").unlink()
    elif lost == "all queues":
        for path in (killed / "consumequeue").rglob("0*0"):
            path.unlink()
    elif lost == "index":
        for path in (killed / "index").iterdir():
            path.unlink()
    small_store(killed).close()
    assert tree_content(killed / "consumequeue") == tree_content(whole / "consumequeue")
    if lost != "index":
        wanted = [c for _, c in sorted(tree_content(whole / "index").items())]
        assert [c for _, c in sorted(tree_content(killed / "index").items())] == wanted


def test_a_wrong_place_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound):
        MessageStore(tmp_path / "none")
    with pytest.raises(NotAStore):
        MessageStore(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(NotAStore):
        MessageStore(tmp_path / "file")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_a_wrong_place_near_a_store_is_told_which_was_meant(tmp_path: Path) -> None:
    root = tmp_path / "around" / "store"
    with small_store(root) as store:
        store.put_message(Message("T", b"x", properties={"KEYS": "k"}))
    (unit_file,) = (root / "consumequeue/T/0").iterdir()
    for place in (root / "commitlog", root / "consumequeue/T/0", unit_file):
        with pytest.raises(NotAStore, match=f"but lies in the store {root}\\. Give the directory"):
            MessageStore(place)
    with pytest.raises(NotAStore, match=f"but {root} is a store\\. Give the directory"):
        MessageStore(root.parent)
    (root.parent / "other/consumequeue").mkdir(parents=True)
    with pytest.raises(NotAStore, match=r"or checkpoint\. Give"):  # Which of the two?
        MessageStore(root.parent)


def test_a_contradiction_with_the_settings_changes_nothing(tmp_path: Path) -> None:
    with small_store(tmp_path / "s") as store:
        store.put_message(Message("T", b"x", properties={"KEYS": "k"}))
    before = tree_content(tmp_path / "s")
    for text in ("mappedFileSizeCommitLog=8192", "mapedFileSizeConsumeQueue=400", "maxIndexNum=7"):
        with pytest.raises(FileLengthContradiction):
            MessageStore(tmp_path / "s", parse_broker_conf(text), writable=True)
    assert tree_content(tmp_path / "s") == before


# --- where the log ends --------------------------------------------------------------------


def record_at(offset: int, *, body: bytes = b"x" * 50, time: int = 1_700_000_000_000) -> bytes:
    encoded = encode(Message("T", body), 1 << 20)
    assert isinstance(encoded, EncodedMessage)
    return encoded.record(0, offset, time)


def log_of(directory: Path, *files: bytes, size: int = 4096) -> CommitLogWriter:
    directory.mkdir(exist_ok=True)
    for number, data in enumerate(files):
        (directory / f"{number * size:020d}").write_bytes(data.ljust(size, b"\0"))
    return CommitLogWriter(directory, size, directory)


SIZE = len(record_at(0))


def test_the_end_behind_whole_records(tmp_path: Path) -> None:
    log = log_of(tmp_path / "c", record_at(0) + record_at(SIZE))
    assert find_end(log, [])[::2] == (2 * SIZE, None)
    assert find_end(log, [(0, SIZE)])[::2] == (2 * SIZE, None)
    assert find_end(log, [(SIZE, SIZE), (5000, 9)])[::2] == (2 * SIZE, None)
    assert list(log.walk())[-1] == End(2 * SIZE)
    log.close()


@pytest.mark.parametrize("cut", [1, 4, 8, 20, 40, 91, 100, SIZE - 4])
def test_a_torn_last_record_is_the_end(tmp_path: Path, cut: int) -> None:
    torn = record_at(SIZE, body=b"y" * 50)[:cut]
    log = log_of(tmp_path / "c", record_at(0) + torn)
    end = find_end(log, [(0, SIZE)])
    assert (end.offset, end.obstacle) == (SIZE, None)
    log.start_writing(end)
    log.close()


def test_a_flipped_body_in_the_last_record_is_the_end(tmp_path: Path) -> None:
    data = bytearray(record_at(0) + record_at(SIZE))
    data[SIZE + 90] ^= 1
    log = log_of(tmp_path / "c", bytes(data))
    assert find_end(log, [])[::2] == (SIZE, None)
    log.close()


def test_stale_records_behind_the_end_are_written_over(tmp_path: Path) -> None:
    old = record_at(2 * SIZE + 7, time=1_600_000_000_000)
    log = log_of(tmp_path / "c", record_at(0) + record_at(SIZE) + b"garbage" + old)
    assert find_end(log, [])[::2] == (2 * SIZE, None)
    log.close()


def test_newer_records_behind_damage_are_an_obstacle(tmp_path: Path) -> None:
    new = record_at(2 * SIZE, time=1_700_000_000_001)
    log = log_of(tmp_path / "c", record_at(0) + b"\xff" * SIZE + new)
    end = find_end(log, [(0, SIZE)])
    assert isinstance(end.obstacle, Damage)
    assert (end.offset, end.obstacle.reason) == (SIZE, "bad-magic")
    with pytest.raises(DamagedStore, match="newer records"):
        log.start_writing(end)
    # A unit behind the damage proves that the log goes on.
    assert find_end(log, [(2 * SIZE, SIZE)])[::2] == (3 * SIZE, None)
    log.close()


@pytest.mark.parametrize("length", [4096 - SIZE, 4096 - SIZE - 1])
def test_a_blank_with_nothing_behind_it(tmp_path: Path, length: int) -> None:
    """A start ends the log before a blank that leads to no file, and before one of a wrong length;
    with a new file behind it, there."""
    blank = BLANK.pack(length, constants.BLANK_MAGIC_CODE)
    log = log_of(tmp_path / "c", record_at(0) + blank)
    for newest in ([(0, SIZE)], []):
        assert find_end(log, newest)[::2] == (SIZE, None)
    assert end_behind(log, 0, 0)[::2] == end_behind(log, SIZE, 0)[::2] == (SIZE, None)
    log.close()
    log = log_of(tmp_path / "d", record_at(0) + blank, b"")
    assert end_behind(log, 0, 0)[::2] == find_end(log, [(0, SIZE)])[::2] == (4096, None)
    if length == 4096 - SIZE:
        assert [type(e) for e in log.walk()] == [Record, Blank, End]
    log.close()
    new = record_at(4096, time=1_700_000_000_001)
    log = log_of(tmp_path / "e", record_at(0) + blank, new)
    for end in (find_end(log, [(0, SIZE)]), end_behind(log, 0, 0)):
        assert end == (4096 + SIZE, 1_700_000_000_001, None)
    log.close()


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("size", [SIZE, 2 * SIZE])
def test_a_put_takes_the_place_of_a_blank_with_nothing_behind_it(
    tmp_path: Path, size: int, abort: bool
) -> None:
    """If it fits there with a blank of its own; else the blank stays, and leads to the next
    file."""
    root = tmp_path / "s"
    with MessageStore(root, SMALL, writable=True, create=True) as store:
        assert store.put_message(Message("T", b"x" * 2000)).is_ok
        left = 4096 - store.max_offset
        assert store.put_message(Message("T", bytes(left - 2 * SIZE - 20 + 50))).is_ok
        end = store.max_offset
    (path,) = (root / "commitlog").iterdir()
    with path.open("r+b") as file:
        file.seek(end)
        file.write(BLANK.pack(4096 - end, constants.BLANK_MAGIC_CODE))
    if abort:
        (root / "abort").touch()
    before = path.read_bytes()
    with MessageStore(root, SMALL) as store:
        assert store.max_offset == store.start_plan().end.offset == end
    summary = list(verify(root, SMALL))[-1]
    assert isinstance(summary, Summary) and summary.max_offset == end
    with MessageStore(root, SMALL, writable=True) as store:
        assert store.max_offset == end
        append = store.put_message(Message("T", bytes(size - SIZE + 50))).append
        assert append is not None and append.wrote_bytes == size
        assert append.wrote_offset == (end if size == SIZE else 4096)
        assert store.max_offset == append.wrote_offset + size
    assert (path.read_bytes() == before) == (size > SIZE)
    assert is_clean(root)


def test_an_empty_log_and_none(tmp_path: Path) -> None:
    assert find_end(log_of(tmp_path / "c"), []).offset == 0
    assert find_end(log_of(tmp_path / "d", b""), []).offset == 0


@pytest.mark.parametrize("queues", [True, False])
def test_opening_200_sparse_files_touches_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queues: bool
) -> None:
    """200 commit log files of 1 GiB: what is opened and touched does not grow with them.

    With queues it is opened for a put. Without, only to find the end: a writer would have to
    dispatch the whole log again.

    Touched memory is counted as page faults: to read one file alone would be 262,144 pages (or
    16,384 faults, where the kernel maps 16 pages at a time).
    """
    root, file_size = tmp_path / "s", 1 << 30
    with MessageStore(root, writable=True, create=True) as store:
        store.put_message(Message("T", b"x"))
    start = file_size * 199
    names = [f"{n * file_size:020d}" for n in range(200)]
    for number, name in enumerate(names):
        path = root / "commitlog" / name
        path.write_bytes(record_at(number * file_size, time=1_700_000_000_000 + number))
        os.truncate(path, file_size)
    for path in (root / "consumequeue").rglob("0*0"):
        if queues:
            with path.open("r+b") as file:
                file.write(start.to_bytes(8, "big") + SIZE.to_bytes(4, "big") + bytes(8))
        else:
            path.unlink()
    opened: list[str] = []
    real = mappedfile.MappedFile.__init__

    def counting(self: mappedfile.MappedFile, path: Path, *rest: object) -> None:
        opened.append(path.parent.name)
        real(self, path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(mappedfile.MappedFile, "__init__", counting)
    faults = resource.getrusage(resource.RUSAGE_SELF)
    with MessageStore(root, writable=queues) as opened_store:
        assert opened_store.max_offset == start + SIZE
        now = resource.getrusage(resource.RUSAGE_SELF)
        assert opened.count("commitlog") <= 2
        assert now.ru_minflt + now.ru_majflt - faults.ru_minflt - faults.ru_majflt < 4000
        if queues:
            result = opened_store.put_message(Message("T", b"next"), flush=False)
            assert result.append is not None
            assert result.append.wrote_offset == start + SIZE


# --- broker.conf ---------------------------------------------------------------------------


def test_broker_conf_is_read_as_java_properties(tmp_path: Path) -> None:
    text = """
# a comment
! another
brokerClusterName = DefaultCluster
mappedFileSizeCommitLog=65536
mapedFileSizeConsumeQueue : 1001
  enableLmq = TRUE
maxIndexNum=7
messageDelayLevel=1s 2m 3h 4d
"""
    (tmp_path / "broker.conf").write_text(text)
    config = load_broker_conf(tmp_path / "broker.conf")
    assert config.mapped_file_size_commit_log == 65536
    assert config.mapped_file_size_consume_queue == 1020  # rounded up to whole units
    assert config.enable_lmq
    assert config.index_geometry == (5_000_000, 7)
    assert config.delay_levels() == [1_000, 120_000, 10_800_000, 345_600_000]
    assert config.is_explicit("enable_lmq")
    assert not config.is_explicit("max_hash_slot_num")
    assert parse_broker_conf("") == MessageStoreConfig()


def test_the_default_delay_levels() -> None:
    levels = MessageStoreConfig().delay_levels()
    assert (len(levels), levels[0], levels[-1]) == (18, 1000, 7_200_000)


@pytest.mark.parametrize(
    "line",
    [
        "maxIndexNum=0",
        "maxIndexNum=-1",
        "maxIndexNum=x",
        "mappedFileSizeCommitLog=1G",
        "enableLmq=yes",
        "maxHashSlotNum=2147483648",
    ],
)
def test_a_bad_value_names_its_line(line: str) -> None:
    with pytest.raises(BrokerConfError, match="line 2"):
        parse_broker_conf(f"brokerName=a\n{line}")


def test_what_is_taken_out_of_a_map_leaves_its_room() -> None:
    """A table of 16 grows at the thirteenth name, which WAIT or DELAY may be, and stays as it is:
    by that go the places of the others. The bytes are those of 4.9.3."""
    names = [f"n{number}" for number in range(100, 110)]
    properties = dict.fromkeys(names, "v") | {"INNER_MULTI_DISPATCH": "%LMQ%one"}
    rest = b"".join(b"\2n%d\1v" % n for n in (100, 103, 104, 101, 102, 107, 108, 105, 106, 109))
    grown = b"INNER_MULTI_DISPATCH\1%LMQ%one\2INNER_MULTI_QUEUE_OFFSET\1" + b"7" + rest
    waits = MessageExtBrokerInner("T", b"x", properties=properties | {"WAIT": "true"})
    cleared = MessageExtBrokerInner("T", b"x", properties=properties, cleared=("DELAY",))
    for message in (waits, cleared):
        stored = add_queue_offsets(message, [7])
        assert stored.properties_bytes == grown and "WAIT" not in stored.properties
    small = add_queue_offsets(MessageExtBrokerInner("T", b"x", properties=properties), [7])
    assert small.properties_bytes is not None and not small.properties_bytes.startswith(b"INNER")


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("1s 2m", [1000, 120_000]),
        ("+5s -5s 1s ", [5000, -5000, 1000]),
        ("9223372036854775807d", [-86_400_000]),  # A product of Java.
        *((text, None) for text in ("1s 2x", "1s  5s", "1s\t2s", "5", "s", "1.5s", "1S")),
    ],
)
def test_delay_levels_are_read_as_a_broker_reads_them(text: str, levels: list[int] | None) -> None:
    """``ScheduleMessageService#parseDelayLevel``: 4.9.3 does not start where one is none."""
    config = replace(MessageStoreConfig(), message_delay_level=text)
    if levels is None:
        with pytest.raises(BrokerConfError, match="messageDelayLevel"):
            config.delay_levels()
    else:
        assert config.delay_levels() == levels


def test_a_bad_delay_level_and_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(BrokerConfError, match="messageDelayLevel"):
        parse_broker_conf("messageDelayLevel=1s 2x").delay_levels()
    with pytest.raises(BrokerConfError):
        load_broker_conf(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"brokerName=\xff\xfe")
    # Java's Properties take any byte for a character.
    assert load_broker_conf(tmp_path / "binary").broker_name == "\xff\xfe"


@pytest.mark.parametrize("is_free_again", [True, False])
@pytest.mark.parametrize("abort", [True, False])
def test_a_catch_up_that_fails_is_ended_by_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abort: bool, is_free_again: bool
) -> None:
    """The disk is full for a while, or longer: what was not dispatched stays noted."""
    root = tmp_path / "s"
    with small_store(root) as store:
        for number in range(30):
            store.put_message(Message("T", b"%d" % number, properties={"KEYS": f"k{number}"}))
    for derived in ("consumequeue", "index"):
        shutil.rmtree(root / derived)
    if abort:
        (root / "abort").touch()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = MessageStore(root, SMALL, writable=True, catches_up=False)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(CannotWrite):
            store.catch_up()
        if not is_free_again:
            with pytest.raises(CannotWrite):
                store.close()
    store.close()
    assert (root / "abort").exists() == (not is_free_again)
    if not is_free_again:
        MessageStore(root, SMALL, writable=True).close()
    with MessageStore(root, SMALL) as found:
        queue = found.consume_queue("T", 0)
        assert queue is not None and queue.max_offset == 30
    assert is_clean(root)


@pytest.mark.parametrize("writable", [False, True])
def test_a_closed_store_answers_nothing(writable: bool, tmp_path: Path) -> None:
    """Python's own error, as of a closed file; closing twice is nothing."""
    sent = MessageExtBrokerInner("t", b"body", properties={"KEYS": "k"})
    with MessageStore(tmp_path, writable=True, create=True) as written:
        assert written.put_message(sent).is_ok
    with MessageStore(tmp_path, writable=writable) as store:
        record = store.look_message_by_offset(0)
        assert store.body(record) == b"body"
    asked: list[Callable[[], object]] = [
        lambda: store.get_message("t", 0, 0),
        lambda: store.consume_queue("t", 0),
        lambda: store.look_message_by_offset(0),
        lambda: store.body(record),
        lambda: list(store.query_message("t", "k")),
        lambda: store.check_message(sent),
    ]
    for ask in asked:
        with pytest.raises(ValueError, match="is closed"):
            ask()
    store.close()
