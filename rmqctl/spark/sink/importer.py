"""import: a new store from files of messages, such as export writes.

Messages stay what they were (topic, queue, properties, body, flags, hosts, born time) and keep
their order; places in the log and the queues, ids and store times are the new store's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import UsageError
from rmqctl.spark.sink.newstore import write_store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: What is read of the input; the rest of an export is the old store's.
COLUMNS = {
    "topic": "string",
    "queue_id": "int",
    "flag": "int",
    "sys_flag": "int",
    "born_timestamp": "bigint",
    "born_host": "string",
    "store_host": "string",
    "reconsume_times": "int",
    "prepared_transaction_offset": "bigint",
    "tags": "string",
    "keys": "string",
    "properties": "map<string,string>",
    "body": "binary",
}
_BASE64 = "body_base64"
_ORDER = ("store", "physical_offset")


def read(spark: SparkSession, source: str, kind: str) -> DataFrame:
    """The messages of some files, in the order of their export when they tell it.

    :raises UsageError: they have no topic.
    """
    from pyspark.sql import functions as F

    # A topic 123 is a word.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    # A line that is cut off must not become a message without a body.
    reader = spark.read.option("mode", "FAILFAST")
    if kind == "ndjson":
        kinds = COLUMNS | {"body": "string", _BASE64: "string"}
        kinds |= {"store": "string", "physical_offset": "bigint"}
        schema = ", ".join(f"{name} {of}" for name, of in kinds.items())
        rows = reader.schema(schema).json(source)
    elif kind == "csv":
        options = {"header": "true", "escape": '"', "multiLine": "true"}
        rows = reader.options(**options).csv(source)
    else:
        rows = reader.parquet(source)
    if "topic" not in rows.columns:
        raise UsageError(reason=f"{source} has no column topic.")
    wanted = []
    for name, of in COLUMNS.items():
        if name == "body":
            wanted.append(_body(rows).alias(name))
        elif name in rows.columns:
            column = F.col(name)
            if name == "properties" and kind == "csv":
                column = F.from_json(column, of)
            wanted.append(column.cast(of).alias(name))
    # The files of a topic and day hold runs of messages; without the old places their order is
    # that of the files.
    order = [F.col(name) for name in _ORDER if name in rows.columns]
    if "physical_offset" in rows.columns:
        rows = rows.withColumn("physical_offset", F.col("physical_offset").cast("bigint"))
        rows = rows.orderBy(*order)
    return rows.select(*wanted)


def _body(rows: DataFrame) -> Column:
    """The bodies, which text files have as Base64; without one they are empty."""
    from pyspark.sql import functions as F

    given = [F.col("body").cast("binary")] if "body" in rows.columns else []
    if _BASE64 in rows.columns:
        given.append(F.to_binary(F.col(_BASE64), F.lit("base64")))
    return F.coalesce(*given, F.lit(b""))


def load(rows: DataFrame, to: str, config: MessageStoreConfig) -> int:
    """Makes the store; how many messages it has. It appears whole, or not at all.

    :raises OutputExists: there is something. :raises WriteRefused: a message is none.
    """
    return write_store(rows, to, config, as_stored=True)
