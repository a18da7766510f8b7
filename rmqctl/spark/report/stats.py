"""Statistics of the messages of one or several stores, as rows.

A first pass groups by everything that is needed, and the sections are sums over its groups. A
second pass finds keys that several messages of a topic have. If there are few groups, the driver
makes the sums, as ``stats`` does without Spark, because a job takes longer than all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from formats.constants import (
    DLQ_GROUP_TOPIC_PREFIX,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    RETRY_GROUP_TOPIC_PREFIX,
)
from rmqctl.rows.columns import broker_of
from rmqctl.rows.sections import (
    BY_BYTES_TOO,
    BY_VALUE,
    DELAYS,
    HOUR,
    SECTIONS,
    Waiting,
    most,
    order,
)
from rmqctl.rows.sums import Sums, consumer_groups, place, section_rows, summary
from rmqctl.spark.remote.urls import shown
from rmqctl.spark.session.jobs import parallelism
from rmqctl.spark.source.datasource import broker_config, scan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow

    from rmqctl.rows import Row

#: The most rows, of groups or of keys, that the driver takes: some megabytes.
_FEW = 20_000
#: Columns of the place of damage. They are null for all messages, so that these are grouped
#: together.
_PLACE = ("store", "physical_offset", "length", "reason")

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


class LogSums(NamedTuple):
    """Messages and bytes of one store, and the first and last store time (epoch milliseconds)."""

    messages: int = 0
    bytes: int = 0
    first: int | None = None
    last: int | None = None


def statistics(
    spark: SparkSession,
    stores: list[str],
    options: dict[str, str],
    top: int,
    waits: Waiting | None = None,
) -> Iterator[Row]:
    """Yields rows ``store``, the rows of each section, ``consumer_group``, ``unreadable``,
    ``duplicate_key``, the rows of ``waits``, and ``summary``, whose ``damages`` counts places that
    cannot be read.

    Stores, and the sections that are ordered by value (hour, size, delay), are complete. Of the
    other sections the ``top`` groups with the most messages are given, and of unreadable places
    the first ``top``.
    """
    waits = waits or Waiting()
    rows = scan(spark, stores, "commitlog", _COLUMNS, (), **options)
    # Persisted rows stay in as many partitions as a shuffle has, 200 by default, and each of them
    # would open as many files again in every later job.
    everything = _groups(rows).coalesce(4 * parallelism(spark)).persist()
    try:
        few = _few(everything)
        last: Row
        if few is not None:
            counts = _counts(few)
            yield from _small(few, counts, stores, options, top)
            last = summary(len(stores), counts, 0, 0, waits)
        else:
            yield from _large(everything, stores, options, top)
            last = _summary(everything, len(stores), waits)
    finally:
        everything.unpersist()
    found = _duplicates(rows.where("status <> 'damage'")).persist()
    try:
        duplicates, keys, messages = _most_duplicates(found, top)
    finally:
        found.unpersist()
    for row in duplicates:
        yield {"type": "duplicate_key", **row.asDict()}
    yield from waits.rows
    yield {**last, "duplicate_keys": keys, "messages_with_duplicate_key": messages}


def _few(rows: DataFrame) -> list[SparkRow] | None:
    """All rows, from one job, if they are few; else None."""
    found = rows.limit(_FEW + 1).collect()
    return found if len(found) <= _FEW else None


def _small(
    groups: list[SparkRow], counts: Sums, stores: list[str], options: dict[str, str], top: int
) -> Iterator[Row]:
    """All rows up to the unreadable places, from sums that the driver makes."""
    yield from _store_rows(_logs_of(groups), stores, options)
    for name in SECTIONS:
        if name != "broker" or len(stores) > 1:
            yield from section_rows(name, counts, top)
    yield from consumer_groups(counts)[:top]
    yield from sorted(counts.unreadable, key=place)[:top]


def _logs_of(groups: list[SparkRow]) -> dict[str, LogSums]:
    logs: dict[str, LogSums] = {}
    for group in groups:
        if not group["is_damage"]:
            first, last = group["first"], group["last"]
            log = logs.get(group["store"], LogSums(0, 0, first, last))
            messages, size = log.messages + group["messages"], log.bytes + group["bytes"]
            first, last = min(log.first, first), max(log.last, last)
            logs[group["store"]] = LogSums(messages, size, first, last)
    return logs


def _counts(groups: list[SparkRow]) -> Sums:
    counts = Sums()
    for group in groups:
        if group["is_damage"]:
            counts.damages += group["messages"]
            found = {name: group[name] for name in _PLACE}
            counts.unreadable.append({"type": "unreadable", **found})
            continue
        counts.reconsumed += group["reconsumed"]
        for name, keys in SECTIONS.items():
            values = tuple(group[key] for key in keys)
            counts.add(name, values, group["messages"], group["bytes"])
    return counts


def _large(
    everything: DataFrame, stores: list[str], options: dict[str, str], top: int
) -> Iterator[Row]:
    """The same rows, with a job for each kind."""
    groups = everything.where("not is_damage")
    yield from _store_rows(_logs(groups), stores, options)
    for name, keys in SECTIONS.items():
        if name != "broker" or len(stores) > 1:
            yield from _section(groups, name, keys, top)
    yield from _consumer_groups(groups, top)
    yield from _unreadable(everything.where("is_damage"), top)


def _most_duplicates(found: DataFrame, top: int) -> tuple[list[SparkRow], int, int]:
    """The ``top`` keys with the most messages, the number of all such keys, and that of their
    messages."""
    few = _few(found)
    if few is not None:
        few.sort(key=lambda row: (-row["messages"], *map(order, row[:3])))
        return few[:top], len(few), sum(row["messages"] for row in few)
    most = found.orderBy(*_most("messages"), "topic", "kind", "key").limit(top).collect()
    sums = found.selectExpr("count(*) AS n", "coalesce(sum(messages), 0) AS m").first()
    assert sums is not None
    return most, sums["n"], sums["m"]


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
        F.when(is_damage, F.col("physical_offset")).alias("physical_offset"),
        F.when(is_damage, F.col("total_size").cast("bigint")).alias("length"),
        F.regexp_replace("damage", "(?s): expected .*$", "").alias("reason"),
    )
    names = list(dict.fromkeys(name for keys in SECTIONS.values() for name in keys))
    return keyed.groupBy("is_damage", *_PLACE, *names).agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.sum("again").alias("reconsumed"),
        F.min("store_timestamp").alias("first"),
        F.max("store_timestamp").alias("last"),
    )


def _size_class(length: Column) -> Column:
    """The smallest power of two that a length does not exceed."""
    from pyspark.sql import functions as F

    return (
        F.when(length <= 0, 0).otherwise(F.pow(F.lit(2.0), F.ceil(F.log2(length)))).cast("bigint")
    )


def _delay_class(delay: Column) -> Column:
    """The smallest limit that a delay does not exceed; null beyond the last limit."""
    from pyspark.sql import functions as F

    found = F.lit(None).cast("bigint")
    for limit in reversed(DELAYS):
        found = F.when(delay <= limit, limit).otherwise(found)
    return found


def _section(groups: DataFrame, name: str, keys: tuple[str, ...], top: int) -> Iterator[Row]:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    sums = groups.groupBy(*keys).agg(
        F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")
    )
    if name in BY_VALUE:
        for row in sums.orderBy(F.col(keys[0]).asc_nulls_last()).collect():
            yield {"type": name, **row.asDict()}
        return
    measures = ("messages", "bytes") if name in BY_BYTES_TOO else ("messages",)
    tops = [sums.orderBy(*_most(measure), *keys).limit(top) for measure in measures]
    # Both are made by one job, so that the sums are computed once.
    found = {
        tuple(row[key] for key in keys): [row["messages"], row["bytes"]]
        for row in reduce(DataFrame.unionAll, tops).collect()
    }
    for group in most(found, name, top):
        messages, size = found[group]
        names = dict(zip(keys, group, strict=True))
        yield {"type": name, **names, "messages": messages, "bytes": size}


def _logs(groups: DataFrame) -> dict[str, LogSums]:
    from pyspark.sql import functions as F

    sums = groups.groupBy("store").agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )
    return {store: LogSums(*log) for store, *log in sums.collect()}


def _store_rows(
    logs: dict[str, LogSums], stores: list[str], options: dict[str, str]
) -> Iterator[Row]:
    config = broker_config(options.get("brokerConf", ""))
    given = config.broker_name if len(stores) == 1 else ""
    for name in sorted(map(shown, stores)):
        log = logs.get(name, LogSums())
        yield {
            "type": "store",
            "store": name,
            "broker": given or broker_of(name),
            "messages": log.messages,
            "bytes": log.bytes,
            "first_store_timestamp": log.first,
            "last_store_timestamp": log.last,
            "file_reserved_hours": config.file_reserved_time,
        }


def _consumer_groups(groups: DataFrame, top: int) -> Iterator[Row]:
    """Rows of the consumer groups that have retries or dead letters. Those with the most come
    first."""
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


def _summary(everything: DataFrame, stores: int, waits: Waiting) -> Row:
    from pyspark.sql import functions as F

    def part(prefix: str) -> Column:
        return F.sum(F.when(F.col("topic").startswith(prefix), F.col("messages")))

    found = (
        everything.where("not is_damage")
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("bytes").alias("bytes"),
            F.countDistinct("topic").alias("topics"),
            F.count_distinct("topic", "queue_id").alias("queues"),
            part(RETRY_GROUP_TOPIC_PREFIX).alias("retries"),
            part(DLQ_GROUP_TOPIC_PREFIX).alias("dead_letters"),
            F.sum("reconsumed").alias("reconsumed"),
        )
        .first()
    )
    damaged = everything.where("is_damage").agg(F.sum("messages").alias("damages")).first()
    assert found is not None and damaged is not None
    summary = {name: value or 0 for name, value in found.asDict().items()}
    messages = summary["messages"]
    for name, count in (("retry_rate", "retries"), ("dead_letter_rate", "dead_letters")):
        summary[name] = round(summary[count] / messages, 6) if messages else 0.0
    return {
        "type": "summary",
        "stores": stores,
        **summary,
        "damages": damaged["damages"] or 0,
        # These are counted later.
        "duplicate_keys": 0,
        "messages_with_duplicate_key": 0,
        "waiting": waits.waiting,
        "pending_halves": waits.pending_halves,
    }


def _duplicates(rows: DataFrame) -> DataFrame:
    """Keys that more than one message of a topic has. ``kind`` is the property with the key."""
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
