"""Imports small files in this process, with the rules for lines of NDJSON. Spark alone takes ten
seconds to start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from rmqctl.engine.record.fields import FIELDS
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import RmqctlError, UsageError
from rmqctl.spark.sink.firstlook import SourceFile, check_kind, files_of
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
#: Errors for files that the system refuses, or that are no Parquet or CSV.
_UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError)
#: What the types of columns with texts are called.
_TEXTS = ("string", "large_string", "string_view")
_NUMBERS = {name for name, of in COLUMNS.items() if of in ("int", "bigint")}
_NUMBERS |= {"physical_offset", "body_crc", "body_length"}
_READ = {*FIELDS, "type", "store", "physical_offset"}


class FileUnreadable(RmqctlError):
    template = "{path} cannot be read: {reason}. Give a whole file, or leave it out."


def small_files(source: str, kind: str) -> list[SourceFile] | None:
    """The files of a path or pattern on this machine, sorted; None: Spark has to read them, because
    they are large or packed, or there is something odd with them.

    :raises UsageError: a file is Parquet and ``kind`` is not, or the other way round.
    """
    files: list[SourceFile] = []
    size = 0
    try:
        for file in files_of(source):
            path = file.path
            check_kind(source, path, kind)
            size += _parquet_size(path) if kind == "parquet" else path.stat().st_size
            if size > _MOST_BYTES or len(files) >= _MOST_FILES or path.name.endswith(_PACKED):
                return None
            files.append(file)
    except _UNREADABLE:
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


def _of_parquet(file: SourceFile, source: str, reader: LineReader) -> Iterator[pa.RecordBatch]:
    with _readable(file), parquet.ParquetFile(file.path) as opened:
        schema = opened.schema_arrow
        _check_schema(schema, file, source, reader)
        names = [name for name in schema.names if name in _READ]
        batches = opened.iter_batches(_ROWS_AT_ONCE, columns=names)
        yield from reader.of_rows(_rows(batches, file), str(file.path))


def _of_csv(file: SourceFile, source: str, reader: LineReader) -> Iterator[pa.RecordBatch]:
    """An empty field is null, as on Spark. Properties are JSON."""
    parsing = csv.ParseOptions(newlines_in_values=True)
    with _readable(file):
        with csv.open_csv(file.path, parse_options=parsing) as opened:
            names = opened.schema.names
        texts = pa.schema([(name, pa.string()) for name in names])
        _check_schema(texts, file, source, reader)
        converting = csv.ConvertOptions(
            column_types=texts,
            include_columns=[name for name in names if name in _READ],
            null_values=[""],
            strings_can_be_null=True,
        )
        with csv.open_csv(file.path, parse_options=parsing, convert_options=converting) as opened:
            rows = map(_with_properties, _rows(opened, file))
            yield from reader.of_rows(rows, str(file.path))


@contextmanager
def _readable(file: SourceFile) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise FileUnreadable(path=str(file.path), reason=" ".join(str(error).split())) from error


def _check_schema(schema: pa.Schema, file: SourceFile, source: str, reader: LineReader) -> None:
    """:raises UsageError: these are no columns of messages."""
    check_columns([*schema.names, *file.named], source, reader.ignore_unknown)
    if twice := {name for name, count in Counter(schema.names).items() if count > 1} & _READ:
        raise UsageError(reason=f"{source} has two columns {min(twice)!r}.")
    for name in set(STRINGS) & set(schema.names):
        kind = schema.field(name).type
        of = str(kind.value_type if pa.types.is_dictionary(kind) else kind)
        if of not in (*_TEXTS, "null"):
            raise UsageError(reason=f"{source}: {name} must be a string, not {of}.")


def _rows(batches: Iterable[pa.RecordBatch], file: SourceFile) -> Iterator[Row]:
    named = {
        name: _numbers(file, name, pa.array([text]))[0].as_py() if name in _NUMBERS else text
        for name, text in file.named.items()
    }
    for batch in batches:
        names = batch.schema.names
        columns = {
            name: _numbers(file, name, column) if name in _NUMBERS else column
            for name, column in zip(names, batch.columns, strict=True)
        }
        has_map = "properties" in names and pa.types.is_map(columns["properties"].type)
        for row in pa.RecordBatch.from_pydict(columns).to_pylist():
            if has_map:
                row["properties"] = dict(row["properties"] or ())
            yield {**row, **named}


def _with_properties(row: Row) -> Row:
    """A row whose properties are no text any more; what is no JSON is refused as a text."""
    if text := row.get("properties"):
        with suppress(orjson.JSONDecodeError):
            row["properties"] = orjson.loads(text)
    return row


def _numbers(file: SourceFile, name: str, column: pa.Array) -> pa.Array:
    """Whole numbers, which may be stored as texts, or, where some are null, as floating-point
    numbers."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowException as error:
        reason = f"{file.path}: {name} must be a whole number: {error}."
        raise UsageError(reason=reason) from None


_READERS = {"csv": _of_csv, "ndjson": _of_lines, "parquet": _of_parquet}
