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

from rmqctl.engine.config import MessageStoreConfig, parse_broker_conf
from rmqctl.engine.messagestore import MessageStore
from rmqctl.spark.columns import STRUCTURES
from rmqctl.spark.datasource import scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEWS = {"messages": "commitlog", "units": "queue", "index_items": "index"}
_QUEUES = (
    "topic string, queue_id bigint, min_offset bigint, max_offset bigint, "
    "max_physical_offset bigint, messages bigint, store string"
)


def query(spark: SparkSession, text: str, stores: list[str], options: dict[str, str]) -> DataFrame:
    """The result of a query over the stores' views."""
    spark.createDataFrame(list(_queue_rows(stores, options)), _QUEUES).createOrReplaceTempView(
        "queues"
    )
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
        scan(spark, ",".join(stores), structure, wanted, (), **options).createOrReplaceTempView(
            view
        )


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


def _queue_rows(stores: list[str], options: dict[str, str]) -> Iterator[tuple[Any, ...]]:
    text = options.get("brokerConf", "")
    config = parse_broker_conf(text) if text else MessageStoreConfig()
    for root in stores:
        with MessageStore(Path(root), config) as store:
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
                    root,
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
