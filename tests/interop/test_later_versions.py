"""What 5.3.3 writes and 4.9.3 does not: rmqctl reads and verifies it, and goes on writing it in the
same form."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from formats import constants
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner, property_crc
from rmqctl.engine.record.record import Record
from rmqctl.operations.mend.missing import add_missing
from rmqctl.operations.verify import Finding, verify
from tests import processes
from tests.interop.engine import Engine, Row
from tests.interop.stores import (
    TOPICS,
    Messages,
    assert_agree,
    assert_clean,
    config_of,
    settings,
)

pytestmark = pytest.mark.parametrize(
    "version",
    [pytest.param("5.3.3", marks=pytest.mark.xdist_group("interop-5.3.3"))],
    indirect=True,
)
LONG_TOPIC = "%RETRY%" + "group-with-a-long-name-" * 9


def records_of(root: Path, values: Row) -> list[tuple[Record, bytes]]:
    """Every record of a store, with its bytes."""
    with MessageStore(root, config_of(values)) as store:
        size = store.commit_log.file_size
        found = []
        for record in store.commit_log.walk():
            if isinstance(record, Record):
                start = record.physical_offset - record.physical_offset % size
                data = (root / "commitlog" / f"{start:020d}").read_bytes()
                at = record.physical_offset - start
                found.append((record, data[at : at + record.total_size]))
        return found


def to_long_topic(messages: Messages, count: int) -> list[MessageExtBrokerInner]:
    made = [messages.plain() for _ in range(count)]
    for message in made:
        message.topic = LONG_TOPIC
    return made


@pytest.mark.proves("separator", "long-topics", "crc")
@pytest.mark.parametrize("with_crc", [False, True])
def test_records_are_written_on_in_the_form_of_the_store(
    engine: Engine, chance: random.Random, tmp_path: Path, with_crc: bool
) -> None:
    """With a separator behind the last property, a checksum of the record, and a topic length of
    two bytes: rmqctl writes the same bytes for a message as the engine."""
    values = {**settings(chance), "enabledAppendPropCRC": with_crc}
    values["forceVerifyPropCRC"] = with_crc
    root, config = tmp_path / "store", config_of(values)
    messages = Messages(chance, values, engine.version)
    sent = messages.take(60) + to_long_topic(messages, 5)
    sent = [message for message in sent if message.properties]
    store = engine.open(root, values)
    store.put(sent)
    assert_agree(store, values)
    store.shutdown()
    assert_clean(root, config)
    by_engine = records_of(root, values)
    assert {record.magic_code for record, _ in by_engine} == {
        constants.MESSAGE_MAGIC_CODE,
        constants.MESSAGE_MAGIC_CODE_V2,
    }
    for record, data in by_engine:
        assert record.properties_bytes.endswith(b"\2")
        assert data.endswith(property_crc(data[:-20])) == with_crc

    with MessageStore(root, config, writable=True) as writer:
        half = len(sent) // 2
        results = [writer.put_message(message, flush=False) for message in sent[:half]]
        for bulk in writer.put_stream(sent[half:], flush=False):
            results += bulk
    assert all(result.is_ok for result in results)
    assert_clean(root, config)
    by_rmqctl = records_of(root, values)[len(by_engine) :]
    for (one, one_bytes), (other, other_bytes) in zip(by_engine, by_rmqctl, strict=True):
        assert one.magic_code == other.magic_code
        if b"INNER_MULTI_QUEUE_OFFSET" not in one.properties_bytes:  # its offsets differ
            assert len(one_bytes) == len(other_bytes)
            end = -20 if with_crc else None
            assert one.properties_bytes[:end] == other.properties_bytes[:end]
        assert other_bytes.endswith(property_crc(other_bytes[:-20])) == with_crc

    # The engine checks the checksums (forceVerifyPropCRC) when it recovers from a crash.
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    store = engine.open(root, values)
    said = assert_agree(store, values)
    assert len(said["message"]) == len(by_engine) + len(by_rmqctl)
    store.shutdown()
    if with_crc:
        assert_cut_where_a_checksum_is_wrong(engine, chance, root, values)


def assert_cut_where_a_checksum_is_wrong(
    engine: Engine, chance: random.Random, root: Path, values: Row
) -> None:
    """Flips a bit that only the record's checksum shows: verify names the record, and the engine's
    recovery after a crash cuts the log there."""
    config = config_of(values)
    records = [record for record, _ in records_of(root, values)]
    record = chance.choice(records[len(records) // 2 :])
    start = record.physical_offset - record.physical_offset % config.mapped_file_size_commit_log
    place = record.physical_offset - start + 40 + chance.randrange(8)  # BORNTIMESTAMP
    with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes((byte ^ 1 << chance.randrange(8),)))
    (found,) = [one for one in verify(root, config) if isinstance(one, Finding)]
    assert (found.code, found.physical_offset) == ("record-crc-mismatch", record.physical_offset)
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    store = engine.open(root, values)
    assert store.dump()["store"][0]["maxPhyOffset"] == record.physical_offset
    store.shutdown()


@pytest.mark.proves("checkpoint")
def test_checkpoint_and_abort(engine: Engine, chance: random.Random, tmp_path: Path) -> None:
    """rmqctl keeps the checkpoint's further fields, understands an ``abort`` with a process id, and
    writes its own with one, too."""
    values, root = settings(chance, light_queues=False), tmp_path / "store"
    messages = Messages(chance, values, engine.version)
    for _ in range(2):  # the offset of the confirmed log is known from the second start on
        store = engine.open(root, values)
        # Each start would index a last message again that has no unit.
        store.put([*messages.take(29), messages.plain()])
        assert (root / "abort").read_text().isdigit()
        store.shutdown()
    before = (root / "checkpoint").read_bytes()
    assert any(before[24:40])
    with MessageStore(root, config_of(values), writable=True) as writer:
        assert (root / "abort").read_text() == str(os.getpid())
        assert writer.put_message(messages.plain()).is_ok
    assert (root / "checkpoint").read_bytes()[24:40] == before[24:40]
    assert not (root / "abort").exists()
    (root / "abort").write_text("12345")
    assert_clean(root, config_of(values), allowed=("unclean-shutdown",))
    store = engine.open(root, values)
    assert len(assert_agree(store, values)["message"]) == 61
    store.shutdown()


def test_further_queues_that_are_no_light_ones(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    """When 5.3.3 itself puts such a message it stores no offsets for these queues, and its dispatch
    then stops. rmqctl stores offsets, with which 5.3.3 goes on, also after a loss of all queues."""
    values, root = settings(chance, light_queues=True), tmp_path / "store"
    messages = Messages(chance, values, engine.version)
    store = engine.open(root, values)
    store.put(messages.take(10))
    store.shutdown()
    with MessageStore(root, config_of(values), writable=True) as writer:
        for _ in range(5):
            message = messages.plain()
            message.topic = TOPICS[0]
            message.properties["INNER_MULTI_DISPATCH"] = "extra,%LMQ%one"
            assert writer.put_message(message).is_ok
    shutil.rmtree(root / "consumequeue")
    store = engine.open(root, values)
    assert store.is_open
    said = assert_agree(store, values)
    assert len([row for row in said["unit"] if row["topic"] == "extra"]) == 5
    store.shutdown()
    # The messages that it dispatches again are indexed again, too.
    assert_clean(root, config_of(values), allowed=("index-item-repeated",))


def test_topics_whose_messages_go_to_no_light_queues(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    """Retries, delayed messages and those of the system's topics are put by the engine and by
    rmqctl, some with the offsets of the messages that they copy; then all queues are lost."""
    values, root = settings(chance, light_queues=True), tmp_path / "store"
    messages = Messages(chance, values, engine.version)
    sent = []
    for number in range(36):
        message = messages.plain()
        message.topic = [TOPICS[0], "%RETRY%group", "rmq_sys_x"][number % 3]
        message.properties["INNER_MULTI_DISPATCH"] = "%LMQ%one"
        if number % 4 == 3:
            message.properties["INNER_MULTI_QUEUE_OFFSET"] = str(number // 4)
        if number % 5 == 4:
            message.properties["DELAY"] = "16"
        sent.append(message)
    store = engine.open(root, values)
    store.put(sent[:18])
    assert_agree(store, values)
    store.shutdown()
    with MessageStore(root, config_of(values), writable=True) as writer:
        assert all(writer.put_message(message).is_ok for message in sent[18:])
    assert_clean(root, config_of(values))
    store = engine.open(root, values)
    before = assert_agree(store, values)["unit"]
    light = [row for row in before if row["topic"] == "%LMQ%one"]
    assert len(light) == sum(
        message.topic == TOPICS[0] and "DELAY" not in message.properties for message in sent
    )
    store.shutdown()
    for rebuilt in ("by rmqctl", "by the engine"):
        shutil.rmtree(root / "consumequeue")
        if rebuilt == "by rmqctl":
            add_missing(root, config_of(values), "queues")
            assert_clean(root, config_of(values))
        store = engine.open(root, values)
        assert assert_agree(store, values)["unit"] == before
        store.shutdown()


COMPRESSIONS = {"ZLIB": 0, "LZ4": 1 << 8, "ZSTD": 2 << 8}


@pytest.mark.proves("compression")
def test_compressed_bodies(engine: Engine, chance: random.Random, tmp_path: Path) -> None:
    """A body that a 5.x client has compressed is shown as it was before."""
    values, root = settings(chance, light_queues=False), tmp_path / "store"
    store = engine.open(root, values)
    sent = {}
    for name, flags in COMPRESSIONS.items():
        body = f"{name} {'words and words ' * 50}".encode()
        packed = store.compress(name, body)
        assert packed != body
        message = MessageExtBrokerInner(
            TOPICS[0], packed, sys_flag=constants.COMPRESSED_FLAG | flags
        )
        (row,) = store.put([message])
        sent[row["msgId"]] = body.decode()
    assert_agree(store, values)
    store.shutdown()
    assert_clean(root, config_of(values))
    command = ["message", "--store", str(root), "--decompress", "--body-as", "utf8", "--json"]
    for msg_id, text in sent.items():
        done = processes.run("rmqctl", *command, msg_id)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)[0]["body"] == text
