"""The append of a stream where its short way would differ from a single put."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from formats import constants
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
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
