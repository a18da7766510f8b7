"""The append of a stream where its short way would differ from a single put."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats import constants
from rmqctl.engine.derive.writer import DerivedWriter
from rmqctl.engine.files.filequeuewriter import MappedFileQueueWriter
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import UNIT_SIZE
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import parse_broker_conf

CONF = parse_broker_conf("mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=1000")


@pytest.mark.parametrize(
    "kind", [constants.TRANSACTION_PREPARED_TYPE, constants.TRANSACTION_ROLLBACK_TYPE]
)
def test_what_has_no_unit_may_be_the_first_of_its_queue(tmp_path: Path, kind: int) -> None:
    """More plain messages follow than a file of the queue has units."""
    first = MessageExtBrokerInner("t", b"x", sys_flag=kind)
    plain = [MessageExtBrokerInner("t", b"%d" % number) for number in range(120)]
    with MessageStore(tmp_path / "store", CONF, writable=True, create=True) as store:
        for bulk in store.append_stream([first, *plain]):
            assert bulk.refused is None
        queue = store.consume_queue("t", 0)
        assert queue is not None
        for offset, unit in queue.units(0, 120):
            record = store.commit_log.record_at(unit.physical_offset)
            assert (record.queue_offset, store.commit_log.body(record)) == (offset, b"%d" % offset)
        assert queue.max_offset == 120


def mapped_memory(directory: Path) -> int:
    """Bytes of this process's memory that are pages of files below a directory."""
    memory, is_below = 0, False
    for line in Path("/proc/self/smaps").read_text("utf-8").splitlines():
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            is_below = f" {directory}/" in line
        elif is_below and line.startswith("Rss:"):
            memory += int(line.split()[1]) << 10
    return memory


def test_what_a_stream_has_stored_takes_no_memory(tmp_path: Path) -> None:
    root, count = tmp_path / "store", 24_000
    keys = {"KEYS": " ".join(f"key{number}" for number in range(10))}
    messages = (
        MessageExtBrokerInner("t", b"x" * 1000, number % 2, properties=keys)
        for number in range(count)
    )
    with MessageStore(
        root, parse_broker_conf("maxHashSlotNum=100"), writable=True, create=True
    ) as store:
        assert sum(len(bulk.stored) for bulk in store.append_stream(messages)) == count
        log, items = store.max_offset, 20 * 10 * count
        assert log > 24 << 20 and items > 4 << 20
        # Of log, index and two queues what was stored last.
        assert mapped_memory(root) < 4 * (1 << 20) + (1 << 22)


def test_a_stream_lets_go_of_the_files_that_it_leaves(tmp_path: Path) -> None:
    """Each of a queue, and of the log, is smaller than what is let go of at once."""
    root, size = tmp_path / "store", 200_000
    config = parse_broker_conf(
        f"mappedFileSizeCommitLog={2 * size}\nmappedFileSizeConsumeQueue={size}\nmaxHashSlotNum=9"
    )
    with MessageStore(root, config, writable=True, create=True) as store:
        given = (MessageExtBrokerInner("T", b"", number % 2) for number in range(80_000))
        assert all(len(bulk) for bulk in store.put_stream(given, flush=False))
        queue = store.consume_queue("T", 1)
        assert queue is not None and len(queue.files.entries) == 4
        assert len(store.commit_log.files.entries) > 4
        room = 64 << 10
        assert mapped_memory(root / "consumequeue") <= 2 * size + room
        assert mapped_memory(root / "commitlog") <= 2 * size + room


def test_a_walk_lets_go_of_the_files_that_it_leaves(tmp_path: Path) -> None:
    """Each is smaller than what a walk lets go of at once."""
    root, size = tmp_path / "store", 4 << 20
    config = parse_broker_conf(f"mappedFileSizeCommitLog={size}")
    with MessageStore(root, config, writable=True, create=True) as store:
        given = (MessageExtBrokerInner("T", bytes(100_000)) for _ in range(150))
        assert all(len(bulk) for bulk in store.put_stream(given, flush=False))
    with MessageStore(root, config) as store:
        assert len(store.commit_log.files.entries) == 4
        for entry in store.commit_log.walk():
            if isinstance(entry, Record):
                mapped, position = store.commit_log.locate(entry.physical_offset)
                assert any(mapped.buffer[position : position + entry.total_size])
        assert mapped_memory(root / "commitlog") <= size


def test_a_stream_to_many_queues_has_few_of_them_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,024 descriptors, which a shell gives, each file takes two; and who lets go of one queue
    does not look at all that wait for units. In the last round each needs its next file."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    queues, rounds, file_size = 600, 3, UNIT_SIZE * 2
    asked = 0

    def is_ahead(files: MappedFileQueueWriter) -> bool:
        nonlocal asked
        asked += 1
        return bool(files._ahead)

    monkeypatch.setattr(MappedFileQueueWriter, "is_ahead", property(is_ahead))
    most_open = 0

    def given() -> Iterator[MessageExtBrokerInner]:
        nonlocal most_open
        for number in range(queues * rounds):
            if number % 8 == 0:
                most_open = max(most_open, len(os.listdir("/proc/self/fd")))
            yield MessageExtBrokerInner(f"T{number % queues}", b"")

    conf = f"mappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue={file_size}"
    with MessageStore(
        tmp_path / "store", parse_broker_conf(conf), writable=True, create=True
    ) as store:
        before = len(os.listdir("/proc/self/fd"))
        results = [one for bulk in store.put_stream(given(), flush=False) for one in bulk]
        assert all(result.is_ok for result in results) and len(results) == queues * rounds
        for number in range(queues):
            queue = store.consume_queue(f"T{number}", 0)
            assert queue is not None and queue.max_offset == rounds
    assert most_open - before < 800
    assert asked < 20 * queues * rounds


@pytest.mark.parametrize("count", [1, 5])
def test_a_bulk_without_room_in_its_queues_says_how_much_of_it_the_log_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    given = [MessageExtBrokerInner("t", b"%d" % number) for number in range(count)]
    with MessageStore(tmp_path / "store", CONF, writable=True, create=True) as store:
        assert store.put_message(MessageExtBrokerInner("t", b"first")).is_ok
        start = store.max_offset
        with monkeypatch.context() as full:
            for name in ("dispatch", "dispatch_run", "dispatch_batch"):
                full.setattr(DerivedWriter, name, refuse)
            (bulk,) = store.append_stream(given)
        assert bulk.refused is not None and not bulk.stored
        told = f"message (from {start} on)" if count == 1 else f"{count} messages from {start} on"
        assert f"The log has the {told}" in bulk.refused.reason
        queue = store.consume_queue("t", 0)
        assert queue is not None and queue.max_offset == 1
    with MessageStore(tmp_path / "store", CONF, writable=True) as store:
        queue = store.consume_queue("t", 0)
        assert queue is not None and queue.max_offset == 1 + count
