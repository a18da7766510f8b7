"""One place of the log as lines: a message with its body as text or JSON, or all bytes of the
entry, field by field."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from rmqctl.cli.browse.model.lines import (
    DIM,
    ERROR,
    GOOD,
    NAME,
    WARNING,
    Column,
    Counted,
    Line,
    Place,
    Stop,
    go_on,
)
from rmqctl.cli.browse.model.shown import short_time, size
from rmqctl.cli.text import cell, visible, width
from rmqctl.engine.record.bodies import DEFAULT_LIMIT, decompress, is_as_stored
from rmqctl.engine.record.status import BODY_CRC_MISMATCH
from rmqctl.operations.look.dump import dump_record
from rmqctl.operations.look.recordstarts import require_record
from rmqctl.operations.look.rows import message_row

if TYPE_CHECKING:
    from rmqctl.cli.browse.model.opened import Opened
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.record.record import Record
    from rmqctl.rows.reports import FieldRow
    from rmqctl.rows.structures import MessageRow

TEXT, JSON, HEX = "text", "JSON", "hex"
Seldom = Literal["flag", "sys_flag", "reconsume_times", "prepared_transaction_offset"]
VIEWS = (TEXT, JSON, HEX)
#: How many bytes of a body are shown as text or JSON. The hex view shows all. JSON with short
#: values needs a line, and about 200 bytes of memory, for every two bytes.
MOST_SHOWN = 1 << 18
#: By how many levels JSON is indented at most. Its depth is not bounded.
_DEEPEST = 32
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_NAME_WIDTH = 16
#: Fields that are 0 in nearly every message.
_SELDOM: tuple[Seldom, ...] = (
    "flag",
    "sys_flag",
    "reconsume_times",
    "prepared_transaction_offset",
)
#: Bytes of a line in the hex view, and the width of the terminal from which on there are more.
_FEW, _MANY, _WIDE = 8, 16, 104


class Message(Counted):
    """The entry at a physical offset, in one of the :data:`VIEWS`, for so many columns.

    If ``view`` is None, the body decides: JSON if it is JSON, text if it is UTF-8, else hex.
    """

    def __init__(self, opened: Opened, offset: int, view: str | None, columns: int) -> None:
        self._store = opened.store
        self.physical_offset = offset
        self.view = view
        self._width = columns
        self._lines: list[Line] = []
        self._hex: _Hex | None = None

    def prepare(self, stop: Stop) -> None:
        if self.view == HEX:
            self._hex = _Hex(self._store, self.physical_offset, self._width)
        else:
            record = require_record(self._store, self.physical_offset)
            self._lines = list(self._text(record, stop))
        self.columns = (
            self._hex.columns
            if self._hex
            else (Column("field", _NAME_WIDTH), Column("value", 10, grows=1))
        )

    def count(self) -> int:
        return len(self._lines) if self._hex is None else self._hex.count

    def where(self, number: int) -> str:
        return f"{self.view or ''}   line {min(number + 1, self.count()):,} of {self.count():,}"

    def line(self, number: int, stop: Stop) -> Line:
        return self._lines[number] if self._hex is None else self._hex.line(number)

    def _text(self, record: Record, stop: Stop) -> Iterator[Line]:
        row = message_row(record)
        yield from self._fields("", _head(row))
        if row["properties"]:
            yield Line(("properties", ""), NAME)
            yield from self._fields("  ", row["properties"].items())
        stored = self._store.body(record)
        body = decompress(stored, record.sys_flag, DEFAULT_LIMIT)
        how = f"{size(len(stored))} stored"
        if body.compression != "none":
            how += f", {body.compression}, {body.status.value}"
            how += f", {size(len(body.data))}" if body.data is not None else ""
        is_sound = is_as_stored(stored, record.body_crc)
        sound = "as stored" if is_sound else f"{BODY_CRC_MISMATCH}: not what was stored"
        yield Line(("body", f"{how}; {sound}"), GOOD if is_sound else ERROR)
        if body.data is None:
            yield Line(("", body.reason), WARNING)
            yield from self._body(stored, stop)
        else:
            yield from self._body(body.data, stop)

    def _fields(self, indent: str, fields: Iterable[tuple[str, str]]) -> Iterator[Line]:
        for name, value in fields:
            for number, piece in enumerate(wrapped(visible(value), self._width - _NAME_WIDTH - 2)):
                yield Line((indent + name if number == 0 else "", piece))

    def _body(self, body: bytes, stop: Stop) -> Iterator[Line]:
        """The lines of the body."""
        text, view = body[:MOST_SHOWN].decode("utf-8", "replace"), self.view
        is_text = len(body) > MOST_SHOWN or "\ufffd" not in text
        pretty = _json_lines(text) if len(body) <= MOST_SHOWN and view != TEXT else None
        if view is None:
            self.view = TEXT if pretty is None else JSON
        if pretty is None and view == JSON:
            why = "it is no JSON" if len(body) <= MOST_SHOWN else "it is too long for JSON"
            yield Line(("", f"{why}: shown as text"), WARNING)
        if not is_text:
            yield Line(
                ("", "not UTF-8: \ufffd stands for what is none, x shows the bytes"), WARNING
            )
        for line in pretty if pretty is not None else text.split("\n"):
            go_on(stop)
            for piece in wrapped(visible(line.rstrip("\r").expandtabs(4)), self._width - 2):
                yield Line((piece,), "body")
        if len(body) > MOST_SHOWN:
            rest = size(len(body) - MOST_SHOWN)
            at = self.physical_offset
            command = f"`rmqctl message {at} --body-as utf8`"
            yield Line(("", f"{rest} more: x shows all, and {command}"), WARNING)


def _head(row: MessageRow) -> Iterator[tuple[str, str]]:
    """The fields of a message in a few lines, so that its body is on the first screen. Fields that
    are mostly 0 are shown only in the hex view."""
    yield "topic", f"{row['topic']}, queue {row['queue_id']}, offset {row['queue_offset']}"
    yield "stored", f"{short_time(row['store_timestamp'])} at {row['store_host']}"
    yield "born", f"{short_time(row['born_timestamp'])} at {row['born_host']}"
    yield "msg_id", row["msg_id"]
    yield "log", f"physical offset {row['physical_offset']}, {row['total_size']} bytes"
    said = {name: row[name] for name in _SELDOM if row[name]}
    if said:
        yield "flags", ", ".join(f"{name} {value}" for name, value in said.items())


def wrapped(text: str, columns: int) -> Iterator[str]:
    """A text in pieces of at most so many columns. There is at least one piece."""
    columns = max(columns, 10)
    if text.isascii():
        yield from (text[at : at + columns] for at in range(0, len(text) or 1, columns))
        return
    start = used = 0
    for at, character in enumerate(text):
        cells = width(character)
        if used + cells > columns:
            yield text[start:at]
            start, used = at, 0
        used += cells
    yield text[start:]


def _json_lines(text: str) -> list[str] | None:
    """JSON on several lines, with its tokens unchanged; None if it is not an object or array."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    lines, line, depth, after = [], "", 0, ""
    for token in _TOKEN.findall(text):
        if token in "}]":
            depth -= 1
            if after not in ("{", "["):
                lines.append(line)
                line = "  " * min(depth, _DEEPEST)
        elif after in ("{", "[", ","):
            lines.append(line)
            line = "  " * min(depth, _DEEPEST)
        line += ": " if token == ":" else token
        depth += token in ("{", "[")
        after = token
    return [*lines, line]


class _Hex:
    """The bytes of an entry. Each line has bytes of one field of the layout."""

    def __init__(self, store: MessageStore, physical_offset: int, columns: int) -> None:
        self._per_line = _MANY if columns >= _WIDE else _FEW
        self._fields: list[FieldRow] = []
        self._starts: list[int] = []
        self.count = 0
        self._problems: list[str] = []
        for row in dump_record(store, physical_offset):
            if row["type"] == "field":
                self._fields.append(row)
                self._starts.append(self.count)
                self.count += max(-(-row["size"] // self._per_line), 1)
            elif row["type"] == "summary":
                self._problems = row["problems"]
        self.count += len(self._problems)
        self.columns = (
            Column("at", 7, right=True),
            Column("bytes", 3 * self._per_line - 1),
            Column("", self._per_line),
            Column("field", 12, grows=1),
        )

    def line(self, number: int) -> Line:
        fields = self.count - len(self._problems)
        if number >= fields:
            return Line(("", "", "", self._problems[number - fields]), ERROR)
        at = bisect_right(self._starts, number) - 1
        row, begin = self._fields[at], (number - self._starts[at]) * self._per_line
        data = bytes.fromhex(row["bytes"][2 * begin : 2 * (begin + self._per_line)])
        name = _explained(row) if begin == 0 else ""
        cells = (f"{row['offset'] + begin:06x}", data.hex(" "), printable(data), name)
        tone = DIM if at % 2 else ""
        return Line(cells, tone, Place(number=at), f"{row['name']}: {row['meaning']}")


def printable(data: bytes) -> str:
    """Bytes as ASCII, with a dot for bytes that are not printable."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data)


def _explained(row: FieldRow) -> str:
    name, value = row["name"], row["value"]
    if name in ("body", "properties"):
        return f"{name}, {row['size']} bytes"
    if name.endswith("timestamp") and isinstance(value, int):
        return f"{name} {short_time(value)}"
    return f"{name} {cell(name, value)}"
