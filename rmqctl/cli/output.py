"""Rows on stdout as ``ndjson``, ``json``, ``csv``, or a table. No format holds all rows in memory.

- ``ndjson``: one object a line. ``json``: the same objects as one array.
- ``csv``: the rows of one type (the command's main one, else the first row's), with a header of
  the first row's fields; without a row, of those that one would have. A note on stderr says how
  many rows of each other type were left out.
- ``table``: on a terminal drawn by rich, in pages. Elsewhere it is plain aligned text: the first
  rows set the widths, and nothing is cut. Rows of other types than the main one, and the summary,
  are lines of their own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from rmqctl.cli import pager
from rmqctl.cli.pasted import pasteable
from rmqctl.cli.sink import Nothing, Shape, Sink, begins_anew
from rmqctl.cli.text import in_sentences, safe_json, shortened, visible

if TYPE_CHECKING:
    from rmqctl.engine.read.lines import Lines
    from rmqctl.rows import Row

#: Rows that are encoded at once.
_ROWS_AT_ONCE = 256
FORMATS = ("table", "json", "ndjson", "csv")


@functools.cache
def _encoder() -> Callable[[Any], str]:
    import json

    return json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def json_text(value: Any) -> str:
    """A row, or a part of one, as compact JSON. Numbers are exact, and a terminal obeys nothing in
    it."""
    return safe_json(_encoder()(value))


def bulk_encoder() -> Callable[[Row], bytes]:
    """Encodes rows as :func:`json_text` does, as bytes, and faster. It imports orjson, which only
    many rows are worth."""
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


def bulk_lines() -> Callable[[list[Row]], bytes]:
    """Encodes many rows at once as :func:`bulk_encoder` does, each with a newline behind it."""
    import orjson

    dumps, newline, encode = orjson.dumps, orjson.OPT_APPEND_NEWLINE, bulk_encoder()

    def lines(rows: list[Row]) -> bytes:
        try:
            data = b"".join([dumps(row, None, newline) for row in rows])
        except orjson.JSONEncodeError:
            return b"".join([encode(row) + b"\n" for row in rows])
        if data.isascii() and b"\x7f" not in data:
            return data
        return safe_json(data.decode()).encode()

    return lines


class RowWriter:
    """Prints rows in one format. Use as a context manager: leaving it prints what is pending.

    :param main_type: the type of the rows that the table and the csv file are made of.
    :param bulk: many rows are expected: encode them the fast way.
    :param vertical: a table of one field a line, for commands that print one row.
    :param live: rows come one by one, and each reaches the reader with :meth:`flush`.
    :param wide: every field in tables, not only the chosen columns.
    :param quiet: print nothing.
    :param paged: on a terminal, through a pager; rows that are ``live`` never are.
    :param heading: the main type's kind in :mod:`rmqctl.rows`, where that is not its name.
    :param also: which optional fields rows of the main type would have.
    """

    def __init__(
        self,
        format: str,
        *,
        main_type: str | None = None,
        bulk: bool = False,
        vertical: bool = False,
        live: bool = False,
        wide: bool = False,
        quiet: bool = False,
        paged: bool = False,
        heading: str | None = None,
        also: Sequence[str] = (),
    ) -> None:
        sink = Sink(paged=paged and not live)
        self._sink = sink
        self._live = live
        self._shape: Shape
        if quiet:
            self._shape = Nothing(sink)
        elif format in ("ndjson", "json"):
            encode = bulk_encoder() if bulk else lambda row: json_text(row).encode()
            self._shape = (_Lines if format == "ndjson" else _Array)(sink, encode)
        elif format == "csv":
            self._shape = _Csv(sink, main_type, heading or main_type or "", also)
        else:
            # A drawn table has its lines below the rows, too.
            self._shape = _table(sink, main_type, vertical, wide, drawn=not live)
        self.row: Callable[[Row], None] = self._shape.row

    @property
    def form(self) -> str:
        """The format of lines that may be given in place of rows; empty where only rows may."""
        return "" if self._live else self._shape.form

    def rows(self, rows: Iterable[Row | Lines]) -> Row:
        """Prints what an operation yields; returns its summary (empty when it yields none)."""
        summary: Row = {}
        write = self.row
        for row in rows:
            if isinstance(row, tuple):
                self._shape.lines(row)
            elif row["type"] == "summary":
                summary = row
                self._shape.summary(row)
            else:
                write(row)
        return summary

    def many(self, rows: Iterable[Row]) -> None:
        """Prints rows that are at hand, which is faster than one by one."""
        self._shape.many(rows)

    def summary(self, **fields: Any) -> None:
        """The last row: ``{"type": "summary", …}``."""
        self._shape.summary({"type": "summary", **fields})

    def columns(self, names: list[str]) -> None:
        """Of no row: the fields that one would have, where only the command knows them."""
        self._shape.columns(names)

    def remark(self, text: str) -> None:
        """A line for the reader of a table; the other formats leave it out."""
        self._shape.remark(text)

    def command(self, text: str) -> None:
        """A command line for the reader of a table, to be copied as it stands."""
        self._shape.command(text)

    @contextmanager
    def before_output(self, call: Callable[[], None]) -> Iterator[None]:
        """Inside, ``call`` is called before anything is printed on a terminal."""
        self._sink.before_output = call
        try:
            yield
        finally:
            self._sink.before_output = None

    def flush(self) -> None:
        """Hands every finished row to the reader, and with ``live`` every row."""
        if self._live:
            self._shape.flush()
        self._sink.flush()

    def close(self) -> None:
        self._shape.close()
        self._sink.flush()

    def ending(self, kind: type[BaseException] | None) -> None:
        """Is told which exception ends the command, before anything more is printed."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._sink.interrupted()

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.ending(kind)
        if kind is None:
            self._shape.whole()
        if kind is None or not (issubclass(kind, BrokenPipeError) or begins_anew(kind)):
            self.close()


def _table(sink: Sink, main_type: str | None, vertical: bool, wide: bool, drawn: bool) -> Shape:
    """The drawn table on a terminal; plain text elsewhere, and where nothing is to be drawn."""
    if sink.is_terminal and drawn:
        from rmqctl.cli import pages

        return pages.Fields(sink) if vertical else pages.Pages(sink, main_type, wide)
    from rmqctl.cli import tables

    return tables.Vertical(sink) if vertical else tables.Plain(sink, main_type, wide)


class _Lines(Shape):
    form = "ndjson"

    def __init__(self, sink: Sink, encode: Callable[[Row], bytes]) -> None:
        super().__init__(sink)
        self._encode = encode

    def row(self, row: Row) -> None:
        self.sink.write(self._encode(row) + b"\n")

    def lines(self, lines: Lines) -> None:
        self.sink.write(lines.data)

    def many(self, rows: Iterable[Row]) -> None:
        rows = iter(rows)
        encode = bulk_lines()
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            self.sink.write(encode(some))


class _Array(Shape):
    form = "ndjson"
    _before = b"[\n"

    def __init__(self, sink: Sink, encode: Callable[[Row], bytes]) -> None:
        super().__init__(sink)
        self._encode = encode

    def row(self, row: Row) -> None:
        self.sink.write(self._before + self._encode(row))
        self._before = b",\n"

    def lines(self, lines: Lines) -> None:
        if lines.messages:
            # A line has no newline in it.
            self.sink.write(self._before + bytes(lines.data[:-1]).replace(b"\n", b",\n"))
            self._before = b",\n"

    def close(self) -> None:
        self.sink.write(b"[]\n" if self._before == b"[\n" else b"\n]\n")


class _Csv(Shape):
    form = "csv"

    def __init__(
        self, sink: Sink, main_type: str | None, heading: str, also: Sequence[str]
    ) -> None:
        super().__init__(sink)
        self._type = main_type
        self._heading, self._also = heading, also
        self._fields: list[str] = []
        self._left_out: dict[str, int] = {}
        import csv

        self._csv = csv.writer(self, lineterminator="\n")

    def row(self, row: Row) -> None:
        kind = row["type"]
        self._type = self._type or kind
        if kind != self._type:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        if not self._fields:
            self._fields = list(row)
            self._csv.writerow(self._fields)
        self._csv.writerow([_csv_value(row.get(name)) for name in self._fields])

    def lines(self, lines: Lines) -> None:
        if lines.messages and not self._fields:
            self._fields = list(lines.columns)
            self._csv.writerow(self._fields)
        self.sink.write(lines.data)

    def summary(self, row: Row) -> None:
        pass

    def columns(self, names: list[str]) -> None:
        self._fields = names
        self._csv.writerow(names)

    def whole(self) -> None:
        if not self._fields:
            from rmqctl.rows.kinds import columns_of

            if names := columns_of(self._heading, self._also):
                self.columns(names)

    def write(self, line: str) -> None:
        """What ``csv.writer`` hands over."""
        self.sink.write(line.encode())

    def close(self) -> None:
        self.sink.flush()
        for kind, count in self._left_out.items():
            note(f"note: csv holds rows of one type: {count} of type {kind} left out (see ndjson)")


def _csv_value(value: Any) -> Any:
    """A value of a CSV field: None is empty; booleans, lists and objects are JSON."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, bool | dict | list | tuple):
        return json_text(value)
    return value


def note(text: str) -> None:
    """Prints a line for the user on stderr; on a terminal it is broken between words. Commands in
    it name the store as the running one does. A stderr that takes nothing changes neither exit
    code nor rows."""
    shown = visible(shortened(pasteable(text)))
    if pager.is_running() or sys.stderr.isatty():
        shown = "\n".join(in_sentences(shown, pager.terminal_width()))
    say(shown)


def say(text: str) -> None:
    """Prints text on stderr as it is. Errors of stderr are passed over: its disk may be full
    (`2>FILE`), or its reader gone (`2>&1 | head`)."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)
