"""SQL over the views ``messages``, ``units``, ``index_items`` and ``queues``.

A Python source does not learn which columns a query needs; the analysed query does, so it is
planned once over everything and then run over views of the columns that it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqctl.engine.messagestore import MessageStore
from rmqctl.spark.columns import STRUCTURES
from rmqctl.spark.datasource import broker_config, scan
from rmqctl.spark.remote import RemoteStore
from rmqctl.spark.split import ReadSettings
from rmqctl.spark.staging import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEWS = {"messages": "commitlog", "units": "queue", "index_items": "index"}
_QUEUES = (
    "topic string, queue_id bigint, min_offset bigint, max_offset bigint, "
    "max_physical_offset bigint, messages bigint, store string, broker string"
)


def query(spark: SparkSession, text: str, stores: list[str], options: dict[str, str]) -> DataFrame:
    """The result of a query over the stores' views."""
    _queues(spark, stores, options).createOrReplaceTempView("queues")
    _make_views(spark, stores, options, None)
    result = spark.sql(text)
    named = _named(result)
    if named is not None:
        _make_views(spark, stores, options, named)
        result = spark.sql(text)
    return result


def _make_views(
    spark: SparkSession, stores: list[str], options: dict[str, str], named: set[str] | None
) -> None:
    for view, structure in VIEWS.items():
        columns = [
            column.name for column in STRUCTURES[structure] if named is None or column.name in named
        ]
        # A count needs a column, too: a narrow one.
        wanted = columns or [STRUCTURES[structure][0].name]
        scan(spark, stores, structure, wanted, (), **options).createOrReplaceTempView(view)


def _named(result: DataFrame) -> set[str] | None:
    """Every column name in the optimised plan but those that the source only offers; None where
    the plan is out of reach (Spark Connect)."""
    frame = getattr(result, "_jdf", None)
    if frame is None:
        return None
    names: set[str] = set()
    nodes = [frame.queryExecution().optimizedPlan()]
    while nodes:
        node = nodes.pop()
        children = node.children()
        if children.isEmpty():
            continue
        for attributes in (node.references().toSeq(), node.output()):
            # A node that only passes on everything names nothing.
            if attributes is node.output() and node.nodeName() not in ("Project", "Aggregate"):
                continue
            names.update(attributes.apply(n).name() for n in range(attributes.size()))
        nodes += [children.apply(n) for n in range(children.size())]
    output = result.columns
    return names | set(output)


def _queues(spark: SparkSession, stores: list[str], options: dict[str, str]) -> DataFrame:
    """One row a queue. Those of URLs are what their units say, and are counted when a query asks
    for them: a unit behind the end of the log counts, and a queue without units has no row."""
    from pyspark.sql import functions as F

    settings = ReadSettings("queue", stores, broker_config(options.get("brokerConf", "")))
    local = [store for store in stores if not is_remote(store)]
    rows = spark.createDataFrame(list(_queue_rows(local, settings)), _QUEUES)
    columns = ["topic", "queue_id", "queue_offset", "physical_offset", "size"]
    for url in stores:
        if not is_remote(url):
            continue
        units = scan(spark, url, "queue", [*columns, "status"], (), **options)
        log_min = RemoteStore(url).log().min_offset
        counted = (
            units.where((F.col("status") != "damage") & (F.col("physical_offset") >= log_min))
            .groupBy("topic", F.col("queue_id").cast("bigint").alias("queue_id"))
            .agg(
                F.min("queue_offset").alias("min_offset"),
                (F.max("queue_offset") + 1).alias("max_offset"),
                F.max_by(F.col("physical_offset") + F.col("size"), "queue_offset").alias(
                    "max_physical_offset"
                ),
            )
            .withColumn("messages", F.col("max_offset") - F.col("min_offset"))
        )
        source = settings.source(url)
        rows = rows.unionAll(
            counted.withColumns({"store": F.lit(source.store), "broker": F.lit(source.broker)})
        )
    return rows


def _queue_rows(stores: list[str], settings: ReadSettings) -> Iterator[tuple[Any, ...]]:
    for root in stores:
        with MessageStore(Path(root), settings.config) as store:
            for where in store.queues.directories():
                queue = store.consume_queue(where.topic, where.queue_id)
                if queue is None:
                    continue
                yield (
                    where.topic,
                    where.queue_id,
                    queue.min_offset,
                    queue.max_offset,
                    queue.max_physical_offset,
                    max(queue.max_offset - queue.min_offset, 0),
                    *settings.source(root),
                )


def plain(row: Any, type: str = "row") -> dict[str, Any]:
    """A row of Spark as a row of the command line: bytes as Base64, times as ISO 8601."""
    return {"type": type} | {
        name: _plain(value) for name, value in zip(row.__fields__, row, strict=True)
    }


def _plain(value: Any) -> Any:
    from base64 import b64encode

    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode("ascii")
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {str(_plain(name)): _plain(inner) for name, inner in value.items()}
    if hasattr(value, "__fields__"):
        return {n: _plain(v) for n, v in zip(value.__fields__, value, strict=True)}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
