"""Batch queues of 5.3.3 read: `queues`, `walk queue`, `pull`, `offset`."""

from __future__ import annotations

import json
import random
import struct
from binascii import crc32
from pathlib import Path

import pytest

from formats.text import encode_properties
from rmqctl.cli.browse.model.messages import QueueMessages
from rmqctl.cli.browse.model.opened import Opened
from rmqctl.cli.browse.model.queues import Queues
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.batchqueue import BatchConsumeQueue
from rmqctl.engine.read.getbatch import INNER_BATCH, NEED_UNWRAP, inner_messages
from rmqctl.engine.record.record import Record
from rmqctl.engine.record.status import GetMessageStatus
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from tests import golden_data
from tests.test_cli.conftest import Cli, Done
from tests.test_cli.test_batch_queues import CONF, TOPIC

CONFIG = parse_broker_conf(CONF)
#: The record of queue 0 whose body is made into messages, where it starts, and its queue offset.
RECORD, BASE, COUNT = 9058, 35, 3


@pytest.fixture
def root(golden_directory: Path, tmp_path: Path) -> Path:
    golden = golden_data.unpacked("batch-queues", golden_directory, golden_data.LATER)
    (tmp_path / "conf").write_text(CONF)
    return golden_data.copy_tree(golden, tmp_path / "store")


def call(cli: Cli, root: Path, *line: str | Path) -> Done:
    before = golden_data.tree_content(root)
    more = ("--store", root, "--broker-conf", root.parent / "conf", "--format", "ndjson")
    done = cli(*line, *more)
    assert golden_data.tree_content(root) == before
    return done


def records_of(root: Path, queue_id: int = 0) -> list[Record]:
    with MessageStore(root, CONFIG) as store:
        return [
            entry
            for entry in store.commit_log.walk()
            if isinstance(entry, Record) and (entry.topic, entry.queue_id) == (TOPIC, queue_id)
        ]


def inner(body: bytes, flag: int, **properties: str) -> bytes:
    """A message as a client encodes it (``MessageDecoder#encodeMessage``)."""
    stored = encode_properties(properties)
    size = 22 + len(body) + len(stored)
    head = struct.pack(">iiiii", size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(stored)) + stored


def unwrap(root: Path) -> list[bytes]:
    """Puts messages into a record's body; their bodies."""
    with MessageStore(root, CONFIG) as store:
        record = store.look_message_by_offset(RECORD)
    bodies = [b"", b"c\xff"]
    pieces = [inner(body, 7 + n, TAGS=f"t{n}") for n, body in enumerate(bodies)]
    rest = record.body_length - sum(map(len, pieces)) - 22
    assert rest >= 0
    bodies.append(b"r" * rest)
    data = b"".join([*pieces, inner(bodies[-1], 0)])
    path = root / f"commitlog/{0:020d}"
    content = bytearray(path.read_bytes())
    content[record.body_position : record.body_position + record.body_length] = data
    struct.pack_into(">i", content, RECORD + 8, crc32(data) & 0x7FFFFFFF)
    path.write_bytes(content)
    return bodies


def test_queues(cli: Cli, root: Path) -> None:
    *rows, summary = call(cli, root, "queues").rows
    told = [(row["topic"], row["queue_id"], row["messages"], row.get("queue_type")) for row in rows]
    assert told == [
        (TOPIC, 0, 60, "BatchCQ"), (TOPIC, 1, 20, "BatchCQ"), ("Plain", 0, 4, None),
        ("Plain", 1, 2, None),
    ]  # fmt: skip
    assert (summary["queues"], summary["messages"]) == (4, 86)
    last = records_of(root)[-1]
    assert rows[0]["max_physical_offset"] == last.physical_offset + last.total_size
    *rows, summary = call(cli, root, "queues", "--topic", TOPIC, "--queue-id", "1").rows
    assert len(rows) == 1 and summary["messages"] == 20


def lines_of(source: Queues | QueueMessages) -> list[tuple[str, ...]]:
    source.prepare(lambda: False)
    return [line.cells for line in source.load(*source.bounds(), lambda: False).values()]


def test_browse(cli: Cli, root: Path) -> None:
    """Queues as `queues` has them, and their messages as `pull` has them, with those in a record of
    several one by one."""
    bodies = unwrap(root)
    opened = Opened(root, CONFIG)
    rows = call(cli, root, "queues", "--topic", TOPIC).rows[:-1]
    assert [line[:4] for line in lines_of(Queues(opened, TOPIC))] == [
        tuple(str(row[name]) for name in ("queue_id", "messages", "min_offset", "max_offset"))
        for row in rows
    ]
    pulled = call(cli, root, "pull", "--topic", TOPIC, "--queue-id", "0", "--limit", "99").rows[:-1]
    lines = lines_of(QueueMessages(opened, TOPIC, 0))
    assert [line[0] for line in lines] == [str(n) for n in range(60)]
    named = {int(line[0]): line for line in lines}
    for row in pulled:
        properties = row["properties"]
        told = (properties.get("TAGS", ""), properties.get("KEYS", ""))
        assert named[row["queue_offset"]][3:5] == told
    texts = [body.decode("utf-8", "replace")[:200] for body in bodies]
    assert [named[BASE + n][5] for n in range(COUNT)] == texts
    source = QueueMessages(opened, TOPIC, 0)
    source.prepare(lambda: False)
    line = source.line(BASE + 1, lambda: False)
    assert (line.place.physical_offset, line.place.queue_offset) == (RECORD, BASE + 1)
    assert source.at_time(0) == 0


def test_browse_names_offsets_that_no_unit_has(root: Path) -> None:
    """A unit that stands for fewer messages than the next one says."""
    with MessageStore(root, CONFIG) as store:
        queue = store.batch_queue(TOPIC, 0)
        assert queue is not None
        place = queue.place(queue.find(BASE))
        queue.close()
    assert place is not None
    path, position = place
    content = bytearray(path.read_bytes())
    struct.pack_into(">h", content, position + 36, COUNT - 1)
    path.write_bytes(content)
    lines = lines_of(QueueMessages(Opened(root, CONFIG), TOPIC, 0))
    assert lines[BASE + COUNT - 1][1] == "queue-offsets-skipped"
    assert sum("skipped" in line[1] for line in lines) == 1


def test_topics(cli: Cli, root: Path) -> None:
    """One whose only queues are batch queues has what they have, and the sizes of its records."""
    *rows, summary = call(cli, root, "topics").rows
    (row,) = [row for row in rows if row["topic"] == TOPIC]
    records = records_of(root, 0) + records_of(root, 1)
    assert (row["queues"], row["messages"]) == (2, 80)
    assert row["bytes"] == sum(one.total_size for one in records)
    times = [one.store_timestamp for one in records]
    told = (row["oldest_store_timestamp"], row["newest_store_timestamp"])
    assert told == (min(times), max(times))
    assert not row["without_queues"]
    assert (summary["queues"], summary["messages"]) == (4, 86)


def test_topics_without_bytes_read_no_batch_queue(
    cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for its first and last units."""
    *rows, _ = call(cli, root, "topics").rows
    monkeypatch.delattr(BatchConsumeQueue, "units")
    *quick, _ = call(cli, root, "topics", "--no-bytes").rows
    assert quick == [row | {"bytes": None} for row in rows]


def test_what_a_retention_leaves(cli: Cli, root: Path) -> None:
    """The numbers go on, also of a queue of which the log has nothing any more."""
    (root / f"commitlog/{0:020d}").unlink()
    rows = call(cli, root, "queues", "--topic", TOPIC).rows
    assert [(row["min_offset"], row["max_offset"]) for row in rows[:-1]] == [(60, 60), (19, 20)]
    (answer,) = call(cli, root, "pull", "--topic", TOPIC, "--queue-id", "0", "--offset", "3").rows
    assert (answer["status"], answer["next_begin_offset"]) == ("OFFSET_TOO_SMALL", 60)


def test_walk(cli: Cli, root: Path) -> None:
    *rows, summary = call(cli, root, "walk", "queue", "--topic", TOPIC, "--queue-id", "0").rows
    assert {row["type"] for row in rows} == {"batch_unit"} and summary["units"] == 40
    records = records_of(root)
    assert [row["physical_offset"] for row in rows] == [one.physical_offset for one in records]
    assert [row["store_timestamp"] for row in rows] == [one.store_timestamp for one in records]
    assert [row["queue_offset"] for row in rows] == [one.queue_offset for one in records]
    # A part of it: all units that have a message there.
    some = ("--offset", "8", "--end-offset", "14")
    *rows, _ = call(cli, root, "walk", "queue", "--topic", TOPIC, "--queue-id", "0", *some).rows
    assert [row["queue_offset"] for row in rows] == [7, 13]
    *rows, summary = call(cli, root, "walk", "queue", "--limit", "9").rows
    assert [row["type"] for row in rows] == ["unit"] * 6 + ["batch_unit"] * 3
    path = root / f"batchconsumequeue/{TOPIC}/0/{460:020d}"
    content = path.read_bytes()
    path.write_bytes(content[:46] + bytes(92) + content[138:])
    *rows, summary = call(cli, root, "walk", "queue", "--topic", TOPIC, "--queue-id", "0").rows
    (hole,) = [row for row in rows if row["type"] == "damage"]
    assert (hole["queue_offset"], hole["length"]) == (17, 2)
    assert (summary["units"], summary["damages"]) == (38, 1)


def test_units_in_tables(cli: Cli, root: Path) -> None:
    """Of a topic with batch queues they are the main table, of all topics one of their own."""
    line = ("walk", "queue", "--store", root, "--broker-conf", root.parent / "conf")
    header, *cells = cli(*line, "--topic", TOPIC, "--format", "csv").out.splitlines()
    assert len(cells) == 60 and header.startswith("type,topic,queue_id,queue_offset,batch_size,")
    first, *lines = cli(*line, "--topic", TOPIC).out.splitlines()
    assert first.split()[:4] == ["topic", "queue_id", "queue_offset", "batch_size"]
    assert len(lines) == 61 and {one.split()[0] for one in lines[:-1]} == {TOPIC}
    lines = cli(*line).out.splitlines()
    assert lines[7:10] == ["", "# Units of batch queues and of compacted topics", first]


@pytest.mark.parametrize("offset", range(-1, 62))
def test_an_answer(root: Path, offset: int) -> None:
    """It begins with the record that has the offset, holds whole records, stays in one file of the
    queue, and says where the next one begins."""
    records = records_of(root)
    ends = [one.queue_offset for one in records[1:]] + [60]
    with MessageStore(root, CONFIG) as store:
        answer = store.get_message(TOPIC, 0, offset, 5)
    assert (answer.min_offset, answer.max_offset) == (0, 60)
    if offset < 0:
        assert (answer.status, answer.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, 0)
    elif offset >= 60:
        status = ("OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY")[offset - 60]
        assert (answer.status.value, answer.next_begin_offset) == (status, 60)
    else:
        at = next(n for n, end in enumerate(ends) if end > offset)
        wanted, count = [at], ends[at] - records[at].queue_offset
        while (at := at + 1) % 10 and count + ends[at] - records[at].queue_offset <= 5:
            count += ends[at] - records[at].queue_offset
            wanted.append(at)
        assert [one.physical_offset for one in answer.records] == [
            records[n].physical_offset for n in wanted
        ]
        assert answer.next_begin_offset == ends[wanted[-1]]


def test_all_messages_are_pulled(cli: Cli, root: Path) -> None:
    """One answer after the other; a body that is none of several messages is shown as it is."""
    line = ("pull", "--topic", TOPIC, "--queue-id", "0", "--limit", "100")
    *rows, summary = call(cli, root, *line).rows
    assert [row["physical_offset"] for row in rows] == [
        one.physical_offset for one in records_of(root)
    ]
    assert (summary["status"], summary["next_begin_offset"]) == ("FOUND", 60)
    *rows, _ = call(cli, root, *line, "--tag", "t1").rows
    assert rows and {row["properties"]["TAGS"] for row in rows} == {"t1"}
    assert call(cli, root, *line, "--follow").code == 2


def test_messages_of_one_record(cli: Cli, root: Path) -> None:
    """Each comes by itself, with a queue offset, flag, tags and body of its own."""
    bodies = unwrap(root)
    line = ("pull", "--topic", TOPIC, "--queue-id", "0", "--offset", "37", "--limit", "2")
    *rows, summary = call(cli, root, *line, "--body-as", "hex").rows
    assert [bytes.fromhex(row["body"]) for row in rows] == bodies
    assert [row["queue_offset"] for row in rows] == [BASE + n for n in range(COUNT)]
    assert [row["flag"] for row in rows] == [7, 8, 0]
    assert [row["properties"].get("TAGS") for row in rows] == ["t0", "t1", None]
    assert [row["body_length"] for row in rows] == [len(body) for body in bodies]
    assert {row["physical_offset"] for row in rows} == {RECORD}
    assert summary["next_begin_offset"] == BASE + COUNT
    *rows, _ = call(cli, root, *line).rows
    assert len(rows) == COUNT and all("body" not in row for row in rows)


def test_bodies_of_anybody(root: Path) -> None:
    """Cut at any byte, and with lengths that lie: a body is taken apart whole, or not at all."""
    (record,) = [one for one in records_of(root) if one.physical_offset == RECORD]
    record = record._replace(sys_flag=NEED_UNWRAP | INNER_BATCH)
    whole = inner(b"abc", 1, A="b") + inner(b"", 2)
    parts = inner_messages(record, whole, 1 << 20)
    assert parts is not None and [(one.number, one.body) for one in parts] == [
        (0, b"abc"),
        (1, b""),
    ]
    first = len(inner(b"abc", 1, A="b"))
    for end in range(len(whole)):
        made = inner_messages(record, whole[:end], 1 << 20)
        assert made is None if end != first else made is not None and len(made) == 1
    for at, length in ((16, 1 << 30), (16, -1), (23, 1 << 14), (23, -1)):
        data = bytearray(whole)
        struct.pack_into(">i" if at == 16 else ">h", data, at, length)
        assert inner_messages(record, bytes(data), 1 << 20) is None
    assert inner_messages(record._replace(sys_flag=0), whole, 1 << 20) is None
    assert inner_messages(record._replace(sys_flag=0xC1), b"\x78\x9cnone", 1 << 20) is None


def test_offsets_of_times(cli: Cli, root: Path) -> None:
    records = records_of(root)
    time = records[7].store_timestamp
    first = next(one for one in records if one.store_timestamp == time)
    line = ("offset", "--topic", TOPIC, "--queue-id", "0", "--time")
    (row,) = call(cli, root, *line, str(time), "--boundary", "ceil").rows
    assert (row["queue_offset"], row["store_timestamp"]) == (first.queue_offset, time)
    assert (row["physical_offset"], row["max_offset"]) == (first.physical_offset, 60)
    (row,) = call(cli, root, *line, str(time), "--boundary", "floor", "--scan").rows
    assert row["store_timestamp"] == time and row["queue_offset"] >= first.queue_offset
    (row,) = call(cli, root, *line, "1700000000000", "--boundary", "floor").rows
    assert row["queue_offset"] is None


def test_a_topic_never_leads_out_of_its_directory(cli: Cli, root: Path) -> None:
    """topics.json may say that any name has batch queues."""
    entry = {"attributes": {"queue.type": "BatchCQ"}}
    table = dict.fromkeys(("..", "../consumequeue/Plain", TOPIC), entry)
    (root / "config").mkdir()
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    for topic in ("..", "../consumequeue/Plain"):
        for line in (("pull",), ("offset", "--time", "0")):
            done = call(cli, root, *line, "--topic", topic, "--queue-id", "0")
            assert done.code == 2 and "cannot be a queue directory" in done.err


def test_bytes_of_anybody_are_read_as_far_as_they_go(cli: Cli, root: Path) -> None:
    lots = random.Random(16)
    for path in sorted((root / "batchconsumequeue" / TOPIC).glob("0/0*")):
        whole = path.read_bytes()
        flipped = bytearray(whole)
        flipped[lots.randrange(len(whole))] ^= 1 << lots.randrange(8)
        for data in (lots.randbytes(len(whole)), b"\x7f" * len(whole), flipped, b"\xff" * 46):
            path.write_bytes(data)
            assert call(cli, root, "verify").code == 1
            queue = ("--topic", TOPIC, "--queue-id", "0")
            for line in (
                ("queues",),
                ("walk", "queue", *queue),
                ("pull", *queue, "--offset", "30"),
                ("offset", *queue, "--time", "2026-01-01T00:00:00"),
            ):
                assert call(cli, root, *line).code in (0, 1, 3, 5), line
        path.write_bytes(whole)
