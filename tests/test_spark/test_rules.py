"""Queries over ``load()`` read what they use, and answer what they would answer anyway."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import Golden
from tests.golden_data import apply_damage, broker_conf_text, copy_tree, damage_case

pytest.importorskip("pyspark", reason="pip install '.[spark]'")
pytest.importorskip("pyarrow", reason="pip install '.[spark]'")

from py4j.protocol import Py4JError

from rmqctl.rows.columns import default_names
from rmqctl.spark import RocketMQDataSource, scan
from rmqctl.spark.source import rules
from tests.test_spark.conftest import reads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.xdist_group("spark")

LOG = "commitlog"
#: Columns that a query has, and the condition on its rows.
QUERIES = {
    LOG: [
        ("*", "true"),
        ("*", "properties IS NULL OR body IS NULL OR length(body) > 100"),
        ("count(*)", "topic = 'TopicA'"),
        ("count(*)", "topic = 'nobody'"),
        ("topic, count(*)", "queue_id >= 1 AND queue_id < 3 AND queue_offset <=> 5"),
        ("physical_offset, status", "physical_offset BETWEEN 2000 AND 9000"),
        # The place of a record, so that a bound that leaves it out shows.
        ("msg_id", "physical_offset <= {place} AND physical_offset >= {place}"),
        ("count(*)", "physical_offset <= {place}"),
        ("count(*)", "physical_offset >= {place} AND queue_id <= 1"),
        ("physical_offset, damage", "status = 'damage' OR topic IS NULL"),
        ("msg_id", "topic IN ('TopicA', NULL, 'TopicB') AND queue_id IN (0, 7)"),
        ("msg_id", "physical_offset IN (SELECT max(physical_offset) FROM t)"),
        ("queue_offset", "store_time > timestamp '2020-01-01' AND born_time < current_timestamp()"),
        ("count(*)", "store_time > timestamp '2100-01-01'"),
        ("topic", "NOT topic = 'TopicA' AND upper(topic) <> 'X' AND queue_id = NULL"),
        ("topic, queue_id", "queue_id = 1.5 OR queue_offset > 30"),
        ("queue_offset", "queue_offset > 3 AND queue_offset <= 10"),
        ("tags_code, properties", "properties['TAGS'] IS NOT NULL AND store_timestamp > 0"),
        ("count(DISTINCT topic)", "queue_id = (SELECT max(queue_id) FROM t)"),
        ("store, broker", "true"),
    ],
    "queue": [
        ("*", "true"),
        ("topic, max(queue_offset)", "topic = 'TopicA' AND queue_id = 1"),
        ("status, count(*)", "queue_offset >= 3 AND queue_offset < 1000"),
        ("count(*)", "physical_offset < 5000"),
        ("count(*)", "physical_offset <= {place} AND physical_offset >= {place}"),
    ],
    "index": [
        ("*", "true"),
        ("count(*)", "physical_offset > 1000 AND store_time IS NOT NULL"),
        ("file, max(index_no)", "index_no > 2"),
    ],
}
CASES = [
    (LOG, "hole"),
    (LOG, "bad-magic-late"),
    (LOG, "flip-body-early"),
    ("queue", "cq-wrong-unit"),
    ("index", "index-bad-slot"),
    *((structure, "sound") for structure in QUERIES),
]


@contextmanager
def unpruned(spark: SparkSession) -> Iterator[None]:
    """Without the rules."""
    experimental = spark._jsparkSession.experimental()
    installed = experimental.extraOptimizations()
    assert installed.size() == 2
    getattr(experimental, "extraOptimizations_$eq")(installed.take(0))
    try:
        yield
    finally:
        getattr(experimental, "extraOptimizations_$eq")(installed)


def loaded(spark: SparkSession, root: Path, **options: str) -> DataFrame:
    given = {"brokerConf": broker_conf_text("basic"), "splitBytes": "64k", **options}
    return spark.read.format("rocketmq").options(**given).load(str(root))


@pytest.mark.parametrize(("structure", "case"), CASES)
def test_answers_are_those_of_whole_reads(
    spark: SparkSession, golden: Golden, tmp_path: Path, structure: str, case: str
) -> None:
    root = copy_tree(golden("basic"), tmp_path / "store")
    if case != "sound":
        apply_damage(root, damage_case(case)["ops"])
    loaded(spark, root, structure=structure, columns="*").createOrReplaceTempView("t")

    def answer(what: str, where: str) -> list[str]:
        names = ", ".join(name for name in what.split(", ") if "(" not in name)
        grouped = f" GROUP BY {names}" if "(" in what and names else ""
        return sorted(map(str, spark.sql(f"SELECT {what} FROM t WHERE {where}{grouped}").collect()))

    with unpruned(spark):
        tenth = "percentile_disc(0.1) WITHIN GROUP (ORDER BY physical_offset)"
        place = spark.sql(f"SELECT {tenth} FROM t").collect()[0][0]
    for what, text in QUERIES[structure]:
        where = text.format(place=place)
        with unpruned(spark):
            expected = answer(what, where)
        assert answer(what, where) == expected, (what, where)
    spark.catalog.dropTempView("t")


def test_columns_and_conditions_of_each_place(spark: SparkSession, golden: Golden) -> None:
    rows = loaded(spark, golden("basic"))
    every = default_names(LOG)

    def columns(frame: DataFrame) -> list[list[str]]:
        return [found for found, _ in reads(frame)]

    assert columns(rows) == [every]
    assert columns(rows.groupBy().count()) == [every[:1]]
    assert columns(rows.groupBy("TOPIC").count()) == [["topic"]]
    assert columns(rows.select(rows[every.index("queue_id")].alias("q")).distinct()) == [
        ["queue_id"]
    ]
    named = rows.where("queue_id = 1 AND length(topic) > 3").select("msg_id")
    assert reads(named) == [(["topic", "queue_id", "msg_id"], [["queue_id", "=", 1]])]
    assert reads(rows.where("topic = 'TopicA'")) == [(every, [["topic", "=", "TopicA"]])]
    # Two places of one query, and a query behind it.
    both = rows.where("queue_id = 0").union(rows.where("queue_id = 1"))
    assert [where for _, where in reads(both)] == [[["queue_id", "=", 0]], [["queue_id", "=", 1]]]
    assert both.count() == rows.where("queue_id IN (0, 1)").count() > 0
    assert rows.count() == scan(spark, str(golden("basic"))).count()
    # What could be wrong about a place skips nothing unasked.
    late = "store_time > timestamp '2020-01-01' AND queue_offset > 3 AND flag = 0"
    assert [where for _, where in reads(rows.where(late))] == [[]]
    asked = loaded(spark, golden("basic"), clockSlackMs="1000").where(late)
    assert reads(asked)[0][1] == [["store_time", ">", "2020-01-01T00:00:00Z"]]
    pairs = rows.select("topic").distinct().join(rows.select("topic", "queue_id"), "topic")
    assert columns(pairs) == [["topic"], ["topic", "queue_id"]]
    # What is held in memory is whole.
    held = rows.cache()
    assert held.groupBy("topic").count().count() == held.select("topic").distinct().count() > 1
    assert columns(held.unpersist().where("1 = 2")) == []


def test_what_was_asked_for_is_not_asked_twice(spark: SparkSession, golden: Golden) -> None:
    found = scan(
        spark, str(golden("basic")), columns=["topic", "msg_id"], where=[("queue_id", "=", 1)]
    )
    given = [["queue_id", "=", 1]]
    assert reads(found) == [(["topic", "msg_id", "queue_id"], given)]
    few = found.where("topic = 'TopicA'").groupBy("topic").count()
    assert reads(few) == [(["topic", "queue_id"], given)]


def test_a_condition_leaves_out_splits(spark: SparkSession, golden: Golden) -> None:
    rows = loaded(spark, golden("basic"), splitBytes="16k", minPartitions="8")
    assert rows.rdd.getNumPartitions() > 4
    few = rows.where("physical_offset < 1000")
    assert few.rdd.getNumPartitions() == 1
    assert few.count() == sum(row["physical_offset"] < 1000 for row in rows.collect()) > 0


def test_bodies_are_checked_as_before(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    root = copy_tree(golden("basic"), tmp_path / "store")
    apply_damage(root, damage_case("flip-body-early")["ops"])
    whole = loaded(spark, root, columns="*").groupBy("status").count()
    assert reads(whole) == [(["status"], [])]
    told = {row["status"]: row["count"] for row in whole.collect()}
    assert set(told) == {"ok", "body-crc-mismatch"}
    # Unasked nobody reads bodies, and what says nothing of them needs no check.
    assert loaded(spark, root).select("status").distinct().collect() == [("unchecked",)]
    checked = loaded(spark, root, checkCrc="true")
    assert checked.groupBy().count().collect() == [(sum(told.values()),)]
    assert checked.select("status").distinct().count() == 2
    hasty = loaded(spark, root, columns="*", checkCrc="auto").select("status").distinct()
    assert hasty.collect() == [("unchecked",)]


def test_damage_fails_whoever_asked_for_that(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    root = copy_tree(golden("basic"), tmp_path / "store")
    apply_damage(root, damage_case("hole")["ops"])
    rows = loaded(spark, root, failOnDataLoss="true").where("physical_offset < 1000")
    assert reads(rows.groupBy().count()) == [(["physical_offset"], [])]
    with pytest.raises(Exception, match=r"damage|unreadable|lost"):
        rows.count()


def test_each_session_has_the_rules_once(
    spark: SparkSession, golden: Golden, caplog: pytest.LogCaptureFixture
) -> None:
    # Several: Py4J keeps methods by the name of their class.
    for other in (spark.newSession(), spark.newSession(), spark.newSession()):
        installed = other._jsparkSession.experimental().extraOptimizations
        other.dataSource.register(RocketMQDataSource)
        rules.install_rules(other)
        assert installed().size() <= 2
        rules.install_rules(other)
        assert installed().size() == 2
        rows = loaded(other, golden("basic"))
        assert reads(rows.groupBy().count()) == [(["physical_offset"], [])]
        assert rows.count() == len(rows.collect()) > 0
    assert not caplog.records


def test_what_is_read_stays_columns(spark: SparkSession, golden: Golden) -> None:
    """Of tasks that run at once, and of a join, where two reads feed one task."""
    rows = loaded(spark, golden("basic"), columns="*", splitBytes="16k")
    assert "ColumnarToRow" in planned(rows.select("topic", "body"))
    with unpruned(spark):
        again = loaded(spark, golden("basic"), columns="*", splitBytes="16k")
        assert "ColumnarToRow" not in planned(again.select("topic", "body"))
        expected = sorted(map(str, again.collect()))
    assert sorted(map(str, rows.collect())) == expected
    assert sorted(map(str, rows.sort("msg_id").limit(10_000).collect())) == expected
    others = rows.selectExpr("msg_id", "properties AS others")
    pairs = rows.hint("merge").join(others, "msg_id")
    assert pairs.where("others['TAGS'] = properties['TAGS']").count() > 0
    assert pairs.count() == len(expected)
    some = rows.limit(1).collect()[0]
    assert str(some) in expected


def test_columns_stay_within_sessions_that_keep_their_own_files(
    spark: SparkSession, golden: Golden
) -> None:
    """Their tasks do not find what was sent to all."""
    other: Any = spark.newSession()
    other.conf.set("spark.sql.artifact.isolation.enabled", "true")
    rows = scan(other, str(golden("basic")), columns=["topic"])
    assert other._jsparkSession.experimental().extraOptimizations().size() == 1
    assert "ColumnarToRow" not in planned(rows)
    assert rows.groupBy("topic").count().count() > 1


def planned(rows: DataFrame) -> str:
    text: str = rows._jdf.queryExecution().executedPlan().toString()
    return text


def test_without_a_compiler_everything_is_read(
    spark: SparkSession,
    golden: Golden,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def missing(*_: object) -> None:
        raise Py4JError("no such class")

    monkeypatch.setattr(rules, "_compiled", missing)
    other: Any = spark.newSession()
    with caplog.at_level(logging.WARNING):
        counted = scan(other, str(golden("basic")), columns=["topic", "queue_id"])
    assert "read all columns of the table: no such class" in caplog.text
    assert "makes rows of what is read: no such class" in caplog.text
    assert counted.groupBy("topic").count().count() > 1
    assert reads(counted.groupBy("topic").count()) == [(["topic", "queue_id"], [])]


def test_a_narrower_read_that_fails_leaves_the_whole_one(
    spark: SparkSession, tmp_path: Path, golden: Golden
) -> None:
    """It says what is wrong as it always did."""
    root = copy_tree(golden("basic"), tmp_path / "store")
    rows = loaded(spark, root)
    root.rename(tmp_path / "moved")
    with pytest.raises(Exception, match=r"store"):
        rows.count()
