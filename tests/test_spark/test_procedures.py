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
from tests import golden_data
from tests.golden_data import tree_content
from tests.test_spark.conftest import reads

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


def test_a_query_reads_the_columns_that_it_names(spark: SparkSession, golden: Golden) -> None:
    # Given twice it is read once.
    held = store(str(golden("basic")), str(golden("basic")), spark=spark)
    assert held.places == [str(golden("basic"))]
    every = [column.name for column in STRUCTURES["commitlog"]]

    def read(build: Callable[[DataFrame], DataFrame]) -> tuple[list[list[str]], DataFrame]:
        made = held.query(build)
        return [columns for columns, _ in reads(made)], made

    columns, counted = read(lambda messages: messages.groupBy().count())
    assert columns == [every[:1]]
    assert counted.collect()[0][0] == scan(spark, held.places[0]).count()
    columns, by_topic = read(lambda messages: messages.groupBy("topic").count())
    assert columns == [["topic"]]
    assert sorted(by_topic.collect()) == sorted(
        held.scan("topic").groupBy("topic").count().collect()
    )
    columns, _ = read(lambda m: m.where(m.queue_id == 1).select("body").orderBy("body"))
    assert columns == [[name for name in every if name in ("queue_id", "body")]]
    # A name may be written in capitals, and a column taken by its number.
    columns, capitals = read(lambda m: m.select("TOPIC"))
    assert (columns, capitals.columns) == ([["topic"]], ["TOPIC"])
    columns, numbered = read(lambda m: m.select(m[every.index("queue_id")].alias("q")))
    assert columns == [["queue_id"]]
    assert sorted(map(tuple, numbered.collect())) == sorted(
        map(tuple, held.scan("queue_id").collect())
    )
    # What has all columns reads all of them.
    assert read(lambda m: m.where("topic = 'a'"))[0] == [every]
    # Bodies that a query does not read are not checked either.
    _, told = read(lambda m: m.select("status").distinct())
    assert told.collect() == [("unchecked",)]
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
