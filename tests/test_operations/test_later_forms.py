"""verify on stores in the form of 5.x: the checksum of a record, queues that are not read, and
records at which a broker's dispatch stops."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from formats import constants
from rmqctl.engine.derive.writer import group_by_queue
from rmqctl.engine.dispatch.batches import UnitBatch, unit_batch
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.files.paths import queue_directories
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.form import RecordForm
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.rehearsal.rehearse import rehearse
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.operations.change.putbatches import put_batches
from rmqctl.operations.change.putstream import BulkPut
from rmqctl.operations.mend.missing import add_missing
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from rmqctl.operations.verify import ERROR, WARNING, Finding, Summary, inparts, verify
from tests.test_operations.small_store import CONFIG, V6, messages

WITH_CRC = RecordForm(property_separator=True, property_crc=True, long_topics=True)


def findings_of(root: Path, **changes: object) -> tuple[list[Finding], Summary]:
    *findings, summary = verify(root, replace(CONFIG, **changes))  # type: ignore[arg-type]
    assert isinstance(summary, Summary)
    return [found for found in findings if isinstance(found, Finding)], summary


def findings_in_parts(root: Path) -> list[Finding]:
    """The same by the parts that Spark gives to its tasks; the index is left out."""
    side = inparts.StoreSide(root, CONFIG, None)
    found = list(side.before())
    dispatcher = Dispatcher(CONFIG)
    scanner, log = Scanner(side.log, check=True), inparts.LogSide(side.snapshot, side.log)
    units: dict[tuple[str, int], list[UnitBatch]] = defaultdict(list)
    for where in queue_directories(root / "consumequeue"):
        units[where.topic, where.queue_id] = []
    for entry in scanner.scan():
        log.add(entry)
        if isinstance(entry, Batch):
            batch = unit_batch(entry, dispatcher)
            for topic_id, queue_id, rows in group_by_queue(batch.topic_id, batch.queue_id):
                key = scanner.topics.names[topic_id], queue_id
                units[key].append(UnitBatch(*(column[rows] for column in batch)))
    part = log.finish()
    found += side.join([part])
    queues = inparts.QueueSide(side.snapshot, part.damage, side.summary.max_offset)
    for (topic, queue_id), batches in units.items():
        number = queues.number(topic)
        renumbered = (one._replace(topic_id=one.topic_id * 0 + number) for one in batches)
        found += queues.check(topic, queue_id, renumbered)
    found += side.together([queues.waits()])
    found += side.after()
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Every kind of message, the latter half with a checksum: the option was set in between."""
    root = tmp_path / "store"
    (root / "compaction").mkdir(parents=True)
    (root / "commitlog").mkdir()
    with MessageStore(root, CONFIG, writable=True) as writer:
        for number, message in enumerate(messages()):
            if number == 15:
                writer.writer.write_in(WITH_CRC)
            assert writer.put_message(message, flush=False).is_ok
        long_topic = MessageExtBrokerInner("%RETRY%" + "g" * 150, b"body", born_host=V6)
        assert writer.put_message(long_topic, flush=False).is_ok
    return root


def records_with_crc(root: Path) -> list[Record]:
    with MessageStore(root, CONFIG) as opened:
        records = [entry for entry in opened.commit_log.walk() if isinstance(entry, Record)]
    assert len(records) == 31
    return [record for record in records if b"__CRC32#\1" in record.properties_bytes]


def test_any_bit_of_a_record_that_flips_is_found(store: Path, chance: random.Random) -> None:
    findings, summary = findings_of(store)
    assert not findings and summary.is_clean
    records = records_with_crc(store)
    assert len(records) == 16
    codes = set()
    for record in records:
        start = record.physical_offset - record.physical_offset % 2048
        at = record.physical_offset - start
        # Anywhere, and in the checksum's own twenty bytes.
        places = [chance.randrange(record.total_size - 20), record.total_size - 1]
        places += [record.total_size - 1 - chance.randrange(20) for _ in range(2)]
        with (store / "commitlog" / f"{start:020d}").open("r+b", buffering=0) as file:
            for place in places:
                file.seek(at + place)
                (byte,) = file.read(1)
                for value in (byte ^ 1 << chance.randrange(8), byte):
                    file.seek(at + place)
                    file.write(bytes((value,)))
                    if value != byte:
                        found = [
                            one
                            for one in findings_of(store)[0]
                            if one.physical_offset == record.physical_offset
                        ]
                        assert any(one.severity != "info" for one in found), (record, place)
                        codes |= {one.code for one in found}
    assert "record-crc-mismatch" in codes
    assert findings_of(store) == (findings, summary)


def test_what_a_damaged_record_is_said_to_be(store: Path) -> None:
    """A time that nothing else in the store repeats: only the checksum knows."""
    record = next(r for r in records_with_crc(store) if r.body_length)
    start = record.physical_offset - record.physical_offset % 2048
    position = record.physical_offset - start
    with (store / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(position + 47)  # BORNTIMESTAMP
        file.write(b"\7")
    (found,), summary = findings_of(store)
    assert (found.code, found.severity) == ("record-crc-mismatch", ERROR)
    assert (found.physical_offset, found.position) == (record.physical_offset, position)
    assert found.found == f"__CRC32#={record.properties['__CRC32#']}"
    assert (found.expected or "").startswith("__CRC32#=") and found.expected != found.found
    assert not summary.is_clean
    # What else ends like a checksum is none.
    with MessageStore(store, CONFIG, writable=True) as writer:
        writer.writer.write_in(RecordForm(property_separator=True))
        for name in ("_________", "__CRC_2_", "deadline"):
            message = MessageExtBrokerInner("T", b"", properties={name: "1700000000"})
            assert writer.put_message(message).is_ok
    assert findings_of(store)[0] == [found] == findings_in_parts(store)


def test_batch_queues_take_the_place_of_others(store: Path) -> None:
    """Topics with batch queues have none of the other kind, nor need there be another topic."""
    for topic in ("TopicA", "主题"):
        (store / "batchconsumequeue" / topic).mkdir(parents=True)
    rebuild_in_place(plan_rebuild(store, CONFIG, "queues"))
    assert not (store / "consumequeue" / "TopicA").exists()
    findings, summary = findings_of(store)
    assert not findings and summary.queues and summary.units
    assert findings_in_parts(store) == findings
    shutil.rmtree(store / "batchconsumequeue" / "TopicA")
    findings, _ = findings_of(store)
    assert [(found.code, found.path) for found in findings] == [
        ("queue-missing", f"consumequeue/TopicA/{number}") for number in range(2)
    ]
    assert findings_in_parts(store) == findings


def test_records_at_which_a_broker_stops_dispatching(tmp_path: Path) -> None:
    """What was put without enableMultiDispatch, before a broker that has it; and before one that
    has not, but tells consumers that wait of the extra queues all the same."""
    root = tmp_path / "store"
    light = {constants.PROPERTY_INNER_MULTI_DISPATCH: "%LMQ%a,b"}
    offsets = constants.PROPERTY_INNER_MULTI_QUEUE_OFFSET
    sent = [
        MessageExtBrokerInner("T", b"sound", properties={"TAGS": "x"}),
        MessageExtBrokerInner("T", b"bare"),
        MessageExtBrokerInner("T", b"", sys_flag=constants.TRANSACTION_PREPARED_TYPE),
        MessageExtBrokerInner("T", b"no number", properties={**light, offsets: "x5"}),
        MessageExtBrokerInner("T", b"not as many", properties={**light, offsets: "x"}),
        MessageExtBrokerInner("%RETRY%g", b"", properties={**light, offsets: "5,"}),
        MessageExtBrokerInner("%RETRY%g", b"", properties={**light, offsets: "5yx"}),
    ]
    config = {"enable_multi_dispatch": False}
    with MessageStore(root, replace(CONFIG, **config), writable=True, create=True) as writer:  # type: ignore[arg-type]
        for message in sent:
            assert writer.put_message(message, flush=False).is_ok
    with MessageStore(root, CONFIG) as reader:
        places = [e.physical_offset for e in reader.commit_log.walk() if isinstance(e, Record)]
    # A put refuses such offsets.
    log = next((root / "commitlog").iterdir())
    stored = log.read_bytes().replace(b"OFFSET\x01x5", b"OFFSET\x01,5")
    log.write_bytes(stored.replace(b"OFFSET\x015yx", b"OFFSET\x015,x"))

    def stops(**config: Any) -> list[tuple[int | None, str, str | None]]:
        found = [one for one in findings_of(root, **config)[0] if one.code == "dispatch-stops"]
        return [(one.physical_offset, one.severity, one.found) for one in found]

    assert stops(**config) == [(places[3], WARNING, ",5"), (places[6], WARNING, "5,x")]
    # Where the dispatch has yet to come by the first of them the start does not end.
    off = replace(CONFIG, **config)  # type: ignore[arg-type]
    assert rehearse(root, off, as_5=False).starts
    shutil.rmtree(root / "consumequeue")
    outcome = rehearse(root, off, as_5=False)
    assert not outcome.starts and f"message at {places[3]} are no numbers" in (outcome.reason or "")
    slave = replace(off, broker_role="SLAVE")
    assert rehearse(root, slave, as_5=False).starts
    rebuild_in_place(plan_rebuild(root, off, "queues"))
    assert stops() == [
        (places[1], WARNING, "none"),
        (places[3], WARNING, ",5"),
        (places[6], WARNING, "5,x"),
    ]
    in_parts = [one for one in findings_in_parts(root) if one.code == "dispatch-stops"]
    assert [one.physical_offset for one in in_parts] == [places[1], places[3], places[6]]
    (root / "compaction").mkdir()  # 5.x
    assert stops() == [(places[3], WARNING, ",5")]


@pytest.mark.parametrize("is_of_5", [False, True], ids=["4.9.3", "5.x"])
@pytest.mark.parametrize("topic", ["%RETRY%g", "rmq_sys_x", constants.RMQ_SYS_SCHEDULE_TOPIC])
def test_copied_offsets_of_topics_without_light_queues(
    tmp_path: Path, topic: str, is_of_5: bool
) -> None:
    """5.x leaves the offsets of the message that a retry's is a copy of, and gives it no places
    (``MultiDispatchUtils#isNeedHandleMultiDispatch``); 4.9.3 gives each its own."""
    root = tmp_path / "store"
    names = {constants.PROPERTY_INNER_MULTI_DISPATCH: "%LMQ%a"}
    copied = {**names, constants.PROPERTY_INNER_MULTI_QUEUE_OFFSET: "0", "TAGS": "t"}
    with MessageStore(root, CONFIG, writable=True, create=True) as writer:
        writer.writer.write_in(RecordForm(property_separator=is_of_5, long_topics=is_of_5))
        for one in ({**names}, copied, {**names}):
            to = "T" if one is not copied else topic
            assert writer.put_message(MessageExtBrokerInner(to, b"x", properties=one)).is_ok
    if is_of_5:
        (root / "compaction").mkdir()
    queue = root / "consumequeue" / "%LMQ%a"
    before = (queue / "0" / f"{0:020d}").read_bytes()
    assert findings_of(root)[0] == []
    assert findings_in_parts(root) == []
    shutil.rmtree(queue)
    add_missing(root, CONFIG, "queues")
    assert (queue / "0" / f"{0:020d}").read_bytes() == before
    with MessageStore(root, CONFIG) as reader:
        light_queue = reader.consume_queue("%LMQ%a", 0)
        assert light_queue is not None
        assert light_queue.max_offset == (2 if is_of_5 else 3)


def test_abort_is_as_the_stores_version_writes_it(store: Path) -> None:
    """4.9.3's is empty, 5.x's holds the process id (``DefaultMessageStore#createTempFile``)."""
    for expected in (str(os.getpid()), ""):
        with MessageStore(store, CONFIG, writable=True):
            assert (store / "abort").read_text() == expected
        assert not (store / "abort").exists()
        store = store.parent / "other"
        with MessageStore(store, CONFIG, writable=True, create=True):
            pass


def test_batches_keep_room_for_the_form_of_the_store(store: Path) -> None:
    """A separator and a checksum in each record count towards the largest batch."""
    config = replace(CONFIG, max_message_size=1000)
    lines = [
        json.dumps({"topic": "T", "body": "y" * size, "properties": {"TAGS": "t"}}).encode()
        for size in range(20, 120)
    ]
    run = BulkPut("lines")
    with MessageStore(store, config, writable=True) as writer:
        assert writer.writer.form == WITH_CRC
        batches = list(put_batches(writer, lines, run, size=50))
    assert (run.stored, run.refused) == (100, None)
    assert len(batches) < 40
    assert findings_of(store)[1].is_clean


@pytest.mark.parametrize("as_stream", [False, True])
@pytest.mark.parametrize(
    ("body", "properties", "is_ok"),
    [(700, 20, True), (701, 0, False), (700, 1000, True), (0, 1800, True)],
)
def test_in_5_the_largest_message_is_a_body(
    store: Path, body: int, properties: int, is_ok: bool, as_stream: bool
) -> None:
    """``MessageExtEncoder``: a record may have 64 KiB more. Confirmed with the engine of 5.3.3."""
    config = replace(CONFIG, max_message_size=700)
    message = MessageExtBrokerInner("T", b"y" * body, properties={"a": "x" * properties})
    with MessageStore(store, config, writable=True) as writer:
        if as_stream:
            small = MessageExtBrokerInner("T", b"y")
            bulks = writer.put_stream([small] * 20 + [message])
            *_, result = (one for bulk in bulks for one in bulk)
        else:
            result = writer.put_message(message)
    assert result.is_ok == is_ok
    assert findings_of(store)[1].is_clean
