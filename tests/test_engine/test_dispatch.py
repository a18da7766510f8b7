"""What a record gives: its units and keys, at the edges of what a queue can have."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.constants import INT_MAX, LONG_MAX
from formats.text import encode_properties, index_key_hash
from rmqctl.engine.dispatch.batches import UnitBatch, key_batch, unit_batch
from rmqctl.engine.dispatch.byqueue import units_by_queue
from rmqctl.engine.dispatch.rules import MAX_QUEUE_OFFSET, Dispatcher
from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.log.spread import open_commit_log
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.scan.batch import Batch
from rmqctl.engine.scan.scanner import Scanner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig

PREPARED, COMMIT, ROLLBACK = 4, 8, 12
BATCHES = Dispatcher(MessageStoreConfig(), frozenset({"t"}))
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Record:
    root = tmp_path_factory.mktemp("dispatch") / "store"
    with MessageStore(root, writable=True, create=True) as store:
        result = store.put_message(MessageExtBrokerInner("t", b"", 3))
        assert result.append is not None
        return store.look_message_by_offset(result.append.wrote_offset)


def with_properties(record: Record, properties: dict[str, str], separator: bytes = b"") -> Record:
    return record._replace(properties_bytes=encode_properties(properties) + separator)


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({}, [("t", 3, 0)]),
        ({"sys_flag": COMMIT}, [("t", 3, 0)]),
        ({"sys_flag": PREPARED}, []),
        ({"sys_flag": ROLLBACK}, []),
        ({"queue_id": INT_MAX}, [("t", INT_MAX, 0)]),
        ({"queue_id": -1}, []),
        ({"queue_offset": -1}, []),
        ({"queue_offset": MAX_QUEUE_OFFSET}, [("t", 3, MAX_QUEUE_OFFSET)]),
        ({"queue_offset": MAX_QUEUE_OFFSET + 1}, []),
        ({"topic_bytes": b".."}, []),
    ],
)
def test_the_unit_of_a_record(
    stored: Record, changes: dict[str, Any], places: list[tuple[str, int, int]]
) -> None:
    """``CommitLogDispatcherBuildConsumeQueue``, and what a queue's files have place for."""
    units = Dispatcher(MessageStoreConfig()).units(stored._replace(**changes))
    assert [unit[:3] for unit in units] == places


def test_the_last_unit_of_a_queue_lies_within_a_long() -> None:
    assert MAX_QUEUE_OFFSET * 20 + 20 <= LONG_MAX < (MAX_QUEUE_OFFSET + 2) * 20


@pytest.mark.parametrize(
    ("names", "offsets", "places"),
    [
        ("a,b", "5,0", [("a", 3, 5), ("b", 3, 0)]),
        ("a,b", "5", []),
        ("a,b", "-1,7", [("b", 3, 7)]),
        ("a,b", "x,7", [("b", 3, 7)]),
        ("%LMQ%a", "5", [("%LMQ%a", 0, 5)]),
        ("a", " ", []),
    ],
)
def test_extra_queues(
    stored: Record, names: str, offsets: str, places: list[tuple[str, int, int]]
) -> None:
    """``ConsumeQueue#multiDispatchLmqQueue``."""
    said = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    dispatcher, record = Dispatcher(MessageStoreConfig()), with_properties(stored, said)
    assert dispatcher.multi_dispatch(record) == places
    assert [unit[:3] for unit in dispatcher.units(record)] == [("t", 3, 0), *places]


def test_a_switch_that_the_queues_overrule(stored: Record) -> None:
    said = {"INNER_MULTI_DISPATCH": "a", "INNER_MULTI_QUEUE_OFFSET": "5"}
    record, name = with_properties(stored, said), "enable_multi_dispatch"
    explicit = {"enable_multi_dispatch": False, "explicit": frozenset({name})}
    for more, count in (({}, 1), ({"overruled": frozenset({name})}, 2)):
        config = MessageStoreConfig(**explicit, **more)  # type: ignore[arg-type]
        assert len(Dispatcher(config).units(record)) == count


@pytest.mark.parametrize(
    ("topic", "separator", "count"),
    [(SCHEDULE, b"\2", 1), ("%RETRY%g", b"\2", 1), (SCHEDULE, b"", 2), ("t", b"\2", 2)],
)
def test_topics_that_get_none_of_a_later_broker(
    stored: Record, topic: str, separator: bytes, count: int
) -> None:
    """``MixAll#topicAllowsLMQ`` of 5.x; properties of 4.9.3 end without a separator."""
    said = {"INNER_MULTI_DISPATCH": "a", "INNER_MULTI_QUEUE_OFFSET": "5"}
    record = with_properties(stored, said, separator)
    units = Dispatcher(MessageStoreConfig()).units(record._replace(topic_bytes=topic.encode()))
    assert len(units) == count


@pytest.mark.parametrize(
    ("count", "base", "expected"),
    [
        ("3", "7", (7, 3)),
        ("0", "7", (7, 0)),
        ("32767", "0", (0, 32767)),
        ("32768", "0", None),
        ("-1", "0", None),
        ("3", "-1", None),
    ],
)
def test_the_unit_of_a_batch(
    stored: Record, count: str, base: str, expected: tuple[int, int] | None
) -> None:
    """``CommitLog#setBatchSizeIfNeeded``: the count is a short."""
    record = with_properties(stored, {"INNER_NUM": count, "INNER_BASE": base})
    unit = BATCHES.batch_unit(record)
    assert (unit and (unit.base_offset, unit.batch_size)) == expected
    assert BATCHES.units(record) == []
    for changes in ({"queue_id": -1}, {"topic_bytes": b".."}, {"sys_flag": ROLLBACK}):
        assert BATCHES.batch_unit(record._replace(**changes)) is None


@pytest.mark.parametrize(
    ("level", "code"),
    [("1", 9_000), ("2", 60_000), ("99", 60_000), ("0", 77), ("-1", 77), ("x", 77), ("", 77)],
)
def test_the_time_of_a_delayed_message(level: str, code: int) -> None:
    """``ScheduleMessageService#computeDeliverTimestamp``; a level beyond the last is the last."""
    dispatcher = Dispatcher(MessageStoreConfig(message_delay_level="4s 55s"))
    assert dispatcher.delivery_time(level, 5_000, 77) == code


def test_a_time_of_delivery_is_a_long() -> None:
    dispatcher = Dispatcher(MessageStoreConfig(message_delay_level="1s"))
    assert dispatcher.delivery_time("1", LONG_MAX, 0) == -LONG_MAX - 1 + 999


@pytest.mark.parametrize(("kind", "count"), [(0, 3), (PREPARED, 3), (COMMIT, 3), (ROLLBACK, 0)])
def test_keys(stored: Record, kind: int, count: int) -> None:
    """``IndexService#buildIndex``: the unique key, then each of KEYS; none of a rollback."""
    record = with_properties(stored, {"KEYS": "a  b ", "UNIQ_KEY": "u"})._replace(sys_flag=kind)
    wanted = [index_key_hash("t", key) for key in ("u", "a", "b")]
    assert Dispatcher(MessageStoreConfig()).keys(record) == wanted[:count]


def test_a_batch_of_records_gives_what_each_gives(tmp_path: Path) -> None:
    """Extra queues among others, kinds without a unit, a level outside of the schedule topic, and
    places that no queue has."""
    extra = {"INNER_MULTI_DISPATCH": "a,b", "INNER_MULTI_QUEUE_OFFSET": "5,0", "KEYS": "k"}
    messages = [
        MessageExtBrokerInner("t", b"", 1, properties={"KEYS": "k"}),
        MessageExtBrokerInner("u", b"", 2, properties=extra),
        MessageExtBrokerInner("t", b"", 1, sys_flag=PREPARED, properties=extra),
        MessageExtBrokerInner("t", b"", 1, sys_flag=ROLLBACK, properties=extra),
        MessageExtBrokerInner("u", b"", 0, sys_flag=COMMIT, properties={"TAGS": "x"}),
        MessageExtBrokerInner(SCHEDULE, b"", 1, properties={"DELAY": "2"}, was_stored=True),
        MessageExtBrokerInner("t", b"", 1, properties={"DELAY": "2"}, was_stored=True),
        MessageExtBrokerInner("t", b"", 4),
    ]
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 16)
    with MessageStore(tmp_path, config, writable=True, create=True) as store:
        offsets = [one.append for one in map(store.put_message, messages)]
    last = offsets[-1]
    assert last is not None and None not in offsets
    with open(tmp_path / f"commitlog/{0:020}", "r+b") as file:
        file.seek(last.wrote_offset + 20)  # queueOffset
        file.write((MAX_QUEUE_OFFSET + 1).to_bytes(8, "big"))
    for dispatcher in (Dispatcher(config), Dispatcher(config, frozenset({"t"}))):
        with closing(open_commit_log(tmp_path, config, 1 << 16)) as log:
            records = [one for one in log.walk() if isinstance(one, Record)]
            assert len(records) == len(messages)
            units, keys = _of_batches(log, dispatcher)
        expected = [one for record in records for one in dispatcher.units(record)]
        assert units == [tuple(one) for one in expected]
        assert keys == [
            (code, record.physical_offset, record.store_timestamp)
            for record in records
            for code in dispatcher.keys(record)
        ]


def _of_batches(log: CommitLog, dispatcher: Dispatcher) -> tuple[list[Any], list[Any]]:
    """The units and keys of a log, as rows."""
    units: list[Any] = []
    keys: list[Any] = []
    for batch in Scanner(log).scan():
        if isinstance(batch, Batch):
            names, made = batch.topics.names, unit_batch(batch, dispatcher)
            rows = zip(*(column.tolist() for column in made), strict=True)
            units += [(names[topic], *rest) for topic, *rest in rows]
            keys += zip(*(column.tolist() for column in key_batch(batch)), strict=True)
    return units, keys


@pytest.mark.parametrize(
    ("queue_offsets", "physical_offsets", "is_run"),
    [
        ([4, 5, 6], [0, 9, 20], True),
        ([4, 6, 7], [0, 9, 20], False),
        ([4, 5, 6], [9, 0, 20], False),
        ([4, 5, 6], [0, 9, 9], False),
        ([4, 3, 2], [0, 9, 20], False),
    ],
)
def test_what_is_a_run_of_a_queue(
    queue_offsets: list[int], physical_offsets: list[int], is_run: bool
) -> None:
    """Of three units in each of two queues, which come in turns."""
    rows = [
        (topic, 0, queue_offset, physical_offset, 100, 0)
        for queue_offset, physical_offset in zip(queue_offsets, physical_offsets, strict=True)
        for topic in (1, 0)
    ]
    bulk = UnitBatch(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))
    found = list(units_by_queue([bulk]))
    assert [(one.topic_id, one.is_run, len(one)) for one in found] == [
        (0, is_run, 3), (1, is_run, 3)
    ]  # fmt: skip
    assert all(one.first == (queue_offsets[0], physical_offsets[0]) for one in found)
