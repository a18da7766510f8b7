"""What the kernel asks for while what it has made is stored: queues, and disk space in the log."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from rmqctl import kernel
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from rmqctl.engine.write import compiled
from rmqctl.engine.write.bulk import Message
from rmqctl.engine.write.compiled import CompiledAppender
from rmqctl.engine.write.put import MessagePutter
from rmqctl.operations.change.putstream import BulkPut, put_lines
from tests.test_kernel.alike import assert_alike, files_of
from tests.test_kernel.putlines import Blocks
from tests.test_kernel.test_messages import Broken, as_plain
from tests.test_kernel.test_single import NOW

pytestmark = pytest.mark.usefixtures("compiled")

#: Of these a queue's file ends amid a bulk, and so does the disk space that the log has.
MANY_FILES = parse_broker_conf(
    "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=100\nmaxIndexNum=50000\n"
    "mappedFileSizeConsumeQueue=6000"
)


def of_queues_that_come_and_go(count: int) -> list[Message]:
    """A queue that gets most of each 300, one that comes and goes, and some of a few messages."""
    topics = ["most" if n % 3 else "then" if n // 300 % 2 else f"few{n % 7}" for n in range(count)]
    return [
        as_plain(MessageExtBrokerInner(topic, b"x" * 300, 0, properties={"KEYS": f"k{n}"}))
        for n, topic in enumerate(topics)
    ]


def test_queues_are_let_in_while_others_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stops for a queue, the end of its disk space, or that of the log's; only where a file
    ends, or a queue is new, a single put has its turn."""
    monkeypatch.setattr(compiled, "_BULK_RECORDS", 300)
    monkeypatch.setattr(compiled, "_RESERVE", 1 << 14)
    messages = of_queues_that_come_and_go(2400)
    calls: Counter[str] = Counter()

    def put(choice: str) -> Any:
        monkeypatch.setenv(kernel.VARIABLE, choice)
        with TemporaryDirectory() as directory:
            root = Path(directory) / "store"
            clock = {"clock": lambda: NOW}
            with MessageStore(root, MANY_FILES, writable=True, create=True, **clock) as store:
                bulks = store.put_stream(iter(messages), flush=False)
                answers = [result.stored for bulk in bulks for result in bulk]
                places = [(one.wrote_offset, one.queue_offset) for one in answers if one]
            return places, files_of(root)

    def counted(name: str) -> None:
        own = getattr(CompiledAppender, name)

        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return own(*arguments)

        monkeypatch.setattr(CompiledAppender, name, call)

    for name in ("_admit", "_reserve", "_take"):
        counted(name)
    assert_alike(put)
    files, queues = 1, 9
    assert calls["_admit"] > 50 and calls["_reserve"] > 10
    assert calls["_take"] <= 2400 // 300 + files + queues


def test_a_queue_is_asked_for_space_again_where_its_space_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not by each bulk: with more queues than stay open, each question opens the queue's file."""
    monkeypatch.setattr(compiled, "_BULK_RECORDS", 50)
    own, asked = MessagePutter.reserve_units, Counter[str]()

    def call(putter: MessagePutter, key: tuple[str, int], queue_offset: int) -> int:
        asked[key[0]] += 1
        return own(putter, key, queue_offset)

    monkeypatch.setattr(MessagePutter, "reserve_units", call)
    sent = [as_plain(MessageExtBrokerInner(f"t{n % 10}", b"x", 0)) for n in range(1000)]
    with MessageStore(tmp_path / "s", MANY_FILES, writable=True, create=True) as store:
        results = [one for bulk in store.put_stream(iter(sent), flush=False) for one in bulk]
        assert all(one.is_ok for one in results) and len(results) == 1000
    assert len(asked) == 10 and max(asked.values()) <= 2


@pytest.mark.parametrize(("name", "at"), [("_admit", 8), ("_reserve", 2)])
@pytest.mark.parametrize("is_lines", [False, True])
def test_an_error_of_who_is_asked_while_others_are_stored(
    name: str, at: int, is_lines: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It ends the stream, and everything before it is stored and told of."""
    monkeypatch.setattr(compiled, "_RESERVE", 1 << 14)
    own, calls = getattr(CompiledAppender, name), iter(range(99))

    def fails(*arguments: Any) -> Any:
        if next(calls) == at:
            raise Broken
        return own(*arguments)

    monkeypatch.setattr(CompiledAppender, name, fails)
    sent = of_queues_that_come_and_go(2400)
    rows = [{"topic": one.topic, "keys": f"k{n}", "body": "x" * 300} for n, one in enumerate(sent)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    told = 0
    with MessageStore(tmp_path / "s", MANY_FILES, writable=True, create=True) as store:
        with pytest.raises(Broken):
            if is_lines:
                run = BulkPut("lines")
                for bulk in put_lines(store, Blocks([lines]), run, flush=False):
                    told += len(list(bulk))
            else:
                for stored in store.put_stream(sent, flush=False):
                    told += sum(result.is_ok for result in stored)
        assert 0 < told < 2400 and store.dispatch_behind_bytes == 0
        records = [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]
        assert [record.topic for record in records] == [one.topic for one in sent[:told]]
