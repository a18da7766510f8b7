"""A schema of Spark as that of the Arrow batches that are sent for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rmqctl.arrow.arrays import arrow_schema
from rmqctl.rows.columns import STRUCTURES

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def batch_schema(structure: str, schema: StructType) -> pa.Schema:
    """The Arrow schema of the wanted columns; :raises ValueError: one is not of the structure."""
    known = {column.name: column.type for column in STRUCTURES[structure]}
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if known.get(field.name) != kind:
            raise ValueError(f"{structure} has no column {field.name} of type {kind}")
    return arrow_schema(structure, [field.name for field in schema.fields])
