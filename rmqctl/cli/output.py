"""Rows on stdout: ``ndjson``, ``json``, ``csv``, or a table. Memory stays flat in all of them.

- ``ndjson``: one object a line. ``json``: the same objects as one array.
- ``csv``: the rows of one type (the command's main one, else the first row's), with a header of
  the first row's fields. Rows of other types are counted, and named on stderr.
- ``table``: on a terminal drawn by rich, in pages; elsewhere plain aligned text, where the first
  rows set the widths and nothing is ever cut. A summary is a line after it. Rows of other types
  than the main one are lines of their own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import IO, Any

from rmqctl.cli.text import cell, pairs, safe_json, visible, width

Row = dict[str, Any]

PAGE_ROWS = 100
_BUFFER_BYTES = 1 << 16
FORMATS = ("table", "json", "ndjson", "csv")

#: What a table shows of a wide row; -v shows every field.
TABLE_COLUMNS: dict[str, tuple[str, ...]] = {
    "message": (
        "physical_offset",
        "topic",
        "queue_id",
        "queue_offset",
        "total_size",
        "store_timestamp",
        "properties",
        "body",
    ),
    "append_result": (
        "status",
        "topic",
        "queue_id",
        "queue_offset",
        "wrote_offset",
        "wrote_bytes",
        "msg_id",
    ),
}


def json_text(row: Row) -> str:
    """One row as compact JSON, exact, and safe on a terminal."""
    return safe_json(json.dumps(row, ensure_ascii=False, separators=(",", ":")))


def bulk_encoder() -> Callable[[Row], bytes]:
    """:func:`json_text` as bytes, fast for many rows; it costs an import."""
    import orjson

    dumps, encode_error = orjson.dumps, orjson.JSONEncodeError

    def encode(row: Row) -> bytes:
        try:
            data = dumps(row)
        except encode_error:
            # Lone surrogates, or an integer beyond 64 bits: the standard library writes both.
            return json_text(row).encode()
        if data.isascii() and b"\x7f" not in data:
            return data
        return safe_json(data.decode()).encode()

    return encode


class RowWriter:
    """Prints rows in one format. Use as a context manager: leaving it prints what is pending.

    :param main_type: the type of the rows that the table and the csv file are made of.
    :param bulk: many rows are expected: encode them the fast way.
    :param vertical: a table of one field a line, for commands that print one row.
    :param wide: every field in tables, not only the chosen columns.
    :param quiet: print nothing.
    """

    def __init__(
        self,
        format: str,
        *,
        main_type: str | None = None,
        bulk: bool = False,
        vertical: bool = False,
        wide: bool = False,
        quiet: bool = False,
    ) -> None:
        sink = _Sink()
        self._sink = sink
        self._shape: _Shape
        if quiet:
            self._shape = _Shape(sink)
        elif format in ("ndjson", "json"):
            encode = bulk_encoder() if bulk else lambda row: json_text(row).encode()
            self._shape = (_Lines if format == "ndjson" else _Array)(sink, encode)
        elif format == "csv":
            self._shape = _Csv(sink, main_type)
        elif vertical:
            self._shape = _Vertical(sink)
        elif sink.is_terminal:
            self._shape = _Pages(sink, main_type, wide)
        else:
            self._shape = _Plain(sink, main_type, wide)
        self.row: Callable[[Row], None] = self._shape.row

    def rows(self, rows: Iterable[Row]) -> Row:
        """Prints what an operation yields; returns its summary (empty when it yields none)."""
        summary: Row = {}
        write = self.row
        for row in rows:
            if row["type"] == "summary":
                summary = row
                self._shape.summary(row)
            else:
                write(row)
        return summary

    def many(self, rows: list[Row]) -> None:
        """Prints rows that are at hand, which is faster than one by one."""
        self._shape.many(rows)

    def summary(self, **fields: Any) -> None:
        """The last row: ``{"type": "summary", …}``."""
        self._shape.summary({"type": "summary", **fields})

    def flush(self) -> None:
        """Hands every finished row to the reader."""
        self._sink.flush()

    def close(self) -> None:
        self._shape.close()
        self._sink.flush()

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or not issubclass(kind, BrokenPipeError):
            self.close()


class _Sink:
    """stdout as bytes, written in blocks; a terminal gets each piece at once."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        sys.stdout.flush()
        self._out: IO[bytes] = sys.stdout.buffer
        self._pieces: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= _BUFFER_BYTES or self.is_terminal:
            self.flush()

    def line(self, text: str) -> None:
        self.write(text.encode("utf-8", "backslashreplace") + b"\n")

    def flush(self) -> None:
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
            self._out.write(data)
        self._out.flush()


class _Shape:
    """A format; this one prints nothing."""

    def __init__(self, sink: _Sink) -> None:
        self.sink = sink

    def row(self, row: Row) -> None:
        pass

    def many(self, rows: list[Row]) -> None:
        for row in rows:
            self.row(row)

    def summary(self, row: Row) -> None:
        self.row(row)

    def close(self) -> None:
        pass


class _Lines(_Shape):
    def __init__(self, sink: _Sink, encode: Callable[[Row], bytes]) -> None:
        super().__init__(sink)
        self._encode = encode

    def row(self, row: Row) -> None:
        self.sink.write(self._encode(row) + b"\n")

    def many(self, rows: list[Row]) -> None:
        encode = self._encode
        self.sink.write(b"".join([encode(row) + b"\n" for row in rows]))


class _Array(_Shape):
    _before = b"[\n"

    def __init__(self, sink: _Sink, encode: Callable[[Row], bytes]) -> None:
        super().__init__(sink)
        self._encode = encode

    def row(self, row: Row) -> None:
        self.sink.write(self._before + self._encode(row))
        self._before = b",\n"

    def close(self) -> None:
        self.sink.write(b"[]\n" if self._before == b"[\n" else b"\n]\n")


class _Csv(_Shape):
    def __init__(self, sink: _Sink, main_type: str | None) -> None:
        super().__init__(sink)
        self._type = main_type
        self._fields: list[str] = []
        self._left_out: dict[str, int] = {}

    def row(self, row: Row) -> None:
        kind = row["type"]
        self._type = self._type or kind
        if kind != self._type:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        if not self._fields:
            self._fields = list(row)
            self._line(self._fields)
        self._line([_csv_value(row.get(name)) for name in self._fields])

    def summary(self, row: Row) -> None:
        pass

    def _line(self, values: list[str]) -> None:
        self.sink.line(",".join(values))

    def close(self) -> None:
        self.sink.flush()
        for kind, count in self._left_out.items():
            note(f"csv holds rows of one type: {count} of type {kind} left out (see --format ndjson)")


def _csv_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list | tuple):
        text = safe_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    elif isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = visible(str(value))
    if any(char in text for char in ',"') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


class _Vertical(_Shape):
    def row(self, row: Row) -> None:
        names = [name for name in row if name != "type"]
        margin = max(map(len, names), default=0)
        for name in names:
            self.sink.line(f"{name:<{margin}}  {cell(name, row[name])}".rstrip())

    def summary(self, row: Row) -> None:
        self.sink.line(f"summary: {pairs(row)}")


class _Table(_Shape):
    """What both tables share: a page of rows of one type, other rows as lines."""

    def __init__(self, sink: _Sink, main_type: str | None, wide: bool) -> None:
        super().__init__(sink)
        self._type = main_type
        self._wide = wide
        self._names: list[str] = []
        self._page: list[list[str]] = []
        self._numeric: list[bool] = []

    def row(self, row: Row) -> None:
        self._type = self._type or row["type"]
        if row["type"] != self._type:
            self._print_page()
            self.sink.line(f"{visible(row['type'])}: {pairs(row)}")
            return
        if not self._names:
            chosen = None if self._wide else TABLE_COLUMNS.get(row["type"])
            self._names = [
                n for n in row if n != "type" and (chosen is None or n in chosen or n == "reason")
            ]
            self._numeric = [
                isinstance(row[n], int) and not n.endswith("timestamp") for n in self._names
            ]
        self._page.append([cell(name, row.get(name)) for name in self._names])
        if len(self._page) >= PAGE_ROWS:
            self._print_page()

    def summary(self, row: Row) -> None:
        self._print_page()
        self.sink.line(f"summary: {pairs(row)}")

    def close(self) -> None:
        self._print_page()

    def _print_page(self) -> None:
        if self._page:
            page, self._page = self._page, []
            self._print(page)

    def _print(self, page: list[list[str]]) -> None:
        raise NotImplementedError


class _Plain(_Table):
    """Aligned text: one header, widths from the first page, never cut."""

    _widths: list[int] | None = None

    def _print(self, page: list[list[str]]) -> None:
        if self._widths is None:
            columns = zip(self._names, *page, strict=True)
            self._widths = [max(map(width, column)) for column in columns]
            self._line(self._names)
        for values in page:
            self._line(values)

    def _line(self, values: list[str]) -> None:
        assert self._widths is not None
        parts = []
        for value, room, number in zip(values, self._widths, self._numeric, strict=True):
            padding = " " * (room - width(value))
            parts.append(padding + value if number else value + padding)
        self.sink.line("  ".join(parts).rstrip())


class _Pages(_Table):
    """rich's tables, one a page, as wide as the terminal."""

    def _print(self, page: list[list[str]]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for name, number in zip(self._names, self._numeric, strict=True):
            table.add_column(
                name.replace("_", "\n"),
                justify="right" if number else "left",
                no_wrap=number,
                overflow="fold",
                vertical="top",
            )
        for values in page:
            table.add_row(*map(Text, values))
        self.sink.flush()
        Console(highlight=False).print(table)


def note(text: str) -> None:
    """A line for the human, on stderr."""
    print(visible(text), file=sys.stderr, flush=True)


def silence_stdout() -> None:
    """After a closed pipe: what is still buffered goes nowhere, also at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
