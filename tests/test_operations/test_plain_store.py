"""A store of another one's messages: queues are filled where damage can have made a gap."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from formats import layouts
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.errors import CannotWrite
from rmqctl.operations.mend.plainstore import write_plain_store

CONFIG = parse_broker_conf("mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=6000\n")
QUEUE_OFFSET = next(
    one.offset for one in layouts.RECORD_PREFIX[0].fields if one.name == "queue_offset"
)


@pytest.mark.parametrize(("jump", "filled"), [(5, 5), (1 << 20, 0)])
def test_a_gap_is_filled_that_damage_can_have_made(tmp_path: Path, jump: int, filled: int) -> None:
    root, output = tmp_path / "store", tmp_path / "new"
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for _ in range(10):
            assert store.put_message(MessageExtBrokerInner("T", b"x" * 50)).is_ok
        records = [one for one in store.commit_log.walk() if isinstance(one, Record)]
    (log,) = (root / "commitlog").iterdir()
    with log.open("r+b") as file:
        # From the second to the sixth one nothing can be read, and the seventh says what it likes.
        for record in records[1:6]:
            file.seek(record.physical_offset)
            file.write(b"\xee" * record.total_size)
        for number, record in enumerate(records[6:]):
            file.seek(record.physical_offset + QUEUE_OFFSET)
            file.write(struct.pack(">q", 1 + jump + number))
    assert write_plain_store(root, CONFIG, output).messages == 5
    files = [one for one in (output / "consumequeue").rglob("*") if one.is_file()]
    assert sum(one.stat().st_blocks for one in files) * 512 < 1 << 20
    with MessageStore(output, CONFIG) as store:
        queue = store.consume_queue("T", 0)
        assert queue is not None
        assert queue.max_offset == (1 + filled + 4 if filled else 5)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_file_that_is_not_forced_to_disk_is_an_error_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Of two files of the log either one: it was closed, and then forced to disk again."""
    root, output = tmp_path / "store", tmp_path / "new"
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for _ in range(3):
            assert store.put_message(MessageExtBrokerInner("T", bytes(30_000))).is_ok
    calls = iter(range(100))
    fsync = os.fsync

    def refused(descriptor: int) -> None:
        if next(calls) == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refused)
        with pytest.raises(CannotWrite, match="Input/output error"):
            write_plain_store(root, CONFIG, output)
    assert sorted(tmp_path.iterdir()) == [root]
    assert write_plain_store(root, CONFIG, output).messages == 3
