"""Filters skip splits and records, and never lose a row."""

from __future__ import annotations

import operator
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from tests.conftest import Golden
from tests.golden_data import (
    apply_damage,
    broker_conf,
    broker_conf_text,
    copy_tree,
    damage_case,
)

pytest.importorskip("pyspark", reason="pip install '.[spark]'")
pytest.importorskip("pyarrow", reason="pip install '.[spark]'")

from pyspark.sql import datasource as sources

from rmqctl.spark import scan
from rmqctl.spark.source.pushdown import _FILTERS, Bounds, Condition, decode, encode
from rmqctl.spark.source.split import ReadSettings
from rmqctl.spark.source.splits import plan
from tests.test_spark.conftest import Rows, moment, read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

COMPARISONS: dict[type[Any], Callable[[Any, Any], bool]] = {
    sources.EqualTo: operator.eq,
    sources.EqualNullSafe: operator.eq,
    sources.GreaterThan: operator.gt,
    sources.GreaterThanOrEqual: operator.ge,
    sources.LessThan: operator.lt,
    sources.LessThanOrEqual: operator.le,
    sources.In: lambda value, values: value in values,
}
SETTINGS = {
    "basic": ReadSettings("commitlog", [], broker_conf("basic"), split_bytes=3_000, clock_slack=50),
}
CASES = ["basic", "cq-wrong-unit", "cq-tail-lost", "stale-record-after-end", "bad-magic-late"]
COLUMNS = {
    "commitlog": ["topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp",
                  "store_time", "status", "store"],
    "queue": ["topic", "queue_id", "queue_offset", "physical_offset", "status"],
    "index": ["file", "index_no", "physical_offset", "store_time"],
}  # fmt: skip


@pytest.fixture(scope="module")
def stores(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sound store and damaged ones: queues that lie or lag must not lose rows of the log."""
    directory = tmp_path_factory.mktemp("damaged")
    found = {"basic": golden("basic")}
    for case in CASES[1:]:
        found[case] = copy_tree(golden("basic"), directory / case)
        apply_damage(found[case], damage_case(case)["ops"])
    return found


def read_settings(root: Path, structure: str) -> ReadSettings:
    return replace(SETTINGS["basic"], structure=structure, stores=[str(root)])


@cache
def all_rows(root: Path, structure: str) -> Rows:
    return read_rows(read_settings(root, structure), COLUMNS[structure])


def matches(row: dict[str, Any], filters: list[Any]) -> bool:
    """What Spark does again with every row: null matches nothing."""
    return all(
        row[f.attribute[0]] is not None and COMPARISONS[type(f)](row[f.attribute[0]], f.value)
        for f in filters
    )


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_row_is_lost(stores: dict[str, Path], data: st.DataObject) -> None:
    structure = data.draw(st.sampled_from(["commitlog", "commitlog", "queue", "index"]))
    root = stores[data.draw(st.sampled_from(CASES))]
    rows = all_rows(root, structure)
    sample = data.draw(st.sampled_from([row for row in rows if row.get("status") != "damage"]))
    filters = []
    for name in data.draw(st.lists(st.sampled_from(COLUMNS[structure]), min_size=1, max_size=4)):
        value: Any = sample[name]
        if name == "store_time":
            value += timedelta(microseconds=data.draw(st.integers(-90_000, 90_000)))
        elif isinstance(value, int):
            value += data.draw(st.integers(-3, 3))
        kind = data.draw(st.sampled_from(list(COMPARISONS)))
        filters.append(kind((name,), (value,) if kind is sources.In else value))
    bounds = Bounds()
    for one in filters:
        bounds.add(one)
    found = read_rows(read_settings(root, structure), COLUMNS[structure], bounds)
    assert [r for r in found if matches(r, filters)] == [r for r in rows if matches(r, filters)]


def splits_of(root: Path, structure: str, *filters: Any, **changes: Any) -> int:
    bounds = Bounds()
    for one in filters:
        bounds.add(one)
    return len(list(plan(replace(read_settings(root, structure), **changes), bounds)))


def test_splits_are_skipped(golden: Golden) -> None:
    root = golden("basic")
    row = all_rows(root, "commitlog")[500]
    every = splits_of(root, "commitlog")
    assert every > 100
    at = row["physical_offset"]
    assert splits_of(root, "commitlog", sources.EqualTo(("physical_offset",), at)) <= 3
    assert splits_of(root, "commitlog", sources.LessThan(("physical_offset",), 30_000)) < 15
    queue = [
        sources.EqualTo(("topic",), row["topic"]),
        sources.EqualTo(("queue_id",), row["queue_id"]),
    ]
    between = [
        sources.GreaterThanOrEqual(("queue_offset",), row["queue_offset"]),
        sources.LessThanOrEqual(("queue_offset",), row["queue_offset"] + 2),
    ]
    assert splits_of(root, "commitlog", *queue, *between) < every / 3
    assert splits_of(root, "commitlog", sources.EqualTo(("store",), "/another")) == 0
    newest = all_rows(root, "commitlog")[-1]["store_timestamp"]
    late = sources.GreaterThanOrEqual(("store_time",), moment(newest))
    assert splits_of(root, "commitlog", late, clock_slack=0) < every / 2
    assert splits_of(root, "commitlog", late, clock_slack=-1) == every
    assert splits_of(root, "queue", *queue, split_bytes=1) < splits_of(root, "queue", split_bytes=1)
    one = sources.EqualTo(("file",), all_rows(root, "index")[0]["file"])
    assert splits_of(root, "index", one) < splits_of(root, "index")


@pytest.mark.parametrize("how", ["made again", "rebuilt"])
@pytest.mark.parametrize("low", [0, 1, 50, 99, 100])
@pytest.mark.parametrize("high", [0, 50, 99, 200])
def test_a_queue_that_began_again(
    begun_again: dict[str, ReadSettings], how: str, low: int, high: int
) -> None:
    """Its queue offsets come twice in the log, and its units are those of the second time or, after
    a rebuild, those of the first."""
    filters = [
        sources.EqualTo(("topic",), "t"),
        sources.EqualTo(("queue_id",), 0),
        sources.GreaterThanOrEqual(("queue_offset",), low),
        sources.LessThanOrEqual(("queue_offset",), high),
    ]
    bounds = Bounds()
    for one in filters:
        bounds.add(one)
    rows = read_rows(begun_again[how], ["topic", "queue_id", "queue_offset"], bounds)
    found = [row["queue_offset"] for row in rows if matches(row, filters)]
    assert found == 2 * [*range(low, min(high, 99) + 1)]


@pytest.fixture(scope="module")
def begun_again(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ReadSettings]:
    """Stores of a topic with 100 messages that was deleted and got 100 more, between others."""
    config = MessageStoreConfig(mapped_file_size_commit_log=4096)
    stores: dict[str, ReadSettings] = {}
    for how in ("made again", "rebuilt"):
        root = tmp_path_factory.mktemp("begun-again") / "store"
        for _ in range(2):
            shutil.rmtree(root / "consumequeue" / "t", ignore_errors=True)
            with MessageStore(root, config, writable=True, create=True) as store:
                for topic, count in (("other", 40), ("t", 100), ("other", 40)):
                    for _ in range(count):
                        assert store.put_message(MessageExtBrokerInner(topic, b"x" * 50)).is_ok
        if how == "rebuilt":
            rebuild_in_place(plan_rebuild(root, config, "all"))
        stores[how] = ReadSettings("commitlog", [str(root)], config, split_bytes=500)
    return stores


def test_clocks_may_go_back(tmp_path: Path) -> None:
    """By less than the slack: no file is skipped wrongly."""
    times = iter([10_000_000 + (-1) ** n * 1_000_000 + n for n in range(1000)])
    config = MessageStoreConfig(mapped_file_size_commit_log=4096)
    with MessageStore(
        tmp_path / "s", config, writable=True, create=True, clock=lambda: next(times)
    ) as store:
        store.put_messages([MessageExtBrokerInner("t", b"x" * 100) for _ in range(300)])
    given_settings = ReadSettings("commitlog", [str(tmp_path / "s")], config)
    rows = read_rows(given_settings, ["store_timestamp"])
    for at in (8_999_999, 9_000_100, 10_000_000, 11_000_100):
        bounds = Bounds(low={"store_timestamp": at})
        found = read_rows(given_settings, ["store_timestamp"], bounds)
        assert found == [row for row in rows if row["store_timestamp"] >= at]


def test_asked_of_spark(spark: SparkSession, golden: Golden) -> None:
    """The rows of ``where``, and fewer tasks; in every time zone of the session."""
    root = str(golden("basic"))
    conf = {"brokerConf": broker_conf_text("basic"), "splitBytes": "60000", "clockSlackMs": "0"}
    rows = all_rows(golden("basic"), "commitlog")
    stamps = sorted(row["store_timestamp"] for row in rows)
    time = moment(stamps[len(stamps) // 2])
    conditions: list[list[Condition]] = [
        [("topic", "=", "TopicA"), ("queue_id", "=", 1), ("queue_offset", ">=", 5),
         ("queue_offset", "<=", 8)],
        [("physical_offset", ">", 100_000), ("physical_offset", "<", 120_000)],
        [("topic", "in", ["TopicA", "TopicB"]), ("store_time", "<", time)],
        [("store_time", ">=", time), ("status", "=", "unchecked")],
        [("store_time", "in", [time])],
        [("topic", "=", "none such")],
    ]  # fmt: skip
    for zone, where in zip(["UTC", "Asia/Shanghai"] * 3, conditions, strict=True):
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            frame = scan(spark, root, columns=["physical_offset"], where=where, **conf)
            found = [row.physical_offset for row in frame.collect()]
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        kinds: dict[str, Any] = dict(_FILTERS)
        filters = [kinds[c]((name,), value) for name, c, value in where]
        assert found == [r["physical_offset"] for r in rows if matches(r, filters)], where
    tasks = [
        scan(spark, root, where=where, **conf).rdd.getNumPartitions()
        for where in ((), conditions[1])
    ]
    assert tasks[1] < tasks[0] / 2


def test_a_frame_may_be_used_twice(spark: SparkSession, golden: Golden) -> None:
    """Spark's own pushing would make the second filter hold for the first use too."""
    frame = scan(
        spark, str(golden("basic")), columns=["topic"], brokerConf=broker_conf_text("basic")
    )
    some = frame.where("topic = 'TopicA'").union(frame.where("topic = 'TopicB'"))
    rows = all_rows(golden("basic"), "commitlog")
    assert some.count() == sum(row["topic"] in ("TopicA", "TopicB") for row in rows)
    assert frame.count() == len(rows)


def test_conditions() -> None:
    with pytest.raises(ValueError, match="'like' is none of =, <"):
        encode([("topic", "like", "a%")])
    with pytest.raises(ValueError, match="is no value of a column"):
        encode([("topic", "=", object())])
    bounds = decode(encode([("store_time", ">", datetime(1970, 1, 1, 0, 0, 1))]))
    assert bounds.low == {"store_timestamp": 1000}


def test_bounds_of_times() -> None:
    bounds = Bounds()
    instant = datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)
    bounds.add(sources.GreaterThan(("store_time",), instant))
    bounds.add(sources.LessThan(("store_time",), instant))
    assert (bounds.low, bounds.high) == ({"store_timestamp": -1}, {"store_timestamp": 0})
    bounds.add(sources.Not(sources.EqualTo(("topic",), "t")))
    bounds.add(sources.EqualTo(("properties", "a"), "t"))
    bounds.add(sources.EqualTo(("flag",), True))
    assert bounds.only == {}


def test_values_that_spark_casts_skip_nothing(spark: SparkSession, golden: Golden) -> None:
    """The queue id 1 equals 1.0 and ``"1"`` there. A time without a zone is one in UTC, in the
    conditions that skip as in those that Spark judges."""
    root, conf = golden("basic"), broker_conf_text("basic")
    rows = all_rows(root, "commitlog")
    stamps = sorted(row["store_timestamp"] for row in rows)
    time = moment(stamps[len(stamps) // 2])
    assert time is not None
    text = time.replace(tzinfo=None).isoformat()
    one = sum(row["queue_id"] == 1 for row in rows)
    wanted: list[tuple[list[Condition], int]] = [
        ([("queue_id", "=", 1.0)], one),
        ([("queue_id", "in", ["1"])], one),
        ([("queue_id", "=", "1"), ("queue_id", "<=", 1)], one),
        ([("queue_id", "in", [1, None])], one),
        ([("store_time", ">=", text)], sum(row["store_time"] >= time for row in rows)),
        ([("store_time", "=", None)], 0),
    ]
    for zone in ("America/New_York", "Asia/Shanghai"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            for where, count in wanted:
                frame = scan(spark, str(root), columns=["topic"], where=where, brokerConf=conf)
                assert frame.count() == count, where
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
    with pytest.raises(ValueError, match="1 is no time: give a datetime, or ISO 8601"):
        scan(spark, str(root), where=[("store_time", ">", 1)])
