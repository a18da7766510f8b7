"""Converts a schema of Spark to that of the Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rmqctl.arrow.arrays import arrow_schema
from rmqctl.rows.columns import STRUCTURES

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rmqctl.spark.source.split import ReadSettings


def batch_schema(settings: ReadSettings, schema: StructType) -> pa.Schema:
    """The Arrow schema of the wanted columns.

    :raises ValueError: the structure has no such column, or damage would have no column.
    """
    structure = settings.structure
    known = {column.name: column.type for column in STRUCTURES[structure]}
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if known.get(field.name) != kind:
            raise ValueError(f"{structure} has no column {field.name} of type {kind}")
    names = [field.name for field in schema.fields]
    if settings.check_crc and "status" not in names:
        raise ValueError(
            "checkCrc=true tells of damaged bodies in the column status, which is not among the "
            "wanted ones: add it to columns, or leave checkCrc out"
        )
    return arrow_schema(structure, names)
