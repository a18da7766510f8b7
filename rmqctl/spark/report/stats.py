"""Statistics of the messages of one or several stores, as rows.

One pass groups by everything that is asked for, and the sections are sums over its groups; a second
one looks for keys that more than one message of a topic has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from formats.constants import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    RETRY_GROUP_TOPIC_PREFIX,
)
from rmqctl.engine.state.topicconfig import DLQ_GROUP_TOPIC_PREFIX
from rmqctl.rows.columns import broker_of
from rmqctl.rows.sections import BY_BYTES_TOO, BY_VALUE, DELAYS, HOUR, SECTIONS, Waiting, most
from rmqctl.spark.remote.urls import shown
from rmqctl.spark.source.datasource import broker_config, scan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rmqctl.rows import Row

_COLUMNS = [
    "topic",
    "queue_id",
    "total_size",
    "body_length",
    "born_timestamp",
    "born_host",
    "store_timestamp",
    "reconsume_times",
    "properties",
    "status",
    "broker",
    "store",
    "physical_offset",
    "damage",
]


def statistics(
    spark: SparkSession,
    stores: list[str],
    options: dict[str, str],
    top: int,
    waits: Waiting | None = None,
) -> Iterator[Row]:
    """Rows ``store``, then of each section, ``consumer_group``, ``unreadable``, ``duplicate_key``,
    what ``waits``, and ``summary``, whose ``damages`` are places that cannot be read.

    Stores and the sections with an order of their own (hour, size, delay) come whole, the others
    with the ``top`` groups of most messages, and unreadable places with the first ``top``.
    """
    waits = waits or Waiting()
    rows = scan(spark, stores, "commitlog", _COLUMNS, (), **options)
    everything = _groups(rows).persist()
    try:
        groups = everything.where("not is_damage")
        yield from _store_rows(groups, stores, options)
        for name, keys in SECTIONS.items():
            if name != "broker" or len(stores) > 1:
                yield from _section(groups, name, keys, top)
        yield from _consumer_groups(groups, top)
        yield from _unreadable(everything.where("is_damage"), top)
        summary = _summary(groups)
        damaged = everything.where("is_damage").selectExpr("sum(messages) AS n").first()
        summary["damages"] = (damaged["n"] if damaged is not None else 0) or 0
    finally:
        everything.unpersist()
    duplicates = _duplicates(rows.where("status <> 'damage'")).persist()
    try:
        for row in (
            duplicates.orderBy(*_most("messages"), "topic", "kind", "key").limit(top).collect()
        ):
            yield {"type": "duplicate_key", **row.asDict()}
        found = duplicates.selectExpr("count(*) AS n", "coalesce(sum(messages), 0) AS m").first()
        assert found is not None
        summary |= {"duplicate_keys": found["n"], "messages_with_duplicate_key": found["m"]}
    finally:
        duplicates.unpersist()
    yield from waits.rows
    waited = {"waiting": waits.waiting, "pending_halves": waits.pending_halves}
    yield {"type": "summary", "stores": len(stores), **summary, **waited}


def _groups(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    delay = F.col("store_timestamp") - F.col("born_timestamp")
    is_damage = F.col("status") == "damage"
    keyed = rows.select(
        "topic",
        "queue_id",
        F.col("properties")[PROPERTY_TAGS].alias("tag"),
        (F.floor(F.col("store_timestamp") / HOUR) * HOUR).cast("bigint").alias("hour"),
        F.regexp_replace("born_host", r":-?\d+$", "").alias("producer"),
        _size_class(F.col("body_length")).alias("body_length_up_to"),
        _delay_class(delay).alias("delay_ms_up_to"),
        F.col("total_size").cast("bigint").alias("size"),
        (F.col("reconsume_times") > 0).cast("bigint").alias("again"),
        "broker",
        "store",
        "store_timestamp",
        is_damage.alias("is_damage"),
        # Null for every message, so they are not kept apart by it.
        F.when(is_damage, F.col("physical_offset")).alias("physical_offset"),
        F.when(is_damage, F.col("total_size").cast("bigint")).alias("length"),
        F.regexp_replace("damage", "(?s): expected .*$", "").alias("reason"),
    )
    names = list(dict.fromkeys(name for keys in SECTIONS.values() for name in keys))
    place = ("is_damage", "store", "physical_offset", "length", "reason")
    return keyed.groupBy(*place, *names).agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.sum("again").alias("reconsumed"),
        F.min("store_timestamp").alias("first"),
        F.max("store_timestamp").alias("last"),
    )


def _size_class(length: Column) -> Column:
    """The power of two that a length does not exceed."""
    from pyspark.sql import functions as F

    return (
        F.when(length <= 0, 0).otherwise(F.pow(F.lit(2.0), F.ceil(F.log2(length)))).cast("bigint")
    )


def _delay_class(delay: Column) -> Column:
    """The limit that a delay does not exceed; null beyond the last one."""
    from pyspark.sql import functions as F

    found = F.lit(None).cast("bigint")
    for limit in reversed(DELAYS):
        found = F.when(delay <= limit, limit).otherwise(found)
    return found


def _section(groups: DataFrame, name: str, keys: tuple[str, ...], top: int) -> Iterator[Row]:
    from pyspark.sql import functions as F

    sums = groups.groupBy(*keys).agg(
        F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")
    )
    if name in BY_VALUE:
        for row in sums.orderBy(F.col(keys[0]).asc_nulls_last()).collect():
            yield {"type": name, **row.asDict()}
        return
    found = {}
    for measure in ("messages", "bytes") if name in BY_BYTES_TOO else ("messages",):
        for row in sums.orderBy(*_most(measure), *keys).limit(top).collect():
            found[tuple(row[key] for key in keys)] = [row["messages"], row["bytes"]]
    for group in most(found, name, top):
        messages, size = found[group]
        names = dict(zip(keys, group, strict=True))
        yield {"type": name, **names, "messages": messages, "bytes": size}


def _store_rows(groups: DataFrame, stores: list[str], options: dict[str, str]) -> Iterator[Row]:
    from pyspark.sql import functions as F

    sums = groups.groupBy("store", "broker").agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )
    found = {row["store"]: row for row in sums.collect()}
    config = broker_config(options.get("brokerConf", ""))
    given = config.broker_name if len(stores) == 1 else ""
    for name in sorted(map(shown, stores)):
        row = found.get(name)
        yield {
            "type": "store",
            "store": name,
            "broker": given or broker_of(name),
            "messages": row["messages"] if row else 0,
            "bytes": row["bytes"] if row else 0,
            "first_store_timestamp": row["first"] if row else None,
            "last_store_timestamp": row["last"] if row else None,
            "file_reserved_hours": config.file_reserved_time,
        }


def _consumer_groups(groups: DataFrame, top: int) -> Iterator[Row]:
    """Groups with retries or dead letters, those with most of both first."""
    from pyspark.sql import functions as F

    topic = F.col("topic")
    is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
    is_dead = topic.startswith(DLQ_GROUP_TOPIC_PREFIX)
    none = F.lit(0).cast("bigint")
    sums = (
        groups.where(is_retry | is_dead)
        .groupBy(F.regexp_replace("topic", "^%(RETRY|DLQ)%", "").alias("group"))
        .agg(
            F.sum(F.when(is_retry, F.col("messages")).otherwise(none)).alias("retries"),
            F.sum(F.when(is_dead, F.col("messages")).otherwise(none)).alias("dead_letters"),
            F.sum("messages").alias("messages"),
            F.sum("bytes").alias("bytes"),
        )
    )
    for row in sums.orderBy(*_most("messages"), "group").limit(top).collect():
        yield {"type": "consumer_group", **row.asDict()}


def _unreadable(damaged: DataFrame, top: int) -> Iterable[Row]:
    places = damaged.select("store", "physical_offset", "length", "reason")
    for row in places.orderBy("store", "physical_offset").limit(top).collect():
        yield {"type": "unreadable", **row.asDict()}


def _most(name: str) -> tuple[Column, ...]:
    from pyspark.sql import functions as F

    return (F.col(name).desc(),)


def _summary(groups: DataFrame) -> dict[str, Any]:
    from pyspark.sql import functions as F

    def part(prefix: str) -> Column:
        return F.sum(F.when(F.col("topic").startswith(prefix), F.col("messages")))

    found = groups.agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.countDistinct("topic").alias("topics"),
        F.count_distinct("topic", "queue_id").alias("queues"),
        part(RETRY_GROUP_TOPIC_PREFIX).alias("retries"),
        part(DLQ_GROUP_TOPIC_PREFIX).alias("dead_letters"),
        F.sum("reconsumed").alias("reconsumed"),
    ).first()
    assert found is not None
    summary = {name: value or 0 for name, value in found.asDict().items()}
    messages = summary["messages"]
    for name, count in (("retry_rate", "retries"), ("dead_letter_rate", "dead_letters")):
        summary[name] = round(summary[count] / messages, 6) if messages else 0.0
    return summary


def _duplicates(rows: DataFrame) -> DataFrame:
    """Keys that more than one message of a topic has; ``kind`` is the property that holds it."""
    from pyspark.sql import functions as F

    properties = F.col("properties")
    unique = F.array(
        F.struct(F.lit(PROPERTY_UNIQ_KEY).alias("kind"), properties[PROPERTY_UNIQ_KEY])
    )
    named = F.transform(
        F.array_distinct(F.split(properties[PROPERTY_KEYS], " ")),
        lambda key: F.struct(F.lit(PROPERTY_KEYS).alias("kind"), key),
    )
    kind = "array<struct<kind:string,key:string>>"
    keys = F.concat(unique.cast(kind), F.coalesce(named.cast(kind), F.array().cast(kind)))
    each = rows.select("topic", F.explode(keys).alias("k")).select("topic", "k.kind", "k.key")
    counted = (
        each.where("key <> ''").groupBy("topic", "kind", "key").agg(F.count("*").alias("messages"))
    )
    return counted.where("messages > 1")
