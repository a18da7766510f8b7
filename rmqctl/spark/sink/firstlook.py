"""Checks the first file of an import before Spark is started, which takes seconds, so that a column
that no message has is reported at once. What cannot be read here is left to Spark."""

from __future__ import annotations

import csv
import errno
import os
from collections.abc import Iterator, Sequence
from glob import iglob
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from rmqctl.errors import UsageError
from rmqctl.spark.sink.importer import check_columns
from rmqctl.spark.sink.messagelines import LineReader

#: How many bytes of a first line, or of a header, are read at most.
_LONGEST = 8 << 20
#: The first characters of names that Spark skips in a directory.
_HIDDEN = ("_", ".")
#: In the name of a directory: the column is null.
_NULL = "__HIVE_DEFAULT_PARTITION__"


class SourceFile(NamedTuple):
    """A file of a path or pattern, the columns that the names of its directories give, and the
    first of these directories that gives none; empty if each does."""

    path: Path
    named: dict[str, str | None]
    plain: str


def look(source: str, kind: str, *, ignore_body_crc: bool, ignore_unknown: bool) -> None:
    """Checks the columns of the first file of a path or pattern on this machine, or its first line,
    as :func:`~rmqctl.spark.sink.importer.read` does. It has the same parameters and errors.

    :raises UsageError: Spark would pass over files.
    """
    try:
        files = list(files_of(source))
        if files:
            check_kind(source, files[0].path, kind)
    except OSError:
        return
    if not files:
        return
    _check_none_passed_over(source, files)
    file, partitions, _ = files[0]
    if kind == "ndjson":
        _look_at_line(file, partitions, LineReader(ignore_body_crc, ignore_unknown))
        return
    columns = _parquet_columns(file) if kind == "parquet" else _csv_columns(file)
    if columns is not None:
        check_columns([*columns, *partitions], source, ignore_unknown)


def check_kind(source: str, file: Path, kind: str) -> None:
    """:raises UsageError: the file is Parquet, and ``kind`` is not, or the other way round.
    :raises OSError: it cannot be read."""
    with file.open("rb") as opened:
        begin = opened.read(4)
    is_parquet = begin in (b"PAR1", b"PARE")  # The second is that of encrypted ones.
    if is_parquet and kind != "parquet":
        raise UsageError(reason=f"{source}: {file.name} is a Parquet file. Say --input parquet.")
    if begin and not is_parquet and kind == "parquet":
        raise UsageError(
            reason=f"{source}: {file.name} is no Parquet file. Say what it is: --input ndjson or "
            "csv."
        )


def _check_none_passed_over(source: str, files: Sequence[SourceFile]) -> None:
    """Where no directory gives a column, Spark reads the files that ``source`` itself names, or
    holds, and says nothing of those further down."""
    plain = next((file for file in files if file.plain), None)
    if plain is not None and not any(file.named for file in files):
        raise UsageError(
            reason=f"{source}: Spark reads no file of {plain.plain}, a directory in a directory. "
            f"Give the files by a pattern, such as '{source}/*/*'."
        )


def files_of(source: str) -> Iterator[SourceFile]:
    """The files of a path or pattern on this machine, sorted by name. Of a pattern that Python does
    not know there are none.

    :raises OSError: a directory cannot be listed, or links lead in circles.
    """
    tops = [source]
    if not os.path.lexists(source):
        tops = sorted(iglob(source)) if "{" not in source else []
    for top in map(Path, tops):
        for path in _files(top):
            named: dict[str, str | None] = {}
            plain = ""
            for directory in reversed(path.relative_to(top).parents[:-1]):
                name, equals, value = directory.name.partition("=")
                if equals:
                    named[unquote(name)] = None if value == _NULL else unquote(value)
                else:
                    plain = plain or str(top / directory)
            yield SourceFile(path, named, plain)


def _files(top: Path) -> Iterator[Path]:
    """The files in a directory and those below it, or the file itself. Links are followed."""
    found: list[tuple[Path, tuple[str, ...]]] = [(top, ())]
    while found:
        path, above = found.pop()
        if path.is_dir():
            real = os.path.realpath(path)
            if real in above:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            names = sorted(os.listdir(path), reverse=True)
            found += [(path / name, (*above, real)) for name in names if name[0] not in _HIDDEN]
        elif path.is_file():  # A pipe would be waited for.
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


def _look_at_line(file: Path, partitions: dict[str, str | None], reader: LineReader) -> None:
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
