"""A store as programs see it: mappings, slices, times, errors; the same as the engine says."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import rmqctl
from rmqctl import errors
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import PREFIXES, Record
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from tests import golden_data
from tests.conftest import Golden
from tests.test_cli.conftest import BROKER_CONF, CONFIG, NASTY, message

_LONG_AGO = 1_700_000_000_000
_WEST = timezone(timedelta(hours=-5))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Forty messages of ``orders`` in two queues, a second apart, and one of another topic."""
    ticks = iter(range(_LONG_AGO, _LONG_AGO + 100_000, 1000))
    store = tmp_path / "store"
    with MessageStore(
        store, CONFIG, writable=True, create=True, clock=lambda: next(ticks)
    ) as opened:
        for number in range(40):
            assert opened.put_message(message(number)).is_ok
        assert opened.put_message(message(0, topic=NASTY.replace("\\", "")[:9])).is_ok
    return store


@pytest.fixture
def store(root: Path) -> Iterator[rmqctl.Store]:
    with rmqctl.open(root, broker_conf=CONFIG) as opened:
        yield opened


def offsets(messages: Any) -> list[int]:
    return [one.queue_offset for one in messages]


@pytest.mark.parametrize("name", ["broker", "basic", "ipv6", "batch", "transaction", "delay"])
def test_messages_are_those_of_the_engine(name: str, golden: Golden) -> None:
    path, config = golden(name), golden_data.broker_conf(name)
    with MessageStore(path, config) as engine, rmqctl.open(path, broker_conf=config) as opened:
        records = [one for one in engine.commit_log.walk() if isinstance(one, Record)]
        assert [one.physical_offset for one in opened] == [one.physical_offset for one in records]
        for record, one in zip(records, opened, strict=True):
            assert one.properties == record.properties
            assert one.stored_body == engine.body(record)
            assert (one.topic, one.msg_id, one.size, one.status) == (
                record.topic,
                record.msg_id,
                record.total_size,
                "ok",
            )
            assert opened.message(one.msg_id) == one == opened.message(one.physical_offset)
        for queue in opened.queues:
            answers = engine.get_message(queue.topic, queue.queue_id, queue.min_offset, 10_000)
            some = len(answers.records)
            got = [one.physical_offset for one in queue[: queue.min_offset + some]]
            assert got == [one.physical_offset for one in answers.records]
            assert len(queue) == queue.max_offset - queue.min_offset
        for topic in opened.topics.values():
            merged = [one.physical_offset for one in topic]
            apart = [one.physical_offset for queue in topic.queues.values() for one in queue]
            assert merged == sorted(apart)


def test_topics_and_queues_are_mappings(store: rmqctl.Store) -> None:
    assert sorted(store.topics) == list(store.topics)
    assert "orders" in store.topics and "nothing" not in store.topics
    assert len(store.topics) == 2
    topic = store.topic("orders")
    assert (topic.name, list(topic.queues), len(topic.queues)) == ("orders", [0, 1], 2)
    assert [(one.topic, one.queue_id) for one in store.queues][-2:] == [
        ("orders", 0),
        ("orders", 1),
    ]
    for missing in ("nothing", "..", "orders/0", "", "a\0b"):
        with pytest.raises(KeyError):
            store.topics[missing]
    for number in (2, -1):
        with pytest.raises(KeyError):
            topic.queues[number]


def test_a_queue_is_asked_by_queue_offset(store: rmqctl.Store) -> None:
    queue = store.topics["orders"].queues[0]
    assert (len(queue), queue.min_offset, queue.max_offset) == (20, 0, 20)
    assert queue[7].queue_offset == 7 and queue[-1].queue_offset == 19
    part = queue[5:15]
    assert offsets(part) == list(range(5, 15)) and len(part) == 10
    # A part is a sequence of its own, as every slice is.
    assert part[0].queue_offset == 5 and part[-1].queue_offset == 14
    assert offsets(part[2:4]) == [7, 8]
    assert offsets(queue[-3:]) == [17, 18, 19] and offsets(queue[18:99]) == [18, 19]
    assert offsets(queue[::5]) == [0, 5, 10, 15] and offsets(queue[3::-1]) == [3, 2, 1, 0]
    assert offsets(reversed(queue)) == list(range(19, -1, -1))
    assert offsets(queue[:-99:-1]) == offsets(queue)[::-1] and offsets(queue[-99::-1]) == []
    assert offsets(queue[30:]) == [] and len(queue[30:]) == 0
    for nowhere in (20, -21):
        with pytest.raises(IndexError, match="the queue has 0 to 19"):
            queue[nowhere]
    with pytest.raises(TypeError):
        queue["a"]  # type: ignore[call-overload]


def test_a_queue_whose_first_messages_are_gone(root: Path) -> None:
    (root / "commitlog" / ("0" * 20)).unlink()
    with rmqctl.open(root, broker_conf=CONFIG) as opened:
        queue = opened.topic("orders").queues[0]
        first = queue.min_offset
        assert first > 0 and len(queue) == 20 - first
        assert offsets(queue) == list(range(first, 20)) == offsets(queue[:])
        assert offsets(queue[first + 1 : first + 3]) == [first + 1, first + 2]
        assert offsets(queue[0 : first + 1]) == [first]
        assert offsets(queue[first + 1 : 0 : -1]) == [first + 1, first]
        assert offsets(queue[first - 1 :: -1]) == []
        with pytest.raises(IndexError):
            queue[first - 1]


def test_between_two_times(store: rmqctl.Store) -> None:
    def seconds(messages: Any) -> list[int]:
        return [(one.store_timestamp - _LONG_AGO) // 1000 for one in messages]

    low, high = _LONG_AGO + 10_000, _LONG_AGO + 15_000
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=low)
    queue = store.topic("orders").queues[0]
    for since in (low, moment, moment.isoformat(), moment.astimezone().replace(tzinfo=None)):
        assert seconds(store.between(since, high)) == [10, 11, 12, 13, 14, 15]
        assert seconds(store.topic("orders").between(since, high)) == [10, 11, 12, 13, 14, 15]
        assert seconds(queue.between(since, high)) == [10, 12, 14]
    assert seconds(queue[:6].between(low)) == [10]
    assert seconds(store.topic("orders").between(until=low).between(low - 1000)) == [9, 10]
    assert seconds(queue.between(until=_LONG_AGO - 1)) == []
    assert seconds(store.between(until=_LONG_AGO - 1)) == []
    assert queue[5].store_time == moment and queue[5].born_time is not None
    with pytest.raises(ValueError, match="swap them"):
        store.between(high, low)
    with pytest.raises(ValueError, match="in seconds"):
        store.between(1_700_000_000)
    with pytest.raises(ValueError, match="isoformat"):
        store.between("yesterday evening")
    for late in (datetime.max.replace(tzinfo=_WEST), "9999-12-31T23:59:59-05:00"):
        with pytest.raises(ValueError, match=r"out of range|in no calendar of UTC"):
            store.between(until=late)
    with pytest.raises(TypeError, match="not float"):
        store.between(1.5)  # type: ignore[arg-type]


def test_a_message(store: rmqctl.Store) -> None:
    one = store.topic("orders").queues[1][3]
    assert (one.topic, one.queue_id, one.queue_offset) == ("orders", 1, 3)
    assert (one.keys, one.tags, one.body) == (("order-7", "all"), "paid", b"body 7")
    assert one.unique_key is None and one.reconsume_times == 0
    assert one.born_host.startswith("127.0.0.1:") and one.store_host.startswith("127.0.0.1:")
    row = one.to_dict()
    assert (row["type"], row["queue_offset"], row["body"]) == ("message", 3, "Ym9keSA3")
    assert "body" not in one.to_dict("none")
    with pytest.raises(ValueError, match="not 'json'"):
        one.to_dict("json")
    assert one != store.topic("orders").queues[1][4] and one != "something"
    assert len({one, store.message(one.physical_offset)}) == 1
    with pytest.raises(errors.NotARecordStart):
        store.message(one.physical_offset + 1)
    assert list(store.find("order-7")) == [one]
    assert list(store.find("body 7", scan=True)) == [one]
    assert not list(store.verify())


def test_nothing_of_a_store_gets_raw_into_a_repr(store: rmqctl.Store) -> None:
    nasty = next(name for name in store.topics if name != "orders")
    shown = [store, store.topics, store.between(5), store.topic(nasty), store.topic("orders")]
    topic = store.topic(nasty)
    queue = topic.queues[0]
    shown += [topic.queues, queue, queue[0], queue[:1], queue[:0], topic.between(5, 7)]
    shown += list(store)
    texts = [repr(one) for one in shown]
    assert all(text.isprintable() and text[0] == "<" for text in texts)
    assert repr(store.topic("orders").queues[0]) == "<Queue 'orders' 0, offsets 0 to 19>"
    assert texts[1] == f"<Topics: {nasty!r}, 'orders'>"
    assert repr(store.topic("orders").queues[0][10:12]) == (
        "<Messages of 'orders' queue 0, offsets 10 to 11>"
    )
    assert "keys 'order-0 all', tags 'due'" in repr(queue[0])
    store.close()
    assert all(repr(one).isprintable() for one in shown)
    assert repr(store).endswith("/store', closed>")


def test_after_a_close_nothing_is_read(root: Path) -> None:
    opened = rmqctl.open(root, broker_conf=CONFIG)
    topic = opened.topic("orders")
    queue = topic.queues[0]
    one, loop, part = queue[0], iter(opened), queue[1:5]
    next(loop)
    opened.close()
    opened.close()
    assert opened.closed and one.keys == ("order-0", "all") and one.store_time
    reading: list[Callable[[], object]] = [
        lambda: opened.topics,
        lambda: opened.engine,
        lambda: opened.queues,
        lambda: list(opened),
        lambda: next(loop),
        lambda: list(topic),
        lambda: topic.queues[0],
        lambda: len(queue),
        lambda: queue[0],
        lambda: list(part),
        lambda: part[0],
        lambda: one.body,
        lambda: one.stored_body,
        lambda: one.status,
        one.to_dict,
        lambda: opened.message(0),
        lambda: list(opened.find("order-1")),
        lambda: list(opened.verify()),
        lambda: opened.put("orders", b"x"),
        opened.__enter__,
    ]
    for read in reading:
        with pytest.raises(ValueError, match="is closed"):
            read()


def test_reading_changes_nothing_and_needs_no_lock(root: Path) -> None:
    before = golden_data.state(root)
    with MessageStore(root, CONFIG, writable=True):
        during = golden_data.state(root)
        with rmqctl.open(root, broker_conf=CONFIG) as opened:
            assert len([one.body for one in opened]) == 41
            with pytest.raises(errors.StoreInUse):
                rmqctl.open(root, writable=True, broker_conf=CONFIG)
        assert golden_data.state(root) == during
    assert golden_data.state(root).keys() == before.keys()


def test_errors_speak_python(tmp_path: Path, root: Path) -> None:
    with pytest.raises(errors.StoreNotFound, match="create=True"):
        rmqctl.open(tmp_path / "none")
    with pytest.raises(errors.NotAStore):
        rmqctl.open(tmp_path)
    with pytest.raises(ValueError, match="writable=True"):
        rmqctl.open(tmp_path / "none", create=True)
    with pytest.raises(errors.BrokerConfError):
        rmqctl.open(root, broker_conf=tmp_path / "none.conf")
    with rmqctl.open(root, broker_conf=CONFIG) as opened:
        for change in (lambda: opened.put("a"), lambda: opened.put_all([]), opened.flush):
            with pytest.raises(errors.NotWritable, match="writable=True") as told:
                change()
            assert "--" not in str(told.value)


def test_damage_is_a_warning_and_a_body_that_is_another_an_error(root: Path) -> None:
    with MessageStore(root, CONFIG) as engine:
        first, second, *_ = engine.commit_log.walk()
        assert isinstance(second, Record)
    with (root / "commitlog" / ("0" * 20)).open("r+b") as log:
        log.seek(first.physical_offset + PREFIXES[0].size)
        log.write(b"!")
        log.seek(second.physical_offset)
        log.write(b"\xff" * 8)
    with rmqctl.open(root, broker_conf=CONFIG) as opened:
        changed = opened.message(first.physical_offset)
        assert changed.status == "body-crc-mismatch" and changed.stored_body == b"!ody 0"
        with pytest.raises(errors.BodyUnreadable, match=r"body-crc-mismatch.*stored_body"):
            _ = changed.body
        with pytest.warns(rmqctl.DamageWarning, match="of the log at physical offset") as seen:
            assert len(list(opened)) == 40
        assert [one.filename for one in seen] == [__file__]
        queue = opened.topic("orders").queues[1]
        with pytest.warns(
            rmqctl.DamageWarning, match="'orders' queue 1 at queue offset 0 "
        ) as seen:
            assert offsets(queue) == list(range(1, 20))
        assert [one.filename for one in seen] == [__file__]
        with pytest.raises(errors.MessageUnreadable, match="`rmqctl verify`"):
            queue[0]
        assert {one.code for one in opened.verify()} >= {"body-crc-mismatch"}
        with warnings.catch_warnings():
            warnings.simplefilter("error", rmqctl.DamageWarning)
            with pytest.raises(rmqctl.DamageWarning):
                list(opened)


def test_a_body_is_what_a_consumer_gets(tmp_path: Path) -> None:
    import zlib

    body = b"again and " * 99
    with rmqctl.open(tmp_path / "store", writable=True, create=True, broker_conf=CONFIG) as opened:
        packed = zlib.compress(body)
        opened.put_all(
            [{"topic": "t", "sys_flag": 1, "body": packed.hex(), "body_encoding": "hex"}]
        )
        (one,) = opened
        assert one.body == body and one.stored_body == packed


def test_putting(tmp_path: Path) -> None:
    place = tmp_path / "store"
    conf = tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF)
    with rmqctl.open(place, writable=True, create=True, broker_conf=conf) as opened:
        assert opened.writable and repr(opened) == f"<Store {str(place)!r}, writable>"
        one = opened.put(
            "orders", "günstig", queue_id=3, keys=["a", "b"], tags="t", properties={"x": "y"}
        )
        assert (one.body.decode(), one.keys, one.tags) == ("günstig", ("a", "b"), "t")
        assert (one.queue_id, one.queue_offset, one.properties["x"]) == (3, 0, "y")
        assert opened.put("orders", b"\xff\0").body == b"\xff\0"
        later = opened.put("orders", b"later", delay_level=1)
        assert later.topic == "SCHEDULE_TOPIC_XXXX"
        assert opened.put_all({"topic": "orders", "body": str(n)} for n in range(30)) == 30
        assert len(opened.topic("orders").queues[0]) == 31
        opened.flush()
        with pytest.raises(errors.TopicNotAllowed):
            opened.put("../elsewhere", b"")
        with pytest.raises(errors.PutRefused, match="MESSAGE_ILLEGAL"):
            opened.put("x" * 200, b"")
        with pytest.raises(errors.UsageError, match="0x01 and 0x02"):
            opened.put("orders", b"", properties={"a": "\x01"})
        with pytest.raises(errors.UsageError, match=r"ignore_unknown=True takes it\. 1 before"):
            opened.put_all([{"topic": "orders"}, {"topic": "orders", "colour": "red"}])
        assert opened.put_all([{"topic": "t", "colour": "red"}], ignore_unknown=True) == 1
    with rmqctl.open(place, broker_conf=parse_broker_conf(BROKER_CONF)) as opened:
        assert len(list(opened)) == 35 and not list(opened.verify())


def test_a_program_goes_on_behind_what_the_log_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue file that gets no name on a full disk fails the put behind the append."""
    link = os.link

    def no_room(*arguments: Any, **named: Any) -> None:
        if os.readlink(f"/proc/self/fd/{named['dst_dir_fd']}").endswith("/new/0"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        link(*arguments, **named)

    wanted = [{"topic": "new", "body": str(number)} for number in range(5)]
    opened = rmqctl.open(tmp_path / "s", writable=True, create=True, broker_conf=CONFIG)
    opened.put("orders", b"")
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_room)
        with pytest.raises(errors.PutRefused) as refused:
            opened.put_all(wanted[:3])
        assert (refused.value.stored, refused.value.in_log) == (0, 3)
        assert "Correct what the status names, and go on behind these 3." in str(refused.value)
    assert opened.put_all(wanted[3:]) == 2
    opened.close()
    with rmqctl.open(tmp_path / "s", broker_conf=CONFIG) as opened:
        assert [one.body for one in opened.topic("new")] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_store_that_is_put_into_itself_is_doubled(root: Path) -> None:
    with rmqctl.open(root, writable=True, broker_conf=CONFIG) as opened:
        assert opened.put_all(opened) == 41
        assert len(list(opened)) == 82
        assert opened.put_all(opened.topic("orders")) == 80
        assert sum(1 for one in opened for _ in [opened.put("t", one.body)]) == 162


def test_messages_go_from_store_to_store(root: Path, tmp_path: Path) -> None:
    with (
        rmqctl.open(root, broker_conf=CONFIG) as old,
        rmqctl.open(tmp_path / "new", writable=True, create=True, broker_conf=CONFIG) as new,
    ):
        assert new.put_all(old) == 41
        same = ("topic", "queue_id", "queue_offset", "properties", "body", "born_timestamp")
        for one, other in zip(old, new, strict=True):
            assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]
            assert one != other
    with (root / "commitlog" / ("0" * 20)).open("r+b") as log:
        log.seek(PREFIXES[0].size)
        log.write(b"!")
    with (
        rmqctl.open(root, broker_conf=CONFIG) as old,
        rmqctl.open(tmp_path / "newer", writable=True, create=True, broker_conf=CONFIG) as new,
    ):
        with pytest.raises(errors.UsageError, match="ignore_body_crc=True takes it"):
            new.put_all(old)
        assert new.put_all(old, ignore_body_crc=True) == 41


def test_a_log_that_is_nothing_but_damage_warns_a_hundred_times(root: Path) -> None:
    with MessageStore(root, CONFIG, writable=True) as engine:
        assert all(one.is_ok for one in engine.put_messages([message(n) for n in range(300)]))
        places = [
            one.physical_offset for one in engine.commit_log.walk() if isinstance(one, Record)
        ]
    for place in places[1::2]:
        file, position = divmod(place, CONFIG.mapped_file_size_commit_log)
        name = f"{file * CONFIG.mapped_file_size_commit_log:020d}"
        with (root / "commitlog" / name).open("r+b") as log:
            log.seek(position)
            log.write(b"\xff" * 8)
    with (
        rmqctl.open(root, broker_conf=CONFIG) as opened,
        pytest.warns(rmqctl.DamageWarning) as told,
    ):
        assert len(list(opened)) < len(places) * 2 // 3
        assert len(told) == 101 and "verify() names all" in str(told[-1].message)
