"""Procedures give programs what the commands print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import (
    ConfigurationContradiction,
    NotAStore,
    OutputExists,
    StoreNotFound,
    UsageError,
)
from rmqctl.operations.look.stats import StoreToCount, statistics
from rmqctl.operations.look.waiting import waiting
from rmqctl.operations.verify import Finding, verify
from rmqctl.rows.columns import STRUCTURES
from rmqctl.spark import Stores, import_messages, scan, store
from rmqctl.spark.procedures import stores
from tests import golden_data
from tests.golden_data import tree_content

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.xdist_group("spark-writes")

Golden = Callable[[str], Path]
CONFIG = MessageStoreConfig()


@pytest.fixture
def damaged(golden: Golden, tmp_path: Path) -> Path:
    (tmp_path / "broker-a").mkdir()
    root = golden_data.copy_tree(golden("basic"), tmp_path / "broker-a" / "store")
    golden_data.apply_damage(root, golden_data.damage_case("hole")["ops"])
    return root


def counted(root: Path) -> list[Any]:
    with MessageStore(root, CONFIG) as found:
        waits = waiting([found], 20)
        one = StoreToCount(found, root.parent.name, str(root))
        return list(statistics([one], 20, lambda size: None, waits))


def test_a_check_gives_findings_and_summaries(
    spark: SparkSession, golden: Golden, damaged: Path
) -> None:
    sound = golden("basic")
    checked = store(str(sound), str(damaged), spark=spark).verify()
    rows = checked.findings.collect()
    for root in (sound, damaged):
        expected = [one for one in verify(root, CONFIG) if isinstance(one, Finding)]
        found = [Finding(*row[1:]) for row in rows if row["store"] == str(root)]
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert checked.summaries[str(root)].records
    assert checked.has_errors
    assert not store(str(sound), spark=spark).verify().has_errors


def test_statistics_are_rows_and_frames(spark: SparkSession, golden: Golden, damaged: Path) -> None:
    told = store(str(damaged), spark=spark).stats()
    assert told.rows == counted(damaged)
    assert told.summary["damages"] == 1
    topics = told.frame("topic")
    assert topics.columns == ["topic", "messages", "bytes"]
    assert topics.count() == told.summary["topics"]
    (place,) = told.frame("unreadable").collect()
    assert place["store"] == str(damaged) and place["physical_offset"] > 0
    assert told.frame("delay").count() == len([r for r in told.rows if r["type"] == "delay"])
    assert told.frame("broker").collect() == []
    with pytest.raises(UsageError, match=r"no rows of type topics\. It has store, broker, topic"):
        told.frame("topics")


def test_a_store_goes_out_and_in_again(spark: SparkSession, golden: Golden, tmp_path: Path) -> None:
    held = store(str(golden("basic")), spark=spark)
    out, new = str(tmp_path / "out"), str(tmp_path / "new")
    exported = held.export(out)
    assert exported.damages == 0
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    spark.conf.set(setting, "true")
    assert import_messages(out, new, spark=spark) == exported.messages
    # The session is the caller's.
    assert spark.conf.get(setting) == "true"
    copy = store(new, spark=spark)
    assert copy.scan("body").exceptAll(held.scan("body")).count() == 0
    with pytest.raises(UsageError, match="Syntax error"):
        held.sql("SELEC")
    # The session's own view of a name is not touched, nor are there others afterwards.
    spark.range(3).createOrReplaceTempView("messages")
    counted = [one.sql("SELECT count(*) AS n FROM messages") for one in (held, copy)]
    assert [frame.collect()[0]["n"] for frame in counted] == [exported.messages] * 2
    assert spark.table("messages").count() == 3
    assert [one.name for one in spark.catalog.listTables() if one.isTemporary] == ["messages"]
    spark.catalog.dropTempView("messages")
    with pytest.raises(OutputExists):
        held.export(out)
    with pytest.raises(OutputExists):
        import_messages(out, new, spark=spark)


def test_a_query_reads_the_columns_that_it_names(
    spark: SparkSession, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[str]] = []

    def noted(spark: SparkSession, places: Any, structure: str, columns: list[str]) -> Any:
        read.append(columns)
        return scan(spark, places, structure, columns)

    monkeypatch.setattr(stores, "scan", noted)
    # Given twice it is read once.
    held = store(str(golden("basic")), str(golden("basic")), spark=spark)
    assert held.places == [str(golden("basic"))]
    every = [column.name for column in STRUCTURES["commitlog"]]

    def last(build: Callable[[DataFrame], DataFrame]) -> tuple[list[str], DataFrame]:
        made = held.query(build)
        return read[-1], made

    columns, counted = last(lambda messages: messages.groupBy().count())
    assert columns == every[:1]
    assert counted.collect()[0][0] == scan(spark, held.places[0]).count()
    columns, by_topic = last(lambda messages: messages.groupBy("topic").count())
    assert columns == ["topic"]
    unpruned = scan(spark, held.places[0]).groupBy("topic").count()
    assert sorted(by_topic.collect()) == sorted(unpruned.collect())
    columns, _ = last(lambda m: m.where(m.queue_id == 1).select("body").orderBy("body"))
    assert columns == [name for name in every if name in ("queue_id", "body")]
    # A table joined with itself is read twice, each time the same.
    columns, pairs = last(
        lambda m: m.select("topic").distinct().join(m.select("topic", "queue_id"), "topic")
    )
    assert set(columns) == {"topic", "queue_id"}
    assert pairs.columns == ["topic", "queue_id"]
    # A name may be written in capitals, and a column taken by its number.
    columns, capitals = last(lambda m: m.select("TOPIC"))
    assert (columns, capitals.columns) == (["topic"], ["TOPIC"])
    number = every.index("queue_id")
    columns, numbered = last(
        lambda m: m.where(m.queue_id >= 0).select(m[number].alias("q"), "flag", "body_crc")
    )
    assert set(columns) == {"queue_id", "flag", "body_crc"}
    named = scan(spark, held.places[0]).where("queue_id >= 0")
    named = named.select("queue_id", "flag", "body_crc")
    assert sorted(numbered.collect()) == sorted(named.collect())
    # What has all columns reads all of them, and so does what asks for one that it does without.
    assert last(lambda m: m.where("topic = 'a'"))[0] == every
    columns, without = last(lambda m: m.withColumn("x", m.body).select("topic"))
    assert without.columns == ["topic"]
    _, renamed = last(lambda m: m.toDF(*(f"c{n}" for n in range(len(every)))).select("c0"))
    assert renamed.columns == ["c0"]
    _, sought = last(lambda m: m.select(m[m.columns.index("body") - 1].alias("x")))
    assert sought.columns == ["x"]
    with pytest.raises(UsageError, match="makes a DataFrame, and it made int"):
        held.query(lambda m: 1)  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match="no structure 'log': give one of commitlog, queue"):
        held.query(lambda m: m, "log")


def test_a_rebuild_goes_where_it_is_told(
    spark: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    root = golden_data.copy_tree(golden("basic"), tmp_path / "store")
    queues = tree_content(root / "consumequeue")
    held = store(str(root), spark=spark)
    assert held.rebuild("queues", output=str(tmp_path / "new")).units
    assert tree_content(tmp_path / "new" / "consumequeue") == queues
    (kept,) = held.rebuild("queues", in_place=True).kept
    assert tree_content(root / "consumequeue") == queues
    assert tree_content(kept / "consumequeue") == queues
    with pytest.raises(UsageError, match="queues, index or all, not 'queue'"):
        held.rebuild("queue", in_place=True)
    with pytest.raises(UsageError, match="either output=DIRECTORY or in_place=True"):
        held.rebuild()
    with pytest.raises(UsageError, match="either output=DIRECTORY or in_place=True"):
        held.rebuild(output="x", in_place=True)


def test_the_configuration_is_taken(spark: SparkSession, golden: Golden) -> None:
    own = golden_data.broker_conf_text("basic")
    assert not store(str(golden("basic")), spark=spark, broker_conf=own).verify().has_errors
    other = store(
        str(golden("basic")), spark=spark, broker_conf="mappedFileSizeConsumeQueue=4096\n"
    )
    with pytest.raises(ConfigurationContradiction, match="mappedFileSizeConsumeQueue"):
        other.verify()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: store("/none/*"), UsageError, "no such directory"),
        (lambda: store("/none"), UsageError, "no such directory"),
        (lambda: store("/proc"), NotAStore, "/proc"),
        (lambda: store("memory://none/at/all"), StoreNotFound, "memory"),
        (lambda: _pair().rebuild(in_place=True), UsageError, "takes one store"),
        (lambda: _remote().verify(), UsageError, "maps a store's files"),
        (lambda: _pair().export("/x", columns="bdy"), UsageError, "no column 'bdy'"),
        (lambda: _pair().export("/x", format="xml"), UsageError, "no format 'xml'"),
    ],
)
def test_what_cannot_be_is_told(
    call: Callable[[], object], error: type[Exception], text: str, spark: SparkSession
) -> None:
    with pytest.raises(error, match=text):
        call()


def _pair() -> Stores:
    from pyspark.sql import SparkSession

    return Stores(SparkSession.active(), ["/a", "/b"], "")


def _remote() -> Stores:
    from pyspark.sql import SparkSession

    return Stores(SparkSession.active(), ["memory://a"], "")
