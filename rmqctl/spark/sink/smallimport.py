"""Imports small files in this process, with the rules for lines of NDJSON. Spark alone takes ten
seconds to start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from rmqctl.engine.record.fields import FIELDS
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import RmqctlError, UsageError
from rmqctl.spark.sink.firstlook import SourceFile, files_of
from rmqctl.spark.sink.importer import COLUMNS, STRINGS, check_columns
from rmqctl.spark.sink.messagelines import SCHEMA, LineReader, Row
from rmqctl.spark.sink.newstore import write_batches

#: Most bytes of all files, columns unpacked. A message takes some 20 µs, and its bytes stand in
#: memory three times.
_MOST_BYTES, _MOST_FILES = 128 << 20, 10_000
#: Rows, or bytes of lines, that are read at once.
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 10_000, 1 << 20
#: Ends of names of files that Spark unpacks.
_PACKED = (".bz2", ".deflate", ".gz", ".lz4", ".snappy", ".zst", ".zstd", ".xz", ".br")


#: What the types of columns with texts are called.
_TEXTS = ("string", "large_string", "string_view")
_NUMBERS = {name for name, of in COLUMNS.items() if of in ("int", "bigint")}
_NUMBERS |= {"physical_offset", "body_crc", "body_length"}
_READ = {*FIELDS, "type", "store", "physical_offset"}


class FileUnreadable(RmqctlError):
    template = "{path} cannot be read: {reason}. Give a whole file, or leave it out."


def small_files(source: str, kind: str) -> list[SourceFile] | None:
    """The files of a path or pattern on this machine, sorted; None: Spark has to read them, because
    they are large or packed, or are read by its rules (CSV), or there is something odd with them.
    """
    if kind not in _READERS:
        return None
    files: list[SourceFile] = []
    size = 0
    try:
        for file in files_of(source):
            path = file.path
            size += _parquet_size(path) if kind == "parquet" else path.stat().st_size
            if size > _MOST_BYTES or len(files) >= _MOST_FILES or path.name.endswith(_PACKED):
                return None
            files.append(file)
    except (OSError, pa.ArrowException):
        return None
    return files or None


def _parquet_size(path: Path) -> int:
    """Bytes of the columns of a Parquet file, unpacked."""
    metadata = parquet.read_metadata(path)
    groups = (metadata.row_group(at) for at in range(metadata.num_row_groups))
    return sum(max(group.total_byte_size, 0) for group in groups)


def read(
    files: Iterable[SourceFile],
    source: str,
    kind: str,
    *,
    ignore_body_crc: bool = False,
    ignore_unknown: bool = False,
) -> pa.Table:
    """The messages of some files, as :func:`rmqctl.spark.sink.importer.read` gives them.

    :raises UsageError: as there. :raises LineRefused: a line or row is not a message.
    :raises FileUnreadable: a file is cut off, or the system refuses to read it.
    """
    reader = LineReader(ignore_body_crc, ignore_unknown)
    batches = (batch for file in files for batch in _READERS[kind](file, source, reader))
    return _in_order(pa.Table.from_batches(batches, SCHEMA))


def load(rows: pa.Table, to: str, config: MessageStoreConfig) -> int:
    """Makes the store, as :func:`rmqctl.spark.sink.importer.load` does. Returns how many messages
    it has.

    :raises OutputExists: it exists already. :raises WriteRefused: a message is invalid.
    """
    batches = rows.to_batches(max_chunksize=_ROWS_AT_ONCE)
    return write_batches(batches, to, config, as_stored=True)


def _in_order(rows: pa.Table) -> pa.Table:
    """The rows in the order of their export, without the columns for it. Rows without them stay
    where they are, and come first."""
    store, offset = rows["store"].fill_null(""), rows["physical_offset"].fill_null(-1)
    keys = pa.table({"store": store, "physical_offset": offset})
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])
    return rows.drop_columns(keys.column_names).take(order)


def _of_lines(file: SourceFile, _: str, reader: LineReader) -> Iterator[pa.RecordBatch]:
    return reader.batches(_batches_of_lines(file))


def _batches_of_lines(file: SourceFile) -> Iterator[pa.RecordBatch]:
    path, topic = quote(str(file.path)), file.named.get("topic")
    try:
        with file.path.open("rb") as opened:
            while lines := opened.readlines(_BYTES_AT_ONCE):
                value = pa.array([line.removesuffix(b"\n") for line in lines], pa.binary())
                same = {
                    "path": pa.repeat(pa.scalar(path, pa.string()), len(lines)),
                    "topic": pa.repeat(pa.scalar(topic, pa.string()), len(lines)),
                }
                yield pa.RecordBatch.from_pydict({"value": value, **same})
    except OSError as error:
        raise FileUnreadable(path=str(file.path), reason=error.strerror) from error


def _of_columns(file: SourceFile, source: str, reader: LineReader) -> Iterator[pa.RecordBatch]:
    try:
        with parquet.ParquetFile(file.path) as opened:
            schema = opened.schema_arrow
            check_columns([*schema.names, *file.named], source, reader.ignore_unknown)
            for name in set(STRINGS) & set(schema.names):
                kind = schema.field(name).type
                of = str(kind.value_type if pa.types.is_dictionary(kind) else kind)
                if of not in (*_TEXTS, "null"):
                    raise UsageError(reason=f"{source}: {name} must be a string, not {of}.")
            yield from reader.of_rows(_rows(opened, file.named), str(file.path))
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise FileUnreadable(path=str(file.path), reason=" ".join(str(error).split())) from error


def _rows(opened: parquet.ParquetFile, named: dict[str, str | None]) -> Iterator[Row]:
    """The rows of a file, with the columns that belong to a message."""
    names = [name for name in opened.schema_arrow.names if name in _READ]
    for batch in opened.iter_batches(_ROWS_AT_ONCE, columns=names):
        columns = {
            name: _numbers(name, column) if name in _NUMBERS else column
            for name, column in zip(names, batch.columns, strict=True)
        }
        for row in pa.RecordBatch.from_pydict(columns).to_pylist(maps_as_pydicts="lossy"):
            yield {**row, **named}


def _numbers(name: str, column: pa.Array) -> pa.Array:
    """Whole numbers, which may be stored as texts, or, where some are null, as floating-point
    numbers."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowException as error:
        reason = f"the column {name} holds something else than whole numbers: {error}."
        raise UsageError(reason=reason) from None


_READERS = {"ndjson": _of_lines, "parquet": _of_columns}
