"""Rows of one declared type as small Parquet files, which appear whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqctl.engine.files.paths import open_for_reading
from rmqctl.rows.columns import written_out
from rmqctl.rows.field import fields_of

_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
#: Bytes: a file of one row has some thousand. Rows: a few bytes can stand for millions of them.
_MOST_BYTES, _MOST_ROWS = 1 << 20, 1000


def schema(row: type, names: Sequence[str], more: Sequence[str] = ()) -> pa.Schema:
    """The columns of some fields of a row, followed by text columns of other names. Only a field
    that may be None has a column with nulls: who reads a row can trust its types."""
    known = {one.name: one for one in fields_of(row)}
    found = []
    for name in names:
        types = known[name].types
        kind = next(kind for kind in types if kind is not type(None))
        found.append(pa.field(name, _TYPES[kind], nullable=type(None) in types))
    return pa.schema([*found, *(pa.field(name, pa.string(), nullable=False) for name in more)])


def write(path: Path, rows: Sequence[Mapping[str, Any]], columns: pa.Schema) -> None:
    """Writes rows as a file, which replaces a file of its name. A kill leaves a file whose name
    begins with a dot, which readers of Parquet pass over. Bytes of names that are no UTF-8 are
    written out (``\\xff``).

    :raises OSError: the disk failed.
    """
    building = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        table = pa.Table.from_pylist([_written(row) for row in rows], columns)
        # Opened here: names that are no UTF-8 pyarrow takes as bytes alone.
        with pa.OSFile(os.fsencode(building), "wb") as file:
            pq.write_table(table, file, write_page_checksum=True)
        building.replace(path)
    finally:
        building.unlink(missing_ok=True)


def _written(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: written_out(value) if isinstance(value, str) else value for name, value in row.items()
    }


def read(path: Path, columns: pa.Schema) -> list[dict[str, Any]]:
    """The rows of a file that has exactly these columns.

    :raises ValueError: it is no such file.
    :raises OSError, CannotRead: it cannot be read.
    """
    with open(open_for_reading(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > _MOST_BYTES:
            raise ValueError("it is too large")
        try:
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            if parquet.metadata.num_rows > _MOST_ROWS:
                raise ValueError("it has too many rows")
            table = parquet.read()
        except pa.ArrowException as error:  # Not all of them are ValueErrors.
            raise ValueError(str(error)) from error
    if not table.schema.equals(columns):
        raise ValueError("it has other columns")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
