"""Makes data frames from rows of the commands: the columns are the declared fields of the rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rmqctl.rows.field import Field, fields_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rmqctl.rows import Row

_TYPES = {bool: "boolean", float: "double", str: "string"}


def frame(spark: SparkSession, row: type, rows: Iterable[Row]) -> DataFrame:
    """Rows of one declared type as a data frame, without the column ``type``."""
    fields = [one for one in fields_of(row) if one.name != "type"]
    columns = ", ".join(f"{one.name} {_type(one)}" for one in fields)
    values = [tuple(one[field.name] for field in fields) for one in rows]
    return spark.createDataFrame(values, columns)


def _type(field: Field) -> str:
    kind: Any = next(one for one in field.types if one is not type(None))
    if kind is int:
        return "int" if field.bits == 32 else "bigint"
    return _TYPES[kind]
