"""Delayed messages: what the engine delivered is what these rules write; its progress file."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.text import java_int
from rmqctl.engine.dispatch.rules import Dispatcher
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.queue.consumequeue import Unit
from rmqctl.engine.record.message import EncodedMessage, MessageExtBrokerInner, encode
from rmqctl.engine.record.record import Record
from rmqctl.engine.services import schedule
from rmqctl.engine.services.schedule import Due, Undeliverable
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.write.bulk import PropertyEncoder
from rmqctl.errors import ConfigFileUnreadable, SymbolicLinkRefused
from tests import golden_data
from tests.conftest import Golden

TOPIC = "SCHEDULE_TOPIC_XXXX"
LIMIT = 4 << 20


def records(store: MessageStore) -> list[Record]:
    return [entry for entry in store.commit_log.walk() if isinstance(entry, Record)]


def stored_bytes(store: MessageStore, record: Record) -> bytes:
    mapped, position = store.commit_log.locate(record.physical_offset)
    return mapped.read(position, record.total_size)


def test_what_the_engine_delivered_is_written_byte_for_byte(golden: Golden) -> None:
    """Each record that keeps DELAY outside the schedule topic is the delivery of a scheduled one,
    or a dead letter made of a delivery."""
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        waiting: dict[tuple[str, bytes], list[Record]] = {}
        for record in records(store):
            if record.topic == TOPIC:
                key = record.properties["REAL_TOPIC"], record.properties_bytes
                waiting.setdefault(key, []).append(record)
        delivered: Counter[int] = Counter()
        dead_letters = 0
        for record in records(store):
            if record.topic == TOPIC or "DELAY" not in record.properties:
                continue
            if record.topic.startswith("%DLQ%"):
                dead_letters += 1
                continue
            scheduled = waiting[record.topic, record.properties_bytes].pop(0)
            message = schedule.message_timeup(scheduled, store.body(scheduled), PropertyEncoder())
            assert isinstance(message, MessageExtBrokerInner)
            encoded = encode(message, LIMIT)
            assert isinstance(encoded, EncodedMessage)
            made = encoded.record(
                record.queue_offset, record.physical_offset, record.store_timestamp
            )
            assert made == stored_bytes(store, record)
            delivered[scheduled.queue_id + 1] += 1
    assert delivered == {1: 3, 2: 2, 3: 32, 4: 32} and dead_letters == 30


def test_units_of_the_golden_stores_are_due_when_the_engine_says(golden: Golden) -> None:
    """By the engine's own units: the first not due ends what is due."""
    for name in ("delay", "broker"):
        times: dict[int, list[int]] = {}
        for unit in golden_data.expected(name)["unit"]:
            if unit["topic"] == TOPIC:
                times.setdefault(unit["queueId"] + 1, []).append(unit["tagsCode"])
        with MessageStore(golden(name), golden_data.broker_conf(name)) as store:
            for level, expected in times.items():
                queue = store.consume_queue(TOPIC, level - 1)
                assert queue is not None and queue.max_offset == len(expected)
                for until in {*expected, expected[0] - 1, expected[-1] + 1}:
                    due = Due(until, None)
                    end = schedule.end_of_due(store, level, queue, 0, due)
                    assert end == next(
                        (n for n, time in enumerate(expected) if time > until), len(expected)
                    )


@given(
    st.lists(st.integers(0, 60), max_size=12),
    st.integers(0, 60),
    st.none() | st.integers(0, 60),
    st.integers(0, 12),
)
def test_a_level_ends_at_the_first_that_waits(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[int],
    until: int,
    horizon: int | None,
    start: int,
) -> None:
    clock = iter(times)
    root = tmp_path_factory.mktemp("level") / "store"
    with MessageStore(root, writable=True, create=True, clock=lambda: next(clock, 0)) as store:
        for _ in times:
            put = MessageExtBrokerInner("t", b"", properties={"DELAY": "1"})
            assert store.put_message(put, flush=False).is_ok
        queue = store.consume_queue(TOPIC, 0)
        if queue is None:
            return
        delay = store.dispatcher.delay_levels[0]
        due = Due(until + delay, None if horizon is None else horizon + delay)
        start = min(start, len(times))
        expected = start
        while expected < len(times) and (
            times[expected] <= until or (horizon is not None and times[expected] > horizon)
        ):
            expected += 1
        assert schedule.end_of_due(store, 1, queue, start, due) == expected


# --- delayOffset.json ----------------------------------------------------------------------------


def offset_file(root: Path, suffix: str = "") -> Path:
    (root / "config").mkdir(parents=True, exist_ok=True)
    return root / "config" / f"delayOffset.json{suffix}"


@pytest.mark.parametrize("name", sorted({*golden_data.STORES} - {"crash"}))
def test_the_progress_is_written_as_the_broker_writes_it(name: str, golden: Golden) -> None:
    path = golden(name) / "config/delayOffset.json"
    offsets = schedule.load_delay_offsets(golden(name))
    assert offsets.path == path
    assert schedule.encode_delay_offsets(offsets.table).encode() == path.read_bytes()


def test_entries_stand_in_the_order_of_javas_map() -> None:
    text = schedule.encode_delay_offsets({66: 1, 18: 2, 2: 3, 1: 4})
    assert text == '{\n\t"offsetTable":{1:4,66:1,2:3,18:2\n\t}\n}'


BROKEN = [
    "{",
    "garbage",
    "[]",
    '{"offsetTable":{1:2}',
    '{"offsetTable":[]}',
    '{"offsetTable":null}',
    '{"offsetTable":{1:"x"}}',
    '{"offsetTable":{"x":1}}',
    '{"offsetTable":{1:1.5}}',
    '{"offsetTable":{1:null}}',
    '{"offsetTable":{1:true}}',
    '{"offsetTable":{99999999999:1}}',
    '{"offsetTable":{1:99999999999999999999}}',
    "{" * 1000,
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_progress_is_never_taken_for_none(text: str, tmp_path: Path) -> None:
    """A broker would begin anew and deliver all once more. A good ``.bak`` is taken, as there."""
    offset_file(tmp_path).write_text(text)
    with pytest.raises(ConfigFileUnreadable, match=r"delayOffset\.json"):
        schedule.load_delay_offsets(tmp_path)
    offset_file(tmp_path, ".bak").write_text('{"offsetTable":{1:7}}')
    offsets = schedule.load_delay_offsets(tmp_path)
    assert offsets.table == {1: 7} and offsets.is_backup
    offset_file(tmp_path, ".bak").write_text(text)
    with pytest.raises(ConfigFileUnreadable):
        schedule.load_delay_offsets(tmp_path)


def test_no_progress_begins_at_the_first_message(tmp_path: Path) -> None:
    assert schedule.load_delay_offsets(tmp_path) == ({}, None)
    offset_file(tmp_path).write_bytes(b"")
    assert schedule.load_delay_offsets(tmp_path) == ({}, None)
    offset_file(tmp_path).write_text('{"offsetTable":{"3":5,4:-1}}')
    assert schedule.load_delay_offsets(tmp_path).table == {3: 5, 4: -1}


def test_persist_keeps_the_content_before_and_the_rights(tmp_path: Path) -> None:
    schedule.save_delay_offsets(tmp_path, {1: 1})
    assert not offset_file(tmp_path, ".bak").exists()
    offset_file(tmp_path).chmod(0o640)
    before = offset_file(tmp_path).read_bytes()
    schedule.save_delay_offsets(tmp_path, {1: 2})
    assert offset_file(tmp_path, ".bak").read_bytes() == before
    assert schedule.load_delay_offsets(tmp_path).table == {1: 2}
    for suffix in ("", ".bak"):
        assert offset_file(tmp_path, suffix).stat().st_mode & 0o777 == 0o640
    schedule.save_delay_offsets(tmp_path, {1: 3}, keep_backup=True)
    assert offset_file(tmp_path, ".bak").read_bytes() == before
    assert sorted(p.name for p in (tmp_path / "config").iterdir()) == [
        "delayOffset.json",
        "delayOffset.json.bak",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_persist_keeps_the_owner(tmp_path: Path) -> None:
    """A ``.bak`` that a broker's user cannot write would end its persisting, silently."""
    os.chown(tmp_path, 12345, 12346)
    schedule.save_delay_offsets(tmp_path, {1: 1})
    assert offset_file(tmp_path).stat().st_uid == (tmp_path / "config").stat().st_uid == 12345
    schedule.save_delay_offsets(tmp_path, {1: 2})
    for suffix in ("", ".bak"):
        status = offset_file(tmp_path, suffix).stat()
        assert (status.st_uid, status.st_gid) == (12345, 12346)


@pytest.mark.parametrize("linked", ["config", "config/delayOffset.json"])
def test_persist_follows_no_link(linked: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "delayOffset.json").write_text("kept")
    root = tmp_path / "store"
    (root / linked).parent.mkdir(parents=True)
    target = elsewhere if linked == "config" else elsewhere / "delayOffset.json"
    (root / linked).symlink_to(target)
    with pytest.raises(SymbolicLinkRefused):
        schedule.save_delay_offsets(root, {1: 2})
    assert (elsewhere / "delayOffset.json").read_text() == "kept"
    assert len(list(elsewhere.iterdir())) == 1


def test_a_leftover_of_a_killed_writer_is_no_obstacle(tmp_path: Path) -> None:
    offset_file(tmp_path, ".tmp").write_text("half a te")
    schedule.save_delay_offsets(tmp_path, {2: 2})
    assert schedule.load_delay_offsets(tmp_path).table == {2: 2}
    assert not offset_file(tmp_path, ".tmp").exists()


def test_a_failed_write_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule.save_delay_offsets(tmp_path, {1: 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Exception, match="No space left"):
        schedule.save_delay_offsets(tmp_path, {1: 2})
    assert schedule.load_delay_offsets(tmp_path).table == {1: 1}
    assert [p.name for p in (tmp_path / "config").iterdir()] == ["delayOffset.json"]


def test_a_progress_outside_the_queue_is_moved_into_it(golden: Golden) -> None:
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        queue = store.consume_queue(TOPIC, 2)
        assert queue is not None
        places = [schedule.first_to_deliver(n, queue) for n in (None, -5, 0, 3, 32, 33, 10**18)]
        assert places == [0, 0, 0, 3, 32, 32, 32]


def test_levels_stand_in_the_order_of_a_table_of_64() -> None:
    """``new ConcurrentHashMap(32)`` makes room for 49: one of 32 would have 33 before 2."""
    text = schedule.encode_delay_offsets({33: 1, 2: 2, 34: 3})
    assert text == '{\n\t"offsetTable":{2:2,33:1,34:3\n\t}\n}'


@pytest.mark.parametrize("ext", [False, True])
@pytest.mark.parametrize(
    ("until", "horizon", "due"),
    [
        (19, None, 0),
        (20, None, 1),  # What is due just then goes out.
        (30, None, 3),
        (39, None, 3),
        (40, None, 4),
        (20, 30, 1),  # Just at the horizon is not beyond it (``correctDeliverTimestamp``).
        (20, 29, 4),
        (19, 20, 0),
        (19, 19, 4),
    ],
)
def test_the_bounds_of_what_is_due_are_exact(
    tmp_path: Path, ext: bool, until: int, horizon: int | None, due: int
) -> None:
    """The same whether the delivery time stands in the unit or in its extension."""
    delay = 1000
    times = iter([20, 30, 30, 40])
    config = MessageStoreConfig(enable_consume_queue_ext=ext)
    with MessageStore(
        tmp_path / "s", config, writable=True, create=True, clock=lambda: next(times)
    ) as store:
        for _ in range(4):
            put = MessageExtBrokerInner("t", b"", properties={"DELAY": "1"})
            assert store.put_message(put, flush=False).is_ok
        queue = store.consume_queue(TOPIC, 0)
        assert queue is not None
        unit = queue.unit(0)
        assert unit is not None and (unit.tags_code < 0) == ext
        assert schedule.deliver_timestamp(store, 1, queue, unit) == 20 + delay
        rule = Due(until + delay, None if horizon is None else horizon + delay)
        assert schedule.end_of_due(store, 1, queue, 0, rule) == due


@pytest.mark.parametrize(("level", "delay"), [(1, 7000), (2, 9000), (3, 1000)])
def test_without_its_extension_unit_a_delivery_time_comes_from_the_record(
    tmp_path: Path, level: int, delay: int
) -> None:
    """``computeDeliverTimestamp``: the store time and the level's delay, a second where the
    configuration has no such level."""
    config = parse_broker_conf("enableConsumeQueueExt=true\nmessageDelayLevel=7s 9s 4s\n")
    with MessageStore(
        tmp_path / "s", config, writable=True, create=True, clock=lambda: 50
    ) as store:
        put = MessageExtBrokerInner("t", b"", properties={"DELAY": str(level)})
        assert store.put_message(put).is_ok
    (ext,) = (tmp_path / "s/consumequeue_ext").glob("*/*/*")
    with ext.open("r+b") as file:
        file.write(bytes(64))
    config = parse_broker_conf("enableConsumeQueueExt=true\nmessageDelayLevel=7s 9s\n")
    with MessageStore(tmp_path / "s", config) as store:
        queue = store.consume_queue(TOPIC, level - 1)
        assert queue is not None
        unit = queue.unit(0)
        assert unit is not None
        assert schedule.deliver_timestamp(store, level, queue, unit) == 50 + delay


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("3", 3), ("+3", 3), ("-3", -3), ("0000000000000000003", 3), ("٣", 3), ("-0", 0)),
        *(("2147483647", 2**31 - 1), ("-2147483648", -(2**31)), ("2147483648", None)),
        *(("", None), ("+", None), ("3 ", None), ("3x", None), ("--3", None), ("²", None)),
        *(("\U0001d7d1", None), ("9" * 9000, None), ("0" * 9000, 0)),  # 𝟑 is two chars of Java
    ],
)
def test_a_delay_level_is_what_java_takes_it_for(text: str, number: int | None) -> None:
    assert java_int(text) == number
    dispatcher = Dispatcher(parse_broker_conf("messageDelayLevel=7s 9s 4s\n"))
    delays = [None, 7000, 9000, 4000]
    delay = delays[min(max(number or 0, 0), 3)]
    assert dispatcher.delivery_time(text, 50, 1) == (1 if delay is None else 50 + delay)


def test_a_copy_is_one_in_every_field(tmp_path: Path) -> None:
    """What is taken for delivered, and is not, reaches nobody."""
    properties = {"REAL_TOPIC": "t", "REAL_QID": "0", "DELAY": "1", "UNIQ_KEY": "u"}
    message = MessageExtBrokerInner(TOPIC, b"body", properties=properties, was_stored=True)
    with MessageStore(tmp_path, writable=True, create=True) as store:
        scheduled = store.look_message_by_offset(put(store, message))
        copy = schedule.message_timeup(scheduled, b"body", PropertyEncoder())
        assert isinstance(copy, MessageExtBrokerInner)
        encoded = store.check_message(copy)
        assert isinstance(encoded, EncodedMessage)
        delivered = store.look_message_by_offset(put(store, copy))
    assert schedule.is_copy(delivered, scheduled, encoded)
    for name in ("body_crc", "born_timestamp", "born_port", "flag", "reconsume_times"):
        other = delivered._replace(**{name: getattr(delivered, name) + 1})
        assert not schedule.is_copy(other, scheduled, encoded), name
    assert not schedule.is_copy(delivered._replace(born_address=b"\1"), scheduled, encoded)
    for data in (delivered.properties_bytes[:-1], delivered.properties_bytes + b"\2a\1b"):
        assert not schedule.is_copy(delivered._replace(properties_bytes=data), scheduled, encoded)


def put(store: MessageStore, message: MessageExtBrokerInner) -> int:
    """Puts a message; returns its physical offset."""
    result = store.put_message(message)
    assert result.append is not None
    return result.append.wrote_offset


def test_a_unit_at_the_very_ends_of_the_log(tmp_path: Path) -> None:
    """``lookMessageByOffset`` gives a broker nothing outside of the log, and it goes on."""
    with MessageStore(tmp_path, writable=True, create=True) as store:
        put(store, MessageExtBrokerInner("t", b""))
        end = store.max_offset
        found = {
            offset: schedule.message_of_unit(store, Unit(offset, 91, 0), PropertyEncoder())
            for offset in (-1, 0, end - 1, end)
        }
    said = {at: one.reason for at, one in found.items() if isinstance(one, Undeliverable)}
    gone, other = "record-gone", "unit-mismatch"
    assert said == {-1: gone, 0: other, end - 1: other, end: gone}
