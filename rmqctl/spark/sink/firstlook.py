"""Checks the first file of an import before Spark is started, which takes seconds, so that a column
that no message has is reported at once. What cannot be read here is left to Spark."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from glob import iglob
from pathlib import Path
from urllib.parse import unquote

from rmqctl.spark.sink.importer import check_columns
from rmqctl.spark.sink.messagelines import LineReader

#: How many bytes of a first line, or of a header, are read at most.
_LONGEST = 8 << 20
#: Prefixes of names that Spark skips in a directory.
_HIDDEN = ("_", ".")


def look(source: str, kind: str, *, ignore_body_crc: bool, ignore_unknown: bool) -> None:
    """Checks the columns of the first file of a path or pattern on this machine, or its first line,
    as :func:`~rmqctl.spark.sink.importer.read` does. It has the same parameters and errors."""
    file, partitions = next(files_of(source), (None, {}))
    if file is None:
        return
    if kind == "ndjson":
        _look_at_line(file, partitions, LineReader(ignore_body_crc, ignore_unknown))
        return
    columns = _parquet_columns(file) if kind == "parquet" else _csv_columns(file)
    if columns is not None:
        check_columns([*columns, *partitions], source, ignore_unknown)


def files_of(source: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """The files of a path or pattern on this machine, sorted, each with the values of columns that
    the names of directories give. Of a pattern that Python does not know there are none."""
    tops = [source]
    if not os.path.lexists(source):
        tops = sorted(iglob(source)) if "{" not in source else []
    for top in map(Path, tops):
        for path in _files(top):
            between = path.relative_to(top).parts[:-1]
            pairs = [part.partition("=")[::2] for part in between if "=" in part]
            yield path, {unquote(name): unquote(value) for name, value in pairs}


def _files(top: Path) -> Iterator[Path]:
    if top.is_file():
        yield top
        return
    for directory, names, files in os.walk(top):
        names[:] = sorted(name for name in names if not name.startswith(_HIDDEN))
        for name in sorted(files):
            path = Path(directory, name)
            if not name.startswith(_HIDDEN) and path.is_file():  # A pipe would be waited for.
                yield path


def _parquet_columns(file: Path) -> list[str] | None:
    import pyarrow
    from pyarrow import parquet

    try:
        return list(parquet.read_schema(file).names)
    except (OSError, pyarrow.ArrowException):
        return None


def _csv_columns(file: Path) -> list[str] | None:
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            start = opened.read(_LONGEST)
    except (OSError, UnicodeDecodeError):
        return None  # It may be compressed.
    try:
        return next(csv.reader(start.splitlines(keepends=True)), None) or None
    except csv.Error:
        return None  # A field is longer than Python's limit.


def _look_at_line(file: Path, partitions: dict[str, str], reader: LineReader) -> None:
    import pyarrow

    try:
        with file.open("rb") as opened:
            line = opened.readline(_LONGEST)
        line.decode()
    except (OSError, UnicodeDecodeError):
        return
    if not line.endswith(b"\n") and len(line) == _LONGEST:
        return
    columns = {"value": [line], "path": [str(file)], "topic": [partitions.get("topic")]}
    for _ in reader.batches([pyarrow.RecordBatch.from_pydict(columns)]):
        pass
