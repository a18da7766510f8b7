"""``export``: messages as Parquet, NDJSON or CSV, with a directory for each topic and day."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqctl.engine.record.fields import MESSAGE
from rmqctl.engine.record.status import BODY_CRC_MISMATCH
from rmqctl.rows.exported import BASE64, NO_DAY, SUFFIXES, Exported, file_columns
from rmqctl.spark.session.session import MICROSECONDS, TIMES, runs_here
from rmqctl.spark.session.staging import NotShared, in_new_directory, is_remote
from rmqctl.spark.source.datasource import scan_with_damage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMATS = {"parquet": "parquet", "ndjson": "json", "csv": "csv"}
_NEEDED = ("topic", "store_time", "status")
#: Columns of which only lines of NDJSON have a cell. The topic is in the name of the directory,
#: too.
_IN_LINES = ("type", "topic")


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
    """The wanted messages, and the damage in files that may have messages of these times, with the
    columns that an export needs. If bodies are wanted, they are checked."""
    limits: list[tuple[str, str, str | int | None]] = [
        ("topic", "=", topic),
        ("store_timestamp", ">=", since),
        ("store_timestamp", "<=", until),
    ]
    where = [limit for limit in limits if limit[2] is not None]
    columns = ["body" if name == BASE64 else name for name in columns]
    wanted = list(dict.fromkeys([*columns, *_NEEDED]))
    if not {"body", "status"}.isdisjoint(columns):
        options = {"checkCrc": "true"} | options
    return scan_with_damage(spark, stores, wanted, where, options)


def export(rows: DataFrame, columns: list[str], to: str, kind: str) -> Exported:
    """Writes the messages of :func:`selected`.

    The directory appears complete, or not at all. :raises OutputExists: it is not empty.
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
    day = F.coalesce(F.date_format("store_time", "yyyy-MM-dd"), F.lit(NO_DAY)).alias("day")
    sound = counted.where("status <> 'damage'")
    with in_new_directory(to) as place:
        if not is_remote(place) and not runs_here(rows.sparkSession):
            sound = sound.where(_is_seen(place)(F.col("topic")))
        written = _written(columns, kind)
        # Columns that name directories are not in the files. In lines of NDJSON, which are text by
        # now, they are.
        are_lines = "topic" in written and not is_remote(place)
        if are_lines:
            line = F.to_json(F.struct(*(one.alias(name) for name, one in written.items())))
            sound = sound.select(line.alias("value"), F.col("topic"), day)
        else:
            of_file = [one.alias(name) for name, one in written.items() if name not in _IN_LINES]
            sound = sound.select(*of_file, F.col("topic"), day)
        writer = sound.write.partitionBy("topic", "day").mode(
            "errorifexists" if place == to else "overwrite"
        )
        if kind == "csv":
            spaces = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
            writer = writer.options(header="true", escape='"', **spaces)
        with _times_of_any_year(rows.sparkSession):
            writer.format("text" if are_lines else FORMATS[kind]).save(place)
        if are_lines:
            _named_as_lines(Path(place))
    told = seen.get
    return Exported(*(told[name] or 0 for name in ("messages", "damage", "mismatches")))


@contextmanager
def _times_of_any_year(spark: SparkSession) -> Iterator[None]:
    """Makes Spark write times to Parquet as an export without Spark does, unless the session is
    configured otherwise. Spark's default is INT96, of which pyarrow and others misread times after
    2262."""
    if spark.conf.get(TIMES, None) is not None:
        yield
        return
    spark.conf.set(TIMES, MICROSECONDS)
    try:
        yield
    finally:
        spark.conf.unset(TIMES)


def _is_seen(place: str) -> Any:
    """A condition that is always true. In a task on a node that does not see ``place``, so that its
    files would be on that node's own disk, it raises :class:`NotShared`."""
    from pyspark.sql.pandas.functions import arrow_udf

    def look(column: pa.Array) -> pa.Array:
        if not os.path.isdir(place):
            raise NotShared(path=place)
        return pa.array([True] * len(column), pa.bool_())

    return arrow_udf(look, "boolean")  # type: ignore[call-overload]


def _written(columns: list[str], kind: str) -> dict[str, Column]:
    """The columns as a format can hold them: in text, bodies as Base64; in CSV, properties as
    JSON."""
    from pyspark.sql import functions as F

    base64 = F.translate(F.base64("body"), "\r\n", "")
    made = {"type": F.lit(MESSAGE), BASE64: base64, "body_encoding": F.lit("base64")}
    if kind != "parquet":
        made["body"] = base64
    if kind == "csv":
        made["properties"] = F.to_json("properties")
    names = file_columns(columns, kind)
    return {name: made[name] if name in made else F.col(name) for name in names}


def _named_as_lines(directory: Path) -> None:
    """Renames files of lines, which Spark has written as text, and their checksums to ``.json``."""
    for path in directory.rglob("part-*.txt"):
        checksums = path.with_name(f".{path.name}.crc")
        path = path.rename(path.with_suffix(SUFFIXES["ndjson"]))
        if checksums.exists():
            checksums.rename(path.with_name(f".{path.name}.crc"))
