"""export: messages as Parquet, NDJSON or CSV, a directory a topic and day."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from rmqctl.engine.record.status import BODY_CRC_MISMATCH
from rmqctl.errors import UsageError
from rmqctl.rows.columns import STRUCTURES
from rmqctl.spark.session.session import runs_here
from rmqctl.spark.session.staging import NotShared, in_new_directory, is_remote
from rmqctl.spark.source.datasource import scan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMATS = {"parquet": "parquet", "ndjson": "json", "csv": "csv"}
_KNOWN = [column.name for column in STRUCTURES["commitlog"]]
#: A former name of the body, in base64.
_BASE64 = "body_base64"
_NEEDED = ("topic", "store_time", "status")


def check_columns(text: str | None) -> list[str]:
    """The columns that ``--columns`` names, every one without it.

    :raises UsageError: there is no such column, or no file would have one.
    """
    wanted = list(_KNOWN) if text is None else [name.strip() for name in text.split(",")]
    unknown = [name for name in wanted if name not in (*_KNOWN, _BASE64)]
    if unknown:
        raise UsageError(reason=f"there is no column {unknown[0]!r}: {', '.join(_KNOWN)}.")
    if set(wanted) == {"topic"}:
        raise UsageError(reason="--columns needs another column: the directories say the topic.")
    return list(dict.fromkeys(wanted))


def selected(
    spark: SparkSession,
    stores: list[str],
    options: dict[str, str],
    columns: list[str],
    *,
    topic: str | None = None,
    since: int | None = None,
    until: int | None = None,
) -> DataFrame:
    """The wanted messages and damage of the stores, with the columns that export itself needs.
    Bodies that are wanted are checked."""
    limits: list[tuple[str, str, str | int | None]] = [
        ("topic", "=", topic),
        ("store_timestamp", ">=", since),
        ("store_timestamp", "<=", until),
    ]
    where = [limit for limit in limits if limit[2] is not None]
    columns = ["body" if name == _BASE64 else name for name in columns]
    wanted = list(dict.fromkeys([*columns, *_NEEDED]))
    if not {"body", "status"}.isdisjoint(columns):
        options = {"checkCrc": "true"} | options
    return scan(spark, stores, "commitlog", wanted, where, **options)


class Exported(NamedTuple):
    """How many messages were written, how many damaged places there were, and of how many messages
    the body is not what was stored."""

    messages: int
    damages: int
    body_crc_mismatches: int

    def row(self) -> dict[str, int]:
        """The fields of a summary: mismatches where there are any."""
        return {
            name: count for name, count in self._asdict().items() if count or "body" not in name
        }


def export(rows: DataFrame, columns: list[str], to: str, kind: str) -> Exported:
    """Writes the messages of :func:`selected`.

    The directory appears whole, or not at all. :raises OutputExists: it holds something.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    damaged, mismatch = (F.col("status") == text for text in ("damage", BODY_CRC_MISMATCH))
    counted = rows.observe(
        seen,
        F.sum(damaged.cast("bigint")).alias("damage"),
        F.sum((~damaged).cast("bigint")).alias("messages"),
        F.sum(mismatch.cast("bigint")).alias("mismatches"),
    )
    day = F.coalesce(F.date_format("store_time", "yyyy-MM-dd"), F.lit("unknown"))
    named = counted.where("status <> 'damage'").select(
        [*_written(columns, kind), F.col("topic"), day.alias("day")]
    )
    with in_new_directory(to) as place:
        if not is_remote(place) and not runs_here(rows.sparkSession):
            named = named.where(_is_seen(place)(F.col("topic")))
        writer = named.write.partitionBy("topic", "day").mode(
            "errorifexists" if place == to else "overwrite"
        )
        if kind == "csv":
            writer = writer.option("header", "true").option("escape", '"')
        writer.format(FORMATS[kind]).save(place)
    told = seen.get
    return Exported(*(told[name] or 0 for name in ("messages", "damage", "mismatches")))


def _is_seen(place: str) -> Any:
    """A condition that holds for every row, and is false to nobody: it raises :class:`NotShared`
    in a task on a node without the place, whose files would be on that node's own disk."""
    from pyspark.sql.pandas.functions import arrow_udf

    def look(column: pa.Array) -> pa.Array:
        if not os.path.isdir(place):
            raise NotShared(path=place)
        return pa.array([True] * len(column), pa.bool_())

    return arrow_udf(look, "boolean")  # type: ignore[call-overload]


def _written(columns: list[str], kind: str) -> list[Column]:
    """Columns as a format can hold them: bodies as Base64 in text, properties as JSON in CSV."""
    from pyspark.sql import functions as F

    written: list[Column] = []
    for name in columns:
        if name == "topic":
            continue  # The directory says it.
        if name == _BASE64 or (name == "body" and kind != "parquet"):
            written.append(F.translate(F.base64("body"), "\r\n", "").alias(name))
            if name == "body":
                written.append(F.lit("base64").alias("body_encoding"))
        elif name == "properties" and kind == "csv":
            written.append(F.to_json("properties").alias(name))
        else:
            written.append(F.col(name))
    return written
