"""``import``: makes a new store from files of messages, such as ``export`` writes.

Messages keep topic, queue, properties, body, flags, hosts, born time and their order. Physical
offsets, queue offsets, message ids and store times are new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqctl.engine.record.fields import (
    COMPRESSION,
    DECOMPRESSED,
    MESSAGE,
    OTHER_TYPES,
    PASSED_OVER,
)
from rmqctl.engine.record.status import BODY_CRC_MISMATCH
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import UsageError
from rmqctl.spark.sink.messagelines import DDL, LineReader
from rmqctl.spark.sink.newstore import write_store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: The columns that are read. Other columns of an export describe the old store.
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
STRINGS = ("topic", "tags", "keys", "born_host", "store_host", "type", "status", "body_encoding")
_OF_BODIES = ("body_crc", "body_length", "status", "body_status")
_CRC_MASK = 0x7FFFFFFF


def read(
    spark: SparkSession,
    source: str,
    kind: str,
    *,
    ignore_body_crc: bool = False,
    ignore_unknown: bool = False,
) -> DataFrame:
    """The messages of some files, in the order of their export, if the files have it. Rows of other
    types are skipped.

    :param ignore_body_crc: bodies need not match their CRCs. :param ignore_unknown: columns that no
        message has are skipped.
    :raises UsageError: the files have no topics, or a column that no message has.
    """
    # The topic 123 must not become a number.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    if kind == "ndjson":
        rows = _lines(spark, source, LineReader(ignore_body_crc, ignore_unknown))
    else:
        rows = _columns(spark, source, kind, ignore_unknown)
        rows = _messages(rows, source, kind, ignore_body_crc)
    # Each topic and day has its own files. Without the old offsets, messages have the order of the
    # files.
    order = [name for name in _ORDER if name in rows.columns]
    if "physical_offset" in order:
        rows = rows.orderBy(*order)
    return rows.drop(*_ORDER)


def _lines(spark: SparkSession, source: str, reader: LineReader) -> DataFrame:
    """The messages in files of NDJSON, with the columns for their order."""
    from pyspark.sql import functions as F

    lines = spark.read.option("lineSep", "\n").text(source)
    topic = F.col("topic") if "topic" in lines.columns else F.lit(None).cast("string")
    path = F.col("_metadata.file_path").alias("path")
    return lines.select("value", path, topic.alias("topic")).mapInArrow(reader.batches, DDL)


def _columns(spark: SparkSession, source: str, kind: str, ignore_unknown: bool) -> DataFrame:
    """The rows of Parquet or CSV files. :raises UsageError: as :func:`read`."""
    # A line that is cut off must not become a message without a body.
    reader = spark.read.option("mode", "FAILFAST")
    if kind == "csv":
        options = {"header": "true", "escape": '"', "multiLine": "true"}
        rows = reader.options(**options).csv(source)
    else:
        rows = reader.parquet(source)
    check_columns(rows.columns, source, ignore_unknown)
    for name in rows.columns:
        of = rows.schema[name].dataType.simpleString()
        if name in STRINGS and of != "string":
            raise UsageError(reason=f"{source}: {name} must be a string, not {of}.")
    return rows


def check_columns(names: Sequence[str], source: str, ignore_unknown: bool) -> None:
    """Checks the names of columns. :raises UsageError: no message has such a column, or there is no
    topic."""
    known = {*COLUMNS, *_OF_BODIES, *PASSED_OVER, _BASE64, "body_encoding"}
    for name in names:
        if name not in known and not ignore_unknown:
            raise UsageError(
                reason=f"{source} has a column {name!r}, which is none of a message "
                f"({', '.join(COLUMNS)}): ignore_unknown passes it over."
            )
    if "topic" not in names:
        raise UsageError(reason=f"{source} has no column topic.")


def _messages(rows: DataFrame, source: str, kind: str, ignore_body_crc: bool) -> DataFrame:
    """The columns of messages, and those for their order. Rows are checked."""
    from pyspark.sql import functions as F

    names = set(rows.columns)
    if "type" in names:
        rows = rows.where(_is_message(source))
    rows = rows.withColumn("body", _body(rows, source))
    problem = _body_problem(names, ignore_body_crc)
    told = F.raise_error(F.concat(F.lit(f"{source} holds a row that is no message: "), problem))
    body = F.when(problem.isNotNull(), told.cast("binary")).otherwise(F.col("body"))
    wanted = [body.alias("body")]
    for name, of in COLUMNS.items():
        if name in names and name != "body":
            column = F.col(name)
            if name == "properties" and kind == "csv":
                column = F.from_json(column, of)
            if name == "sys_flag" and "body_status" in names:
                column = F.when(
                    F.col("body_status") == DECOMPRESSED,
                    column.cast(of).bitwiseAND(~COMPRESSION),
                ).otherwise(column.cast(of))
            wanted.append(column.cast(of).alias(name))
    wanted += [F.col(name) for name in _ORDER[:1] if name in names]
    wanted += [F.col(name).cast("bigint").alias(name) for name in _ORDER[1:] if name in names]
    return rows.select(*wanted)


def _is_message(source: str) -> Column:
    """Whether a row is a message. It is an error if its type is unknown."""
    from pyspark.sql import functions as F

    kind = F.col("type")
    unknown = F.concat(
        F.lit(f"{source} holds a row of type "), kind, F.lit(", which is no message")
    )
    return (
        F.when(kind.isNull() | (kind == MESSAGE), True)
        .when(kind.isin(*sorted(OTHER_TYPES)), False)
        .otherwise(F.raise_error(unknown).cast("boolean"))
    )


def _body(rows: DataFrame, source: str) -> Column:
    """The bytes of bodies, which in text are encoded as ``body_encoding`` says; null without a
    body."""
    from pyspark.sql import functions as F

    given = []
    if "body" in rows.columns:
        body, plain = F.col("body"), F.col("body").cast("binary")
        of = rows.schema["body"].dataType.simpleString()
        if of == "string" and "body_encoding" in rows.columns:
            encoding = F.col("body_encoding")
            told = F.concat(F.lit(f"{source}: body_encoding "), encoding, F.lit(" is none"))
            plain = (
                F.when(encoding == "base64", F.to_binary(body, F.lit("base64")))
                .when(encoding == "hex", F.to_binary(body, F.lit("hex")))
                .when(encoding.isNull() | (encoding == "utf8"), plain)
                .otherwise(F.raise_error(told).cast("binary"))
            )
        given.append(plain)
    if _BASE64 in rows.columns:
        given.append(F.to_binary(F.col(_BASE64), F.lit("base64")))
    return F.coalesce(*given) if given else F.lit(None).cast("binary")


def _body_problem(names: set[str], ignore_body_crc: bool) -> Column:
    """Why a body contradicts other columns of its row, by the rules of
    :mod:`rmqctl.engine.record.fields`; null if it does not."""
    from pyspark.sql import functions as F

    def column(name: str, of: str) -> Column:
        return F.col(name).cast(of) if name in names else F.lit(None).cast(of)

    body, status = F.col("body"), column("body_status", "string")
    length, crc = column("body_length", "bigint"), column("body_crc", "bigint")
    is_stored = status.isNull() | (status != DECOMPRESSED)
    actual = F.coalesce(F.crc32(body), F.lit(0)).bitwiseAND(_CRC_MASK)
    size = F.coalesce(F.octet_length(body), F.lit(0))
    lacks = body.isNull() & ((length > 0) | status.isin("damaged", "over-limit", "no-codec"))
    problem = F.when(lacks, F.lit("its body is missing: take rows with the body as it is stored"))
    if ignore_body_crc:
        return problem
    differs = (column("status", "string") == BODY_CRC_MISMATCH) | (
        is_stored & ((length != size) | ((crc != actual) & ((size > 0) | length.isNull())))
    )
    text = "the body is not what was stored, by its status, body_crc or body_length"
    return problem.when(differs, F.lit(f"{text} (ignore_body_crc is for such rows)"))


def load(rows: DataFrame, to: str, config: MessageStoreConfig) -> int:
    """Makes the store, and returns how many messages it has. It appears complete, or not at all.

    :raises OutputExists: it exists already. :raises WriteRefused: a message is invalid.
    """
    return write_store(rows, to, config, as_stored=True)
